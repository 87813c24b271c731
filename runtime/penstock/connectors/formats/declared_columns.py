"""The columns that a program has declared, as files have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.common.errors import RecordFormatError

if TYPE_CHECKING:
    from penstock.connectors.formats.shape import RecordShape


def columns_in(schema: pa.Schema, shape: RecordShape, path: str, *, case_sensitive: bool) -> list[tuple[str, str]]:
    """(name in the file, declared name) of every declared column.

    Raises:
        RecordFormatError: the file has none of a name.
    """
    have = {name if case_sensitive else name.lower(): name for name in schema.names}
    missing = [name for name in shape.names if (name if case_sensitive else name.lower()) not in have]
    if missing:
        raise RecordFormatError(
            f"no column {', '.join(map(repr, missing))} in {path!r}: it has {', '.join(schema.names)}",
            remedy="declare the columns that the files have",
        )
    return [(have[name if case_sensitive else name.lower()], name) for name in shape.names]


def shaped(batch: pa.RecordBatch, columns: list[tuple[str, str]], shape: RecordShape, path: str) -> pa.RecordBatch:
    """The declared columns in their order, with their types.

    Args:
        columns: what `columns_in` gives.

    Raises:
        RecordFormatError: there are nulls where none were declared.
        ArrowException: a value is lost with the declared type, or a text is none.
    """
    schema = shape.schema
    arrays = [
        batch.column(name) if batch.column(name).type == field.type else batch.column(name).cast(field.type)
        for (name, _), field in zip(columns, schema, strict=True)
    ]
    for array, field in zip(arrays, shape.fields, strict=True):
        if array.null_count and not field.optional:
            raise RecordFormatError(
                f"column {field.name!r} of {path!r} holds nulls, but the field is not optional",
                remedy=f"declare it as {field.type!r} | None",
            )
        _check_texts(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_texts(array: pa.Array) -> None:
    """A damaged file may have texts that are no UTF-8, which readers do not see.

    Raises:
        ArrowInvalid: it has.
    """
    kind = array.type
    if pa.types.is_nested(kind) or (
        (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and not _are_texts(array)
    ):
        array.validate(full=True)


def _are_texts(array: pa.Array) -> bool:
    """Whether they are for sure. All at once, which takes a tenth of looking at each: together they are UTF-8, and none begins within a character."""
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
