"""The log of a Python worker: each record has the operator, the subtask and the attempt whose code logged it.

Records go to stderr, which the TaskManager reads together with all other output of its executor. A mark in front of each line
shows that the line belongs to the log. The worker does not track which operator runs, because tracking would cost time for
each batch. The log handler searches its own stack for the operator.
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
    """Return the operator whose code the calling thread runs, or None if it runs no operator's code."""
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
    """Return a function that finds the operator's place. It returns the default in engine code and in threads of the user."""
    return lambda: place_on_stack() or default


class MarkedHandler(logging.Handler):
    """A handler that writes each record immediately and in one piece."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).encode(errors="backslashreplace").split(b"\n")
            rest = b"".join(MARK + line + b"\n" for line in lines)
            while rest:
                rest = rest[os.write(_STDERR, rest) :]
        except Exception:
            self.handleError(record)


def configure_task_log(settings: LogSettings, redaction: Redaction, default: Place) -> None:
    """Configure the log of this process for the task. Handlers that user modules added to the root logger remain."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, MarkedHandler):
            root.removeHandler(handler)
    handler = MarkedHandler()
    handler.setFormatter(record_format(settings.format, redaction, place_or(default)))
    root.addHandler(handler)
    settings.apply_levels()
