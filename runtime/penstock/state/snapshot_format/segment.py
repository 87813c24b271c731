"""Segments: the files of the hashmap backend.

    "PSEG" | version u16 | blocks … | index (msgpack) | size of the index u32 | "PSEG"

A block holds rows of one state and one operation, by column, of a range of key groups, sorted by key group. For every
block, the index has the place and the key groups of the block. A reader of a few key groups therefore decodes only the
blocks that it needs. For every state, the index describes the values. A segment can therefore be read without any other
file.

Blocks of states that no operator has registered yet are copied unchanged from segment to segment. If the copying
backend owns only a part of a block's key groups, it marks the block as clipped. Readers then use only the rows within
the block's range.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.common.errors import StateFormatUnsupported
from penstock.state.decoding import decoding
from penstock.state.encoding.codec import Codec
from penstock.state.encoding.keys import KeyCodec
from penstock.state.key_groups import MAX_PARALLELISM_LIMIT, KeyGroupRange, keys_key_groups
from penstock.state.snapshot_format.rows import DROP, REMOVE, Rows, cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.files import FileRef
    from penstock.state.snapshot_format.rows import FrozenRows

MAGIC = b"PSEG"
VERSION = 1
BLOCK_ELEMENTS = 4096
"""Number of rows, or list and map elements, in a block: some tens of KB."""

_HEAD = struct.Struct("<4sH")
_TAIL = struct.Struct("<I4s")
_encode = msgspec.msgpack.encode

NAMESPACES = KeyCodec(None, "namespaces")

Layout = Literal["value", "list", "map", "timer"]
KEYS, SPACES, POSITIONS, COUNTS, MAP_KEYS, VALUES = range(6)


class StateInfo(msgspec.Struct, frozen=True):
    """A state's description in a segment or a handle."""

    kind: str
    layout: Layout
    schema: dict[str, Any]
    ttl: bool = False
    map_key_schema: dict[str, Any] | None = None
    ttl_ms: int | None = None
    """The time-to-live that the stored expiry times include; None if an older version of Penstock wrote the state."""


class Block(msgspec.Struct, array_like=True, frozen=True):
    """A block. `columns`: code and size in bytes of keys, namespaces, positions, counts, map keys, values; size 0 means none.

    `state`: position of the state in the index.
    """

    state: int
    op: int
    rows: int
    first_group: int
    last_group: int
    offset: int
    columns: tuple[tuple[int, int], ...]
    clipped: bool = False

    @property
    def size(self) -> int:
        return sum(size for _, size in self.columns)


class Index(msgspec.Struct):
    states: list[tuple[str, StateInfo]]
    blocks: list[Block]


_decode_index = msgspec.msgpack.Decoder(Index).decode
_decode_ints = msgspec.msgpack.Decoder(list[int]).decode
_decode_spaces = msgspec.msgpack.Decoder(tuple[int, bytes, list[int]]).decode


