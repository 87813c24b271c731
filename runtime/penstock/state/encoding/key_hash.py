"""A hash of keys that is the same in every process, on every machine and in every version.

Python's `hash` of strings differs from process to process, so it cannot decide the place of a key's state. Here a key
is converted to a canonical form. Its bytes are hashed with CRC-32, and murmur3's finaliser mixes the result. CRC-32 is
a C function for one key, and a table look-up per byte for an Arrow column (see `key_columns`).

Equal keys in Python have equal hashes: 1 == 1.0 == True == Decimal(1). A NamedTuple equals the tuple of its fields, and
12:00+00:00 equals 14:00+02:00.

The hashes are part of the storage format: they decide which file holds a key.
"""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zlib import crc32

import msgspec
import numpy as np

from penstock.common.errors import StateTypeError
from penstock.common.types import Row
from penstock.state.encoding.tagged import StructKey, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

STR_SEED, INT_SEED, FLOAT_SEED, BYTES_SEED, TUPLE_SEED = 0x1505, 0x2A17, 0x3C29, 0x4D3B, 0x5E4D
_SET_SEED, _DECIMAL_SEED, _UUID_SEED, _DATE_SEED, _DATETIME_SEED = 0x6F5F, 0x7071, 0x8183, 0x9295, 0xA3A7
_TIME_SEED, _TIMEDELTA_SEED, _STRUCT_SEED, _UTC_SEED = 0xB4B9, 0xC5CB, 0xD6DD, 0xE7EF
NONE_HASH = 0x9E3779B9

_DOUBLE = struct.Struct("<d")
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def stable_hash(key: Any) -> int:
    """Return a hash of 32 well-mixed bits.

    Raises:
        StateTypeError: the key is not hashable, or of a type without a canonical form.

    >>> stable_hash(1) == stable_hash(1.0) == stable_hash(True), stable_hash(("a", 1)) == stable_hash(("a", 1.0))
    (True, True)
    >>> stable_hash("sensor_1")
    3830651709
    """
    h = checksum(key)
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def checksum(key: Any) -> int:
    """Return the CRC-32 of the canonical form, without mixing."""
    handler = _CHECKSUMS.get(type(key))
    return _checksum_other(key) if handler is None else handler(key)


def _str(key: str) -> int:
    try:
        return crc32(key.encode(), STR_SEED)
    except UnicodeEncodeError:
        raise StateTypeError(
            f"the key {key!r} is not valid text: it holds half of a surrogate pair",
            remedy="decode the input with errors='replace', or use bytes as the key",
        ) from None


