"""Codecs of values without a declared type, and of declared scalars."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder, Ext

from penstock.state.encoding.codec import NATIVE, TUPLES, Codec, are_frozen, join_column
from penstock.state.encoding.schema import ANY
from penstock.state.encoding.tagged import SCALARS, TUPLE, Unencodable, pack, plain_scalar, type_name, unpack, untag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.common.errors import StateTypeError

_TUPLE_TYPE = tuple[Any, ...]
_decode_list = Decoder(list, ext_hook=untag).decode
_decode_tuples = Decoder(list[_TUPLE_TYPE], ext_hook=untag).decode
_decode_floats = Decoder(list[float]).decode
_encode = Encoder().encode

_REMEDY = (
    "declare the type. For the state of windows, joins and gather, declare it at the operator that emits the values: "
    "map(..., output_type={type}). For the state of a function, declare it in the descriptor: ValueStateDescriptor({state!r}, {type}). "
    "{type} must be a dataclass, NamedTuple, Enum, pydantic model or msgspec struct. Or store builtin values"
)


class AnyCodec(Codec):
    """Any builtin value."""

    schema = ANY

    def encode(self, value: Any) -> bytes:
        try:
            kind = type(value)
            if kind in SCALARS:
                return _encode(value)
            if kind is tuple and SCALARS.issuperset(map(type, value)):
                return _encode(Ext(TUPLE, _encode(value)))
        except OverflowError:
            pass  # an integer beyond 64 bits
        except UnicodeEncodeError as error:
            raise self._text_error(value) from error
        return self._pack(value)

    def _pack(self, value: Any) -> bytes:
        try:
            return pack(value)
        except Unencodable as error:
            kind = type_name(type(error.value))
            inside = "" if error.value is value else f" (inside a {type_name(type(value))})"
            raise self.error(
                error.value,
                f"{kind}{inside} is not a builtin type{error.reason and ', ' + error.reason}",
                _REMEDY.format(state=self.state, type=type(error.value).__name__),
            ) from None
        except UnicodeEncodeError as error:
            raise self._text_error(value) from error
        except RecursionError:
            raise self.error(type(value), "it contains itself", "store a value that does not contain itself") from None

    def _text_error(self, value: Any) -> StateTypeError:
        return self.error(value, "a string holds half of a surrogate pair", "decode input with errors='replace'")

    def decode(self, data: bytes | memoryview) -> Any:
        return unpack(data)

    def freeze(self, values: list[Any]) -> list[Any]:
        if are_frozen(values):
            return values
        encode = self.encode
        return [Raw(encode(value)) for value in values]

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        if frozen and type(frozen[0]) is Raw:
            return NATIVE, _encode(frozen)
        code = TUPLES if frozen and type(frozen[0]) is tuple else NATIVE
        try:
            return code, _encode(frozen)
        except (OverflowError, UnicodeEncodeError):
            return join_column([self.encode(value) for value in frozen])

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        decoded: list[Any] = _decode_tuples(data) if code == TUPLES else _decode_list(data)
        return decoded


class ScalarCodec(AnyCodec):
    """A declared scalar. Values are checked by their type alone, for a whole column at once."""

    def __init__(self, scalar: type, state: str, operator: str) -> None:
        super().__init__(state, operator)
        self.schema = {"type": "none" if scalar is type(None) else scalar.__name__}
        self._scalar = scalar

    def encode(self, value: Any) -> bytes:
        return super().encode(value if type(value) is self._scalar else self._checked(value))

    def _checked(self, value: Any) -> Any:
        item = plain_scalar(value)
        if self._scalar is float and type(item) is int and abs(item) <= sys.float_info.max and float(item) == item:
            return float(item)
        if type(item) is self._scalar:
            return item
        raise self.error(
            value,
            f"it is declared as {self._scalar.__name__} and the value is a {type_name(type(value))}",
            f"convert the value with {self._scalar.__name__}(...), or declare the type of the stored values",
        )

    def decode(self, data: bytes | memoryview) -> Any:
        value = unpack(data)
        return float(value) if self._scalar is float else value

    def freeze(self, values: list[Any]) -> list[Any]:
        """Return the values unchanged, because scalars cannot change. A value that is not a scalar is refused when the column is encoded."""
        return values

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        if not set(map(type, frozen)) <= {self._scalar}:
            frozen = list(map(self._checked, frozen))
        return super().encode_column(frozen)

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        if self._scalar is float:
            try:
                return _decode_floats(data)
            except msgspec.ValidationError:
                return list(map(float, _decode_list(data)))  # the state was int, with numbers beyond 64 bits
        return super().decode_column(code, data)
