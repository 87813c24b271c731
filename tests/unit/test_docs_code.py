"""Code that pages, examples and docstrings name exists: names, settings, commands, REST paths, programs."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer.main
import yaml
from fastapi.routing import APIRoute

from penstock.cli import kubectl
from penstock.cli.main import app as command_line
from penstock.common.config import options
from penstock.common.config.option import ConfigOption
from penstock.common.config.option_table import FORMER_KEYS, OPTIONS
from penstock.metrics.scope import ScopeKind
from penstock.rest.app import create_app
from penstock.rest.gateway import Jars, Programs
from penstock.state.rocksdb.metrics import METRIC_OPTIONS, TICKERS
from penstock.state.rocksdb.options import DEFAULTS, PREFIX
from penstock_operator.api.flinkjob import TLS_SECRET
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.test_docs import PAGES, ROOT

SOURCES = sorted([*(ROOT / "runtime").rglob("*.py"), *(ROOT / "operator").rglob("*.py")])
PROGRAMS = sorted((ROOT / "examples").rglob("*.py"))
IMPORT = re.compile(r"^[>. ]*from (penstock(?:\.\w+)*) import (\([^)]*\)|[^\n]+)", re.MULTILINE)
DOTTED = re.compile(r"(?<![\w./@:-])penstock(?:\.\w+)+(?![\w/*-])")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
JAVA = re.compile(r"penstock(\.shuffle)?\.[A-Z]\w+|penstock\.shuffle")
NO_NAMES = {
    "penstock.yaml",
    "penstock.dev",
    "penstock.epoch.taget",
    "penstock.metrics.reporters",
    "penstock.traces.reporters",
    "penstock.logs.reporters",
}
"""Texts that look like names: a file, the domain of a label, a wrong key in a doctest, and groups of entry points."""
FOR_TYPES = {
    "penstock.state.snapshot_format.column_rows.Column",
    "penstock.state.encoding.packed_keys.Rows",
    "penstock.state.encoding.packed_keys.Words",
}
"""Names that are imported for type checks only."""


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def names_in(text: str) -> set[str]:
    """Return the names of Penstock that a text imports or writes with dots."""
    found = set(DOTTED.findall(text))
    for module, names in IMPORT.findall(text):
        plain = re.sub(r"#.*", "", names).strip("() \n")
        found.update(f"{module}.{name.split(' as ')[0].strip()}" for name in plain.split(",") if name.strip("` *\n"))
    return {name for name in found if not is_setting(name) and not JAVA.fullmatch(name)} - NO_NAMES - FOR_TYPES


def is_setting(name: str) -> bool:
    return name in FORMER_KEYS or any(f"{key}.".startswith(f"{name}.") for key in OPTIONS)


@cache
def resolve(name: str) -> object:
    """Return the object with this name.

    Raises:
        AttributeError: the object does not exist.
    """
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("path", [*PAGES, *PROGRAMS], ids=relative)
def test_names_that_pages_and_examples_mention_import(path: Path) -> None:
    for name in names_in(path.read_text()):
        resolve(name)


def test_names_that_docstrings_mention_import() -> None:
    missing = {}
    for path in SOURCES:
        for name in names_in(path.read_text()):
            try:
                resolve(name)
            except AttributeError:
                missing[name] = relative(path)
    assert not missing


# --- settings -----------------------------------------------------------------------------------------------------

WITHOUT_EFFECT = (
    "No effect;",
    "Reserved name",
    "Name of the FlinkJob. The operator sets it.",
    "Namespace of the FlinkJob. The operator sets it.",
)
"""The first words of the texts of options without an effect."""
OF_THE_PROGRAM = ("common/execution_config.py", "datastream/checkpoint_config.py")
"""Modules that declare a setting and return it to the program that set it."""


@cache
def readers() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the names, the strings, and the texts in any quotation marks of all sources that can read a setting."""
    code = "\n".join(
        path.read_text()
        for path in SOURCES
        if not relative(path).endswith(OF_THE_PROGRAM) and "common/config/options/" not in relative(path)
    )
    patterns = (r"\w+", r"[\"'](?=([^\"'\n]*)[\"'])", r"[\"'`](?=([^\"'`\n]*)[\"'`])")
    names, strings, marked = (frozenset(re.findall(pattern, code)) for pattern in patterns)
    return names, strings, marked


@pytest.mark.parametrize("key", sorted(OPTIONS))
def test_every_option_is_read_or_declares_that_it_has_no_effect(key: str) -> None:
    option = OPTIONS[key]
    (constant,) = [
        name for name, value in vars(options).items() if value is option and isinstance(value, ConfigOption)
    ] or [""]
    names, strings, marked = readers()
    suffix = key.rpartition(".")[2]  # a key that is read under a prefix: `restart-strategy.….delay`
    is_read = constant in names or key in marked or suffix in strings
    assert is_read or option.doc.startswith(WITHOUT_EFFECT), f"nothing reads {key}"


