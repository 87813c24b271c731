"""Lengths and points of time: `Duration`, `Time`, `Instant`, and their conversion to milliseconds.

Every API for a length of time takes a `datetime.timedelta`, a `Duration` (a subclass of `timedelta`), a `Time`, or an
int in milliseconds. Only `as_millis` converts them to the engine's milliseconds. Strings such as `10s` are for
configuration files only (`parse_duration`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from penstock.common.errors import InvalidJob

_MILLISECOND = timedelta(milliseconds=1)


class Duration(timedelta):
    """A length of time, created by unit. A `Duration` is also a `timedelta`. Penstock accepts both in the same places.

    The resolution is a microsecond: `of_nanos` drops the rest.

    >>> Duration.of_seconds(90) == Duration.of_minutes(1) + Duration.of_seconds(30)
    True
    >>> as_millis(Duration.of_days(1))
    86400000
    """

    @staticmethod
    def of_days(days: int) -> Duration:
        return Duration(days=days)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        return Duration(hours=hours)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        return Duration(minutes=minutes)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        return Duration(seconds=seconds)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        return Duration(milliseconds=millis)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        return Duration(microseconds=nanos // 1000)


@dataclass(frozen=True, order=True)
class Instant:
    """A point on the time line: seconds since the epoch and the nanoseconds within that second.

    >>> Instant.of_epoch_milli(1500).to_epoch_milli()
    1500
    >>> Instant.of_epoch_milli(-1)
    Instant<-1, 999000000>
    """

    seconds: int
    nanos: int

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"

    def to_epoch_milli(self) -> int:
        return self.seconds * 1000 + self.nanos // 1_000_000

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)


@dataclass(frozen=True, order=True)
class Time:
    """The size of a window, in milliseconds. A `timedelta` is accepted wherever a `Time` is.

    >>> Time.seconds(10).to_milliseconds()
    10000
    >>> Time.minutes(1) == Time(60_000)
    True
    """

    size_ms: int

    def __init__(self, milliseconds: int) -> None:
        object.__setattr__(self, "size_ms", milliseconds)

    def to_milliseconds(self) -> int:
        return self.size_ms

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        return Time(seconds * 1000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        return Time(days * 86_400_000)


TimeLike = timedelta | Time | int
"""Accepted types of a length of time. An int is in milliseconds."""


def as_millis(length: TimeLike, name: str = "duration") -> int:
    """Return a length of time in whole milliseconds. Parts of a millisecond are dropped.

    Args:
        name: name of the parameter in the error message.

    Raises:
        InvalidJob: the value is not a length of time.

    >>> as_millis(timedelta(seconds=1.5)), as_millis(Time.seconds(2)), as_millis(3)
    (1500, 2000, 3)
    """
    if isinstance(length, timedelta):
        return length // _MILLISECOND
    if isinstance(length, Time):
        return length.size_ms
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    raise InvalidJob(
        f"{name} must be a timedelta, Duration, Time or an int in milliseconds, not {length!r} of type {type(length).__name__}",
        remedy="use for example timedelta(seconds=10)",
    )


_DURATION = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-zµ]*)", re.IGNORECASE)
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_UNIT_MICROSECONDS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1),
}


def parse_duration(text: str) -> Duration:
    """Parse a length of time in the spelling of configuration files: `10s`, `500 ms`, `1.5 h`, `PT1M30S`. No unit means ms.

    Raises:
        ValueError: the text is not a length of time.

    >>> parse_duration("10 min") == timedelta(minutes=10)
    True
    >>> parse_duration("PT1M30S").total_seconds()
    90.0
    """
    stripped = text.strip()
    match, iso = _DURATION.fullmatch(stripped), _ISO_DURATION.fullmatch(stripped)
    try:
        if match is not None and match[2].lower() in _UNIT_MICROSECONDS:
            return Duration(microseconds=float(match[1]) * _UNIT_MICROSECONDS[match[2].lower()])
        if iso is not None and any(iso.groups()):
            days, hours, minutes, seconds = (float(part) if part else 0.0 for part in iso.groups())
            return Duration(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text[:50]!r} is too long; the maximum is {Duration.max.days}d") from None
    raise ValueError(f"{text!r} is not a duration; write a number and a unit, for example 500ms, 10s, 5min, 1h, 2d")


def format_duration(length: timedelta) -> str:
    """Return the shortest spelling that `parse_duration` accepts.

    >>> format_duration(timedelta(minutes=10)), format_duration(timedelta(milliseconds=1500))
    ('10min', '1500ms')
    """
    microseconds = length // timedelta(microseconds=1)
    for unit in ("d", "h", "min", "s", "ms"):
        size = _UNIT_MICROSECONDS[unit]
        if microseconds and microseconds % size == 0:
            return f"{microseconds // size}{unit}"
    return f"{microseconds}us" if microseconds else "0s"
