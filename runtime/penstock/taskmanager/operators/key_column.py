"""Columns of keys as dictionaries in which every key is unique."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def encoded_keys(column: pa.Array) -> pa.DictionaryArray | None:
    """Return the keys with a dictionary of distinct keys, or None if the keys must become Python objects first.

    A dictionary of the user may contain a key twice. Arrow distinguishes -0.0 from 0.0, which are one key in Python. If
    a key is null, nested or has a time zone, its cell alone does not determine its Python value.

    >>> encoded_keys(pa.array([0.0, -0.0, 1.0])).dictionary.to_pylist()
    [0.0, 1.0]
    """
    if not pa.types.is_dictionary(column.type):
        plain = _plain(column)
        return None if plain is None else plain.dictionary_encode()
    plain = None if column.null_count else _plain(column.dictionary)
    if plain is None:
        return None
    encoded = pa.DictionaryArray.from_arrays(column.indices, plain)
    is_distinct = pc.count_distinct(plain).as_py() == len(plain)
    return encoded if is_distinct else encoded.dictionary_decode().dictionary_encode()


def _plain(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if column.null_count or pa.types.is_nested(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None):
        return None
    if pa.types.is_floating(kind):
        zero = pa.scalar(0.0, kind)
        return pc.if_else(pc.equal(column, zero), zero, column)
    return column