FAMILIES = {key.split(".")[0] for key in OPTIONS} - {"penstock", "python", "spark", "s3", "job"}
"""First words of keys. `job` is also the first word of fields of a FlinkJob, so only `job.autoscaler` is one."""
KEY = re.compile(r"`([a-z][\w-]*(?:\.[\w-]+)+)(?:: [^`]*|=[^`]*| = [^`]*)?`")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_settings_that_pages_name_exist(page: Path) -> None:
    named = {
        key
        for key in KEY.findall(page.read_text())
        if key.split(".")[0] in FAMILIES or key.startswith("job.autoscaler.")
    }
    files = {key for key in named if re.search(r"\.(py|md|java|ya?ml|json|txt|sh|html)$", key)}
    assert not {key for key in named - files if not is_setting(key)} - OF_FAMILIES - helm_values()


OF_FAMILIES = {
    TLS_SECRET,  # the operator reads it
    "security.protocol",  # a property of Kafka's client
    *(f"{PREFIX}{name}" for name in [*DEFAULTS, "predefined-options"]),
    *(f"{PREFIX}{METRIC_OPTIONS}{name}" for name in TICKERS),
    *(f"metrics.scope.{kind.value}" for kind in ScopeKind),
}


@cache
def helm_values() -> frozenset[str]:
    """Return the values of the operator's chart, in the spelling of its pages."""

    def below(prefix: str, values: Any) -> list[str]:
        inner = values.items() if isinstance(values, dict) else ()
        return [prefix, *(key for name, value in inner for key in below(f"{prefix}.{name}".strip("."), value))]

    return frozenset(below("", yaml.safe_load((ROOT / "charts/penstock-operator/values.yaml").read_text())))


# --- commands -----------------------------------------------------------------------------------------------------

COMMAND = re.compile(r"^(?:\$ )?penstock +(\w[^\n#]*)", re.MULTILINE)


def command_of(words: list[str]) -> Any:
    """Return the command that a line calls, and how many of its words name it."""
    plugin = words[:2] == ["kubectl", "penstock"]
    found: Any = typer.main.get_command(kubectl.app if plugin else command_line)
    for word in words[2 if plugin else 0 :]:
        inner = getattr(found, "commands", {}).get(word)
        if inner is None:
            break
        found = inner
    return found


def test_commands_and_flags_that_pages_show_exist() -> None:
    lines = [(page, line) for page in PAGES for line in COMMAND.findall(page.read_text().replace("\\\n", " "))]
    table = re.findall(r"^\| `(\w[^|]*)` *\|", (ROOT / "docs/cli.md").read_text(), re.MULTILINE)
    lines += [(ROOT / "docs/cli.md", call) for cell in table for call in re.split(r"`, `", cell)]
    assert len(lines) > 15
    for page, line in lines:
        words = re.findall(r"[\w.=:/@-]+", line)
        command = command_of(words)
        assert command.name not in (None, "penstock"), f"{relative(page)}: no command {line!r}"
        known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {
            "--help"
        }
        own = re.split(r" -- | \| ", line)[0]
        if command.name in ("run", "dev"):  # words after the script belong to the program
            own = re.split(r"\S+\.py", own)[0]
        flags = re.findall(r"(?<![\w.-])(--?[a-zA-Z][\w-]*)", own)
        assert known.issuperset(flags), f"{relative(page)}: {line!r} has {set(flags) - known}"


# --- REST ---------------------------------------------------------------------------------------------------------


def test_paths_that_rest_md_names_are_routed() -> None:
    app = create_app(FakeGateway(), programs=Mock(spec=Programs), jars=Mock(spec=Jars))
    described = app.openapi()["paths"]
    routes = [({method.upper() for method in of}, re.sub(r"\{[^}]*\}", ":", path)) for path, of in described.items()]
    routes += [({"GET"}, "/openapi.json")]
    routes += [(route.methods, route.path) for route in app.routes if isinstance(route, APIRoute)]
    page = (ROOT / "docs/rest.md").read_text()
    named = 0
    for cell in re.findall(r"`((?:GET|POST|PATCH|DELETE) /[^`]*`(?:, `/[^`]*`)*)", page):
        method, _, first = cell.replace("`", "").partition(" ")
        paths = [path.strip() for path in first.split(",")]
        for path in paths:
            plain = re.sub(r":\w+", ":", path.partition("?")[0])
            found = [route for methods, route in routes if method in methods and ends_like(route, plain, paths[0])]
            assert found, f"{method} {path} is not routed"
            named += 1
    assert named > 25


def ends_like(route: str, path: str, first: str) -> bool:
    """Return whether the path names the route. Later paths in a cell may be shortened to the end of the route."""
    begin = re.sub(r":\w+", ":", first.partition("?")[0]).split("/")[1]
    return route == path or (route.endswith(path) and route.split("/")[1] == begin)
