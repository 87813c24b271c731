"""Records that were decoded into objects, and become columns only when an operator asks for columns.

msgspec turns a JSON line into an object with C slots in about 0.1 µs and has then checked every type; Arrow's own JSON
reader needs three times as long, and columns made of such objects are still cheaper than its columns. Whether the first
operator wants rows or columns a reader cannot know, so the batch makes what is asked for, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.formats.arrow_types import fields_of_class
from penstock.records.batch import ColumnBatch, RowBatch, joined_timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from penstock.connectors.formats.shape import RecordShape


class ObjectColumns:
    """How columns and rows are made of the decoded objects of one shape. `getters`: one per field. `size`: bytes of an object."""

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
        self.is_flat = not any(self._nested)

    def column(self, objects: list[Any], index: int) -> pa.Array:
        values = list(map(self._getters[index], objects))
        if self._nested[index]:
            values = [_plain(value) for value in values]
        return pa.array(values, self.schema.field(index).type)


def _plain(value: Any) -> Any:
    """Nested records as dicts, as Arrow takes them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    cls: Any = type(value)
    fields = fields_of_class(cls)
    return value if fields is None else {name: _plain(getattr(value, name)) for name in fields}


class ObjectBatch(ColumnBatch):
    """A ColumnBatch over decoded objects. A column that was made is kept, and goes along where the batch is cut."""

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

    def goes_with(self, other: ColumnBatch) -> bool:
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

    def goes_as_columns(self, *, wanted: bool) -> bool:
        """Nested records never: making columns of them and records of those again costs many times what they do."""
        return wanted and self._kind.is_flat

    def __len__(self) -> int:
        return len(self._objects)

    def approximate_bytes(self) -> int:
        """Of the objects: making columns only to look at their size would be most of the work."""
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