def _int(key: int) -> int:
    if -0x8000000000000000 <= key <= 0x7FFFFFFFFFFFFFFF:
        return crc32(key.to_bytes(8, "little", signed=True), INT_SEED)
    return crc32(key.to_bytes(key.bit_length() // 8 + 1, "little", signed=True), INT_SEED)


def _float(key: float) -> int:
    if key.is_integer():
        return _int(int(key))
    if key != key:
        raise nan_error()
    return crc32(_DOUBLE.pack(key), FLOAT_SEED)


def nan_error() -> StateTypeError:
    """Return the error for NaN, which does not equal itself. The state of such a key could never be found again."""
    return StateTypeError(
        "nan cannot be a key, because it is not equal to itself",
        remedy="filter such records out, or give them a key in the key selector, for example None",
    )


def _sequence(keys: Any, seed: int = TUPLE_SEED) -> int:
    return crc32(b"".join([checksum(key).to_bytes(4, "little") for key in keys]), seed)


def _frozenset(key: frozenset[Any]) -> int:
    return crc32(b"".join(sorted(checksum(item).to_bytes(4, "little") for item in key)), _SET_SEED)


def _decimal(key: Decimal) -> int:
    plain = plain_decimal(key)
    return crc32(str(plain).encode(), _DECIMAL_SEED) if isinstance(plain, Decimal) else checksum(plain)


def plain_decimal(key: Decimal) -> Decimal | int | float:
    """Return the int or float that equals the number, else the number without trailing zeros.

    >>> plain_decimal(Decimal("2.0")), plain_decimal(Decimal("0.5")), plain_decimal(Decimal("0.10"))
    (2, 0.5, Decimal('0.1'))
    """
    if not key.is_finite():
        return float(key)
    if key == key.to_integral_value():
        return int(key)
    as_float = float(key)
    return as_float if as_float == key else _without_trailing_zeros(key)


def _without_trailing_zeros(key: Decimal) -> Decimal:
    """Return the number as `normalize` does, but without rounding to the context's precision."""
    sign, digits, exponent = key.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    assert isinstance(exponent, int)
    return Decimal((sign, digits[: len(digits) - zeros], exponent + zeros))


def _datetime(key: datetime) -> int:
    offset = key.replace(fold=0).utcoffset()  # as Python's own hash does
    micros = (key.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if offset is None:
        return crc32(micros.to_bytes(9, "little", signed=True), _DATETIME_SEED)
    return crc32((micros - offset // _MICROSECOND).to_bytes(9, "little", signed=True), _UTC_SEED)


def _time(key: time) -> int:
    micros = ((key.hour * 60 + key.minute) * 60 + key.second) * 1_000_000 + key.microsecond
    offset = key.utcoffset()
    if offset is not None:
        micros -= offset // _MICROSECOND
    return crc32(micros.to_bytes(8, "little", signed=True), _TIME_SEED + (offset is not None))


_CHECKSUMS: dict[type, Callable[[Any], int]] = {
    str: _str,
    int: _int,
    bool: _int,
    float: _float,
    bytes: lambda key: crc32(key, BYTES_SEED),
    type(None): lambda key: NONE_HASH,
    tuple: _sequence,
    frozenset: _frozenset,
    Decimal: _decimal,
    UUID: lambda key: crc32(key.bytes, _UUID_SEED),
    datetime: _datetime,
    date: lambda key: crc32(key.toordinal().to_bytes(4, "little"), _DATE_SEED),
    time: _time,
    Row: lambda key: _sequence(key, _STRUCT_SEED),
    StructKey: lambda key: _sequence(key[1::2], _STRUCT_SEED),
    timedelta: lambda key: crc32((key // _MICROSECOND).to_bytes(9, "little", signed=True), _TIMEDELTA_SEED),
}


def is_model(cls: Any) -> bool:
    """Return whether the class is a pydantic model. The check does not import pydantic, which most jobs do not use."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields")


def struct_fields(key: Any) -> dict[str, Any] | None:
    """Return the fields that decide the equality of a class's objects, by name and sorted. Return None if the key is not a structure."""
    if is_dataclass(key) and not isinstance(key, type):
        if not key.__dataclass_params__.eq:  # type: ignore[attr-defined]
            return None
        return {f.name: getattr(key, f.name) for f in sorted(fields(key), key=lambda f: f.name) if f.compare}
    if isinstance(key, msgspec.Struct):
        return {name: getattr(key, name) for name in sorted(key.__struct_fields__)}
    if is_model(type(key)):
        return {name: getattr(key, name) for name in sorted(type(key).model_fields)}
    return None


def _checksum_other(key: Any) -> int:
    if isinstance(key, np.generic) and not isinstance(key, np.datetime64 | np.timedelta64 | np.void):
        item = key.item()
        if not isinstance(item, np.generic):
            return checksum(item)
    if isinstance(key, Enum) and not isinstance(key, str | int | float):
        return checksum(key.value)
    for base in (str, int, float, bytes, tuple, frozenset, Decimal, UUID, datetime, date, time, timedelta):
        if isinstance(key, base):
            return _CHECKSUMS[base](str.__str__(key) if isinstance(key, str) else key)
    values = struct_fields(key)
    if values is not None and type(key).__hash__ is not None:
        return _sequence(values.values(), _STRUCT_SEED)
    raise key_type_error(key)


_ALTERNATIVES: tuple[tuple[type, str], ...] = (
    (list, "convert it to a tuple in the key selector, tuple(…), or key by one of its items"),
    (dict, "key by one of its fields or by several of them: key_by(['a', 'b'])"),
    (set, "convert it to a frozenset or a sorted tuple in the key selector"),
    (bytearray, "convert it to bytes in the key selector"),
    (np.ndarray, "convert it to a tuple in the key selector, tuple(key.tolist())"),
)


def key_type_error(key: Any) -> StateTypeError:
    """Return an error that names the key, its type, and an alternative."""
    cls = type(key)
    if cls.__hash__ is None:
        return StateTypeError(
            f"a {type_name(cls)} cannot be a key, because it is mutable: {key!r}",
            remedy=next(
                (remedy for known, remedy in _ALTERNATIVES if isinstance(key, known)),
                "key by one of its fields or by several of them. Or make its class immutable (a frozen dataclass, a NamedTuple) and "
                "declare it: key_by(…, key_type=…)",
            ),
        )
    return StateTypeError(
        f"a key of type {type_name(cls)} cannot be encoded: {key!r}",
        remedy="use a str, int, float, bool, bytes, date, datetime, Decimal, UUID, Enum, a frozen dataclass, or a tuple or "
        "NamedTuple of these. Declare a class with key_by(…, key_type=…)",
    )
