"""Rows to columns and back, for the operators that work on whole Arrow record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.common.types import Row
from penstock.records.fields import Field, field_names, read_field, shortened

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.records.batch import ColumnBatch


def rows_as_dicts(columns: pa.RecordBatch) -> list[Any]:
    """Every record as a dict of its fields."""
    rows: list[Any] = columns.to_pylist()
    return rows


def rows_as_tuples(columns: pa.RecordBatch) -> list[Any]:
    """Every record as a tuple of its fields."""
    if not columns.num_columns:
        return [()] * columns.num_rows
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))


def rows_as_rows(columns: pa.RecordBatch) -> list[Any]:
    """Every record as a `Row` with field names."""
    return list(map(Row.maker(columns.schema.names), rows_as_tuples(columns)))


def columns_of(values: list[Any]) -> pa.RecordBatch:
    """One column per field: the fields' names, or `f0`, `f1`, … for tuples and lists, or `value` for plain values.

    Raises:
        RecordFormatError: the records have no common shape or a value Arrow does not know.
    """
    import pyarrow as pa

    try:
        first = values[0]
        if isinstance(first, dict):
            other = next(
                (value for value in values if not isinstance(value, dict) or value.keys() != first.keys()), None
            )
            if other is not None:
                raise _different_fields(first, other)
            return pa.RecordBatch.from_pylist(values)
        names = field_names(first)
        if names is not None:
            return pa.RecordBatch.from_pydict({name: read_field(values, name) for name in names})
        if isinstance(first, tuple | list | Row):
            return pa.RecordBatch.from_pydict(
                {f"f{i}": list(column) for i, column in enumerate(zip(*values, strict=True))}
            )
        return pa.RecordBatch.from_pydict({"value": values})
    except (pa.ArrowException, ValueError) as error:
        raise RecordFormatError(
            f"the records cannot become columns: {error}; the first is {shortened(values[0])}",
            remedy="give all records of the stream the same fields with the same types",
        ) from error


class ColumnsOf:
    """`columns_of` for the batches of one stream, in which all records have the fields of the first one.

    Where a batch begins and ends must not matter: a record of another shape is refused wherever it comes.
    """

    def __init__(self) -> None:
        self._first: Any = None

    def __call__(self, values: list[Any]) -> pa.RecordBatch:
        """
        Raises:
            RecordFormatError: the records have no common shape or a value Arrow does not know.
        """
        value = values[0]
        if isinstance(value, dict):
            if self._first is None:
                self._first = value
            elif self._first.keys() != value.keys():
                raise _different_fields(self._first, value)
        return columns_of(values)


def _different_fields(first: Any, other: Any) -> RecordFormatError:
    missing = first.keys() ^ other.keys() if isinstance(other, dict) else ()
    only = f" (only one has {', '.join(sorted(map(repr, missing)))})" if missing else ""
    return RecordFormatError(
        f"records of different fields cannot become columns: {shortened(first)} and {shortened(other)}{only}",
        remedy="give all records of the stream the same fields, for example None where there is no value",
    )


def column_of(batch: ColumnBatch, field: Field) -> pa.Array:
    """The column of a field.

    Raises:
        RecordFormatError: there is no such column; names those there are.
    """
    column = batch.find(field)
    if column is None:
        raise RecordFormatError(
            f"no field {field!r}: the records have the columns {', '.join(batch.schema.names)}",
            remedy="name a column of the stream",
        )
    return column
