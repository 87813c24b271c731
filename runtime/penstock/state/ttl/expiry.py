"""Time-to-live: every value, list element and map entry of such a state carries the time at which it expires.

A cell is a pair (expiry time in ms, value). The handles in `ttl_handles` make and read such pairs, the codecs here store
them: a column of expiry times beside the column of values. Whether a state has a time-to-live may change between runs:
values without one get a full life at the restore, values that had one lose it.
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
    """Processing time."""

    def now_ms(self) -> int: ...


class Lifetime:
    """What a configuration means for cells.

    Args:
        clock: processing time.
    """

    def __init__(self, config: StateTtlConfig, clock: Clock) -> None:
        self.config = config
        self.now = clock.now_ms
        self._ttl = config.ttl_ms
        self.renews_on_read = config.renews_on_read
        self.returns_expired = config.returns_expired
        incremental = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
        self.sweep_size = 0 if incremental is None else incremental.get_cleanup_size()
        """Entries to look at with each access."""

    def deadline(self) -> int:
        """When a cell written now expires."""
        return self.now() + self._ttl


class TtlCodec(Codec):
    """Cells, with a codec of their values."""

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
    """Reads values that had no time-to-live: they get a full life."""

    def __init__(self, values: Codec, deadline: int) -> None:
        super().__init__(values)
        self._deadline = deadline

    def decode(self, data: bytes | memoryview) -> Cell:
        return self._deadline, self.values.decode(data)

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        deadline = self._deadline
        return [(deadline, value) for value in self.values.decode_column(code, data)]


class _Losing(TtlCodec):
    """Reads values that had a time-to-live and shall have none."""

    def decode(self, data: bytes | memoryview) -> Any:
        return super().decode(data)[1]

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        return [value for _, value in super().decode_column(code, data)]


def reader_codec(codec: Codec, lifetime: Lifetime | None, stored: StateInfo) -> Codec:
    """A codec that reads what a snapshot stored as cells of the state as it is declared now.

    Raises:
        StateSchemaIncompatible: there is no sure way.
    """
    values = codec.values if isinstance(codec, TtlCodec) else codec
    reader = values.reader_of(stored.schema)
    if lifetime is None:
        return _Losing(reader) if stored.ttl else reader
    return TtlCodec(reader) if stored.ttl else _Gaining(reader, lifetime.deadline())
