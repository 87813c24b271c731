"""Error output of the command line: one clear line, the location, and the remedy."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

import typer

from penstock.common.errors import PenstockError, PlatformError
from penstock.common.logs.redaction import hide_own
from penstock.common.program.user_frames import user_place

if TYPE_CHECKING:
    from types import TracebackType


class UsageError(PenstockError):
    """Error of a command whose arguments are invalid."""

    code = "USAGE"


class MasterUnreachable(PlatformError):
    """Error of a URL at which no JobManager responds."""

    code = "MASTER_UNREACHABLE"


class RequestFailed(PenstockError):
    """Error of a request that the JobManager refused. `code` is the JobManager's error code."""

    code = "REQUEST_FAILED"

    def __init__(self, message: str, *, remedy: str = "", code: str = "", status: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.code = code or type(self).code
        self.status = status


class OperationFailed(PenstockError):
    """Error of a savepoint, rescale, … that was started and did not succeed."""

    code = "OPERATION_FAILED"


def exit_code(error: PenstockError) -> int:
    """Return 2 if the command line is wrong, else 1."""
    return 2 if isinstance(error, UsageError) else 1


def show_error(error: PenstockError) -> None:
    """Write the error to stderr."""
    head, *rest = hide_own(error.message).splitlines() or [""]
    typer.secho(f"error [{error.code}]: ", err=True, nl=False, fg=typer.colors.RED, bold=True)
    typer.echo(head, err=True)
    for line in rest:
        typer.echo(line, err=True)
    if error.operator:
        typer.echo(f"  operator: {error.operator}", err=True)
    is_usage = isinstance(error, UsageError)
    location = error.location or ("" if is_usage else user_place(error))
    if location:
        typer.echo(f"  {error.place if error.location else 'at'}: {location}", err=True)
    if error.remedy:
        typer.secho(f"  remedy: {hide_own(error.remedy)}", err=True, fg=typer.colors.YELLOW)


def show_program_error(error: BaseException, script: str) -> None:
    """Write an exception of the user's program to stderr, beginning with the program's first frame."""
    frames = frames_from(error.__traceback__, script)
    if isinstance(error, SyntaxError) and error.filename == script:
        frames = None  # the program has not run
    lines = traceback.format_exception(type(error), error, frames)
    sys.stderr.write(hide_own("".join(lines)))


def frames_from(trace: TracebackType | None, script: str) -> TracebackType | None:
    """Return the traceback from the first frame of `script` on, or the whole traceback if it has no such frame."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found or trace
