"""RocksDB's MANIFEST, which lists the files of a database. This module reads and writes it without opening the
database.

A MANIFEST is a log of *version edits*: a file was added to a level, or removed. Reading it yields the files of a
database at any point of the log, with their levels, bounds of keys and sequence numbers. Writing a MANIFEST creates a
database from existing files, as RocksDB does when it imports a column family.

A snapshot can therefore name the files of a past moment. A restore can leave out files of other key groups before it
fetches them, and combine the files of several databases.

The formats are those of RocksDB 10: `db/log_format.h` (blocks of 32 KiB; records of crc32c, length, type, payload) and
`db/version_edit.cc` (tagged fields). Bounds, checksums and other fields of a file are copied unchanged. An unknown
field that RocksDB does not mark as safe to ignore raises `ManifestUnreadable`. Callers then use a slower way.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED, _PREV_LOG = 1, 2, 3, 4, 5, 6, 9
_MIN_LOG, _NEW_FILE, _FAMILY, _FAMILY_ADD, _FAMILY_DROP, _MAX_FAMILY, _ATOMIC_GROUP = 10, 103, 200, 201, 202, 203, 300
_SAFE_TO_IGNORE = 1 << 13
_END, _EPOCH = 1, 13
"""Tags of a file's fields: the end of the fields, and the file's position in the order of level 0."""
BYTEWISE = b"leveldb.BytewiseComparator"
_LONGEST_VARINT = 63
"""Maximum number of bits before the last byte of a varint."""
_TRAILER = 8
"""Length of the trailer of an internal key: sequence number and type, after the key."""


class ManifestUnreadable(Exception):
    """An error of a MANIFEST that has an unknown field or is cut off."""


@dataclass(frozen=True)
class Table:
    """An SST file as a MANIFEST names it."""

    level: int
    number: int
    size: int
    smallest: bytes
    """Internal key: the key and eight bytes."""
    largest: bytes
    smallest_sequence: int
    largest_sequence: int
    fields: tuple[tuple[int, bytes], ...] = ()

    @property
    def name(self) -> str:
        """The file's name.

        >>> Table(0, 12, 0, b"", b"", 0, 0).name
        '000012.sst'
        """
        return f"{self.number:06d}.sst"

    @property
    def first_key(self) -> bytes:
        return self.smallest[:-_TRAILER]

    @property
    def last_key(self) -> bytes:
        """The last key. If the file ends with a deleted range, this key is the range's excluded end."""
        return self.largest[:-_TRAILER]

    @property
    def epoch(self) -> int:
        """Position in the order of the files of level 0; 0 means not recorded."""
        return next((_varint(data, 0)[0] for tag, data in self.fields if tag == _EPOCH), 0)

    def renumbered(self, number: int, epoch: int) -> Table:
        """Return the file with another number and epoch. A file without a recorded epoch remains without one."""
        fields = tuple((tag, _encoded(epoch) if tag == _EPOCH else data) for tag, data in self.fields)
        return replace(self, number=number, fields=fields)


@dataclass
class Version:
    """The files of a database at one moment."""

    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    """Column families by their ids."""
    tables: dict[int, dict[int, Table]] = field(default_factory=dict)
    """Files by column family and number."""
    next_file: int = 2
    last_sequence: int = 0

    def of_family(self, name: str) -> list[Table]:
        return [t for id, found in self.families.items() if found == name for t in self.tables.get(id, {}).values()]

    def copy(self) -> Version:
        tables = {family: dict(of_family) for family, of_family in self.tables.items()}
        return Version(dict(self.families), tables, self.next_file, self.last_sequence)

    def all_tables(self) -> Iterator[Table]:
        for tables in self.tables.values():
            yield from tables.values()


@dataclass
class Edit:
    """The relevant part of one record of a MANIFEST."""

    family: int = 0
    added_family: str | None = None
    drops_family: bool = False
    added: list[Table] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    next_file: int | None = None
    last_sequence: int | None = None
    remaining: int | None = None
    """Number of records of the edit's group that follow; None means that the edit belongs to no group."""

    @property
    def is_flush(self) -> bool:
        """Whether the edit only adds files to level 0. Only a flush of memory does this."""
        return bool(self.added) and not self.deleted and all(table.level == 0 for table in self.added)


