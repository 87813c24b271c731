"""The declared columns of files that are read, and of batches that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.common.errors import RecordFormatError
from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.connectors.formats.columns.exact_cast import exact_cast
from penstock.records.columns import rows_as_tuples

if TYPE_CHECKING:
    from penstock.connectors.formats.shape import RecordShape
    from penstock.records.batch import ColumnBatch


def declared_columns(batch: ColumnBatch, fields: DeclaredFields) -> pa.RecordBatch:
    """Return the columns of a batch to write, in the order and with the names of the declared fields.

    The columns are matched by name if the batch's records name their fields, else by position. Single records are matched in the same way.

    Raises:
        RecordFormatError: the records have other fields.
    """
    names = tuple(batch.schema.names)
    if names == fields.names:
        return batch.columns
    try:
        if _makes_tuples(batch.make_rows):
            order: list[int | None] = list(fields.values(tuple(range(len(names)))))
        else:
            order = fields.order_of(names)
    except FieldMismatch as error:
        raise RecordFormatError(
            f"columns {', '.join(names)} cannot be written with the declared fields: {error}",
            remedy="give the stream exactly the fields that the sink declares",
        ) from error
    arrays = [pa.nulls(len(batch)) if place is None else batch.column_at(place) for place in order]
    return pa.RecordBatch.from_arrays(arrays, names=list(fields.names))


def _makes_tuples(make_rows: object) -> bool:
    return make_rows is rows_as_tuples or getattr(getattr(make_rows, "shape", None), "form", None) == "tuple"


def cast_to(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return columns with the names of the schema and its types.

    Raises:
        RecordFormatError: a value does not fit its type. The error names the field.
    """
    arrays = []
    for column, field in zip(columns.columns, schema, strict=True):
        try:
            arrays.append(exact_cast(column, field.type))
        except pa.ArrowException as error:
            raise RecordFormatError(
                f"values of field {field.name!r} cannot be written as {field.type}: {error}",
                remedy="give the field the type its values have, or convert them before the sink",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def columns_in(schema: pa.Schema, shape: RecordShape, path: str, *, case_sensitive: bool) -> list[tuple[str, str]]:
    """Return (name in the file, declared name) of every declared column that the file has. Only optional columns may be missing.

    Raises:
        RecordFormatError: the file does not have a required column.
    """
    have = {name if case_sensitive else name.lower(): name for name in schema.names}
    pairs = [(have.get(name if case_sensitive else name.lower()), name) for name in shape.names]
    optional = shape.declared_fields.optional
    missing = [name for found, name in pairs if found is None and name not in optional]
    if missing:
        raise RecordFormatError(
            f"{path!r} has no column {', '.join(map(repr, missing))}: it has {', '.join(schema.names)}",
            remedy="declare the columns that the files have. Add `| None` to columns that only some files have",
        )
    return [(found, name) for found, name in pairs if found is not None]


def shape_in(schema: pa.Schema, shape: RecordShape, columns: list[tuple[str, str]]) -> RecordShape:
    """Return the shape of a file's records. Times with a time zone in the file become aware datetimes in UTC.

    A pyarrow schema declares whether times have a zone, so its shape does not change.
    """
    if isinstance(shape.declared, pa.Schema):
        return shape
    in_file = {name: schema.field(found).type for found, name in columns}
    times = [field.name for field in shape.schema if field.type == pa.timestamp("us")]
    return shape.with_zones(
        name for name in times if pa.types.is_timestamp(kind := in_file.get(name, pa.null())) and kind.tz is not None
    )


def shaped(
    batch: pa.RecordBatch, columns: list[tuple[str, str]], shape: RecordShape, path: str, where: str
) -> pa.RecordBatch:
    """Return the declared columns in their order, with their types. Columns that the file does not have are null.

    Args:
        columns: the result of `columns_in`.
        where: the place in the file, for errors.

    Raises:
        RecordFormatError: a value does not fit the declared type, or a column that is not optional has nulls.
        ArrowException: a text is not valid UTF-8.
    """
    schema = shape.schema
    in_file = {name: found for found, name in columns}
    arrays = []
    for declared, field in zip(shape.fields, schema, strict=True):
        if field.name not in in_file:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(in_file[field.name])
        try:
            array = exact_cast(column, field.type)
        except pa.ArrowException as error:
            raise RecordFormatError(
                f"column {field.name!r} of {path!r}, {where}, has the type {column.type} and cannot be read as {field.type}: {error}",
                remedy="declare the field with a type that all values of the column have, such as DataTypes.DECIMAL(38, 0)"
                if pa.types.is_decimal(column.type)
                else "declare the field with a type that all values of the column have",
            ) from error
        if array.null_count and not declared.optional:
            raise RecordFormatError(
                f"column {field.name!r} of {path!r}, {where}, holds nulls, but the field is not optional",
                remedy=f"declare it as {declared.type!r} | None",
            )
        _check_texts(array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_texts(array: pa.Array) -> None:
    """Check that all texts are UTF-8. Arrow's readers do not check this, and a damaged file may have other bytes.

    Raises:
        ArrowInvalid: a text is not UTF-8.
    """
    kind = array.type
    if pa.types.is_nested(kind) or (
        (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and not _are_texts(array)
    ):
        array.validate(full=True)


def _are_texts(array: pa.Array) -> bool:
    """Return True if all texts are certainly UTF-8.

    The function checks all texts together: their concatenation is UTF-8, and no text begins within a character. This takes a tenth
    of the time of checking each text.
    """
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
    content = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    try:
        str(content.data, "utf-8")
    except UnicodeDecodeError:
        return False
    begins = ends[:-1] - ends[0]
    return not np.any((content[begins[begins < len(content)]] & 0xC0) == 0x80)
