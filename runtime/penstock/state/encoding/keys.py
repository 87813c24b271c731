"""The encoding of keys, namespaces and map keys.

Unlike a value, a key is looked up by its bytes. So all keys that are equal in Python must have the same bytes: 1, 1.0 and True are one key.
`canonical` converts a key to the form that represents all equal keys. The RocksDB backend stores the msgpack of this form. Files of the
hashmap backend have the original keys (`Codec`), because a dict itself treats equal keys as one key.

A key that is a structure (a frozen dataclass, a frozen model) needs its type for decoding: `key_type`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, get_origin
from uuid import UUID

import msgspec
import numpy as np
from msgspec.msgpack import Decoder, Encoder, Ext

from penstock.common.errors import StateTypeError
from penstock.common.type_info.type_information import TypeInformation
from penstock.common.types import Row
from penstock.state.encoding.codec import NATIVE, TUPLES
from penstock.state.encoding.key_hash import is_model, key_type_error, nan_error, plain_decimal, struct_fields
from penstock.state.encoding.tagged import (
    BIG_INT,
    FROZENSET,
    INT_MAX,
    INT_MIN,
    ROW,
    SCALARS,
    STRUCT_KEY,
    StructKey,
    big_int_bytes,
    tag,
    type_name,
    untag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

CANONICAL = 2
"""Column code: a msgpack array of keys encoded one by one. `codec` has the other codes."""

_TUPLE_TYPE = tuple[Any, ...]
_encode = Encoder().encode
_decode_keyed = Decoder(dict, ext_hook=untag).decode
_decode_binaries = Decoder(list[bytes]).decode
_decode_list = Decoder(list).decode
_decode_tuples = Decoder(list[_TUPLE_TYPE]).decode
_PLAIN = frozenset({str, int, bytes, type(None)})
"""Types whose values are the same after decoding."""
_AS_MAP_KEY, _NO_VALUE = b"\x81", b"\xc0"
"""Prefix and suffix that make a key the only key of a map. msgspec decodes arrays in map keys as tuples, including nested ones."""


def canonical(key: Any) -> Any:
    """Return the same value for all equal keys. Plain msgpack can encode the value.

    Raises:
        StateTypeError: the key can change, or its type has no canonical form.

    >>> canonical((1.0, True, Decimal("0.5")))
    (1, 1, 0.5)
    """
    kind = type(key)
    if kind is str or kind is bytes or key is None:
        return key
    handler = _CANONICAL.get(kind)
    return _canonical_other(key) if handler is None else handler(key)


def _int(key: int) -> Any:
    return int(key) if INT_MIN <= key <= INT_MAX else Ext(BIG_INT, big_int_bytes(int(key)))


def _float(key: float) -> Any:
    if key != key:
        raise nan_error()
    return _int(int(key)) if key.is_integer() else float(key)


def _decimal(key: Decimal) -> Any:
    plain = plain_decimal(key)
    return tag(plain) if isinstance(plain, Decimal) else canonical(plain)


def _frozenset(key: frozenset[Any]) -> Ext:
    items = sorted(_encode(tag(canonical(item))) for item in key)
    return Ext(FROZENSET, _encode(list(map(msgspec.Raw, items))))


def _datetime(key: datetime) -> Any:
    return tag(key) if key.utcoffset() is None else key.replace(fold=0).astimezone(UTC)


def _time(key: time) -> Any:
    if key.tzinfo is not None:
        raise StateTypeError(
            f"a time with a time zone cannot be a key: {key!r}", remedy="use a time without one, or a datetime"
        )
    return tag(key)


def _row(key: Row) -> Ext:
    values = [tag(canonical(value)) for value in key]
    return Ext(ROW, _encode([key.get_row_kind().value, key.get_field_names(), values]))


def _struct(names_and_values: Iterable[Any]) -> Ext:
    return Ext(STRUCT_KEY, _encode([tag(canonical(part)) for part in names_and_values]))


_CANONICAL: dict[type, Callable[[Any], Any]] = {
    int: _int,
    bool: int,
    bytes: bytes,
    float: _float,
    tuple: lambda key: tuple(map(canonical, key)),
    frozenset: _frozenset,
    Decimal: _decimal,
    UUID: tag,
    datetime: _datetime,
    date: tag,
    time: _time,
    timedelta: tag,
    Row: _row,
    StructKey: lambda key: _struct(key),
}


def _canonical_other(key: Any) -> Any:
    if isinstance(key, np.generic) and not isinstance(key, np.datetime64 | np.timedelta64 | np.void):
        item = key.item()
        if not isinstance(item, np.generic):
            return canonical(item)
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, Enum) and not isinstance(key, int | float):
        return canonical(key.value)
    for base in (int, float, bytes, tuple, frozenset, Decimal, datetime, date, time, timedelta):
        if isinstance(key, base):
            return _CANONICAL[base](key)
    fields = struct_fields(key)
    if fields is not None and type(key).__hash__ is not None:
        return _struct(part for named in fields.items() for part in named)
    raise key_type_error(key)


class KeyCodec:
    """The codec of the keys of one operator, or of one map state.

    Args:
        key_type: type information, an annotation, or None for any builtin key.
        name: name of the keys in error messages.

    >>> codec = KeyCodec(None, "keys")
    >>> codec.encode(1) == codec.encode(1.0), codec.decode(codec.encode(("a", (1, 2))))
    (True, ('a', (1, 2)))
    """

    def __init__(self, key_type: Any, name: str, operator: str = "") -> None:
        annotation = key_type.python_type if isinstance(key_type, TypeInformation) else key_type
        self._type = None if annotation is Any or annotation is object else annotation
        self.name = name
        self.operator = operator

    def encode(self, key: Any) -> bytes:
        """Encode a key.

        Raises:
            StateTypeError: the key has another type. The error names the keys, the type and the remedy.
        """
        kind = type(key)
        if kind is str or kind is int:
            try:
                return _encode(key)
            except (OverflowError, UnicodeEncodeError):
                pass  # larger numbers take the slow path; text that UTF-8 cannot encode is an error below
        elif self._type is None and kind not in _UNTYPED:
            self._check_untyped(key)
        try:
            return _encode(canonical(key))
        except UnicodeEncodeError:
            raise StateTypeError(
                f"one of the {self.name} is not valid text: {key!r} holds half of a surrogate pair",
                remedy="decode the input with errors='replace', or use bytes",
                operator=self.operator,
            ) from None

    def _check_untyped(self, key: Any) -> None:
        """Check that decoding without a declared type results in the same key."""
        if isinstance(key, np.generic):
            return
        if isinstance(key, tuple) and type(key) is tuple:
            for part in key:
                if type(part) not in _UNTYPED:
                    self._check_untyped(part)
            return
        if type(key) is frozenset or type(key).__hash__ is None:
            return
        raise StateTypeError(
            f"one of the {self.name} is a {type_name(type(key))}, which cannot be restored from its bytes without its type: {key!r}",
            remedy="declare the type of the keys (key_by(..., key_type=...), MapStateDescriptor(name, key_type, ...)), "
            "or use plain values",
            operator=self.operator,
        )

    def encode_column(self, keys: Sequence[Any]) -> tuple[int, bytes]:
        """Return column code and content. If all keys are plain, they are stored unchanged. Otherwise all keys are stored in canonical
        form.

        Raises:
            StateTypeError: see `encode`.
        """
        kinds = set(map(type, keys))
        if float in kinds and any(key != key for key in keys):
            raise nan_error()
        try:
            if kinds <= SCALARS:
                return NATIVE, _encode(keys)
            if kinds == {tuple} and SCALARS.issuperset(map(type, chain.from_iterable(keys))):
                return TUPLES, _encode(keys)
        except (OverflowError, UnicodeEncodeError):
            pass  # one by one, so that the error can name the key
        return CANONICAL, _encode([self.encode(key) for key in keys])

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        if code == CANONICAL:
            return list(map(self.decode, _decode_binaries(data)))
        keys: list[Any] = _decode_tuples(data) if code == TUPLES else _decode_list(data)
        return keys

    def decode(self, data: bytes) -> Any:
        """Return a key that equals the encoded key. If a type is declared, the result has this type."""
        (key,) = _decode_keyed(_AS_MAP_KEY + data + _NO_VALUE)
        return key if self._type is None else self._typed(key)

    def as_restored(self, key: Any) -> Any:
        """Return the key in the form that it has after a restore by any backend. A key that cannot be stored is returned unchanged.

        >>> KeyCodec(None, "keys").as_restored((True, 2.0, "a")), KeyCodec(float, "keys").as_restored(2)
        ((1, 2, 'a'), 2.0)
        """
        kind = type(key)
        if self._type is None:
            if kind is str or kind is int:
                return key
            if kind is tuple and _PLAIN.issuperset(map(type, key)):
                return key
        elif kind is self._type and (kind is str or kind is int):
            return key
        try:
            return self.decode(self.encode(key))
        except StateTypeError:
            return key  # no state holds such a key

    def all_as_restored(self, keys: Collection[Any]) -> Collection[Any]:
        """Return the keys of a map as user code sees them. If all keys already have this form, return the collection itself."""
        kinds = set(map(type, keys))
        if kinds <= _PLAIN and (self._type is None or kinds <= {self._type}):
            return keys
        return [self.as_restored(key) for key in keys]

    def _typed(self, key: Any) -> Any:
        return msgspec.convert(with_dicts(key), self._type, strict=False, dec_hook=_dec_hook)


def with_dicts(key: Any) -> Any:
    """Return the key with dicts instead of structures, from which the declared type can be created."""
    if isinstance(key, StructKey):
        flat = iter(key)
        return {name: with_dicts(value) for name, value in zip(flat, flat, strict=True)}
    return tuple(map(with_dicts, key)) if isinstance(key, tuple) else key


_UNTYPED = frozenset(
    {str, int, float, bool, bytes, type(None), Decimal, UUID, datetime, date, time, timedelta, Row, StructKey}
)


def _dec_hook(annotation: Any, value: Any) -> Any:
    cls = get_origin(annotation) or annotation
    if isinstance(value, cls):
        return value
    return cls.model_validate(value, by_name=True, by_alias=False) if is_model(cls) else cls(value)


class _CanonicalKeys(KeyCodec):
    """The codec of keys that were read without their type, for a reader that knows the type.

    Every key is written in canonical form, so that the reader converts it to an object of the declared type. A reader
    would not convert a column of plain values.
    """

    def encode_column(self, keys: Sequence[Any]) -> tuple[int, bytes]:
        return CANONICAL, _encode([self.encode(key) for key in keys])


UNTYPED_KEYS = _CanonicalKeys(None, "keys")
"""Codec for a reader that does not know the type of the keys. Structures become `StructKey`."""
