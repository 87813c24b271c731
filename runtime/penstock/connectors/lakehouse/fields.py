"""Check that a program's fields and a table's columns fit together, before the job starts and before each commit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.formats.columns.exact_cast import exact_cast

_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.uint8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.uint16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.uint32(): (pa.int64(),),
    pa.float16(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


@dataclass(frozen=True)
class Fit:
    """The result of a comparison. `schema`: the written columns with the table's types. `new`: columns that the table does not have
    yet."""

    schema: pa.Schema
    new: tuple[pa.Field, ...] = ()


def fit(declared: pa.Schema, table: pa.Schema, name: str, *, adds_columns: bool = False) -> Fit:
    """Return how records with these fields are written into a table with these columns.

    Args:
        name: the table's name, for errors.
        adds_columns: fields that the table does not have become columns of it.

    Raises:
        InvalidJob: the fields do not fit. The message names every such field.

    >>> fit(pa.schema({"n": pa.int32()}), pa.schema({"n": pa.int64(), "note": pa.string()}), "t").schema
    n: int64
    """
    written, new, problems = [], [], []
    for field in declared:
        index = table.get_field_index(field.name)
        if index < 0:
            new.append(field.with_nullable(nullable=True))
            if not adds_columns:
                problems.append(f"no column {field.name!r}")
            continue
        column = table.field(index)
        if not fits(field.type, column.type):
            problems.append(f"column {field.name!r} is {column.type}, but the job's field is {field.type}")
        written.append(column)
    unset = [column.name for column in table if not column.nullable and declared.get_field_index(column.name) < 0]
    problems += [f"column {name!r} is required, but the job has no such field" for name in unset]
    if problems:
        raise InvalidJob(
            f"records with the fields {', '.join(f'{f.name}: {f.type}' for f in declared)} do not fit table {name!r}: "
            + "; ".join(problems),
            remedy="give the sink the fields that the table has (a pyarrow.Schema says types exactly)"
            + ("" if adds_columns else ", or add_columns=True for columns that are new"),
        )
    return Fit(pa.schema(written + new), tuple(new))


def fits(value: pa.DataType, column: pa.DataType) -> bool:
    """Return whether every value of the first type is also a value of the column's type.

    >>> fits(pa.int32(), pa.int64()), fits(pa.int64(), pa.int32()), fits(pa.list_(pa.int8()), pa.list_(pa.int32()))
    (True, False, True)
    """
    if value == column or column in _WIDER.get(value, ()):
        return True
    if pa.types.is_timestamp(value) and pa.types.is_timestamp(column):
        return column.tz is not None or value.tz is None
    if pa.types.is_decimal(value) and pa.types.is_decimal(column):
        return bool(value.scale <= column.scale and value.precision - value.scale <= column.precision - column.scale)
    if pa.types.is_struct(value) and pa.types.is_struct(column):
        names = [field.name for field in value] == [field.name for field in column]
        return names and all(fits(a.type, b.type) for a, b in zip(value, column, strict=True))
    if pa.types.is_map(value) and pa.types.is_map(column):
        return fits(value.key_type, column.key_type) and fits(value.item_type, column.item_type)
    if _is_list(value) and _is_list(column):
        return fits(value.value_type, column.value_type)
    return (_is_text(value) and _is_text(column)) or (_is_bytes(value) and _is_bytes(column))


def as_columns(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns with the table's types.

    Raises:
        RecordFormatError: a column is missing, has a value that does not fit, or has nulls where the table allows none.
    """
    arrays = []
    for field in schema:
        index = columns.schema.get_field_index(field.name)
        if index < 0:
            raise RecordFormatError(
                f"records have the columns {', '.join(columns.schema.names)}, but no column {field.name!r}",
                remedy="give the stream the fields that the sink declares",
            )
        column = columns.column(index)
        if column.null_count and not field.nullable:
            raise RecordFormatError(
                f"column {field.name!r} of the table allows no nulls, but a record has no value for it",
                remedy="filter such records out, or make the column nullable",
            )
        try:
            arrays.append(exact_cast(column, field.type))
        except pa.ArrowException as error:
            raise RecordFormatError(
                f"values of field {field.name!r} cannot be written as {field.type}: {error}",
                remedy="give the field the type of its values, or convert the values before the sink",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
