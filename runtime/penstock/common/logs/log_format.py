"""The formats of log records: text for people, or one line of JSON for programs. Each record has its place in the job."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.common.logs.redaction import Redaction

MARK = b"\x1elog\x1e"
"""Mark before a log line in a stream of printed output. It starts and ends with an ASCII record separator, which does
not occur in text.
"""

PRINTED = "\x1e{}\x1e{}\x1e"
"""Mark before a line that a function printed: `out` or `err`, and its operator and subtask."""


@dataclass(frozen=True)
class Place:
    """The part of a job that logged a record. `operator` is empty outside of operator code; `subtask` is -1 if it is not known."""

    job_id: str
    job_name: str
    attempt: int
    subtask: int = -1
    operator: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """Return the place as text for people.

        >>> str(Place("bc0b", "orders", 2, 3, "Totals", "totals")), str(Place("bc0b", "orders", 2))
        ('orders: Totals #3, attempt 2', 'orders: attempt 2')
        """
        subtask = " ".join(filter(None, (self.operator, f"#{self.subtask}" if self.subtask >= 0 else "")))
        return f"{self.job_name}: {f'{subtask}, ' if subtask else ''}attempt {self.attempt}"


FindPlace = Callable[[], "Place | None"]
"""Function that finds the place. The thread that logs a record calls the function inside `logging`."""


def nowhere() -> Place | None:
    """Return None, because the process runs no code of a job."""
    return None


class RecordFormat(logging.Formatter, ABC):
    """Base of both formats: adds the place and removes secrets."""

    def __init__(self, redaction: Redaction, find_place: FindPlace = nowhere) -> None:
        super().__init__()
        self._redaction = redaction
        self._find_place = find_place

    def format(self, record: logging.LogRecord) -> str:
        return self._redaction.clean(self._write(record, record.getMessage(), self._details(record)))

    def _details(self, record: logging.LogRecord) -> str:
        """Return the traceback and the stack of the record."""
        parts = []
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(self.formatException(record.exc_info))
        elif record.exc_text:
            parts.append(record.exc_text)
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)

    @abstractmethod
    def _write(self, record: logging.LogRecord, message: str, details: str) -> str: ...


class TextFormat(RecordFormat):
    """`2026-01-31 12:00:00,123 INFO my.module [orders: Totals #3, attempt 2]: message`, in UTC, then traceback and stack."""

    def _write(self, record: logging.LogRecord, message: str, details: str) -> str:
        place = self._find_place()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        head = f"{when},{int(record.msecs):03} {record.levelname} {record.name}{f' [{place}]' if place else ''}: "
        return f"{head}{message}\n{details}" if details else head + message


class JsonFormat(RecordFormat):
    """One JSON object per line: `time`, `level`, `logger`, `message`, then `exception` and the place if the record has them."""

    def _write(self, record: logging.LogRecord, message: str, details: str) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{when}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if details:
            fields["exception"] = details
        place = self._find_place()
        if place is not None:
            fields |= {"job": place.job_id, "job_name": place.job_name, "attempt": place.attempt}
            if place.subtask >= 0:
                fields["subtask"] = place.subtask
            if place.operator:
                fields |= {"operator": place.operator, "uid": place.uid}
        return json.dumps(fields, ensure_ascii=False)


def record_format(name: str, redaction: Redaction, find_place: FindPlace = nowhere) -> RecordFormat:
    """Return the format with this value of `penstock.log.format`."""
    return JsonFormat(redaction, find_place) if name == "json" else TextFormat(redaction, find_place)
