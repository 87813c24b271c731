"""The kind of Python values, which determines the type of their Arrow column.

The kind depends only on the value, so the type of its column does not depend on the boundaries of batches.

A numpy scalar has the kind of the equal Python value, and its column has that value's type:

| numpy | Column | Python |
|---|---|---|
| `int8` to `int64`, `uint8` to `uint32` | int64 | int |
| `uint64` | uint64 | int |
| `float16` to `float64` | double | float |
| `bool_`, `str_`, `bytes_` | bool, string, binary | bool, str, bytes |
| `datetime64` of days or more, of hours to microseconds | date32, timestamp[us] | date, datetime |
| `timedelta64` of microseconds or more | duration[us] | timedelta |
| `datetime64` and `timedelta64` of nanoseconds | timestamp[ns], duration[ns] | |
| `NaT` | null | None |

Arrow itself would choose other types. It creates an int8 column from `int8` values, and an int64 column from a mix of `int8` and `int`
values. `float16(1.5)` next to an `int` becomes 1. Arrow crashes if other numpy values follow a `datetime64`. For these reasons, Penstock
never passes numpy values of several types to Arrow. An array keeps its element type, because an array of many values has only one type.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter, countOf
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_MANY = 512
"""Number of values above which calls into numpy are faster than a check of each value."""
_BASES = (bool, int, float, str, bytes)
"""Types whose subclasses have columns of the same type. `bool` is first, because it is a subclass of `int`."""
_WIDEST: dict[type, tuple[Any, Any]] = {
    **{np.dtype(code).type: (np.int64, int) for code in "bhilBHI"},
    **{np.dtype(code).type: (np.float64, float) for code in "efd"},
    np.uint64: (np.uint64, np.uint64),
    np.bool_: (np.bool_, bool),
}
"""Element type of the column, and kind, by the type of a numpy number."""
_NESTED = (list, tuple, dict)
_TIMES = (np.datetime64, np.timedelta64)
_WITH_DTYPE = (*_TIMES, np.ndarray)
_UNITS = ("s", "ms", "us")
"""Units that Arrow takes from numpy and that a column of Python's times can hold."""
_LARGEST = 8
"""Bytes of the widest number that Arrow has. numpy's `longdouble` has more."""


def kind_of(value: Any) -> Any:
    """Return the kind of a value that is not None. The kind "large" means an integer below the range of 64 bits."""
    kind = _kind_of_type(type(value))
    if kind is int and value > INT_MAX:
        return np.uint64  # the only column type that can hold the value
    if kind is datetime:
        return datetime, value.tzinfo
    if kind in _WITH_DTYPE:
        return kind, value.dtype
    return "large" if kind is int and value < INT_MIN else kind


def column_and_kind(values: Sequence[Any], known: Any = None) -> tuple[pa.Array, Any]:
    """Return the column of the values and their kind. The kind is None if the values have several kinds or are all None.

    Args:
        known: the last kind of the field.

    Raises:
        ValueError, TypeError, OverflowError, NotImplementedError: the values have no common column. Parts of the values may have one.
    """
    import pyarrow as pa

    first = type(values[0])
    if known is int and first in (int, NoneType) and _are_integers(values):
        return pa.array(values, pa.int64()), int
    if known is first and known in (str, bool, float):
        array = pa.array(values)
        if _kinds_of_columns().get(array.type.id) is known and (known is not float or _are_floats(values, array)):
            return array, known
    types = set(map(type, values))
    if any(issubclass(kind, np.generic) for kind in types):
        found = _column_of_numpy(values) if len(types) == 1 else None
        if found is not None:
            return found
        values = python_values(values)
        types = set(map(type, values))
    types.discard(NoneType)
    if not types:
        return pa.nulls(len(values)), None
    kind = _only_kind(types, values)
    if kind is None and types == {int, np.uint64} and _are_large(values):
        return pa.array([None if value is None else int(value) for value in values], pa.uint64()), np.uint64
    if kind is None and any(issubclass(kind, (np.generic, np.ndarray)) for kind in types):
        raise TypeError("numpy values of several types have no common column")
    is_array = type(kind) is tuple and kind[0] is np.ndarray
    if kind[1].hasobject if is_array else not types.isdisjoint(_NESTED) and _may_hold_numpy(values):
        values = list(map(python_value, values))
        _refuse_mixed_times(values)
    try:
        return pa.array(values), kind
    except OverflowError:
        if kind is not int:
            raise
        large = pa.array(values, pa.uint64())
        if min(value for value in values if value is not None) <= INT_MAX:
            raise  # some of the integers have the kind `int`
        return large, np.uint64


