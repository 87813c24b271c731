"""Restore of the RocksDB backend: former files become its database; rows are copied one by one only where that is not possible.

One former subtask's files are opened as they are, without those that hold only foreign key groups, and the rest of these is hidden. Files of
several are put into one database (`assembly`); what reaches beyond its part is written anew by RocksDB before. Rows are copied from
snapshots of the hashmap backend, of timers (which are kept in memory in any case), and if RocksDB's files are not as expected.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.state.backend import FileRef, KeyGroupRange
from penstock.state.encoding.codec import EncodedCodec
from penstock.state.encoding.keys import UNTYPED_KEYS, KeyCodec
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.reading import (
    apply_block,
    chain_files,
    check_format,
    handles_for_range,
    overlap,
    read_chain,
)
from penstock.state.hashmap.snapshot import BACKEND as HASHMAP
from penstock.state.hashmap.table import Table
from penstock.state.hashmap.tables import ValueTable
from penstock.state.key_groups import keys_key_groups
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.files.assembly import outside, within
from penstock.state.rocksdb.files.download import StoredDatabase, download
from penstock.state.rocksdb.files.manifest import ManifestUnreadable
from penstock.state.rocksdb.files.putting_together import Part, put_together
from penstock.state.rocksdb.rows import NUMBER, family_name, group_prefix, sized, space_prefix, split_row, split_timer
from penstock.state.rocksdb.snapshot import BACKEND
from penstock.state.rocksdb.timers import FAMILY
from penstock.state.snapshot_format.segment import StateInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.state.backend import StateFileReader
    from penstock.state.snapshot_format.segment import StoredBlock

logger = logging.getLogger(__name__)

_TABLES: dict[str, type[Table]] = {"value": ValueTable, "list": ListTable, "map": MapTable}


class Restore:
    """One restore of one backend.

    Args:
        work_dir: where files may be put.
        groups: what the backend owns.
        settings: of databases to be opened.
    """

    def __init__(
        self,
        work_dir: Path,
        groups: KeyGroupRange,
        max_parallelism: int,
        settings: Mapping[str, Any],
        reader: StateFileReader,
    ) -> None:
        self._work_dir = work_dir
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._settings = settings
        self._reader = reader
        self.last_number = 0
        self.states: dict[str, StateInfo] = {}
        self.timer_blocks: list[StoredBlock] = []

    def relevant(self, handles: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The handles that hold anything of the key groups; notes what they say.

        Raises:
            StateFormatUnsupported.
        """
        chosen = handles_for_range(handles, self._groups)
        for handle in chosen:
            check_format(handle)
            self.last_number = max(self.last_number, handle.get("number", 0))
            for name, info in handle["states"].items():
                self.states[name] = msgspec.convert(info, StateInfo)
        return chosen

    def run(self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]) -> dict[str, FileRef]:
        """Make the database of the key groups.

        Args:
            target: where its files are to be.
            opened: opens it.

        Returns:
            Files of it that lie in storage, by name.
        """
        if handles and all(handle["backend"] == BACKEND for handle in handles):
            try:
                return self._by_files(handles, target, opened)
            except ManifestUnreadable as error:
                logger.warning("rows are copied, since the files of RocksDB cannot be taken over: %s", error)
                shutil.rmtree(target, ignore_errors=True)
        self._copy_ranges(handles, opened())
        return {}

    def _by_files(
        self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]
    ) -> dict[str, FileRef]:
        if len(handles) > 1:
            return self._of_several(handles, target, opened)
        stored = StoredDatabase.of(handles[0], self._reader)
        if tuple(handles[0]["key_groups"]) == self._groups:
            return stored.fetch_all(target, self._reader, self._threads)
        version = within(stored.version(), self._groups)
        files = stored.fetch(version, target, self._reader, self._threads)
        _open(opened).hide(outside(version, self._groups))
        return files

    def _of_several(
        self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]
    ) -> dict[str, FileRef]:
        parts = [self._fetch(handle, self._work_dir / f"restore-{index}") for index, handle in enumerate(handles)]
        try:
            timers = [row for part in parts for row in self._timers(part)]
            clean = [part for part in parts if part.clip(self._settings)]
            if not clean:
                raise ManifestUnreadable("all of them reach beyond their key groups")
            files = put_together(clean, target)
            database = _open(opened)
            for part in parts:
                if part not in clean:
                    self._copy_rows(part.directory, part.groups, database, timers=False)
            database.put_all(FAMILY, iter(timers))
        finally:
            for part in parts:
                shutil.rmtree(part.directory, ignore_errors=True)
        return files

    def _fetch(self, handle: dict[str, Any], directory: Path) -> Part:
        stored = StoredDatabase.of(handle, self._reader)
        groups = overlap(KeyGroupRange(*handle["key_groups"]), self._groups)
        version = within(stored.version(), groups)
        return Part(directory, version, stored.fetch(version, directory, self._reader, self._threads), groups)

    def _timers(self, part: Part) -> list[tuple[bytes, bytes]]:
        if not part.version.of_family(FAMILY):
            return []
        source = Database(str(part.directory), self._settings, read_only=True)
        try:
            return list(_rows_within(FAMILY, source.family(FAMILY), part.groups))
        finally:
            source.close()

    @property
    def _threads(self) -> int:
        return int(self._settings["checkpoint.transfer.thread.num"])

    def _copy_ranges(self, handles: list[dict[str, Any]], into: Database) -> None:
        """Copy the rows of the key groups, of each handle those it is responsible for."""
        for index, handle in enumerate(handles):
            if handle["backend"] == HASHMAP:
                self._import_blocks(read_chain(chain_files(handle, self._groups), self._reader), into)
                continue
            directory = self._work_dir / f"restore-{index}"
            download(handle, directory, self._reader, self._threads)
            try:
                self._copy_rows(
                    directory, overlap(KeyGroupRange(*handle["key_groups"]), self._groups), into, timers=True
                )
            finally:
                shutil.rmtree(directory, ignore_errors=True)

    def _copy_rows(self, directory: Path, groups: KeyGroupRange, into: Database, *, timers: bool) -> None:
        source = Database(str(directory), self._settings, read_only=True)
        try:
            for name, family in source.families.items():
                if timers or name != FAMILY:
                    into.put_all(name, _rows_within(name, family, groups))
        finally:
            source.close()

    def _import_blocks(self, blocks: Iterable[StoredBlock], into: Database) -> None:
        """A snapshot of the hashmap backend: replay it, one state after the other, with values as they are encoded."""
        by_state: dict[str, list[StoredBlock]] = {}
        for block in blocks:
            if block.info.layout == "timer":
                self.timer_blocks.append(block)
            else:
                by_state.setdefault(block.name, []).append(block)
        for name, of_state in by_state.items():
            info = of_state[0].info
            table = _TABLES[info.layout](name, EncodedCodec(name, expiring=info.ttl), UNTYPED_KEYS)
            for block in of_state:
                self.apply(table, block, UNTYPED_KEYS)
            into.put_all(family_name(name), self._rows_of(table))

    def apply(self, table: Table, block: StoredBlock, keys: KeyCodec) -> None:
        """Make the changes of a block in a table."""
        apply_block(table, block, self._groups, self._max_parallelism, keys)

    def _rows_of(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        encode = UNTYPED_KEYS.encode
        for namespace, keys in table.entries():
            space = table.spaces[namespace]
            for key, group in zip(keys, keys_key_groups(keys, self._max_parallelism).tolist(), strict=True):
                address = space_prefix(group, namespace) + sized(encode(key))
                cell = space[key]
                if isinstance(table, ListTable):
                    for element in cell:
                        self.last_number += 1
                        yield address + NUMBER.pack(self.last_number), element
                elif isinstance(table, MapTable):
                    for map_key, value in cell.items():
                        yield address + encode(map_key), value
                else:
                    yield address, cell


def _rows_within(family_name: str, family: Any, groups: KeyGroupRange) -> Iterator[tuple[bytes, bytes]]:
    if family_name != FAMILY:
        yield from scan(family, group_prefix(groups.start), group_prefix(groups.end + 1))
        return
    for row, data in scan(family, b"", b"\xff"):
        if groups.start <= split_row(split_timer(row)[2])[0] <= groups.end:
            yield row, data


def _open(opened: Callable[[], Database]) -> Database:
    """RocksDB looks whether files and levels fit before it says anything else."""
    try:
        return opened()
    except Exception as error:
        raise ManifestUnreadable(f"RocksDB refuses them: {error}") from error
