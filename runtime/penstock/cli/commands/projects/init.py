"""`penstock init` creates a project with a job that runs, its tests, its image and its manifest.

The files of the project are in `penstock/cli/project`. They are a complete project called `my-job`.
"""

from __future__ import annotations

import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors import OperationFailed, UsageError

FILES = {
    "job.py": "job.py",
    "test_job.py": "test_job.py",
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "flinkjob.yaml": "flinkjob.yaml",
    "gitignore": ".gitignore",
    "workflow.yaml": ".github/workflows/tests.yaml",
}
"""Each file of `penstock/cli/project`, and its path in a new project."""
PLACEHOLDER = "my-job"
_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="NAME", help="Name of the job, or a folder whose last part is the name.")
    ],
) -> None:
    """Create a project with a job, its tests, its image and its manifest. The folder must be empty or new."""
    folder = folder.expanduser()
    name = folder.resolve().name
    _check_name(name, folder)
    check_folder(folder)
    try:
        for source, target in FILES.items():
            text = resources.files("penstock.cli").joinpath("project", source).read_text(encoding="utf-8")
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(PLACEHOLDER, name), encoding="utf-8")
    except OSError as error:
        raise OperationFailed(
            f"the project cannot be written to {folder}: {error.strerror}",
            remedy="choose a folder that you can write to",
        ) from error
    typer.echo(f"Created {folder} with {len(FILES)} files. Next:")
    enter = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    for command in (*enter, "python job.py --count 300", "python -m pytest", "penstock validate flinkjob.yaml"):
        typer.echo(f"  {command}")


def _check_name(name: str, folder: Path) -> None:
    """Refuse a name that a FlinkJob cannot have."""
    from penstock_operator.api.schema.crds import MAX_NAME

    if _NAME.fullmatch(name) and len(name) <= MAX_NAME:
        return
    allowed = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    allowed = (allowed if allowed[:1].isalpha() else f"job-{allowed}")[:MAX_NAME].strip("-")
    raise UsageError(
        f"{name!r} is not a valid name. It must start with a lower-case letter and contain only such letters, digits and '-'. "
        f"It must not end with '-', and has at most {MAX_NAME} characters",
        remedy=f"penstock init {shlex.quote(str(folder.parent / allowed))}",
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder in which a file could be overwritten."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file", remedy="choose another name, or remove the file")
    if found := sorted(path.name for path in folder.iterdir()):
        shown = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise UsageError(
            f"the folder {folder} is not empty: it contains {shown}", remedy="choose another name, or an empty folder"
        )
