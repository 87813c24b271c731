"""Records that were decoded into objects, and become columns only when an operator asks for columns.

msgspec turns a JSON line into an object with C slots in about 0.1 µs, which includes a check of every type. Arrow's own JSON
reader needs three times as long. msgspec is faster even if the objects are converted to columns afterwards. A reader cannot
know whether the first operator wants rows or columns. So the batch makes each form once, on request.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.connectors.formats.arrow_types import fields_of_class
from penstock.records.batch import ColumnBatch, RowBatch, joined_timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    import numpy.typing as npt

    from penstock.connectors.formats.shape import RecordShape


def _may_change(kind: pa.DataType) -> bool:
    """Return whether a column of this type may change values of the declared Python type."""
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_timestamp, types.is_time, types.is_decimal, types.is_float32))


def _keeps_values(values: list[Any], kind: pa.DataType) -> bool:
    """Return whether a column of this type keeps these values unchanged, with the same type and the same text.

    A column of times has one zone for all values, and a column of decimals has one scale.
    """
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        zone = None if getattr(kind, "tz", None) is None else UTC
        return {getattr(value, "tzinfo", False) for value in values if value is not None} <= {zone}
    if pa.types.is_decimal(kind):
        return all(_is_exact(value, kind) for value in values if value is not None)
    with np.errstate(over="ignore"):
        numbers = np.array(values, np.float64)
        return bool(np.all((numbers.astype(np.float32) == numbers) | np.isnan(numbers)))


def _is_exact(value: Decimal, kind: pa.DataType) -> bool:
    """Return whether a column of decimals keeps the value exactly: the same scale, all digits, and no negative zero."""
    sign, digits, exponent = value.as_tuple()
    return exponent == -kind.scale and len(digits) <= kind.precision and not (sign and not value)


class ObjectColumns:
    """The rules for columns and rows of decoded objects. `getters` has one function per field. `size` returns the bytes of an object."""

    def __init__(
        self,
        shape: RecordShape,
        getters: list[Callable[[Any], Any]],
        to_rows: Callable[[list[Any]], list[Any]],
        size: Callable[[Any], int] | None = None,
    ) -> None:
        self.schema: pa.Schema = shape.schema
        self.maker = shape.maker
        self.to_rows = to_rows
        self.size = size
        self._getters = getters
        self._nested = [pa.types.is_nested(field.type) for field in self.schema]
        self._is_flat = not any(self._nested)
        self._inexact = [index for index, field in enumerate(self.schema) if _may_change(field.type)]

    def keeps_values(self, objects: list[Any]) -> bool:
        """Return whether records that are made from the columns have the same values as the objects, of the same types."""
        return self._is_flat and all(
            _keeps_values(list(map(self._getters[index], objects)), self.schema.field(index).type)
            for index in self._inexact
        )

    def changed_values(self, objects: list[Any]) -> dict[str, Sequence[Any]]:
        """Return the values of times and `float32` that their columns change, by field.

        Columns of decimals are left out, because their values are equal to the objects' values.
        """
        found: dict[str, Sequence[Any]] = {}
        for index in self._inexact:
            field = self.schema.field(index)
            if not pa.types.is_decimal(field.type):
                values = list(map(self._getters[index], objects))
                if not _keeps_values(values, field.type):
                    found[field.name] = values
        return found

    def column(self, objects: list[Any], index: int) -> pa.Array:
        values = list(map(self._getters[index], objects))
        if self._nested[index]:
            values = [_plain(value) for value in values]
        return pa.array(values, self.schema.field(index).type)


def _plain(value: Any) -> Any:
    """Return nested records as dicts, because Arrow accepts no other form."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    cls: Any = type(value)
    fields = fields_of_class(cls)
    return value if fields is None else {name: _plain(getattr(value, name)) for name in fields}


class ObjectBatch(ColumnBatch):
    """A ColumnBatch over decoded objects. It keeps each column that it has made, and parts of the batch reuse it."""

    __slots__ = ("_arrays", "_kind", "_objects")

    def __init__(
        self, objects: list[Any], kind: ObjectColumns, timestamps: npt.NDArray[np.int64] | None = None
    ) -> None:
        self._objects = objects
        self._kind = kind
        self._arrays: dict[int, pa.Array] = {}
        self._rows: RowBatch | None = None
        self.timestamps = timestamps
        self.make_rows = kind.maker

    @property
    def columns(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(map(self.column_at, range(len(self.schema)))), schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        return self._kind.schema

    def column(self, name: str) -> pa.Array:
        column = self.find(name)
        if column is None:
            raise KeyError(name)
        return column

    def column_at(self, index: int) -> pa.Array:
        array = self._arrays.get(index)
        if array is None:
            array = self._arrays[index] = self._kind.column(self._objects, index)
        return array

    def select(self, indexes: Iterable[int]) -> pa.RecordBatch:
        fields = [(self.schema.field(index), self.column_at(index)) for index in indexes]
        return pa.RecordBatch.from_arrays([array for _, array in fields], schema=pa.schema([f for f, _ in fields]))

    def with_timestamps(self, timestamps: npt.NDArray[np.int64] | None) -> ObjectBatch:
        stamped = ObjectBatch(self._objects, self._kind, timestamps)
        stamped._arrays = self._arrays
        return stamped

    def slice(self, begin: int, end: int) -> ObjectBatch:
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        part = ObjectBatch(self._objects[begin:end], self._kind, timestamps)
        part._arrays = {index: array.slice(begin, end - begin) for index, array in self._arrays.items()}
        return part

    def take(self, positions: npt.NDArray[np.int64]) -> ObjectBatch:
        timestamps = None if self.timestamps is None else self.timestamps[positions]
        objects = self._objects
        part = ObjectBatch([objects[position] for position in positions.tolist()], self._kind, timestamps)
        indices = pa.array(positions)
        part._arrays = {index: array.take(indices) for index, array in self._arrays.items()}
        return part

    def has_same_columns_as(self, other: ColumnBatch) -> bool:
        return (
            isinstance(other, ObjectBatch)
            and self._kind is other._kind
            and (self.timestamps is None) == (other.timestamps is None)
        )

    def joined(self, others: Sequence[ColumnBatch]) -> ObjectBatch:
        parts = [self, *(other for other in others if isinstance(other, ObjectBatch))]
        objects = [value for part in parts for value in part._objects]
        whole = ObjectBatch(objects, self._kind, joined_timestamps(parts))
        for index in self._arrays:
            whole._arrays[index] = pa.concat_arrays([part.column_at(index) for part in parts])
        return whole

    def travels_as_columns(self, *, wanted: bool) -> bool:
        """Return whether columns are wanted and no column changes a value.

        Nested records never travel as columns, because converting them to columns and back costs many times as much.
        """
        return wanted and self._kind.keeps_values(self._objects)

    def changed_values(self) -> dict[str, Sequence[Any]]:
        return self._kind.changed_values(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def approximate_bytes(self) -> int:
        """Return the bytes of the objects. Creating columns only to measure their size would take most of the time."""
        size, count = self._kind.size, len(self._objects)
        if size is None or not count:
            return RowBatch(self._objects).approximate_bytes()
        looked_at = {0, count // 2, count - 1}
        return sum(size(self._objects[n]) for n in looked_at) * count // len(looked_at)

    def rows(self) -> RowBatch:
        if self._rows is None:
            timestamps = None if self.timestamps is None else self.timestamps.tolist()
            self._rows = RowBatch(self._kind.to_rows(self._objects), timestamps)
        return self._rows

    def __repr__(self) -> str:
        return f"ObjectBatch({len(self._objects)} rows of {self._kind.schema.names})"
