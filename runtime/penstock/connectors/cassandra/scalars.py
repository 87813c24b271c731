"""Convert single values for the driver, by the type of their column: numbers, texts, times, addresses."""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import math
import numbers
import operator
import re
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.connectors.cassandra.cluster import package

_UTC_BEGIN = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_ATTOSECONDS = {
    "W": 604_800 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}
_FINER = re.compile(r"[.,][0-9]{7}")
_MONTHS, _DAYS = 4_800, 146_097  # the period after which the calendar repeats


class Misfit(ValueError):
    """A value that its column cannot take."""


def is_missing(value: Any) -> bool:
    """Return whether the value is pandas' NA or NaT, or numpy's NaT.

    >>> import numpy as np
    >>> is_missing(np.datetime64("NaT")), is_missing(0)
    (True, False)
    """
    kind = type(value)
    if kind.__module__.startswith("pandas") and kind.__name__ in ("NAType", "NaTType"):
        return True
    return kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64") and bool(value != value)


def checked(value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds):
        raise Misfit
    return value


def _text(value: Any) -> str:
    return str.__str__(checked(value, str))  # for an Enum its text, not its name


def _boolean(value: Any) -> bool:
    return bool(checked(value, (bool, np.bool)))


def _blob(value: Any) -> bytes:
    return bytes(checked(value, (bytes, bytearray, memoryview)))


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.ma.MaskedArray):
        raise Misfit
    return int(operator.index(value))


def _float(value: Any) -> float:
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real | decimal.Decimal):
        raise Misfit
    found = float(value)
    if math.isinf(found) and value != found:
        raise Misfit("it is too large")
    return found


def _decimal(value: Any) -> decimal.Decimal:
    """Convert a number to a decimal. Floats keep Python's notation: 0.1 becomes 0.1."""
    if isinstance(value, decimal.Decimal):
        found = value
    elif isinstance(value, float):
        found = decimal.Decimal(float.__repr__(value))
    elif isinstance(value, np.float16 | np.float32):
        found = decimal.Decimal(str(value))
    else:
        found = decimal.Decimal(_integer(value))
    if not found.is_finite():
        raise Misfit("Cassandra's decimals must be finite")
    return found


def _uuid(value: Any) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(checked(value, str))


def _timeuuid(value: Any) -> uuid.UUID:
    found = _uuid(value)
    if found.version != 1:
        raise Misfit(f"a timeuuid needs version 1, not {found.version}")
    return found


def _timestamp(value: Any) -> int:
    """Convert a time to milliseconds. A time without a zone is in UTC."""
    if isinstance(value, datetime.datetime):
        if hasattr(value, "to_pydatetime"):
            value = value.to_pydatetime(warn=False)
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        return int((value - _UTC_BEGIN) // _MILLISECOND)
    if isinstance(value, datetime.date):
        return (value - _UTC_BEGIN.date()).days * 86_400_000
    if isinstance(value, np.datetime64):
        return _attoseconds(value) // _ATTOSECONDS["ms"]
    return _integer(value)


def _attoseconds(value: np.datetime64 | np.timedelta64) -> int:
    """Convert a time since 1970, or a duration, to attoseconds. Numpy itself would overflow without an error."""
    unit, step = np.datetime_data(value.dtype)
    count = int(value.astype("int64")) * step
    if isinstance(value, np.datetime64) and unit in ("Y", "M"):
        rounds, month = divmod(count * 12 if unit == "Y" else count, _MONTHS)
        days = int(np.datetime64(month, "M").astype("datetime64[D]").astype("int64"))
        return (rounds * _DAYS + days) * _ATTOSECONDS["D"]
    if unit not in _ATTOSECONDS:
        raise Misfit(f"its unit is {unit!r}, which has no fixed length")
    return count * _ATTOSECONDS[unit]


def _date(value: Any) -> Any:
    util = package("cassandra.util")
    if isinstance(value, util.Date):
        return value
    if isinstance(value, np.datetime64):
        days, rest = divmod(_attoseconds(value), _ATTOSECONDS["D"])
        if rest:
            raise Misfit("it has a time of day")
        return util.Date(days)
    if isinstance(value, datetime.datetime):
        if value.time() != datetime.time.min or getattr(value, "nanosecond", False):
            raise Misfit("it has a time of day")
        value = value.date()
    if isinstance(value, str):
        value = datetime.date.fromisoformat(value)
    return util.Date(checked(value, datetime.date))


def _time(value: Any) -> Any:
    util = package("cassandra.util")
    if isinstance(value, util.Time):
        return value
    if isinstance(value, str):
        if _FINER.search(value):
            raise Misfit("a time as text has at most six decimal places of a second")
        value = datetime.time.fromisoformat(value)
    if checked(value, datetime.time).tzinfo is not None:
        raise Misfit("a time of day must not have a zone")
    return util.Time(value)


def _duration(value: Any) -> Any:
    util = package("cassandra.util")
    if isinstance(value, util.Duration):
        return value
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()
    if isinstance(value, np.timedelta64):
        nanoseconds, rest = divmod(_attoseconds(value), _ATTOSECONDS["ns"])
        if rest:
            raise Misfit("a duration must have whole nanoseconds")
        return util.Duration(0, 0, nanoseconds)
    whole = checked(value, datetime.timedelta) // datetime.timedelta(microseconds=1)
    return util.Duration(0, 0, whole * 1000)


def _inet(value: Any) -> str:
    if isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address):
        return str(value)
    return str(ipaddress.ip_address(_text(value)))


SCALARS: dict[str, Callable[[Any], Any]] = {
    "ascii": _text,
    "text": _text,
    "varchar": _text,
    "boolean": _boolean,
    "blob": _blob,
    "tinyint": _integer,
    "smallint": _integer,
    "int": _integer,
    "bigint": _integer,
    "varint": _integer,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "uuid": _uuid,
    "timeuuid": _timeuuid,
    "timestamp": _timestamp,
    "date": _date,
    "time": _time,
    "duration": _duration,
    "inet": _inet,
}
