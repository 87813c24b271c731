"""Schedules of periodic snapshots: intervals and cron expressions with five fields, in UTC. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_HORIZON = timedelta(days=4 * 366 + 1)
"""Maximum time between two matching days. 29 February occurs at least once in this time, except around 2100. A
schedule that does not match in this time is rejected.
"""

_WINDOWS = (timedelta(hours=1), timedelta(days=1), timedelta(days=32), _HORIZON)
"""Periods before now in which `due` searches for the newest scheduled time. The shortest period is first. Otherwise the
search for a schedule that is due every minute would step through years.
"""


class CronError(ValueError):
    """Error of an expression that cannot be parsed, or that describes a day that never occurs."""


@dataclass(frozen=True)
class Cron:
    """A parsed cron expression: the allowed values of each field."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def matches_day(self, day: datetime) -> bool:
        """Return whether the schedule includes this day. If both day fields are restricted, it is enough that one of
        them matches, as in cron.
        """
        if day.month not in self.months:
            return False
        by_day = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def after(self, moment: datetime) -> datetime:
        """Return the first time that is later than `moment`."""
        candidate = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        limit = moment + _HORIZON
        while candidate <= limit:
            if not self.matches_day(candidate):
                candidate = candidate.replace(hour=0, minute=0) + timedelta(days=1)
            elif candidate.hour not in self.hours:
                candidate = candidate.replace(minute=0) + timedelta(hours=1)
            elif candidate.minute not in self.minutes:
                candidate += timedelta(minutes=1)
            else:
                return candidate
        msg = "it describes a day that does not exist"
        raise CronError(msg)


def parse_cron(expression: str) -> Cron:
    """Parse `minute hour day-of-month month day-of-week`. A field may have `*`, lists, ranges and steps. Sunday is 0
    or 7.

    >>> parse_cron("*/15 3 * * 1-5").after(datetime(2026, 1, 3)).isoformat()
    '2026-01-05T03:00:00'
    """
    parts = expression.split()
    if len(parts) != len(_FIELDS):
        msg = f"{expression!r} has {len(parts)} fields instead of {len(_FIELDS)}"
        raise CronError(msg)
    values = [_field(text, *bounds) for text, bounds in zip(parts, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = values
    cron = Cron(
        minutes,
        hours,
        days,
        months,
        frozenset(d % 7 for d in weekdays),
        any_day=parts[2].startswith("*"),
        any_weekday=parts[4].startswith("*"),
    )
    cron.after(datetime(2024, 1, 1))
    return cron


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        first_text, dash, last_text = span.partition("-")
        try:
            step = int(step_text) if step_text else 1
            first = low if span == "*" else int(first_text)
            last = high if span == "*" or (step_text and not dash) else int(last_text if dash else first_text)
        except ValueError:
            msg = f"{part!r} is not a {name}"
            raise CronError(msg) from None
        if not (low <= first <= last <= high and step >= 1):
            msg = f"{part!r} is not a {name} between {low} and {high}"
            raise CronError(msg)
        values.update(range(first, last + 1, step))
    return frozenset(values)


def due(moment: datetime, last: datetime, *, interval: timedelta | None, cron: str | None) -> datetime | None:
    """Return the newest scheduled time that is later than `last` and not later than `moment`. Missed earlier times are
    skipped.

    `last` is the time of the last snapshot request, or the creation time of the job.
    """
    if interval is not None:
        turns = (moment - last) // interval
        return last + turns * interval if turns >= 1 else None
    if cron is None:
        return None
    expression = parse_cron(cron)
    for window in _WINDOWS:
        newest, upcoming = None, expression.after(max(last, moment - window))
        while upcoming <= moment:
            newest, upcoming = upcoming, expression.after(upcoming)
        if newest is not None:
            return newest
    return None


def upcoming(moment: datetime, last: datetime, *, interval: timedelta | None, cron: str | None) -> datetime | None:
    """Return the first scheduled time after `moment`, or None if there is no schedule. `last` has the same meaning as
    in `due`.
    """
    if interval is not None:
        turns = max((moment - last) // interval, 0)
        return last + (turns + 1) * interval
    return parse_cron(cron).after(moment) if cron is not None else None
