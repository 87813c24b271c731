"""Time-to-live: every value, list element and map entry of a state with a time-to-live has an expiry time.

A cell is a pair (expiry time in ms, value). The handles in `ttl.handles` create and read such pairs. The codecs here
store the pairs as a column of expiry times next to the column of values. The time-to-live of a state may change between
runs:

- Values without an expiry time get the full time at the restore.
- If the state no longer has a time-to-live, values lose their expiry time.
- If the time-to-live has another length, the new length counts from the last renewal of a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec.msgpack import Encoder

from penstock.state.encoding.codec import EXPIRING, EXPIRY, Codec, decode_expiring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.state.descriptors import StateTtlConfig
    from penstock.state.encoding.schema import Schema
    from penstock.state.snapshot_format.segment import StateInfo

_encode = Encoder().encode

Cell = tuple[int, Any]


class Clock(Protocol):
    """The clock of processing time."""

    def now_ms(self) -> int: ...


class Lifetime:
    """The time-to-live of cells for a configuration.

    Args:
        clock: the clock of processing time.
    """

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.config = config
        self.now = clock.now_ms
        self._ttl = config.ttl_ms
        self.renews_on_read = config.renews_on_read
        self.returns_expired = config.returns_expired
        incremental = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
        self.sweep_size = 0 if incremental is None else incremental.get_cleanup_size()
        """Number of entries to check with each access."""

    def deadline(self) -> int:
        """Return the expiry time of a cell that is written now."""
        return self.now() + self._ttl


class TtlCodec(Codec):
    """The codec of cells, on top of a codec of their values."""

    def __init__(self, values: Codec) -> None:
        super().__init__(values.state, values.operator)
        self.values = values
        self.schema = values.schema

    def encode(self, value: Cell) -> bytes:
        return EXPIRY.pack(value[0]) + self.values.encode(value[1])

    def decode(self, data: bytes | memoryview) -> Cell:
        return EXPIRY.unpack_from(data)[0], self.values.decode(data[EXPIRY.size :])

    def freeze(self, values: list[Any]) -> list[Any]:
        frozen = self.values.freeze([value for _, value in values])
        return list(zip([expiry for expiry, _ in values], frozen, strict=True))

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        code, data = self.values.encode_column([value for _, value in frozen])
        return code + EXPIRING, _encode(([expiry for expiry, _ in frozen], data))

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        expiries, inner = decode_expiring(data)
        return list(zip(expiries, self.values.decode_column(code - EXPIRING, inner), strict=True))

    def reader_of(self, old: Schema) -> Codec:
        return TtlCodec(self.values.reader_of(old))


class _Gaining(TtlCodec):
    """A codec for values that had no time-to-live. These values get the full time."""

    def __init__(self, values: Codec, deadline: int) -> None:
        super().__init__(values)
        self._deadline = deadline

    def decode(self, data: bytes | memoryview) -> Cell:
        return self._deadline, self.values.decode(data)

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        deadline = self._deadline
        return [(deadline, value) for value in self.values.decode_column(code, data)]


class _Losing(TtlCodec):
    """A codec for values that lose their time-to-live."""

    def decode(self, data: bytes | memoryview) -> Any:
        return super().decode(data)[1]

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        return [value for _, value in super().decode_column(code, data)]


class _Shifting(TtlCodec):
    """A codec for values whose time-to-live had another length.

    The new length counts from their last renewal, as in Flink.
    """

    def __init__(self, values: Codec, change_ms: int) -> None:
        super().__init__(values)
        self._change = change_ms

    def decode(self, data: bytes | memoryview) -> Cell:
        expiry, value = super().decode(data)
        return expiry + self._change, value

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        change = self._change
        return [(expiry + change, value) for expiry, value in super().decode_column(code, data)]


def reader_codec(codec: Codec, lifetime: Lifetime | None, stored: StateInfo) -> Codec:
    """Return a codec that reads stored cells as cells of the state's current declaration.

    Raises:
        StateSchemaIncompatible: no conversion is safe.
    """
    values = codec.values if isinstance(codec, TtlCodec) else codec
    reader = values.reader_of(stored.schema)
    if lifetime is None:
        return _Losing(reader) if stored.ttl else reader
    if not stored.ttl:
        return _Gaining(reader, lifetime.deadline())
    change = 0 if stored.ttl_ms is None else lifetime.config.ttl_ms - stored.ttl_ms
    return _Shifting(reader, change) if change else TtlCodec(reader)