def read_edits(content: bytes) -> list[Edit]:
    """Return all complete edits. A group without its last record is left out.

    Raises:
        ManifestUnreadable: the content has an unknown field or is cut off.
    """
    return read_edits_from(content, 0)[0]


def read_edits_from(content: bytes, begin: int) -> tuple[list[Edit], int]:
    """Return the edits from an offset of a MANIFEST at which a record begins.

    Returns:
        The edits, and the offset after them, at which the next call begins.

    Raises:
        ManifestUnreadable: the content has an unknown field or is cut off.
    """
    edits: list[Edit] = []
    group: list[Edit] = []
    decoded = begin
    for payload, end in _records(content, begin):
        edit = _decode(payload)
        group.append(edit)
        if not edit.remaining:
            edits += group
            group, decoded = [], end
    return edits, decoded


def apply(version: Version, edits: Iterable[Edit]) -> Version:
    """Apply the edits to the version in order, and return it."""
    for edit in edits:
        if edit.added_family is not None:
            version.families[edit.family] = edit.added_family
            version.tables[edit.family] = {}
        if edit.drops_family:
            version.families.pop(edit.family, None)
            version.tables.pop(edit.family, None)
            continue
        tables = version.tables.setdefault(edit.family, {})
        for number in edit.deleted:
            tables.pop(number, None)
        tables.update((table.number, table) for table in edit.added)
        version.next_file = max(version.next_file, edit.next_file or 0)
        version.last_sequence = max(version.last_sequence, edit.last_sequence or 0)
    return version


def read_version(content: bytes) -> Version:
    """Return the files at the end of a MANIFEST.

    Raises:
        ManifestUnreadable: the content has an unknown field or is cut off.
    """
    return apply(Version(), read_edits(content))


def write_version(version: Version) -> dict[str, bytes]:
    """Return the content of MANIFEST and CURRENT, by name, for a database with the files of the version."""
    number = version.next_file
    payloads = []
    for id, name in sorted(version.families.items()):
        added = b"" if id == 0 else _field(_FAMILY, id) + _encoded(_FAMILY_ADD) + _sized(name.encode())
        payloads.append(_encoded(_COMPARATOR) + _sized(BYTEWISE) + added)
        tables = sorted(
            version.tables.get(id, {}).values(), key=lambda t: (t.level, t.epoch, t.largest_sequence, t.number)
        )
        named = b"".join(map(_encode_table, tables))
        payloads.append(_field(_LOG_NUMBER, 0) + named + (_field(_FAMILY, id) if id else b""))
    payloads.append(
        _field(_LOG_NUMBER, 0)
        + _field(_PREV_LOG, 0)
        + _field(_NEXT_FILE, number + 1)
        + _field(_LAST_SEQUENCE, version.last_sequence)
        + _field(_MAX_FAMILY, max(version.families))
    )
    name = f"MANIFEST-{number:06d}"
    return {name: _log(payloads), "CURRENT": f"{name}\n".encode()}


# --- records ----------------------------------------------------------------------------------------------------------


def _records(content: bytes, begin: int) -> Iterator[tuple[bytes, int]]:
    """Yield the payloads of all complete records, and their ends in the log. Nothing is verified, because stored files
    have a separate checksum.
    """
    position, parts = 0, b""
    while position + _HEADER.size <= len(content):
        remaining = BLOCK - (begin + position) % BLOCK
        if remaining < _HEADER.size:
            position += remaining
            continue
        _, size, kind = _HEADER.unpack_from(content, position)
        start = position + _HEADER.size
        position = start + size
        if position > len(content) or kind == 0:
            return
        parts += content[start:position]
        if kind in (_FULL, _LAST):
            yield parts, begin + position
            parts = b""
        elif kind not in (_FIRST, _MIDDLE):
            raise ManifestUnreadable(f"a record of type {kind}")


