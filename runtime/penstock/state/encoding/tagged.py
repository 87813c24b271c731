"""Any builtin value as msgpack. Decoding returns an equal value of the same type.

msgpack supports None, booleans, 64-bit integers, floats, strings, bytes, arrays and maps. Other Python values are written as an extension:
a code and a payload. `tag` replaces such values inside a value by their extensions, and `untag` is the `ext_hook` that converts extensions
to values. Codes and payloads are a storage format. They never change, but new codes may be added.

Types must match exactly: a subclass of a builtin is not written as the builtin. Aware datetimes keep their zone if the zone is a `ZoneInfo`
or a fixed offset.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
from msgspec.msgpack import Ext

from penstock.common.types import Row, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable

TUPLE, SET, FROZENSET, NAIVE_DATETIME, DATE, TIME, TIMEDELTA, DECIMAL, UUID_, BIG_INT = range(1, 11)
DICT, NDARRAY, ROW, OFFSET_DATETIME, BYTEARRAY, MODEL, STRUCT_KEY, DEQUE, COUNTER = range(11, 20)
NUMPY_SCALAR, ZONED_DATETIME, DEFAULT_DICT, ORDERED_DICT = range(20, 24)

SCALARS = frozenset({str, int, float, bool, bytes, type(None)})
"""Immutable types that msgpack encodes directly (an int only within 64 bits)."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INT64 = struct.Struct("<q")
_INT32 = struct.Struct("<i")


class Unencodable(TypeError):
    """An error of a value without a builtin encoding. `value` is the innermost such value. Callers convert the error to a `StateTypeError`."""

    def __init__(self, value: Any, reason: str = "") -> None:
        self.value = value
        self.reason = reason
        super().__init__(f"{type_name(type(value))} has no builtin encoding{reason and ': ' + reason}")


class StructKey(tuple[Any, ...]):
    """Alternating names and values of a structured key whose class is not known."""

    __slots__ = ()


