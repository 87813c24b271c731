"""Conversion of rows to columns and back, for the operators that work on whole Arrow record batches."""

from __future__ import annotations

from datetime import UTC, time
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.common.types import Row
from penstock.records.batch import ColumnBatch
from penstock.records.fields import Field, field_names, read_field, shortened
from penstock.records.kinds import column_and_kind, kind_of, python_values, wide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.records.batch import Batch

_UNFIT = (ValueError, TypeError, OverflowError, NotImplementedError)
"""Errors of pyarrow for values that it cannot convert to a column. `ArrowNotImplementedError` is a subclass of `NotImplementedError`."""


def rows_as_dicts(columns: pa.RecordBatch) -> list[Any]:
    """Return every record as a dict of its fields. Timestamps of a column in UTC have the zone `datetime.UTC`."""
    if not any(_is_in_utc(field.type) for field in columns.schema):
        rows: list[Any] = columns.to_pylist()
        return rows
    names = columns.schema.names
    return [dict(zip(names, row, strict=True)) for row in rows_as_tuples(columns)]


def rows_as_tuples(columns: pa.RecordBatch) -> list[Any]:
    """Return every record as a tuple of its fields. Timestamps of a column in UTC have the zone `datetime.UTC`."""
    if not columns.num_columns:
        return [()] * columns.num_rows
    return list(zip(*map(_values, columns.columns), strict=True))