def _log(payloads: Iterable[bytes]) -> bytes:
    out = bytearray()
    for payload in payloads:
        rest, first = payload, True
        while first or rest:
            remaining = BLOCK - len(out) % BLOCK
            if remaining < _HEADER.size:
                out += bytes(remaining)
                remaining = BLOCK
            part, rest = rest[: remaining - _HEADER.size], rest[remaining - _HEADER.size :]
            kind = (_LAST if not first else _FULL) if not rest else (_FIRST if first else _MIDDLE)
            out += _HEADER.pack(_masked(_crc32c(bytes((kind,)) + part)), len(part), kind) + part
            first = False
    return bytes(out)


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC = _crc_table()


def _crc32c(data: bytes) -> int:
    """Return the CRC-32C of the data.

    >>> hex(_crc32c(b"123456789"))
    '0xe3069283'
    """
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- edits ------------------------------------------------------------------------------------------------------------


def _decode(payload: bytes) -> Edit:
    edit, at = Edit(), 0
    try:
        while at < len(payload):
            tag, at = _varint(payload, at)
            if tag == _NEW_FILE:
                table, at = _decode_table(payload, at)
                edit.added.append(table)
            elif tag in (_COMPARATOR, _FAMILY_ADD) or tag & _SAFE_TO_IGNORE:
                data, at = _bytes(payload, at)
                if tag == _FAMILY_ADD:
                    edit.added_family = data.decode()
                elif tag == _COMPARATOR and data != BYTEWISE:
                    raise ManifestUnreadable(f"rows are compared by {data!r}")
            elif tag == _DELETED:
                _, at = _varint(payload, at)
                number, at = _varint(payload, at)
                edit.deleted.append(number)
            elif tag == _COMPACT_CURSOR:
                _, at = _varint(payload, at)
                _, at = _bytes(payload, at)
            elif tag == _FAMILY_DROP:
                edit.drops_family = True
            else:
                number, at = _varint(payload, at)
                _apply_field(edit, tag, number)
    except IndexError:
        raise ManifestUnreadable("an edit is cut off") from None
    except UnicodeDecodeError:
        raise ManifestUnreadable("the name of a column family is not UTF-8") from None
    return edit


def _apply_field(edit: Edit, tag: int, number: int) -> None:
    if tag == _FAMILY:
        edit.family = number
    elif tag == _NEXT_FILE:
        edit.next_file = number
    elif tag == _LAST_SEQUENCE:
        edit.last_sequence = number
    elif tag == _ATOMIC_GROUP:
        edit.remaining = number
    elif tag not in (_LOG_NUMBER, _PREV_LOG, _MIN_LOG, _MAX_FAMILY):
        raise ManifestUnreadable(f"a field {tag}")


def _decode_table(payload: bytes, at: int) -> tuple[Table, int]:
    level, at = _varint(payload, at)
    number, at = _varint(payload, at)
    size, at = _varint(payload, at)
    smallest, at = _bytes(payload, at)
    largest, at = _bytes(payload, at)
    smallest_sequence, at = _varint(payload, at)
    largest_sequence, at = _varint(payload, at)
    fields: list[tuple[int, bytes]] = []
    while True:
        tag, at = _varint(payload, at)
        if tag == _END:
            return Table(level, number, size, smallest, largest, smallest_sequence, largest_sequence, tuple(fields)), at
        data, at = _bytes(payload, at)
        fields.append((tag, data))


def _encode_table(table: Table) -> bytes:
    numbers = b"".join(map(_encoded, (_NEW_FILE, table.level, table.number, table.size)))
    sequences = _encoded(table.smallest_sequence) + _encoded(table.largest_sequence)
    fields = b"".join(_encoded(tag) + _sized(data) for tag, data in table.fields)
    return numbers + _sized(table.smallest) + _sized(table.largest) + sequences + fields + _encoded(_END)


def _field(tag: int, number: int) -> bytes:
    return _encoded(tag) + _encoded(number)


def _sized(data: bytes) -> bytes:
    return _encoded(len(data)) + data


def _bytes(payload: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(payload, at)
    if at + size > len(payload):
        raise IndexError
    return payload[at : at + size], at + size


def _encoded(number: int) -> bytes:
    """Return the number as a varint.

    >>> _encoded(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = payload[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _LONGEST_VARINT:
            raise ManifestUnreadable("a number of more than 64 bits")
