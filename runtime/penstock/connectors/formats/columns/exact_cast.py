"""Casts of columns that lose no value.

Arrow does not check all of its casts. A cast to a decimal with more digits after the point can overflow. A number with many digits before
the point then becomes another number.
"""

from __future__ import annotations

import pyarrow as pa


def exact_cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column with another type.

    Raises:
        ArrowInvalid: a value does not fit.

    >>> exact_cast(pa.array([1, None], pa.int32()), pa.int64()).type
    DataType(int64)
    """
    if column.type == kind:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and pa.types.is_timestamp(kind):
        return _without_nanoseconds(column, kind)
    found = column.cast(kind)
    if _has_decimal(column.type) and _has_decimal(kind):
        _check_same(column, found)
    return found


def _check_same(column: pa.Array, found: pa.Array) -> None:
    try:
        same = found.cast(column.type)
        is_same = same.equals(column) or same.to_pylist() == column.to_pylist()
    except pa.ArrowInvalid:
        is_same = False
    if not is_same:
        raise pa.ArrowInvalid(f"a number of {column.type} has more digits before the point than {found.type} allows")


def _without_nanoseconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(
            f"it has times of {column.type} with fractions of a microsecond, which a datetime cannot represent. Declare the field as int "
            "to read nanoseconds since 1970"
        ) from None


def _has_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_decimal(kind.key_type) or _has_decimal(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_decimal(kind.value_type)
    if pa.types.is_struct(kind):
        return any(_has_decimal(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind))