def _values(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if not _is_in_utc(column.type) or column.type.unit == "ns":
        values: list[Any] = column.to_pylist()
        return values
    naive = column.cast(pa.timestamp(column.type.unit)).to_pylist()  # Arrow looks up the zone for each value
    return [None if value is None else value.replace(tzinfo=UTC) for value in naive]


def _is_in_utc(kind: pa.DataType) -> bool:
    """Return whether the type is a timestamp in UTC. The class of Arrow's zone depends on the installed packages."""
    return getattr(kind, "tz", None) == "UTC"


def rows_as_rows(columns: pa.RecordBatch) -> list[Any]:
    """Return every record as a `Row` with field names."""
    return list(map(Row.maker(columns.schema.names), rows_as_tuples(columns)))


def columns_of(values: list[Any]) -> pa.RecordBatch:
    """Return one column per field. Tuples and lists have the fields `f0`, `f1`, …, and plain values have the field `value`.

    Raises:
        RecordFormatError: the records have no common shape, or Arrow has no type for a value.
    """
    import pyarrow as pa

    try:
        fields = _fields_of(values)
        if not fields:
            return pa.RecordBatch.from_pylist(values)
        return pa.RecordBatch.from_arrays([column_and_kind(column)[0] for column in fields.values()], list(fields))
    except _UNFIT as error:
        raise _no_columns(error, values) from error


def _fields_of(values: list[Any]) -> dict[str, Sequence[Any]]:
    """Return the values of every field."""
    first = values[0]
    if isinstance(first, dict):
        return _fields_of_dicts(values)
    names = field_names(first)
    if names is not None:
        return {name: read_field(values, name) for name in names}
    if isinstance(first, tuple | list | Row):
        return {f"f{i}": column for i, column in enumerate(zip(*values, strict=True))}
    return {"value": values}


def _fields_of_dicts(values: list[Any]) -> dict[str, Sequence[Any]]:
    first = values[0]
    if set(map(type, values)) == {dict} and set(map(len, values)) == {len(first)}:
        try:
            return {name: list(map(itemgetter(name), values)) for name in first}
        except KeyError:
            pass  # the check below names the field
    other = next((value for value in values if not isinstance(value, dict) or value.keys() != first.keys()), None)
    if other is not None:
        raise _different_fields(first, other)
    return {name: [value[name] for value in values] for name in first}


class ColumnsOf:
    """The columns of the records of one stream. All records have the fields of the first record.

    The boundaries of batches do not affect the result for a record. To ensure this, a record with other fields is always refused, and a
    column holds values of one Python type. A column that has only None gets the last type of its field.

    Args:
        keeps_records: the caller only reads the columns, and keeps the records. Columns may then omit the zone of a `time`, because Arrow
            cannot store it.
    """

    def __init__(self, *, keeps_records: bool = False) -> None:
        self._keeps_records = keeps_records
        self._first: Any = None
        self._kinds: dict[str, Any] = {}
        self._types: dict[str, pa.DataType] = {}

    def parts(self, batch: Batch) -> Iterator[tuple[Batch, pa.RecordBatch]]:
        """Yield the records in order and their columns. A new part begins at each change of a field's type.

        Columns have the values that functions on rows see, even if a declared type would change the values.

        Raises:
            RecordFormatError: the records have no common shape, or Arrow has no type for a value.
        """
        if isinstance(batch, ColumnBatch):
            yield from self._parts_of_columns(batch)
            return
        values = batch.values
        if isinstance(values[0], dict):
            if self._first is None:
                self._first = values[0]
            elif self._first.keys() != values[0].keys():
                raise _different_fields(self._first, values[0])
        try:
            fields = _fields_of(values)
            if not fields:
                yield batch, columns_of(values)
                return
            whole = self._whole(fields)
            if whole is not None:
                yield batch, whole
                return
            fields = {name: python_values(column) for name, column in fields.items()}
            ends = self._ends(fields)
            for begin, end in zip([0, *ends], ends, strict=False):
                part = {name: column[begin:end] for name, column in fields.items()}
                yield (
                    batch.slice(begin, end),
                    self._record_batch({name: self._column(part[name])[0] for name in part}),
                )
        except _UNFIT as error:
            raise _no_columns(error, values) from error

    def _parts_of_columns(self, batch: ColumnBatch) -> Iterator[tuple[Batch, pa.RecordBatch]]:
        changed = batch.changed_values()
        columns = wide(batch.columns)
        if not changed:
            yield batch, columns
            return
        try:
            ends = [len(batch)] if self._whole(changed) is not None else self._ends(changed)
            for begin, end in zip([0, *ends], ends, strict=False):
                part = columns.slice(begin, end - begin)
                for index, field in enumerate(part.schema):
                    values = changed.get(field.name, ())[begin:end]
                    if any(value is not None for value in values):
                        array = self._column(values)[0]
                        part = part.set_column(index, field.with_type(array.type), array)
                yield batch.slice(begin, end), part
        except _UNFIT as error:
            raise _no_columns(error, batch.slice(0, 1).rows().values) from error

    def _whole(self, fields: dict[str, Sequence[Any]]) -> pa.RecordBatch | None:
        """Return the columns of all records, or None if the type of a field changes between two records."""
        arrays, kinds = {}, {}
        for name, column in fields.items():
            known = self._kinds.get(name)
            try:
                arrays[name], kind = self._column(column, known)
            except _UNFIT:
                return None  # smaller parts of the values may have columns
            array = arrays[name]
            if array.null_count == len(column):
                continue
            if kind is None or (array.null_count and known not in (None, kind)):
                return None
            kinds[name] = kind
        self._kinds.update(kinds)
        return self._record_batch(arrays)

    def _column(self, values: Sequence[Any], known: Any = None) -> tuple[pa.Array, Any]:
        """Return the column of the values and their kind, like `column_and_kind`."""
        array, kind = column_and_kind(values, known)
        if kind is time and not self._keeps_records and any(value is not None and value.tzinfo for value in values):
            raise TypeError("a time with a zone has no column, because Arrow would drop the zone")
        return array, kind

    def _ends(self, fields: dict[str, Sequence[Any]]) -> list[int]:
        """Return the ends of the parts."""
        size = len(next(iter(fields.values())))
        ends = {size}
        for name, column in fields.items():
            known = self._kinds.get(name)
            for place, value in enumerate(column):
                kind = known if value is None else kind_of(value)
                if place and kind != known:
                    ends.add(place)
                known = kind
            self._kinds[name] = known
        return sorted(ends)

    def _record_batch(self, arrays: dict[str, pa.Array]) -> pa.RecordBatch:
        """Return the columns. A column that has only None gets the last type of its field."""
        import pyarrow as pa

        for name, array in arrays.items():
            if array.null_count < len(array):
                self._types[name] = array.type
            elif name in self._types:
                arrays[name] = pa.nulls(len(array), self._types[name])
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))


def _no_columns(error: Exception, values: list[Any]) -> RecordFormatError:
    return RecordFormatError(
        f"the records cannot be converted to columns: {error}. The first record is {shortened(values[0])}",
        remedy="use the same fields in all records of the stream, with types of Arrow. Integers have at most 64 bits",
    )


def _different_fields(first: Any, other: Any) -> RecordFormatError:
    missing = first.keys() ^ other.keys() if isinstance(other, dict) else ()
    only = f" (only one has {', '.join(sorted(map(repr, missing)))})" if missing else ""
    return RecordFormatError(
        f"records with different fields cannot be converted to columns: {shortened(first)} and {shortened(other)}{only}",
        remedy="use the same fields in all records of the stream, for example with None for a missing value",
    )


def column_of(batch: ColumnBatch, field: Field) -> pa.Array:
    """Return the column of a field.

    Raises:
        RecordFormatError: the column does not exist. The error names the existing columns.
    """
    column = batch.find(field)
    if column is None:
        raise RecordFormatError(
            f"no field {field!r}: the records have the columns {', '.join(batch.schema.names)}",
            remedy="name a column of the stream",
        )
    return column