def wide(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns with narrow numbers and coarse times converted to the types in the table above.

    Python values of a narrow column become a wide column, so the types are the same for records in rows and in columns.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, field in enumerate(columns.schema):
        widest = _wide_types().get(field.type.id)
        to = None if widest is None else widest(field.type)
        if to is None or to == field.type:
            continue
        try:
            array = pc.cast(columns.column(index), to)
        except pa.ArrowInvalid:  # Python cannot represent these times either
            continue
        columns = columns.set_column(index, field.with_type(to), array)
    return columns


@cache
def _wide_types() -> dict[int, Callable[[Any], pa.DataType]]:
    """Return, for each id of a type that may be narrow, a function. It returns the wide type that holds all values of the narrow type."""
    import pyarrow as pa

    integers = (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())
    return {
        **{kind.id: lambda _: pa.int64() for kind in integers},
        **{kind.id: lambda _: pa.float64() for kind in (pa.float16(), pa.float32())},
        pa.timestamp("s").id: lambda kind: kind if kind.unit == "ns" else pa.timestamp("us", kind.tz),
        pa.duration("s").id: lambda kind: kind if kind.unit == "ns" else pa.duration("us"),
    }


def _are_large(values: Sequence[Any]) -> bool:
    """Return whether all Python integers need a `uint64` column."""
    return all(kind_of(value) is np.uint64 for value in values if value is not None)


def _only_kind(types: set[type], values: Sequence[Any]) -> Any:
    """Return the kind of all values except None, or None if the values have several kinds.

    Args:
        types: the types of the values.
    """
    kinds = set(map(_kind_of_type, types))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is not datetime and kind not in _WITH_DTYPE:
        return kind
    detail = attrgetter("tzinfo" if kind is datetime else "dtype")
    present = [value for value in values if value is not None]
    first = detail(present[0])
    return (kind, first) if countOf(map(detail, present), first) == len(present) else None


@cache
def _kinds_of_columns() -> dict[int, type]:
    """Return the kinds of columns that Arrow creates only from values of one kind. A column of floats may also contain an `int`."""
    import pyarrow as pa

    return {pa.string().id: str, pa.bool_().id: bool, pa.float64().id: float}


def _kind_of_type(kind: type) -> Any:
    return kind if issubclass(kind, np.generic) else next((base for base in _BASES if issubclass(kind, base)), kind)


def _are_floats(values: Sequence[Any], array: pa.Array) -> bool:
    """Return whether no value of a column of floats is an integer.

    Integers are whole numbers. In a column without whole numbers, the values need no check.
    """
    if len(values) >= _MANY:
        numbers = array.to_numpy(zero_copy_only=False)
        if not (numbers == np.rint(numbers)).any():
            return True
    return countOf(map(type, values), float) == len(values) - int(array.null_count)


def _are_integers(values: Sequence[Any]) -> bool:
    """Return whether all values are `int`, `bool` or None.

    The fastest check is a sum: one value of another type gives a sum of another type.
    """
    try:
        return type(sum(values)) is int
    except Exception:  # a value that cannot be added, such as None
        return {int, bool, type(None)}.issuperset(map(type, values))


def _column_of_numpy(values: Sequence[Any]) -> tuple[pa.Array, Any] | None:
    """Return the column of numpy scalars of one type and their kind, or None if Arrow or numpy would create another column."""
    import pyarrow as pa

    scalar = type(values[0])
    if scalar in _WIDEST:
        wide, kind = _WIDEST[scalar]
        return pa.array(np.array(values).astype(wide, copy=False)), kind
    if scalar in _TIMES and np.datetime_data(values[0].dtype)[0] in _UNITS:
        array = pa.array(values)
        wide, kind = (
            (pa.timestamp("us"), (datetime, None)) if scalar is np.datetime64 else (pa.duration("us"), timedelta)
        )
        return (array if array.type == wide else array.cast(wide), kind) if array.null_count < len(array) else None
    return None


def python_values(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values with each numpy scalar replaced by the Python value in the table above.

    >>> python_values([np.int8(100), 5, np.float16(1.5), None, np.datetime64("NaT")])
    [100, 5, 1.5, None, None]
    """
    if any(issubclass(kind, np.generic) for kind in set(map(type, values))):
        return list(map(python_value, values))
    return values


def python_value(value: Any) -> Any:
    """Return a value converted as in `python_values`, also inside lists, tuples and dicts. Arrays are converted only if
    they hold objects.
    """
    if isinstance(value, np.generic):
        return _python_scalar(value)
    if isinstance(value, dict):
        return {key: python_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return python_value(value.tolist())
    return list(map(python_value, value)) if isinstance(value, list | tuple) else value


def _python_scalar(value: np.generic) -> Any:
    if isinstance(value, _TIMES):
        if np.isnat(value):
            return None
        found = value.item()  # `item` returns an int if Python cannot represent the time
        return value if isinstance(found, int) else found
    return value.item() if value.dtype.kind in "US" or _is_plain_number(value.dtype) else value


def _is_plain_number(dtype: np.dtype[Any]) -> bool:
    return (dtype.kind in "bif" and dtype.itemsize <= _LARGEST) or (dtype.kind == "u" and dtype.itemsize < _LARGEST)


def _may_hold_numpy(values: Sequence[Any]) -> bool:
    """Return whether lists or dicts may hold numpy values. The fastest check uses msgspec, which cannot encode numpy values."""
    try:
        _encode(values)
    except Exception:  # numpy's values, and others that msgspec cannot encode
        return True
    return False


_encode = msgspec.msgpack.Encoder().encode


def _refuse_mixed_times(values: Any) -> None:
    """Raise a TypeError if lists and dicts hold `datetime64` next to other numpy values, because pyarrow crashes on them."""
    found = set(_numpy_types(values))
    if len(found) > 1 and any(kind.kind == "M" for kind in found):
        raise TypeError(f"numpy values of several types are mixed: {', '.join(sorted(map(str, found)))}")


def _numpy_types(value: Any) -> Iterator[np.dtype[Any]]:
    if isinstance(value, np.generic | np.ndarray):
        yield value.dtype
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numpy_types(part)
