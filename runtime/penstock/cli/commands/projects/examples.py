"""`penstock examples` lists the example programs and copies one.

The examples are the folders of `examples/` in the repository. `penstock/cli/examples` is a link to it, and a directory in the wheel.
"""

from __future__ import annotations

import ast
import difflib
import shlex
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.commands.projects.init import check_folder
from penstock.cli.errors import OperationFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

_IGNORED = ("__pycache__", ".pytest_cache", "build")
"""Directories that runs of an example create beside its files."""


def examples(
    name: Annotated[str | None, typer.Argument(help="Example to copy. Without it, list all examples.")] = None,
    folder: Annotated[
        Path | None, typer.Argument(help="Folder for the copy, empty or new. The default is a new folder NAME.")
    ] = None,
) -> None:
    """List the example programs, or copy one with its test, its README and its manifest."""
    found = {entry.name: entry for entry in _folder().iterdir() if entry.joinpath("job.py").is_file()}
    if name is None:
        _list(found)
        return
    if name not in found:
        near = difflib.get_close_matches(name.replace("-", "_"), found, n=1)
        raise UsageError(
            f"{name!r} is not an example",
            remedy=f"penstock examples {near[0]}" if near else "list the examples: penstock examples",
        )
    target = (folder or Path(name)).expanduser()
    check_folder(target)
    try:
        count = _copy(found[name], target)
    except OSError as error:
        raise OperationFailed(
            f"the example cannot be written to {target}: {error.strerror}",
            remedy="choose a folder that you can write to",
        ) from error
    typer.echo(f"Created {target} with {count} files. Next:")
    if target.resolve() != Path.cwd():
        typer.echo(f"  cd {shlex.quote(str(target))}")
    typer.echo(f"  cat {'README.md' if (target / 'README.md').exists() else 'job.py'}")


def _folder() -> Traversable:
    return resources.files("penstock.cli").joinpath("examples")


def _list(found: Mapping[str, Traversable]) -> None:
    width = max(map(len, found))
    with_server = {one for one in found if _needs_server(found[one])}
    for title, names in (
        ("Without a server:", found.keys() - with_server),
        ("With a server (the README has the command that starts it):", with_server),
    ):
        typer.echo(title)
        for one in sorted(names):
            typer.echo(f"  {one:{width}}  {_summary(found[one])}")


def _needs_server(example: Traversable) -> bool:
    readme = example.joinpath("README.md")
    return readme.is_file() and "\ndocker run " in readme.read_text(encoding="utf-8")


def _summary(example: Traversable) -> str:
    """Return the first sentence of the program's docstring."""
    text = ast.get_docstring(ast.parse(example.joinpath("job.py").read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def _copy(source: Traversable, target: Path) -> int:
    """Copy a directory with everything in it. Return the number of files."""
    target.mkdir(parents=True, exist_ok=True)
    count = 0
    for entry in source.iterdir():
        if entry.is_file():
            (target / entry.name).write_bytes(entry.read_bytes())
            count += 1
        elif entry.name not in _IGNORED:
            count += _copy(entry, target / entry.name)
    return count
