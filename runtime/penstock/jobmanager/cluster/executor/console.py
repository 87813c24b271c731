"""The console of a program that runs its job on this machine: prints and logs of functions, failures and restarts.

Prints go to stdout and logs to stderr, each line with its operator and subtask. Colours are used only on a terminal.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import TYPE_CHECKING, TextIO

from penstock.common.errors import PenstockError

if TYPE_CHECKING:
    from penstock.common.logs.log_format import FindPlace
    from penstock.common.logs.redaction import Redaction

_TEXT = re.compile(r"\S+ \S+ ([A-Z]+) (\S+?)(?: \[.*?: (.*?), attempt \d+\]|(?: \[[^\]]*\])?): (.*)", re.DOTALL)
"""A line of `TextFormat`: level, logger, operator with subtask, message."""
_QUIET = re.compile(r'\S+ \S+ (DEBUG|INFO) penstock\b|.*"level": "(DEBUG|INFO)", "logger": "penstock')
"""The first line of a record of the engine that is written only to the log files."""
_STARTS = re.compile(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} |\{"time": ')
"""The first line of any record. The lines of a traceback do not match it."""
_TRACE = "\nTraceback (most recent call last)"
_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "31"}
_PLACE = "36"


class Console:
    """Lines of the workers on the console of this process."""

    def __init__(self) -> None:
        self._is_shown = True

    def print(self, place: str, text: str, *, to_stderr: bool = False) -> None:
        """Write one printed line. `place` is the operator and the subtask, or empty if they are not known."""
        stream = sys.stderr if to_stderr else sys.stdout
        _write(stream, head(stream, place) + text)

    def log(self, line: str) -> None:
        """Write one line of a log. Records of the engine below WARNING are left out, with their further lines."""
        if _STARTS.match(line):
            self._is_shown = not _QUIET.match(line)
        if self._is_shown:
            _write(sys.stderr, _short(line))


class ConsoleHandler(logging.Handler):
    """Warnings and errors of the JobManager on stderr. The log file also has the tracebacks of the job's failures.

    If functions run in this process, `find_place` finds the operator whose code logs a record. The text of such a record starts with the
    name of its logger.
    """

    def __init__(self, redaction: Redaction, find_place: FindPlace | None = None) -> None:
        super().__init__(logging.WARNING)
        self._redaction = redaction
        self._find_place = find_place

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = f"{_coloured(sys.stderr, record.levelname, _COLOURS.get(record.levelname, '0'))} "
            if self._find_place is not None and self._find_place() is not None:
                text += f"{record.name}: "
            text += record.getMessage().partition(_TRACE)[0]
            error = record.exc_info[1] if record.exc_info else None
            if error is not None and not isinstance(error, PenstockError):
                text += "\n" + logging.Formatter().formatException(record.exc_info)  # type: ignore[arg-type]  # not None
            _write(sys.stderr, self._redaction.clean(text) + "\n")
        except Exception:
            self.handleError(record)


def head(stream: TextIO, place: str) -> str:
    """Return the beginning of a line, which names the operator and subtask. The text is empty if they are not known."""
    return f"{_coloured(stream, f'[{place}]', _PLACE)} " if place else ""


def _short(line: str) -> str:
    """Return a line of a log without its time, the job and the attempt.

    >>> _short("2026-01-31 12:00:00,123 INFO my.module [orders: Totals #3, attempt 2]: paid")
    '[Totals #3] INFO my.module: paid'
    """
    found = _TEXT.fullmatch(line)
    if found is None:
        return line
    level, logger, place, message = found.groups()
    return f"{head(sys.stderr, place)}{_coloured(sys.stderr, level, _COLOURS.get(level, '0'))} {logger}: {message}"


def _coloured(stream: TextIO, text: str, colour: str) -> str:
    if colour == "0" or "NO_COLOR" in os.environ or not stream.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        return  # the console is closed, and the log files have the line
