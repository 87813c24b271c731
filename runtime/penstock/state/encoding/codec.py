"""`Codec`, the interface between a state and its bytes, and functions that read and write columns without the type of their values."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.msgpack import Decoder, Encoder, Ext

from penstock.common.errors import StateTypeError
from penstock.state.encoding.schema import Schema, check_compatible
from penstock.state.encoding.tagged import SCALARS, TUPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

NATIVE, TUPLES = 0, 1
"""Column codes. NATIVE: a msgpack array of values. TUPLES: a msgpack array of arrays, which are all tuples of scalars."""

EXPIRING = 16
"""Flag in the code of a column whose values have an expiry time. The content is then [array of expiry times, the column]. A single value of
such a state begins with its expiry time: ms since the epoch in 8 bytes.
"""
EXPIRY = struct.Struct("<q")

_decode_raws = Decoder(list[Raw]).decode
decode_expiring = Decoder(tuple[list[int], bytes]).decode
_encode = Encoder().encode


class Codec(ABC):
    """A codec of one state's values.

    Args:
        state: name of the state, for error messages.
        operator: name of its operator.
    """

    schema: Schema

    def __init__(self, state: str, operator: str) -> None:
        self.state = state
        self.operator = operator

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            StateTypeError: the value has another type. The error names the state, the type and the remedy.
        """

    @abstractmethod
    def decode(self, data: bytes | memoryview) -> Any: ...

    @abstractmethod
    def freeze(self, values: list[Any]) -> list[Any]:
        """Return the values, or their encodings, so that later changes of the values have no effect. It raises the errors of `encode`."""

    @abstractmethod
    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        """Return the column code and the content for the result of `freeze`, or for a part of it. It raises the errors of `encode`."""

    @abstractmethod
    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]: ...

    def reader_of(self, old: Schema) -> Codec:
        """Return a codec that decodes values stored with another schema.

        Raises:
            StateSchemaIncompatible: no conversion is safe.
        """
        check_compatible(old, self.schema, state=self.state, operator=self.operator)
        return self

    def error(self, value: Any, reason: str, remedy: str) -> StateTypeError:
        text = repr(value)
        return StateTypeError(
            f"a value of state {self.state!r} cannot be stored: {reason}: {text[:200]}{'…' if len(text) > 200 else ''}",
            remedy=remedy,
            operator=self.operator,
        )


def split_column(code: int, data: bytes | memoryview) -> list[bytes]:
    """Return the encodings of a column's values. The type of the values is not needed."""
    if code >= EXPIRING:
        expiries, inner = decode_expiring(data)
        singles = split_column(code - EXPIRING, inner)
        return [EXPIRY.pack(expiry) + single for expiry, single in zip(expiries, singles, strict=True)]
    raws = map(bytes, _decode_raws(data))
    return [_encode(Ext(TUPLE, raw)) for raw in raws] if code == TUPLES else list(raws)


def join_column(encoded: Sequence[bytes], *, expiring: bool = False) -> tuple[int, bytes]:
    """Return the column of values that were encoded one by one."""
    if expiring:
        expiries = [EXPIRY.unpack_from(single)[0] for single in encoded]
        code, inner = join_column([single[EXPIRY.size :] for single in encoded])
        return code + EXPIRING, _encode((expiries, inner))
    return NATIVE, _encode(list(map(Raw, encoded)))


def are_frozen(values: Sequence[Any]) -> bool:
    """Return whether the values are scalars, or tuples of scalars, which cannot change."""
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return True
    return kinds == {tuple} and SCALARS.issuperset(map(type, chain.from_iterable(values)))


class EncodedCodec(Codec):
    """Values of an unknown type. They keep their encodings, one by one.

    Args:
        expiring: whether the values have an expiry time.
    """

    schema: Schema = {"type": "encoded"}

    def __init__(self, state: str, *, expiring: bool = False) -> None:
        super().__init__(state, "")
        self._expiring = expiring

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes | memoryview) -> bytes:
        return bytes(data)

    def freeze(self, values: list[Any]) -> list[Any]:
        return values

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        return join_column(frozen, expiring=self._expiring)

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        return list(split_column(code, data))
