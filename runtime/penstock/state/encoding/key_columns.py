"""The stable hash of whole columns of keys.

CRC-32 is linear. The checksum of a string is the exclusive or of one number for each byte and one for the length. The
number of a byte depends on the byte and on its distance from the end. A column of strings or integers is therefore
hashed with one table look-up per byte position, in numpy, without a Python object for any key. Other keys (long
strings, decimals, nested types …) are dictionary-encoded and hashed once per distinct value.

The results equal `key_hash.stable_hash` of the Python value of each cell, bit for bit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.encoding.key_hash import (
    BYTES_SEED,
    FLOAT_SEED,
    INT_SEED,
    NONE_HASH,
    STR_SEED,
    TUPLE_SEED,
    checksum,
    nan_error,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Hashes = npt.NDArray[np.uint32]

LONGEST_VECTORISED = 96
"""Maximum length in bytes of strings that are hashed in columns. Longer strings are hashed one by one."""

_CHUNK = 16_384
"""Number of keys per call: longer calls into C would keep other threads from running."""

_FEW = 16
"""Number of keys below which numpy is slower than plain Python."""


def _distance_tables(count: int) -> Hashes:
    """Return tables: tables[d][b] is the part of the checksum for byte b at distance d from the end."""
    byte_table = np.array([crc32(bytes([b])) ^ crc32(b"\0") for b in range(256)], np.uint32)
    tables = np.empty((count, 256), np.uint32)
    tables[0] = byte_table
    for distance in range(1, count):
        previous = tables[distance - 1]
        tables[distance] = byte_table[previous & 0xFF] ^ (previous >> np.uint32(8))
    return tables


_TABLES = _distance_tables(LONGEST_VECTORISED)


def _zero_checksums(seed: int) -> Hashes:
    """Return the checksums of strings of 0, 1, 2 … zero bytes, which are the parts that depend only on the length."""
    return np.array([crc32(bytes(length), seed) for length in range(LONGEST_VECTORISED + 1)], np.uint32)


_ZEROS = {seed: _zero_checksums(seed) for seed in (STR_SEED, INT_SEED, FLOAT_SEED, BYTES_SEED, TUPLE_SEED)}


def mix(checksums: Hashes) -> Hashes:
    """Apply murmur3's finaliser element by element, as `stable_hash` does."""
    h = checksums ^ (checksums >> np.uint32(16))
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h


