"""What is logged in a Python worker: each record with the operator, the subtask and the attempt whose code logged it.

Records go to stderr, which the TaskManager reads together with all that its executor prints. A mark in front of each line
tells it that the line belongs to the log. Which operator is at work is not noted anywhere, as that would cost something for
each batch: who logs looks up its own stack.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from penstock.common.logs.log_format import MARK, FindPlace, Place, record_format
from penstock.common.logs.redaction import Redaction
from penstock.graph.operator import Operator

if TYPE_CHECKING:
    from penstock.common.logs.log_settings import LogSettings

_STDERR = 2


def place_on_stack() -> Place | None:
    """The operator whose code the calling thread is in; None: of none."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if isinstance(owner, Operator) and (context := getattr(owner, "context", None)) is not None:
                return Place(
                    context.job_id, context.job_name, context.attempt, context.subtask, context.name, context.uid
                )
        frame = frame.f_back  # type: ignore[assignment]
    return None


def place_or(default: Place) -> FindPlace:
    """The operator's, or else, in the engine's own code and in threads of the user's, this one."""
    return lambda: place_on_stack() or default


class MarkedHandler(logging.Handler):
    """Writes each record at once and in one piece."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).encode(errors="backslashreplace").split(b"\n")
            rest = b"".join(MARK + line + b"\n" for line in lines)
            while rest:
                rest = rest[os.write(_STDERR, rest) :]
        except Exception:
            self.handleError(record)


def log_of_task(settings: LogSettings, redaction: Redaction, default: Place) -> None:
    """From now on this process logs for that task. Handlers that modules of the user's gave the root stay as they are."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, MarkedHandler):
            root.removeHandler(handler)
    handler = MarkedHandler()
    handler.setFormatter(record_format(settings.format, redaction, place_or(default)))
    root.addHandler(handler)
    settings.apply_levels()
