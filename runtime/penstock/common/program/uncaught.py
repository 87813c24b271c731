"""The last message of a program that did not catch an error of Penstock, or that a user interrupted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def shorten_messages() -> None:
    """Leave the engine's frames out of the last traceback, except with `python -X dev`. The program's own `sys.excepthook` is kept."""
    if sys.excepthook is sys.__excepthook__ and not sys.flags.dev_mode:
        sys.excepthook = show_uncaught


def show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write the exception to stderr. Exceptions of the program's own code have their complete traceback."""
    import traceback

    from penstock.common.errors import PenstockError
    from penstock.common.logs.redaction import hide_own
    from penstock.common.program.user_frames import is_engine, program_traceback

    if isinstance(error, PenstockError):
        sys.stderr.write(hide_own(program_traceback(error)))
    elif isinstance(error, KeyboardInterrupt) and any(is_engine(f.filename) for f in traceback.extract_tb(trace)):
        sys.stderr.write(f"{str(error) or 'interrupted'}\n")
    else:
        sys.__excepthook__(kind, error, trace)
