"""Dates and times. Timestamps are microseconds since 1970, dates are days since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?$")
_UNIT_MICROS = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": _DAY}
_LETTERS = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)


def local(micros: int) -> datetime:
    """Return the datetime without a zone."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_of(value: datetime) -> int:
    """Return the microseconds of a datetime without a zone."""
    return (value - _EPOCH) // timedelta(microseconds=1)


def date_of(days: int) -> date:
    return date.fromordinal(_EPOCH_DAY + days)


def days_of(value: date) -> int:
    return int(value.toordinal() - _EPOCH_DAY)


def parse_timestamp(text: str) -> int | None:
    """Return the microseconds of a text such as `2020-01-01 10:00:00.5`, or None if it has another format.

    >>> parse_timestamp("1970-01-01 00:00:01.5"), parse_timestamp("1970-01-02"), parse_timestamp("x")
    (1500000, 86400000000, None)
    """
    found = _TIMESTAMP.match(text.strip().removesuffix("Z"))
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction = int((found[7] or "").ljust(6, "0")[:6])
    try:
        return micros_of(datetime(year, month, day, hour, minute, second, fraction))
    except ValueError:
        return None


def parse_date(text: str) -> int | None:
    found = re.match(r"(\d{4})-(\d{1,2})-(\d{1,2})$", text.strip())
    try:
        return None if found is None else days_of(date(*map(int, found.groups())))
    except ValueError:
        return None


def parse_time(text: str) -> int | None:
    """Return the milliseconds of a text such as `10:30:00`, or None if it has another format."""
    found = re.match(r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,3})\d*)?)?$", text.strip())
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((found[4] or "").ljust(3, "0"))


def text_of(micros: int, precision: int) -> str:
    """Return the text of a timestamp with this number of digits after the second.

    >>> text_of(1_500_000, 3), text_of(1_500_000, 0)
    ('1970-01-01 00:00:01.500', '1970-01-01 00:00:01')
    """
    value = local(micros)
    fraction = f".{value.microsecond:06}"[: precision + 1] if precision else ""
    return f"{value.year:04}{value:-%m-%d %H:%M:%S}{fraction}"