class SegmentWriter:
    """A writer that collects blocks. `finish` returns the file's content.

    Args:
        max_parallelism: number of key groups.
        owned: key groups of the backend that writes. The block of a DROP covers all of them.
    """

    def __init__(self, max_parallelism: int, owned: KeyGroupRange) -> None:
        self._max_parallelism = max_parallelism
        self._owned = owned
        self._index = Index([], [])
        self._parts = [_HEAD.pack(MAGIC, VERSION)]
        self._size = _HEAD.size
        self.elements = 0
        self.groups = KeyGroupRange(owned.end + 1, owned.start - 1)
        """The smallest range that includes the key groups of all blocks."""

    def add(
        self, name: str, info: StateInfo, rows: FrozenRows, codec: Codec, keys: KeyCodec, map_keys: KeyCodec | None
    ) -> None:
        """Add rows of one operation, in any order.

        Raises:
            StateTypeError: a key or a value cannot be encoded.
        """
        if rows.op == DROP:
            self._append(name, info, rows.objects(codec), self._owned, codec, keys, map_keys)
            return
        rows = rows.sorted_by_group(self._max_parallelism)
        groups = rows.groups
        assert groups is not None
        for start, stop in cuts(rows, BLOCK_ELEMENTS):
            covered = KeyGroupRange(int(groups[start]), int(groups[stop - 1]))
            self._append(name, info, rows.slice(start, stop).objects(codec), covered, codec, keys, map_keys)

    def _append(
        self,
        name: str,
        info: StateInfo,
        rows: Rows,
        groups: KeyGroupRange,
        codec: Codec,
        keys: KeyCodec,
        map_keys: KeyCodec | None,
    ) -> None:
        columns = (
            keys.encode_column(rows.keys) if rows.keys else (0, b""),
            (0, b"" if rows.namespaces is None else _encode_spaces(rows.namespaces)),
            (0, b"" if rows.positions is None else _encode(rows.positions)),
            (0, b"" if rows.counts is None else _encode(rows.counts)),
            (0, b"") if rows.map_keys is None or map_keys is None else map_keys.encode_column(rows.map_keys),
            (0, b"") if rows.values is None else codec.encode_column(rows.values),
        )
        self.elements += len(rows) if rows.values is None else len(rows.values)
        block = Block(
            self._state(name, info), rows.op, len(rows), groups.start, groups.end, self._size,
            tuple((code, len(data)) for code, data in columns),
        )  # fmt: skip
        self._add_block(block, [data for _, data in columns if data])

    def carry(self, stored: StoredBlock, within: KeyGroupRange) -> None:
        """Copy a block of another segment. Mark it as clipped if only a part of its key groups is used."""
        block = stored.block
        clip = stored.clip(within)
        cut = (block.first_group, block.last_group) != tuple(clip)
        moved = msgspec.structs.replace(
            block,
            state=self._state(stored.name, stored.info), first_group=clip.start, last_group=clip.end, offset=self._size, clipped=block.clipped or cut,
        )  # fmt: skip
        self.elements += block.rows
        self._add_block(moved, [stored.content()])

    def _state(self, name: str, info: StateInfo) -> int:
        states = self._index.states
        if (name, info) not in states:
            states.append((name, info))
        return states.index((name, info))

    def _add_block(self, block: Block, data: list[bytes | memoryview]) -> None:
        self._index.blocks.append(block)
        self._parts.extend(map(bytes, data))
        self._size += block.size
        self.groups = KeyGroupRange(min(self.groups.start, block.first_group), max(self.groups.end, block.last_group))

    @property
    def size(self) -> int:
        """Return the number of bytes so far."""
        return self._size

    @property
    def is_empty(self) -> bool:
        return not self._index.blocks

    def finish(self) -> bytes:
        index = _encode(self._index)
        return b"".join([*self._parts, index, _TAIL.pack(len(index), MAGIC)])


def _encode_spaces(namespaces: list[Any]) -> bytes:
    """Encode each distinct namespace once, and for each row the number of its namespace."""
    numbers: dict[Any, int] = {}
    of_row = [numbers.setdefault(namespace, len(numbers)) for namespace in namespaces]
    code, distinct = NAMESPACES.encode_column(list(numbers))
    return _encode((code, distinct, of_row))


