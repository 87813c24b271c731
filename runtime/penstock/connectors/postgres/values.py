"""Conversion of columns for the server.

The task that writes a row checks it for values that the server would refuse. At this point the error can name the line of the user's
program, and no checkpoint contains the row yet.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import RecordFormatError

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""The escape of NUL in JSON: an odd number of backslashes before "u0000". An even number means escaped backslashes, not a NUL."""


def written(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns for the server: structs and maps as JSON, times with a time zone in UTC, in microseconds.

    Raises:
        RecordFormatError: Postgres cannot store a text, or JSON has no form for a value.
    """
    arrays = [_written(column, field.name) for column, field in zip(columns.columns, columns.schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=columns.schema.names)


def _written(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if _is_text(kind):
        check_text(column, name)
    elif pa.types.is_timestamp(kind) and (kind.unit == "ns" or kind.tz not in (None, "UTC")):
        unit = "us" if kind.unit == "ns" else kind.unit
        return column.cast(pa.timestamp(unit, None if kind.tz is None else "UTC"), safe=False)
    elif pa.types.is_struct(kind) or pa.types.is_map(kind):
        return _as_json(column, name)
    elif _is_list(kind):
        items = column.flatten()
        made = _written(items, name)
        if made is not items:
            return _regrouped(column, made)
    return column


def _regrouped(column: pa.Array, items: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, items, mask=column.is_null())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def check_json(texts: Iterable[str | None], name: str) -> None:
    """Check that no text within JSON contains NUL.

    Raises:
        RecordFormatError: a text within JSON contains the character NUL.
    """
    if any(text is not None and _NUL.search(text) for text in texts):
        raise _no_text(name)


def check_text(column: pa.Array, name: str) -> None:
    """Check that no text contains NUL.

    Raises:
        RecordFormatError: a text contains the character NUL.
    """
    if pc.any(pc.match_substring(column, "\0")).as_py():
        raise _no_text(name)


def _as_json(column: pa.Array, name: str) -> pa.Array:
    values = column.to_pylist(maps_as_pydicts="lossy")
    try:
        texts = [None if value is None else json_of(value) for value in values]
    except (TypeError, ValueError) as error:
        raise RecordFormatError(
            f"values of field {name!r} cannot be written as JSON: {error}",
            remedy="convert them before the sink to values that JSON can represent",
        ) from error
    check_json(texts, name)
    return pa.array(texts, pa.string())


def _no_text(name: str) -> RecordFormatError:
    return RecordFormatError(
        f"values of field {name!r} have the character NUL, which Postgres cannot store in text",
        remedy="remove it before the sink (text.replace('\\0', '')), or write bytes (bytea)",
    )


def json_of(value: Any) -> str:
    """Return a value as JSON.

    >>> json_of({"price": decimal.Decimal("1.50"), 2: [None, True]})
    '{"price":1.50,"2":[null,true]}'
    """
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"{type(value).__name__} {value!r:.100}")