def column_hashes(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return `stable_hash` of every cell as a uint32 array of the column's length.

    >>> from penstock.state.encoding.key_hash import stable_hash
    >>> column_hashes(pa.array(["sensor_1", None])).tolist() == [3830651709, stable_hash(None)]
    True
    """
    return mix(column_checksums(column))


def column_checksums(column: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return `key_hash.checksum` of every cell."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0)
    kind = column.type
    if pa.types.is_dictionary(kind):
        if column.null_count:
            return column_checksums(column.dictionary_decode())
        of_value = column_checksums(column.dictionary)
        return _take(of_value, column.indices)
    checksums = _checksums_of_type(column, kind)
    if column.null_count:
        checksums[column.is_null().to_numpy(zero_copy_only=False)] = NONE_HASH
    return checksums


def _checksums_of_type(column: pa.Array, kind: pa.DataType) -> Hashes:
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return int_checksums(_filled(column, 0).to_numpy(zero_copy_only=False).astype(np.int64))
    if pa.types.is_boolean(kind):
        return int_checksums(_filled(column, False).to_numpy(zero_copy_only=False).astype(np.int64))
    if pa.types.is_floating(kind):
        return _float_checksums(_filled(column, 0.0).to_numpy(zero_copy_only=False).astype(np.float64))
    if pa.types.is_string(kind):
        return _bytes_checksums(column, STR_SEED, np.int32)
    if pa.types.is_large_string(kind):
        return _bytes_checksums(column, STR_SEED, np.int64)
    if pa.types.is_binary(kind):
        return _bytes_checksums(column, BYTES_SEED, np.int32)
    if pa.types.is_large_binary(kind):
        return _bytes_checksums(column, BYTES_SEED, np.int64)
    return _distinct_checksums(column)


def _filled(column: pa.Array, value: Any) -> pa.Array:
    return column.fill_null(value) if column.null_count else column


def int_checksums(values: npt.NDArray[np.int64]) -> Hashes:
    """Return the checksums of 64-bit integers."""
    return _fixed_width(values, INT_SEED)


def _fixed_width(values: npt.NDArray[Any], seed: int) -> Hashes:
    width = values.dtype.itemsize
    digits = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    matrix = digits.reshape(len(values), width)
    result = np.full(len(values), _ZEROS[seed][width], np.uint32)
    for position in range(width):
        result ^= _TABLES[width - 1 - position][matrix[:, position]]
    return result


def _float_checksums(values: npt.NDArray[np.float64]) -> Hashes:
    """Return the checksums of floats. Whole numbers have the checksums of the equal integers."""
    if np.isnan(values).any():
        raise nan_error()
    whole = np.isfinite(values) & (values == np.trunc(values))
    fits = whole & (np.abs(values) < 2.0**63)
    result = _fixed_width(values, FLOAT_SEED)
    if fits.any():
        result[fits] = int_checksums(values[fits].astype(np.int64))
    for index in np.flatnonzero(whole & ~fits).tolist():
        result[index] = checksum(float(values[index]))
    return result


def _bytes_checksums(column: pa.Array, seed: int, offset_type: type[np.signedinteger[Any]]) -> Hashes:
    _, offset_buffer, data_buffer = column.buffers()
    if not len(column):
        return np.empty(0, np.uint32)
    offsets = np.frombuffer(offset_buffer, offset_type)[column.offset : column.offset + len(column) + 1]
    ends = offsets[1:]
    lengths = ends - offsets[:-1]
    longest = int(lengths.max())
    if longest > LONGEST_VECTORISED:
        return _distinct_checksums(column)
    result: Hashes = _ZEROS[seed][lengths]
    if not longest:
        return result
    data = np.frombuffer(data_buffer, np.uint8)
    shortest = int(lengths.min())
    for distance in range(longest):
        table = _TABLES[distance]
        if distance < shortest:
            result ^= table[data[ends - (distance + 1)]]
        else:
            reached = np.flatnonzero(lengths > distance)
            result[reached] ^= table[data[ends[reached] - (distance + 1)]]
    return result


def _tuple_checksums(parts: Sequence[Hashes]) -> Hashes:
    if not parts:
        return np.empty(0, np.uint32)
    result = np.full(len(parts[0]), crc32(bytes(4 * len(parts)), TUPLE_SEED), np.uint32)
    distance = 4 * len(parts)
    for part in parts:
        digits = np.ascontiguousarray(part).astype("<u4", copy=False).view(np.uint8).reshape(len(part), 4)
        for position in range(4):
            distance -= 1
            result ^= _table(distance)[digits[:, position]]
    return result


@lru_cache
def _table(distance: int) -> Hashes:
    tables = _TABLES if distance < LONGEST_VECTORISED else _distance_tables(distance + 1)
    table: Hashes = tables[distance]
    return table


def _distinct_checksums(column: pa.Array) -> Hashes:
    """Compute the checksum once per distinct value in Python, and take the results by index."""
    try:
        encoded = column.dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:  # Arrow has no dictionaries of lists and structs
        return np.array(list(map(checksum, column.to_pylist())), np.uint32)
    of_value = np.array(list(map(checksum, encoded.dictionary.to_pylist())), np.uint32)
    return _take(of_value, encoded.indices)


def _take(values: Hashes, indices: pa.Array) -> Hashes:
    taken: Hashes = values[indices.to_numpy(zero_copy_only=False)]
    return taken


def keys_hashes(keys: Sequence[Any]) -> Hashes:
    """Return `stable_hash` of Python keys. Strings, integers, or tuples of these are hashed by column.

    >>> from penstock.state.encoding.key_hash import stable_hash
    >>> keys_hashes(["sensor_1"]).tolist(), keys_hashes([("a", 1)]).tolist() == [stable_hash(("a", 1))]
    ([3830651709], True)
    """
    if len(keys) <= _CHUNK:
        return mix(_keys_checksums(keys))
    parts = [_keys_checksums(keys[start : start + _CHUNK]) for start in range(0, len(keys), _CHUNK)]
    return mix(np.concatenate(parts))


def _keys_checksums(keys: Sequence[Any]) -> Hashes:
    kinds = set(map(type, keys))
    if len(kinds) == 1 and len(keys) > _FEW:
        kind = kinds.pop()
        try:
            if kind is str:
                return column_checksums(pa.array(keys, pa.large_string()))
            if kind is int:
                return int_checksums(np.fromiter(keys, np.int64, len(keys)))
        except (UnicodeEncodeError, OverflowError):
            pass  # text that UTF-8 cannot encode, or an integer beyond 64 bits: one by one
        if kind is tuple:
            widths = set(map(len, keys))
            if len(widths) == 1 and widths != {0}:
                return _tuple_checksums([_keys_checksums(part) for part in zip(*keys, strict=True)])
    return np.fromiter(map(checksum, keys), np.uint32, len(keys))
