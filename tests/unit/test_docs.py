"""The pages match the code: every link has a target, every file that they name exists, and examples of state.md run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.config.option_table import OPTIONS
from penstock.common.config.options import STATE_BACKEND
from penstock.jobmanager.failover.failures import _FATAL
from penstock.state.rocksdb.options import DEFAULTS
from penstock.testing import OperatorHarness

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|java|yaml|toml|json|sh))`")
FOLDERS = ("runtime", "operator", "charts", "crds", "images", "examples", "tests", "tools", "benchmarks", "docs")
FILES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub creates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading; there are {sorted(anchors(target))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    for name in FILE.findall(prose(page)):
        found = (page.parent / name).exists() or any(file.endswith(f"/{name}") for file in FILES)
        assert found, f"{name} does not exist"


STATE = (ROOT / "docs/state.md").read_text()


def test_state_md_has_every_option_of_the_backends() -> None:
    assert not [name for name in DEFAULTS if f"`{name}`" not in STATE]
    assert not [kind for kind in ("hashmap", "rocksdb") if f"`{kind}`" not in STATE or kind not in str(STATE_BACKEND)]


def test_failover_md_has_every_failure_that_ends_a_job_and_every_setting() -> None:
    page = (ROOT / "docs/failover.md").read_text()
    assert not [code for code in _FATAL if f"`{code}`" not in page]
    settings = [key.rpartition(".")[2] for key in OPTIONS if re.match(r"restart-strategy\..*-.*\.", key)]
    assert settings
    assert not [name for name in settings if f"`{name}`" not in page]


def test_the_example_of_state_md_runs() -> None:
    example, *_ = re.findall(r"```python\n(.*?)```", STATE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    with OperatorHarness(names["Count"](), lambda reading: reading.city) as harness:
        for city in ("Oslo", "Rome", "Oslo"):
            harness.push(SimpleNamespace(city=city))
        assert harness.outputs() == [("Oslo", 1), ("Rome", 1), ("Oslo", 2)]


def test_versions_md_lists_exactly_the_names_that_cause_a_deprecation_warning() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "runtime/penstock").rglob("*.py"))
    calls = re.findall(r"^ +warn_deprecated\((['\"])(.*?)\1, (['\"])(.*?)\3, \"([\d.]+)\"", code, re.MULTILINE)
    page = (ROOT / "docs/versions.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| [\d.]+ \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(re.findall(r"^ +warn_deprecated\(", code, re.MULTILINE)) == len(calls) > 0
    assert sorted((name, replacement, removed) for _, name, _, replacement, removed in calls) == sorted(rows)


def parameters(node: ast.AST) -> set[str]:
    """Return the parameters of a function, or of a class's constructor and fields."""
    if isinstance(node, ast.ClassDef):
        fields = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        makers = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in ("__init__", "__new__"))
        return fields.union(*map(parameters, makers))
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}


def unknown_arguments(source: str) -> Iterator[str]:
    """Yield the names in "Args" sections that are no longer parameters."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        section = re.search(r"^Args:\n(.*?)(?=^\S|\n\n|\Z)", ast.get_docstring(node) or "", re.MULTILINE | re.DOTALL)
        known = parameters(node)
        if section is None or (isinstance(node, ast.ClassDef) and not known):  # the constructor is that of a base class
            continue
        for names in re.findall(r"^ {4}(\w+(?:, \w+)*): ", section[1], re.MULTILINE):
            yield from (f"{node.name}: {name}" for name in names.split(", ") if name not in known)


def test_an_argument_that_is_no_longer_a_parameter_is_found() -> None:
    source = (
        'def f(new: int) -> None:\n    """Do.\n\n    Args:\n        old: a number.\n        new: a number.\n    """\n'
    )
    assert list(unknown_arguments(source)) == ["f: old"]


@pytest.mark.parametrize("package", ["runtime", "operator", "tools", "tests", "benchmarks"])
def test_docstrings_name_existing_parameters(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / package).rglob("*.py")
        if (names := list(unknown_arguments(path.read_text())))
    }
    assert found == {}