class StoredBlock:
    """A block in a segment that was read.

    Args:
        within: key groups of the handle that named the file. Other key groups are not part of the snapshot.
    """

    __slots__ = ("_data", "block", "info", "name", "within")

    def __init__(self, name: str, info: StateInfo, block: Block, data: memoryview, within: KeyGroupRange) -> None:
        self.name = name
        self.block = block
        self.info = info
        self.within = within
        self._data = data

    def content(self) -> memoryview:
        return self._data[self.block.offset : self.block.offset + self.block.size]

    def clip(self, within: KeyGroupRange) -> KeyGroupRange:
        """Return the key groups of this block that a reader of `within` uses."""
        return KeyGroupRange(
            max(self.block.first_group, self.within.start, within.start),
            min(self.block.last_group, self.within.end, within.end),
        )

    def rows(
        self, within: KeyGroupRange, max_parallelism: int, codec: Codec, keys: KeyCodec, map_keys: KeyCodec | None
    ) -> Rows:
        """Return the decoded rows of these key groups."""
        columns = self._columns()
        values_code, values = columns[VALUES]
        rows = self._keys(columns, keys, map_keys)
        if values:
            rows.values = codec.decode_column(values_code, values)
        return self._filtered(rows, within, max_parallelism)

    def _columns(self) -> list[tuple[int, memoryview]]:
        columns, offset = [], self.block.offset
        for code, size in self.block.columns:
            columns.append((code, self._data[offset : offset + size]))
            offset += size
        return columns

    def _keys(self, columns: list[tuple[int, memoryview]], keys: KeyCodec, map_keys: KeyCodec | None) -> Rows:
        def ints(column: int) -> list[int] | None:
            data = columns[column][1]
            return list(_decode_ints(data)) if data else None

        spaces, map_key_data = columns[SPACES][1], columns[MAP_KEYS]
        return Rows(
            self.block.op,
            keys.decode_column(*columns[KEYS]) if columns[KEYS][1] else [],
            _decode_namespaces(spaces) if spaces else None,
            ints(POSITIONS),
            ints(COUNTS),
            map_keys.decode_column(*map_key_data) if map_keys is not None and map_key_data[1] else None,
        )

    def _filtered(self, rows: Rows, within: KeyGroupRange, max_parallelism: int) -> Rows:
        block, clip = self.block, self.clip(within)
        if rows.op == DROP or (not block.clipped and tuple(clip) == (block.first_group, block.last_group)):
            return rows
        groups = keys_key_groups(rows.keys, max_parallelism)
        inside = ((groups >= clip.start) & (groups <= clip.end)).nonzero()[0].tolist()
        return rows if len(inside) == len(rows.keys) else rows.take(inside)


def _decode_namespaces(data: memoryview) -> list[Any]:
    code, distinct, of_row = _decode_spaces(data)
    namespaces = NAMESPACES.decode_column(code, distinct)
    return [namespaces[number] for number in of_row]


def _check_block(block: Block, states: int, end: int) -> None:
    """Check the description of a block.

    Raises:
        ValueError: the block is outside of the segment, or its description is inconsistent.
    """
    sizes = [size for _, size in block.columns]
    fits = (
        0 <= block.state < states
        and DROP <= block.op <= REMOVE
        and len(sizes) == VALUES + 1
        and min(sizes) >= 0
        and block.rows >= 0
        and 0 <= block.first_group <= block.last_group < MAX_PARALLELISM_LIMIT
        and _HEAD.size <= block.offset <= block.offset + sum(sizes) <= end
    )
    if not fits:
        raise ValueError(f"{block} does not fit a segment of {states} states whose blocks end at {end}")


def read_segment(content: bytes, within: KeyGroupRange, file: FileRef | str) -> Iterator[StoredBlock]:
    """Yield the blocks of a segment that have any of these key groups, in order.

    Raises:
        StateFormatUnsupported: the content is not a complete segment, or has another format version.
        CorruptStateFile: the index cannot be decoded or does not fit the content.
    """
    data = memoryview(content)
    if len(data) < _HEAD.size + _TAIL.size or _HEAD.unpack_from(data)[0] != MAGIC:
        raise StateFormatUnsupported(f"{file} is not a state segment")
    version = _HEAD.unpack_from(data)[1]
    if version != VERSION:
        raise StateFormatUnsupported(
            f"{file} has format {version}, this version reads format {VERSION}",
            remedy="restore with the version of Penstock that wrote it, or a newer one",
        )
    size, magic = _TAIL.unpack_from(data, len(data) - _TAIL.size)
    if magic != MAGIC:
        raise StateFormatUnsupported(f"{file} is cut off")
    end = len(data) - _TAIL.size - size
    if end < _HEAD.size:
        raise StateFormatUnsupported(f"{file} is cut off")
    with decoding(str(file)):
        index = _decode_index(data[end : len(data) - _TAIL.size])
        for block in index.blocks:
            _check_block(block, len(index.states), end)
    for block in index.blocks:
        if block.first_group <= within.end and within.start <= block.last_group:
            yield StoredBlock(*index.states[block.state], block, data, within)
