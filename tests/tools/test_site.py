"""The site has every page of `docs/`, its Markdown reads as on GitHub, and its generated pages have the names of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.site.generated import API, write
from tools.site.markdown import for_mkdocs, page_of, relink, with_fenced_doctests

ROOT = Path(__file__).parents[2]


class SiteLoader(yaml.SafeLoader):
    """Loader that reads `mkdocs.yml` without the Python objects in it."""


SiteLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages_of(navigation: Any) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    inner = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in inner for page in pages_of(part)]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    return {str(path.relative_to(folder)): path.read_text() for path in write(folder)}


def test_the_navigation_has_every_page_once(generated: dict[str, str]) -> None:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), SiteLoader)
    listed = pages_of(settings["nav"])
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    texts = [page_of(text) for text in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    assert sorted(listed) == sorted([*pages, *texts, *generated])
    assert [next(iter(part)) for part in settings["nav"][1:]] == [
        "Learn",
        "How-to",
        "Reference",
        "Explain",
        "Compare and migrate",
    ]


@pytest.mark.parametrize(
    ("on_github", "in_the_site"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  - b\n    - c\n- d", "- a\n    - b\n        - c\n- d"),
        ("- a\n  more of a\n\n  a paragraph of a", "- a\n    more of a\n\n    a paragraph of a"),
        ("1. a\n   - b\n2. c", "1. a\n    - b\n2. c"),
        ("- a\n\n  ```sh\n  b\n    c\n  ```\nend", "- a\n\n    ```sh\n    b\n      c\n    ```\nend"),
        ("```\ntext\n- no list\n```", "```\ntext\n- no list\n```"),
        ("- a\n\n```\nb\n```", "- a\n\n```\nb\n```"),
        ("- a\nmore of a\n- b", "- a\nmore of a\n- b"),
    ],
)
def test_lists_read_as_on_github(on_github: str, in_the_site: str) -> None:
    assert for_mkdocs(on_github) == in_the_site


def test_examples_of_docstrings_become_blocks_of_code() -> None:
    assert with_fenced_doctests("Add.\n\n>>> 1 + 1\n2\n\nMore.") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
    assert with_fenced_doctests(">>> 1\n1") == "```pycon\n>>> 1\n1\n```"


def test_links_lead_to_pages_of_the_site() -> None:
    text = "[a](../time.md#timers) [b](../../examples/x/job.py) [c](../operator) [d](https://e.org/) [f](#here)\n```\n[g](h.md)\n```"
    found, outside = relink(text, "docs/operator", "operator/install.md", lambda path: path == "docs/time.md")
    assert found == (
        "[a](../time.md#timers) [b](../source/examples/x/job.py.md) [c](README.md) [d](https://e.org/) [f](#here)\n"
        "```\n[g](h.md)\n```"
    )
    assert outside == {"examples/x/job.py"}


def test_links_of_the_readme_lead_to_pages_of_the_site() -> None:
    found, outside = relink("[a](docs/state.md) ![b](docs/p.svg) [c](CONTRIBUTING.md)", ".", "index.md", lambda _: True)
    assert found == "[a](state.md) ![b](p.svg) [c](contributing.md)"
    assert outside == {"CONTRIBUTING.md"}


def test_each_public_name_is_on_one_page_of_the_api(generated: dict[str, str]) -> None:
    shown = [name for page in generated.values() for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    assert len(shown) == len(set(shown))
    names = {name.rpartition(".")[2] for name in shown}
    assert {"DataStream", "KeyedProcessFunction", "ValueState", "JobHarness", "KafkaSource", "Types", "col"} <= names
    for name in API:
        assert "::: " in generated[f"reference/api/{name}.md"]


def test_the_page_of_commands_has_commands_and_options(generated: dict[str, str]) -> None:
    page = generated["reference/commands.md"]
    assert "## penstock savepoint\n" in page
    assert "## kubectl penstock dashboard\n" in page
    assert "| `-m`, `--master` | `http://localhost:8081` |" in page


def test_the_page_of_paths_has_paths_and_parameters(generated: dict[str, str]) -> None:
    page = generated["reference/rest-paths.md"]
    assert "| `GET /jobs/{job_id}/checkpoints` |" in page
    assert "`parallelism`" in page


def test_the_build_counts_warnings() -> None:
    (build,) = re.findall(r"mkdocs build.*", (ROOT / "Makefile").read_text())
    assert "--strict" in build
    assert "-q" not in build.replace("--quiet", "-q"), "a quiet build hides warnings from the strict mode"
