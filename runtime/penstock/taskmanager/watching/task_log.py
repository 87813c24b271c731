"""The log of a Python worker: each record has the operator, the subtask and the attempt whose code logged it.

Records go to stderr, which the TaskManager reads together with all other output of its executor. A mark in front of each line
shows that the line belongs to the log. The worker does not track which operator runs, because tracking would cost time for
each batch. The log handler searches its own stack for the operator.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, TextIO, cast

from penstock.common.logs.log_format import MARK, PRINTED, FindPlace, Place, record_format
from penstock.common.logs.redaction import Redaction
from penstock.graph.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.common.logs.log_settings import LogSettings

_STDERR = 2
_LONGEST = 16 * 1024
"""Maximum number of characters of an incomplete line that wait for the line's end."""


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
    """Return a function that finds the operator's place.

    The function returns the default in engine code and in threads of the user.
    """
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


class PlacedStream:
    """A standard stream whose lines begin with the operator and the subtask that printed them.

    The object writes whole lines, because workers share the stream. `flush` writes an incomplete line.

    Args:
        head: function that returns the beginning of each line. Its argument is the operator and the subtask, or empty if they are not
            known.
    """

    def __init__(self, to: TextIO, head: Callable[[str], str]) -> None:
        self._to = to
        self._head = head
        self._rest = ""
        self._is_line_start = True

    def write(self, text: str) -> int:
        complete, end, rest = text.rpartition("\n")
        if end:
            # One statement, because threads share the stream and may switch while `_put` writes.
            lines, self._rest = self._rest + complete + end, rest
            self._put(lines)
        else:
            self._rest += text
        if len(self._rest) > _LONGEST:
            self.flush()
        return len(text)

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        if rest:
            self._put(rest)

    def _put(self, text: str) -> None:
        place = place_on_stack()
        head = self._head(f"{place.operator} #{place.subtask}" if place else "")
        first = head if self._is_line_start else ""
        body = text.removesuffix("\n")
        self._is_line_start = body != text
        self._to.write(first + body.replace("\n", f"\n{head}") + text[len(body) :])
        self._to.flush()

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self._to, name)


def place_prints() -> None:
    """Write what functions print line by line. Each line begins with the operator and subtask that printed it."""
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        if stream is None or isinstance(stream, PlacedStream):
            continue
        setattr(sys, f"std{name}", cast("TextIO", PlacedStream(stream, partial(PRINTED.format, name))))


def configure_task_log(settings: LogSettings, redaction: Redaction, default: Place) -> None:
    """Configure the log and the prints of this process for the task. Handlers that user modules added to the root logger remain."""
    place_prints()
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, MarkedHandler):
            root.removeHandler(handler)
    handler = MarkedHandler()
    handler.setFormatter(record_format(settings.format, redaction, place_or(default)))
    root.addHandler(handler)
    settings.apply_levels()