def type_name(cls: type) -> str:
    """Return `module.Class`, without the module for builtins."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _enc_hook(value: Any) -> NoReturn:
    raise Unencodable(value)


_encode = msgspec.msgpack.Encoder(enc_hook=_enc_hook).encode


def pack(value: Any) -> bytes:
    """Encode any builtin value.

    Raises:
        Unencodable: the value holds an object that is not a builtin value.

    >>> unpack(pack({("a", 1): {1, 2}, "when": date(2026, 1, 1)})) == {("a", 1): {1, 2}, "when": date(2026, 1, 1)}
    True
    """
    return _encode(tag(value))


def tag(value: Any) -> Any:
    """Return the value with extensions for all parts that msgpack does not support. A value without such parts is returned unchanged."""
    kind = type(value)
    if kind in SCALARS:
        if kind is int and not INT_MIN <= value <= INT_MAX:
            return Ext(BIG_INT, big_int_bytes(value))
        return value
    tagger = _TAGGERS.get(kind)
    return _tag_other(value) if tagger is None else tagger(value)


def big_int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _tag_items(items: Any) -> list[Any]:
    return list(map(tag, items))


def _tag_dict(value: dict[Any, Any]) -> Any:
    if all(type(key) in SCALARS and not (type(key) is int and not INT_MIN <= key <= INT_MAX) for key in value):
        return {key: tag(item) for key, item in value.items()}
    return Ext(DICT, _encode(_flat_pairs(value)))


_FACTORIES: dict[str, Callable[[], Any] | None] = {
    cls.__name__: cls
    for cls in (int, float, bool, str, bytes, list, tuple, dict, set, frozenset, Decimal, deque, Counter, OrderedDict)
} | {"": None}
"""Supported factories of a `defaultdict`, by name."""
_FACTORY_NAMES = {factory: name for name, factory in _FACTORIES.items()}


def _tag_default_dict(value: defaultdict[Any, Any]) -> Ext:
    name = _FACTORY_NAMES.get(value.default_factory)
    if name is None:
        raise Unencodable(
            value,
            "its default_factory is a function: use a builtin type such as int or list as default_factory, or store dict(…)",
        )
    return Ext(DEFAULT_DICT, _encode([name, _flat_pairs(value)]))


def _flat_pairs(value: dict[Any, Any]) -> list[Any]:
    return _tag_items(chain.from_iterable(value.items()))


def _tag_datetime(value: datetime) -> Any:
    zone = value.tzinfo
    micros = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    if zone is None:
        return Ext(NAIVE_DATETIME, _INT64.pack(micros) + b"\1" * value.fold)
    if type(zone) is ZoneInfo and zone.key:
        return Ext(ZONED_DATETIME, _encode([micros, value.fold, zone.key]))
    offset = _fixed_offset(value) // _MICROSECOND
    if value.fold:
        return Ext(ZONED_DATETIME, _encode([micros, value.fold, offset]))
    return Ext(OFFSET_DATETIME, _encode([micros - offset, offset])) if offset else value


def _fixed_offset(value: datetime | time) -> timedelta:
    offset = value.utcoffset()
    if type(value.tzinfo) is not timezone or offset is None:
        raise Unencodable(
            value, f"its time zone is a {type_name(type(value.tzinfo))}: use zoneinfo.ZoneInfo or a fixed offset"
        )
    return offset


def _tag_time(value: time) -> Ext:
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    offset = None if value.tzinfo is None else _fixed_offset(value) // _MICROSECOND
    return Ext(TIME, _encode([micros, offset, value.fold] if value.fold else [micros, offset]))


def _tag_row(value: Row) -> Ext:
    return Ext(ROW, _encode([value.get_row_kind().value, value.get_field_names(), _tag_items(value)]))


def _tag_array(value: np.ndarray[Any, Any]) -> Ext:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise Unencodable(value, f"its dtype is {value.dtype}")
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        return Ext(NDARRAY, _encode([value.dtype.str, value.shape, value.tobytes("F"), "F"]))
    return Ext(NDARRAY, _encode([value.dtype.str, value.shape, value.tobytes()]))


def _tag_numpy_scalar(value: np.generic) -> Ext:
    dtype = value.dtype
    if type(value) is not dtype.type or dtype.hasobject or dtype.names is not None or dtype.char in "gG":
        raise Unencodable(value, "store the value that its .item() returns")
    if isinstance(value, str | bytes):
        return Ext(NUMPY_SCALAR, _encode([dtype.kind, value.item()]))
    name = dtype.str if np.dtype(dtype.str).type is type(value) else dtype.char  # two C types may have the same width
    return Ext(NUMPY_SCALAR, _encode([name, value.tobytes()]))


_TAGGERS: dict[type, Callable[[Any], Any]] = {
    list: _tag_items,
    tuple: lambda v: Ext(TUPLE, _encode(_tag_items(v))),
    dict: _tag_dict,
    set: lambda v: Ext(SET, _encode(_tag_items(v))),
    frozenset: lambda v: Ext(FROZENSET, _encode(_tag_items(v))),
    datetime: _tag_datetime,
    date: lambda v: Ext(DATE, _INT32.pack(v.toordinal())),
    time: _tag_time,
    timedelta: lambda v: Ext(TIMEDELTA, _encode([v.days, v.seconds, v.microseconds])),
    Decimal: lambda v: Ext(DECIMAL, str(v).encode()),
    UUID: lambda v: Ext(UUID_, v.bytes),
    bytearray: lambda v: Ext(BYTEARRAY, bytes(v)),
    deque: lambda v: Ext(DEQUE, _encode([v.maxlen, _tag_items(v)])),
    Counter: lambda v: Ext(COUNTER, _encode(_flat_pairs(v))),
    defaultdict: _tag_default_dict,
    OrderedDict: lambda v: Ext(ORDERED_DICT, _encode(_flat_pairs(v))),
    np.ndarray: _tag_array,
    Row: _tag_row,
    Ext: lambda v: v,
}


def _tag_other(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _tag_numpy_scalar(value)
    if isinstance(value, datetime) and hasattr(value, "to_pydatetime"):
        raise Unencodable(value, "store the value that its to_pydatetime() returns, or its .value (ns since the epoch)")
    raise Unencodable(value)


def plain_scalar(value: Any) -> Any:
    """Return the Python number or text that equals a numpy scalar. Return any other value unchanged.

    >>> plain_scalar(np.float32(0.5)), plain_scalar("a")
    (0.5, 'a')
    """
    if not isinstance(value, np.generic) or isinstance(value, np.datetime64 | np.timedelta64 | np.void):
        return value
    return value.item()


def untag(code: int, data: memoryview) -> Any:
    """Return the value of an extension. This is the `ext_hook` of every decoder of state."""
    reader = _READERS.get(code)
    if reader is None:
        raise ValueError(f"unknown extension {code}: written by a newer version")
    return reader(data)


unpack = msgspec.msgpack.Decoder(ext_hook=untag).decode
"""Returns the value that `pack` encoded."""
_unpack_list = msgspec.msgpack.Decoder(list, ext_hook=untag).decode
_unpack_tuple = msgspec.msgpack.Decoder(tuple, ext_hook=untag).decode
_unpack_set = msgspec.msgpack.Decoder(set, ext_hook=untag).decode


def _read_pairs(data: memoryview) -> dict[Any, Any]:
    flat = iter(_unpack_list(data))
    return dict(zip(flat, flat, strict=True))


def _read_time(data: memoryview) -> time:
    micros, offset, *fold = _unpack_list(data)
    seconds, micro = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    zone = None if offset is None else timezone(offset * _MICROSECOND)
    return time(minutes // 60, minutes % 60, second, micro, tzinfo=zone, fold=bool(fold))


def _read_naive_datetime(data: memoryview) -> datetime:
    moment: datetime = _EPOCH + _INT64.unpack(data[:8])[0] * _MICROSECOND
    return moment.replace(fold=1) if len(data) > 8 else moment


def _read_offset_datetime(data: memoryview) -> datetime:
    micros, offset = _unpack_list(data)
    instant: datetime = _EPOCH_UTC + micros * _MICROSECOND
    return instant.astimezone(timezone(offset * _MICROSECOND))


def _read_zoned_datetime(data: memoryview) -> datetime:
    micros, fold, zone = _unpack_list(data)
    tzinfo = ZoneInfo(zone) if isinstance(zone, str) else timezone(zone * _MICROSECOND)
    local: datetime = _EPOCH + micros * _MICROSECOND
    return local.replace(tzinfo=tzinfo, fold=fold)


def _read_row(data: memoryview) -> Row:
    kind, names, values = _unpack_list(data)
    row = Row.of(values, names)
    row.set_row_kind(RowKind(kind))
    return row


def _read_array(data: memoryview) -> np.ndarray[Any, Any]:
    dtype, shape, content, *order = _unpack_list(data)
    layout: Literal["C", "F"] = "F" if order else "C"
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape, order=layout).copy(order=layout)


def _read_numpy_scalar(data: memoryview) -> Any:
    name, content = _unpack_list(data)
    if name == "U":
        return np.str_(content)
    if name == "S":
        return np.bytes_(content)
    return np.void(content) if name[1:].startswith("V") else np.frombuffer(content, np.dtype(name))[0]


def _read_default_dict(data: memoryview) -> defaultdict[Any, Any]:
    name, flat = _unpack_list(data)
    pairs = iter(flat)
    return defaultdict(_FACTORIES[name], zip(pairs, pairs, strict=True))


def _read_deque(data: memoryview) -> deque[Any]:
    maxlen, items = _unpack_list(data)
    return deque(items, maxlen)


_READERS: dict[int, Callable[[memoryview], Any]] = {
    TUPLE: _unpack_tuple,
    SET: _unpack_set,
    FROZENSET: lambda data: frozenset(_unpack_list(data)),
    NAIVE_DATETIME: _read_naive_datetime,
    DATE: lambda data: date.fromordinal(_INT32.unpack(data)[0]),
    TIME: _read_time,
    TIMEDELTA: lambda data: timedelta(*_unpack_list(data)),
    DECIMAL: lambda data: Decimal(bytes(data).decode()),
    UUID_: lambda data: UUID(bytes=bytes(data)),
    BIG_INT: lambda data: int.from_bytes(data, "little", signed=True),
    DICT: _read_pairs,
    NDARRAY: _read_array,
    ROW: _read_row,
    OFFSET_DATETIME: _read_offset_datetime,
    BYTEARRAY: bytearray,
    MODEL: lambda data: unpack(data),
    STRUCT_KEY: lambda data: StructKey(_unpack_tuple(data)),
    DEQUE: _read_deque,
    COUNTER: lambda data: Counter(_read_pairs(data)),
    NUMPY_SCALAR: _read_numpy_scalar,
    ZONED_DATETIME: _read_zoned_datetime,
    DEFAULT_DICT: _read_default_dict,
    ORDERED_DICT: lambda data: OrderedDict(_read_pairs(data)),
}
