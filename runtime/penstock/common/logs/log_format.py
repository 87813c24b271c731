"""How a record is written: as text for people, or as one line of JSON for programs; each with its place in the job."""

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
"""In front of a line of the log where it travels among what is printed; between two of ASCII's record separators, as no text is."""


@dataclass(frozen=True)
class Place:
    """Where in a job a record was logged. `operator` empty: in no operator's code; `subtask` -1: not known."""

    job_id: str
    job_name: str
    attempt: int
    subtask: int = -1
    operator: str = ""
    uid: str = ""

    def __str__(self) -> str:
        """
        >>> str(Place("bc0b", "orders", 2, 3, "Totals", "totals")), str(Place("bc0b", "orders", 2))
        ('orders: Totals #3, attempt 2', 'orders: attempt 2')
        """
        what = " ".join(filter(None, (self.operator, f"#{self.subtask}" if self.subtask >= 0 else "")))
        return f"{self.job_name}: {f'{what}, ' if what else ''}attempt {self.attempt}"


FindPlace = Callable[[], "Place | None"]
"""Called by the thread that logs, from within `logging`."""


def nowhere() -> Place | None:
    """Of a process that runs no job's code."""
    return None


class RecordFormat(logging.Formatter, ABC):
    """Base of both forms: finds the place, and leaves secrets out of all that is written."""

    def __init__(self, redaction: Redaction, find_place: FindPlace = nowhere) -> None:
        super().__init__()
        self._redaction = redaction
        self._find_place = find_place

    def format(self, record: logging.LogRecord) -> str:
        return self._redaction.clean(self._write(record, record.getMessage(), self._details(record)))

    def _details(self, record: logging.LogRecord) -> str:
        """Traceback and stack, if the record has any."""
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
    """`2026-01-31 12:00:00,123 INFO my.module [orders: Totals #3, attempt 2]: message`, in UTC, then what belongs to it."""

    def _write(self, record: logging.LogRecord, message: str, details: str) -> str:
        place = self._find_place()
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        head = f"{when},{int(record.msecs):03} {record.levelname} {record.name}{f' [{place}]' if place else ''}: "
        return f"{head}{message}\n{details}" if details else head + message


class JsonFormat(RecordFormat):
    """One object in one line: `time`, `level`, `logger`, `message`, then `exception` and the place, if there are any."""

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
    """Of `penstock.log.format`."""
    return JsonFormat(redaction, find_place) if name == "json" else TextFormat(redaction, find_place)
