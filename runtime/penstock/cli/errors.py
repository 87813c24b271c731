"""What the command line says when something went wrong: one clear line, where it is, and what to do."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import typer

from penstock.common.errors import PenstockError, PlatformError

if TYPE_CHECKING:
    from types import TracebackType


class UsageError(PenstockError):
    """The command cannot be carried out as it was written."""

    code = "USAGE"


class MasterUnreachable(PlatformError):
    """No JobManager answers at the URL."""

    code = "MASTER_UNREACHABLE"


class RequestFailed(PenstockError):
    """The JobManager refused; `code` is the one it gave."""

    code = "REQUEST_FAILED"

    def __init__(self, message: str, *, remedy: str = "", code: str = "", status: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code or type(self).code
        self.status = status


class OperationFailed(PenstockError):
    """A savepoint, rescale, … was begun and did not succeed."""

    code = "OPERATION_FAILED"


def show_error(error: PenstockError) -> None:
    """Write the error to stderr."""
    head, *rest = error.message.splitlines() or [""]
    typer.secho(f"error [{error.code}]: ", err=True, nl=False, fg=typer.colors.RED, bold=True)
    typer.echo(head, err=True)
    for line in rest:
        typer.echo(line, err=True)
    if error.operator:
        typer.echo(f"  operator: {error.operator}", err=True)
    if error.location:
        typer.echo(f"  at: {error.location}", err=True)
    if error.remedy:
        typer.secho(f"  remedy: {error.remedy}", err=True, fg=typer.colors.YELLOW)


def show_program_error(error: BaseException, script: str) -> None:
    """Write an exception of the user's program to stderr, beginning with the program's first frame."""
    lines = traceback.format_exception(type(error), error, frames_from(error.__traceback__, script))
    sys.stderr.write("".join(lines))


def frames_from(trace: TracebackType | None, script: str) -> TracebackType | None:
    """The traceback without what lies above the first frame of `script`; whole if there is none."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found or trace
