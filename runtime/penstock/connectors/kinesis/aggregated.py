"""Records that the Kinesis Producer Library has aggregated.

Format: a magic number, a protobuf message and its MD5 (aggregation-format.md of amazon-kinesis-producer).

    message AggregatedRecord { repeated string partition_key_table = 1; repeated string explicit_hash_key_table = 2; repeated Record
    records = 3; }
    message Record { required uint64 partition_key_index = 1; optional uint64 explicit_hash_key_index = 2; required bytes data = 3;
    repeated Tag tags = 4; }
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16
_VARINT, _BYTES = 0, 2
_SKIPPED = {1: 8, 5: 4}
"""Wire types that no known field has, and the number of bytes to skip for each."""


class UserRecord(NamedTuple):
    """One user record of an aggregated record."""

    key: str
    hash: int
    """The hash that determines the record's shard: the explicit hash, or the hash of the key."""
    data: bytes


def deaggregated(data: bytes) -> list[UserRecord] | None:
    """Return the aggregated user records, or None for a plain record. A damaged aggregate counts as a plain record, as in Amazon's library.

    >>> deaggregated(b"any other") is None
    True
    """
    if not data.startswith(MAGIC) or len(data) <= len(MAGIC) + _DIGEST:
        return None
    message, digest = data[len(MAGIC) : -_DIGEST], data[-_DIGEST:]
    if _md5(message) != digest:
        return None
    try:
        return _records(message)
    except (ValueError, IndexError):
        return None


def hash_of(key: str) -> int:
    """Return the hash of a partition key, by Kinesis' rule."""
    return int.from_bytes(_md5(key.encode()), "big")


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _records(message: bytes) -> list[UserRecord]:
    keys: list[str] = []
    hashes: list[int] = []
    records: list[bytes] = []
    for field, value in _fields(message):
        if isinstance(value, int):
            continue
        if field == 1:
            keys.append(value.decode())
        elif field == 2:
            hashes.append(int(value))
        elif field == 3:
            records.append(value)
    return [_record(each, keys, hashes) for each in records]


def _record(message: bytes, keys: list[str], hashes: list[int]) -> UserRecord:
    key: int | None = None
    hash: int | None = None
    data: bytes | None = None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            key = value
        elif field == 2 and isinstance(value, int):
            hash = value
        elif field == 3 and isinstance(value, bytes):
            data = value
    if key is None or data is None:
        raise ValueError("a record without key or data")
    return UserRecord(keys[key], hash_of(keys[key]) if hash is None else hashes[hash], data)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message. Skip wire types that none of our fields has.

    Raises:
        ValueError, IndexError: the bytes are not such a message.
    """
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        field, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            number, at = _varint(message, at)
            yield field, number
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in _SKIPPED:
            size = _SKIPPED[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(message):
            raise ValueError("it ends too early")
        if wire == _BYTES:
            yield field, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at this offset, and the offset after it."""
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
