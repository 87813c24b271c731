"""Pages that are written from code: the classes of the API, the options of the command line, and the paths of REST."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main
from typer.core import TyperGroup

from penstock.cli import kubectl
from penstock.cli.main import app as command_line
from penstock.rest.app import create_app

API = {
    "datastream": ("Environment and streams", ["penstock.datastream"]),
    "functions": ("Functions", ["penstock.datastream.functions"]),
    "state": ("State", ["penstock.datastream.state"]),
    "windows": ("Windows and triggers", ["penstock.datastream.window"]),
    "columns": ("Column expressions", ["penstock.datastream.columns"]),
    "time-and-types": (
        "Time, types and configuration",
        [
            "penstock.common.watermark_strategy",
            "penstock.common.typeinfo",
            "penstock.common.configuration",
            "penstock.common.restart_strategy",
            "penstock.common.serialization",
        ],
    ),
    "formats": (
        "Formats",
        [f"penstock.datastream.formats.{name}" for name in ("json", "csv", "parquet", "orc", "avro", "protobuf")],
    ),
    "connectors": (
        "Connectors",
        [
            f"penstock.datastream.connectors.{name}"
            for name in (
                *("base", "file_system", "hybrid_source", "kafka", "delta", "iceberg", "postgres", "sql", "jdbc"),
                *("cassandra", "mongodb", "redis", "rabbitmq", "opensearch", "kinesis", "sqs", "http", "number_seq"),
            )
        ],
    ),
    "testing": ("Tests", ["penstock.testing"]),
    "client": ("Clients", ["penstock.cli.client", "penstock.cli.live", "penstock.cli.queryable_state"]),
}
"""Pages of the API reference: the file, the title, and the modules whose public classes and functions it lists.

`penstock.datastream` has many names of the other modules, too. Its page shows only the names that no other page shows.
"""


def write(folder: Path) -> list[Path]:
    """Write all pages, and return their files."""
    pages = {}
    seen: set[str] = set()
    for name, (title, modules) in sorted(API.items(), key=lambda one: one[0] == "datastream"):
        pages[f"reference/api/{name}.md"] = api_page(title, modules, seen)
    pages["reference/commands.md"] = commands_page()
    pages["reference/rest-paths.md"] = rest_page()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [folder / name for name in pages]


def api_page(title: str, modules: list[str], seen: set[str]) -> str:
    """Return a page with a directive for each public class and function of the modules. mkdocstrings reads their docstrings.

    Args:
        seen: names that other pages show. The page leaves them out and adds its own names.
    """
    parts = [f"# {title}\n"]
    for name in modules:
        names = [found for found in public_names(import_module(name)) if found not in seen]
        seen.update(names)
        if names:
            parts += [f"## `{name}`\n"] if len(modules) > 1 else [f"Import these names from `{name}`.\n"]
            parts += [f"::: {found}\n" for found in names]
    return "\n".join(parts)


def public_names(module: types.ModuleType) -> list[str]:
    """Return where the public classes and functions of a module are defined, in the order of their names."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    found = [getattr(module, name) for name in sorted(names)]
    return [
        f"{one.__module__}.{one.__qualname__}"
        for one in found
        if (inspect.isclass(one) or inspect.isfunction(one)) and one.__module__.startswith("penstock") and one.__doc__
    ]


def commands_page() -> str:
    """Return the commands of `penstock` and `kubectl penstock` with their options."""
    parts = [
        "# All commands",
        "Every command with its arguments and options. [The command line](../cli.md) explains them.",
    ]
    for program, app in (("penstock", command_line), ("kubectl penstock", kubectl.app)):
        for name, command in commands(typer.main.get_command(app), program):
            parts += [f"## {name}", _plain(command.help or "")]
            rows = [row for row in map(option_row, command.params) if row]
            if rows:
                parts.append("\n".join(["| Option | Default | Meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Return the visible commands below a command with their names."""
    if isinstance(command, TyperGroup):
        for inner, found in sorted(command.commands.items()):
            if not found.hidden:
                yield from commands(found, f"{name} {inner}")
    else:
        yield name, command


def option_row(parameter: Any) -> str | None:
    """Return the row of an option in a table, None for an option without a text."""
    if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
        return None
    names = parameter.opts if parameter.param_type_name == "option" else [parameter.name.upper()]
    default = (
        parameter.default if isinstance(parameter.default, int | float | str) and parameter.default != "" else None
    )
    shown = "" if default is None or isinstance(default, bool) else f"`{default}`"
    cells = [", ".join(f"`{name}`" for name in (*names, *parameter.secondary_opts)), shown]
    return "| " + " | ".join([*cells, _plain(getattr(parameter, "help", None) or "").replace("|", "\\|")]) + " |"


def rest_page() -> str:
    """Return all paths of the REST API with their parameters, from its OpenAPI description."""
    described = create_app(None, programs=None).openapi()  # type: ignore[arg-type] # no request is answered
    parts = [
        "# All REST paths",
        "Every path with its parameters, from `GET /openapi.json`. [The REST API](../rest.md) explains them.",
        "| Call | Parameters | Meaning |\n|---|---|---|",
    ]
    rows = []
    for path, methods in sorted(described["paths"].items()):
        for method, call in methods.items():
            named = ", ".join(f"`{one['name']}`" for one in call.get("parameters", ()) if one["in"] == "query")
            meaning = _plain(call.get("description") or call.get("summary") or "").split("\n")[0].replace("|", "\\|")
            rows.append(f"| `{method.upper()} {path}` | {named} | {meaning} |")
    return "\n\n".join(parts) + "\n" + "\n".join(rows) + "\n"


def _plain(text: str) -> str:
    """Return a help text without the indentation of its source and without typer's markup."""
    return re.sub(r"\[/?\w+\]", "", inspect.cleandoc(text)).replace("<", "&lt;")


def _main() -> None:
    folder = Path(__file__).resolve().parents[2] / "build" / "site-pages"
    write(folder)


if __name__ == "__main__":
    _main()
