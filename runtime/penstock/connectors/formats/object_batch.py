"""Records that were decoded into objects, and become columns only when an operator asks for columns.

msgspec turns a JSON line into an object with C slots in about 0.1 µs and has then checked every type; Arrow's own JSON
reader needs three times as long, and columns made of such objects are still cheaper than its columns. Whether the first
operator wants rows or columns a reader cannot know, so the batch makes what is asked for, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.formats.arrow_types import fields_of_class
from penstock.records.batch import ColumnBatch, RowBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from penstock.connectors.formats.shape import RecordShape


class ObjectColumns:
    """How columns and rows are made of the decoded objects of one shape. `getters`: one per field."""

    def __init__(
        self, shape: RecordShape, getters: list[Callable[[Any], Any]], to_rows: Callable[[list[Any]], list[Any]]
    ) -> None:
        self.schema: pa.Schema = shape.schema
        self.maker = shape.maker
        self.to_rows = to_rows
        self._getters = getters
        self._nested = [pa.types.is_nested(field.type) for field in self.schema]

    def columns(self, objects: list[Any]) -> pa.RecordBatch:
        arrays = [self.column(objects, index) for index in range(len(self._getters))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

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
    """A ColumnBatch over decoded objects."""

    __slots__ = ("_columns", "_kind", "_objects")

    def __init__(
        self, objects: list[Any], kind: ObjectColumns, timestamps: npt.NDArray[np.int64] | None = None
    ) -> None:
        self._objects = objects
        self._kind = kind
        self._columns: pa.RecordBatch | None = None
        self._rows: RowBatch | None = None
        self.timestamps = timestamps
        self.make_rows = kind.maker

    @property
    def columns(self) -> pa.RecordBatch:
        if self._columns is None:
            self._columns = self._kind.columns(self._objects)
        return self._columns

    def column(self, name: str) -> pa.Array:
        if self._columns is not None:
            return self._columns.column(name)
        index = self._kind.schema.get_field_index(name)
        if index < 0:
            raise KeyError(name)
        return self._kind.column(self._objects, index)

    def with_timestamps(self, timestamps: npt.NDArray[np.int64] | None) -> ObjectBatch:
        return ObjectBatch(self._objects, self._kind, timestamps)

    def slice(self, begin: int, end: int) -> ObjectBatch:
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        return ObjectBatch(self._objects[begin:end], self._kind, timestamps)

    def __len__(self) -> int:
        return len(self._objects)

    def approximate_bytes(self) -> int:
        """Of the objects: making columns only to look at their size would be most of the work."""
        return RowBatch(self._objects).approximate_bytes()

    def rows(self) -> RowBatch:
        if self._rows is None:
            timestamps = None if self.timestamps is None else self.timestamps.tolist()
            self._rows = RowBatch(self._kind.to_rows(self._objects), timestamps)
        return self._rows

    def __repr__(self) -> str:
        return f"ObjectBatch({len(self._objects)} rows of {self._kind.schema.names})"
