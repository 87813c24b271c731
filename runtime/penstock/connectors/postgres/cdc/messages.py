"""Messages of the replication stream, and the messages of `pgoutput` (version 1) that the stream contains.

Formats: PostgreSQL's documentation, "Logical Replication Message Formats" and "Streaming Replication Protocol".
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

_EPOCH_MS = 946_684_800_000
"""2000-01-01 in ms since 1970. The server counts microseconds from that day."""


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()
"""Placeholder for a large value (TOAST) that an update did not touch. The log omits it."""

Values = list[Any]
"""The values of a row's columns: text as bytes, None, or UNCHANGED."""


class Begin(NamedTuple):
    commit_lsn: int
    commit_ms: int
    xid: int


class Commit(NamedTuple):
    end_lsn: int


class RelationColumn(NamedTuple):
    name: str
    type: int
    """OID of the type."""
    modifier: int


class Relation(NamedTuple):
    oid: int
    name: str
    """ "schema.table"."""
    columns: tuple[RelationColumn, ...]


class RowChange(NamedTuple):
    """An insert, update or delete of a row."""

    kind: str
    """I, U or D."""
    oid: int
    """OID of the table."""
    old: Values | None
    """The row before the change, with the columns that the table's REPLICA IDENTITY keeps."""
    whole: bool
    """Whether `old` has all columns."""
    new: Values | None


class Truncate(NamedTuple):
    oids: tuple[int, ...]


class Keepalive(NamedTuple):
    """A heartbeat of the server."""

    lsn: int
    """The server has sent all of its log before this position."""
    asks: bool
    """Whether the server requests a status."""


_KEEPALIVE = struct.Struct("!QqB")
_BEGIN = struct.Struct("!QqI")
_COMMIT = struct.Struct("!BQQq")
_COLUMN = struct.Struct("!Ii")
_STATUS = struct.Struct("!cQQQqB")
HEAD = 25
"""Number of bytes before a message of pgoutput. They are "w", the message's position, the end of the log, and the time."""

Message = Begin | Commit | Relation | RowChange | Truncate | Keepalive


def parse(data: bytes) -> Message | None:
    """Parse a message of the stream. Return None for messages that do not concern rows (origins, types)."""
    if data[:1] == b"k":
        lsn, _, asks = _KEEPALIVE.unpack_from(data, 1)
        return Keepalive(lsn, bool(asks))
    tag = data[HEAD : HEAD + 1]
    at = HEAD + 1
    if tag in b"IUD":
        return _row_change(tag, data, at)
    if tag == b"B":
        lsn, micros, xid = _BEGIN.unpack_from(data, at)
        return Begin(lsn, micros // 1000 + _EPOCH_MS, xid)
    if tag == b"C":
        return Commit(_COMMIT.unpack_from(data, at)[2])
    if tag == b"R":
        return _relation(data, at)
    if tag == b"T":
        count, _ = struct.unpack_from("!IB", data, at)
        return Truncate(struct.unpack_from(f"!{count}I", data, at + 5))
    return None


def log_end(data: bytes) -> int:
    """Return the end of the server's log at the time of this message."""
    return int.from_bytes(data[1:9] if data[:1] == b"k" else data[9:17])


def status(flushed: int, *, asks: bool) -> bytes:
    """Return a status message. It allows the server to delete its log up to `flushed`.

    Args:
        asks: whether the server must reply with its own position.
    """
    return _STATUS.pack(b"r", flushed, flushed, flushed, 0, asks)


def _row_change(tag: bytes, data: bytes, at: int) -> RowChange:
    oid = int.from_bytes(data[at : at + 4])
    part = data[at + 4 : at + 5]
    at += 5
    old: Values | None = None
    whole = part == b"O"
    if part in b"KO":
        old, at = _values(data, at)
        if tag == b"D":
            return RowChange("D", oid, old, whole, None)
        at += 1
    new, _ = _values(data, at)
    return RowChange(tag.decode(), oid, old, whole, new)


def _values(data: bytes, at: int) -> tuple[Values, int]:
    count = int.from_bytes(data[at : at + 2])
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # "t": text
            end = at + 4 + int.from_bytes(data[at : at + 4])
            values.append(data[at + 4 : end])
            at = end
        else:
            values.append(None if kind == 0x6E else UNCHANGED)  # "n", "u"
    return values, at


def _relation(data: bytes, at: int) -> Relation:
    oid = int.from_bytes(data[at : at + 4])
    schema, at = _text(data, at + 4)
    name, at = _text(data, at)
    count = int.from_bytes(data[at + 1 : at + 3])
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        columns.append(RelationColumn(column, *_COLUMN.unpack_from(data, at)))
        at += 8
    return Relation(oid, f"{schema or 'pg_catalog'}.{name}", tuple(columns))


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def lsn_of(text: str) -> int:
    """Parse a position in the log (LSN).

    >>> lsn_of("1/A0")
    4294967456
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return a position in the log (LSN) as text.

    >>> lsn_text(4294967456)
    '1/A0'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def end_of_timeline(history: str, timeline: int) -> int:
    """Return the position at which a later timeline branches off `timeline`, or 0 if it does not descend from `timeline`.

    Args:
        history: history file of the later timeline.

    >>> lsn_text(end_of_timeline("1\\t0/15000A0\\tno recovery target specified\\n\\n2\\t1/0\\tbefore", 2))
    '1/0'
    """
    parts = [line.split("\t") for line in history.splitlines() if line.strip() and not line.startswith("#")]
    return next((lsn_of(end) for number, end, *_ in parts if int(number) == timeline), 0)
