"""Log lines as records: in both formats of Penstock (`common.logs.log_format`), and in the format of JVMs. The functions are pure."""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Iterator, Mapping

from penstock.metrics.reporter import LogEntry

_TEXT = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ([A-Z]+) (\S+)"
    r"(?: \[(?:(?P<job>[^\]]*?): (?:(?P<operator>[^\]#]*?)(?: ?#(?P<subtask>\d+))?, )?attempt (?P<attempt>\d+)|.*?)\])?: (.*)"
)
_JVM = re.compile(r"(\d\d/\d\d/\d\d \d\d:\d\d:\d\d) ([A-Z]+) ([^\s:]+): (.*)")
_LABELS = {
    "job": "job_id",
    "job_name": "job_name",
    "attempt": "task_attempt_num",
    "subtask": "subtask_index",
    "operator": "operator_name",
    "uid": "operator_id",
}
"""Labels by JSON field."""


def entries(text: str, labels: Mapping[str, str]) -> Iterator[LogEntry]:
    """Yield the records of whole lines. Lines before the first record are skipped.

    Args:
        labels: labels of all records.
    """
    current: LogEntry | None = None
    below: list[str] = []
    for line in text.splitlines():
        found = started_entry(line, labels)
        if found is None:
            below.append(line)
            continue
        if current is not None:
            yield _complete(current, below)
        current, below = found, []
    if current is not None:
        yield _complete(current, below)


def starts_entry(line: str) -> bool:
    """Return whether a record begins with this line."""
    return started_entry(line, {}) is not None


def started_entry(line: str, labels: Mapping[str, str]) -> LogEntry | None:
    """Return the record that begins with this line, without its continuation lines. None means that no record begins here."""
    if line.startswith("{"):
        return _of_json(line, labels)
    if (found := _TEXT.fullmatch(line)) is not None:
        return _of_text(found, labels)
    if (found := _JVM.fullmatch(line)) is not None:
        moment, level, logger, message = found.groups()
        at = _ms(moment, "%y/%m/%d %H:%M:%S")
        return None if at is None else LogEntry(at, level, logger, message, labels=labels)
    return None


def _of_text(found: re.Match[str], labels: Mapping[str, str]) -> LogEntry | None:
    at = _ms(found[1], "%Y-%m-%d %H:%M:%S")
    if at is None:
        return None
    names = {
        "job": "job_name",
        "operator": "operator_name",
        "subtask": "subtask_index",
        "attempt": "task_attempt_num",
    }
    place_labels = {label: found[name] for name, label in names.items() if found[name]}
    return LogEntry(at + int(found[2]), found[3], found[4], found[9], labels={**labels, **place_labels})


def _of_json(line: str, labels: Mapping[str, str]) -> LogEntry | None:
    try:
        fields = json.loads(line)
        moment, milliseconds = fields["time"][:19], int(fields["time"][20:23])
        at = _ms(moment, "%Y-%m-%dT%H:%M:%S")
        if at is None:
            return None
        place_labels = {_LABELS[name]: str(fields[name]) for name in _LABELS if name in fields}
        details = fields.get("exception", "")
        return LogEntry(
            at + milliseconds, fields["level"], fields["logger"], fields["message"], details, {**labels, **place_labels}
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _complete(entry: LogEntry, below: list[str]) -> LogEntry:
    if not below:
        return entry
    details = "\n".join((entry.details, *below)) if entry.details else "\n".join(below)
    return LogEntry(entry.time, entry.level, entry.logger, entry.message, details, entry.labels)


def _ms(moment: str, form: str) -> int | None:
    try:
        return calendar.timegm(time.strptime(moment, form)) * 1000
    except ValueError:
        return None
