"""A RocksDB snapshot as segments, for the hashmap backend and the state reader."""

from __future__ import annotations

import tempfile
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.state.decoding import decoding
from penstock.state.encoding.any_codec import ScalarCodec
from penstock.state.encoding.codec import Codec, EncodedCodec
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.hashmap.reading import overlap
from penstock.state.key_groups import KeyGroupRange
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.files.download import download
from penstock.state.rocksdb.options import read_options
from penstock.state.rocksdb.origins import origins_of
from penstock.state.rocksdb.rows import address_size, decode_namespace, family_name, group_prefix, split_row
from penstock.state.rocksdb.timers import FAMILY, stored_timers
from penstock.state.snapshot_format.rows import PUT, Rows
from penstock.state.snapshot_format.segment import SegmentWriter, StateInfo, read_segment
from penstock.state.timers.timer_table import TIMER_INFO, TIMER_TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.state.files import StateFileReader
    from penstock.state.snapshot_format.segment import StoredBlock

ROWS = 50_000
"""Number of rows in one segment. A list or map is never split."""


def exported_blocks(
    handle: dict[str, Any], groups: KeyGroupRange, reader: StateFileReader, names: Collection[str] | None = None
) -> Iterator[StoredBlock]:
    """Yield the snapshot's content in these key groups.

    Args:
        names: names of the states, and of timers as in `TIMER_TABLES`. None means all.

    Raises:
        CorruptStateFile: a file of the snapshot is damaged.
    """
    within = overlap(KeyGroupRange(*handle["key_groups"]), groups)
    with tempfile.TemporaryDirectory(prefix="penstock-restore-") as directory:
        folder = Path(directory, "database")  # `download` creates this folder
        download(handle, folder, reader)
        database = Database(str(folder), read_options({}), read_only=True)
        try:
            for name, parts in origins_of(handle).items():
                if family_name(name) in database.families and (names is None or name in names):
                    with decoding(f"state {name!r}"):
                        for part in parts:
                            yield from _state_blocks(database, name, part.info, overlap(part.groups, within), handle)
            if FAMILY in database.families and (names is None or not set(TIMER_TABLES).isdisjoint(names)):
                with decoding("the timers"):
                    yield from _timer_blocks(database, within, handle)
        finally:
            database.close()


def _state_blocks(
    database: Database, name: str, info: StateInfo, within: KeyGroupRange, handle: dict[str, Any]
) -> Iterator[StoredBlock]:
    if within.start > within.end:
        return
    codec = EncodedCodec(name, expiring=info.ttl)
    rows = scan(database.family(family_name(name)), group_prefix(within.start), group_prefix(within.end + 1))
    part = _Part(info.layout)
    for address, of_key in groupby(rows, key=lambda row: row[0][: address_size(row[0])]):
        part.add(address, list(of_key))
        if part.size >= ROWS:
            yield from _blocks(name, info, part.rows(), codec, within, handle)
            part = _Part(info.layout)
    if part.size:
        yield from _blocks(name, info, part.rows(), codec, within, handle)


class _Part:
    """Rows of RocksDB that are being collected into columns."""

    def __init__(self, layout: str) -> None:
        self.size = 0
        self._layout = layout
        self._keys: list[Any] = []
        self._namespaces: list[Any] = []
        self._counts: list[int] = []
        self._map_keys: list[Any] = []
        self._values: list[bytes] = []

    def add(self, address: bytes, rows: list[tuple[bytes, bytes]]) -> None:
        _, namespace, key, _ = split_row(address)
        self.size += len(rows)
        self._keys.append(UNTYPED_KEYS.decode(key))
        self._namespaces.append(decode_namespace(namespace))
        self._counts.append(len(rows))
        self._values.extend(value for _, value in rows)
        if self._layout == "map":
            self._map_keys.extend(UNTYPED_KEYS.decode(row[len(address) :]) for row, _ in rows)

    def rows(self) -> Rows:
        return Rows(
            PUT,
            self._keys,
            self._namespaces,
            counts=None if self._layout == "value" else self._counts,
            map_keys=self._map_keys if self._layout == "map" else None,
            values=self._values,
        )


def _timer_blocks(database: Database, within: KeyGroupRange, handle: dict[str, Any]) -> Iterator[StoredBlock]:
    for domain, timers in groupby(stored_timers(database, within), key=lambda timer: timer[0]):
        listed = list(timers)
        rows = Rows(
            PUT,
            [UNTYPED_KEYS.decode(key) for _, _, _, key in listed],
            [namespace for _, _, namespace, _ in listed],
            values=[timestamp for _, timestamp, _, _ in listed],
        )
        name = TIMER_TABLES[domain]
        yield from _blocks(name, TIMER_INFO, rows, ScalarCodec(int, name, ""), within, handle)


def _blocks(
    name: str, info: StateInfo, rows: Rows, codec: Codec, within: KeyGroupRange, handle: dict[str, Any]
) -> Iterable[StoredBlock]:
    segment = SegmentWriter(handle["max_parallelism"], KeyGroupRange(*handle["key_groups"]))
    segment.add(name, info, rows, codec, UNTYPED_KEYS, UNTYPED_KEYS)
    return read_segment(segment.finish(), within, "exported state")