def time_text(millis: int) -> str:
    seconds = millis // 1000
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def to_local(micros: int, zone: str) -> int:
    """Return the local time of an instant in a zone, as the microseconds of a TIMESTAMP."""
    if zone == "UTC":
        return micros
    moment = datetime.fromtimestamp(micros // 1_000_000, UTC).astimezone(ZoneInfo(zone))
    offset = moment.utcoffset() or timedelta()
    return micros + offset // timedelta(microseconds=1)


def to_instant(micros: int, zone: str, *, fold: int = 0) -> int:
    """Return the instant of a local time in a zone. A time in a gap of the clock moves forward, as in Java.

    Args:
        fold: 1 for the second instant of a time that the clock shows twice.
    """
    if zone == "UTC":
        return micros
    found = local(micros).replace(tzinfo=ZoneInfo(zone), fold=fold)
    offset = found.utcoffset() or timedelta()
    return int(micros - offset // timedelta(microseconds=1))


def truncate(micros: int, precision: int) -> int:
    step: int = 10 ** (6 - precision)
    return micros - micros % step


def add_months(micros: int, months: int) -> int:
    """Return the timestamp some months later. The day is at most the last day of the month.

    >>> text_of(add_months(parse_timestamp("2020-01-31"), 1), 0)
    '2020-02-29 00:00:00'
    """
    value = local(micros)
    index = value.year * 12 + value.month - 1 + months
    year, month = index // 12, index % 12 + 1
    last = (date(year + month // 12, month % 12 + 1, 1) - timedelta(days=1)).day
    return micros_of(value.replace(year=year, month=month, day=min(value.day, last)))


def months_between(later: int, earlier: int) -> int:
    """Return the whole months between two timestamps. It is negative if the first one is earlier.

    >>> months_between(parse_timestamp("2020-02-29"), parse_timestamp("2020-01-31")), months_between(0, parse_timestamp("1970-03-02"))
    (1, -2)
    """
    days, other = later // _DAY, earlier // _DAY
    months = _months(days, other)
    if add_months(other * _DAY, months) == days * _DAY and later % _DAY < earlier % _DAY:
        months -= 1
    return months


def _months(days: int, other: int) -> int:
    if days < other:
        return -_months(other, days)
    months = (days - other) // 31
    while add_months(other * _DAY, months) < days * _DAY and add_months(other * _DAY, months + 1) <= days * _DAY:
        months += 1
    return months


def extract(unit: str, micros: int) -> int:
    """Return a part of a timestamp, such as its DAY. The week starts on Monday, and DOW of Sunday is 1."""
    value = local(micros)
    if unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"):
        return int(getattr(value, unit.lower()))
    week = value.isocalendar()
    found = {
        "MILLISECOND": value.microsecond // 1000,
        "MICROSECOND": value.microsecond,
        "QUARTER": (value.month + 2) // 3,
        "DOY": value.timetuple().tm_yday,
        "DOW": value.isoweekday() % 7 + 1,
        "ISODOW": value.isoweekday(),
        "WEEK": week.week,
        "ISOYEAR": week.year,
        "EPOCH": micros // 1_000_000,
        "DECADE": value.year // 10,
        "CENTURY": (value.year + 99) // 100,
        "MILLENNIUM": (value.year + 999) // 1000,
    }
    return found[unit]


EXTRACTED = frozenset(
    [
        "YEAR",
        "MONTH",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "MILLISECOND",
        "MICROSECOND",
        "QUARTER",
        "DOY",
        "DOW",
        "ISODOW",
        "WEEK",
        "ISOYEAR",
        "EPOCH",
        "DECADE",
        "CENTURY",
        "MILLENNIUM",
    ]
)
"""Units of `extract`."""
FLOORED = frozenset({*_UNIT_MICROS, "YEAR", "MONTH", "QUARTER", "WEEK"})
"""Units of `floor`."""


def floor(unit: str, micros: int) -> int:
    """Return the beginning of the unit that contains the timestamp."""
    if unit in _UNIT_MICROS:
        return micros - micros % _UNIT_MICROS[unit]
    day = local(micros - micros % _DAY)
    if unit == "WEEK":
        return micros_of(day - timedelta(days=day.isoweekday() % 7))
    month = {"YEAR": 1, "QUARTER": (day.month - 1) // 3 * 3 + 1, "MONTH": day.month}[unit]
    return micros_of(day.replace(month=month, day=1))


_FIELDS: dict[str, Callable[[datetime, int], str]] = {
    "y": lambda v, n: f"{v.year % 100:02}" if n == 2 else f"{v.year:0{n}}",
    "M": lambda v, n: v.strftime("%b" if n == 3 else "%B") if n > 2 else f"{v.month:0{n}}",
    "d": lambda v, n: f"{v.day:0{n}}",
    "D": lambda v, n: f"{v.timetuple().tm_yday:0{n}}",
    "H": lambda v, n: f"{v.hour:0{n}}",
    "h": lambda v, n: f"{(v.hour + 11) % 12 + 1:0{n}}",
    "m": lambda v, n: f"{v.minute:0{n}}",
    "s": lambda v, n: f"{v.second:0{n}}",
    "S": lambda v, n: f"{v.microsecond:06}".ljust(n, "0")[:n],
    "E": lambda v, n: v.strftime("%a" if n < 4 else "%A"),
    "a": lambda v, n: v.strftime("%p"),
}


def formatted(micros: int, pattern: str) -> str:
    """Return the timestamp in a pattern of Java's DateTimeFormatter.

    >>> formatted(parse_timestamp("2020-01-02 03:04:05"), "yyyy/MM/dd HH:mm 'h'")
    '2020/01/02 03:04 h'
    """
    value = local(micros)

    def part(found: re.Match[str]) -> str:
        text = found[0]
        if text[0] == "'":
            return text[1:-1].replace("''", "'") if len(text) > 2 else "'"
        if found[1] is None:
            return text
        if text[0] not in _FIELDS:
            raise ValueError(f"the letter {text[0]} of the time format {pattern!r} is not supported")
        return str(_FIELDS[text[0]](value, len(text)))

    return _LETTERS.sub(part, pattern)


_READERS = {
    "y": r"(\d{%d})",
    "M": r"(\d{1,%d})",
    "d": r"(\d{1,%d})",
    "H": r"(\d{1,%d})",
    "m": r"(\d{1,%d})",
    "s": r"(\d{1,%d})",
}


@lru_cache(maxsize=1000)
def _reader(pattern: str) -> tuple[re.Pattern[str], str]:
    """Return the regular expression of a pattern, and the letters of its groups."""
    parts, letters = [], ""
    for found in _LETTERS.finditer(pattern):
        text, letter = found[0], found[0][0]
        if letter == "'":
            parts.append(re.escape(text[1:-1].replace("''", "'") if len(text) > 2 else "'"))
        elif found[1] is None:
            parts.append(re.escape(text))
        elif letter == "S":
            parts.append(rf"(\d{{{len(text)}}})")
            letters += letter
        elif letter in _READERS:
            parts.append(_READERS[letter] % max(len(text), 1 if letter != "y" else 4))
            letters += letter
        else:
            raise ValueError(f"the letter {letter} of the time format {pattern!r} is not supported")
    return re.compile("".join(parts) + "$"), letters


def parsed(text: str, pattern: str) -> int | None:
    """Return the microseconds of a text in a pattern of Java, or None if it has another format.

    >>> parsed("02/01/1970 10:00", "dd/MM/yyyy HH:mm")
    122400000000
    """
    expression, letters = _reader(pattern)
    found = expression.match(text.strip())
    if found is None:
        return None
    fields = dict(zip(letters, found.groups(), strict=True))
    year, month, day, hour, minute, second = (
        int(fields.get(n, d)) for n, d in zip("yMdHms", (1970, 1, 1, 0, 0, 0), strict=True)
    )
    micros = int(fields.get("S", "0").ljust(6, "0")[:6])
    try:
        return micros_of(datetime(year, month, day, hour, minute, second, micros))
    except ValueError:
        return None
