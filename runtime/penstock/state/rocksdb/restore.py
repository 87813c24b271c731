"""Restore of the RocksDB backend. It reuses the files of former subtasks. It copies rows only if files cannot be
reused.

The files of one former subtask are opened unchanged. Files with only foreign key groups are left out, and foreign rows
in the other files are hidden. Files of several subtasks are combined in one database (`assembly`), after RocksDB has
removed all foreign rows. The restore copies rows from snapshots of the hashmap backend, and from RocksDB files that are
not in the expected form. It always copies timers if there are several former subtasks.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.common.errors import LocalDiskError
from penstock.state.encoding.codec import EncodedCodec
from penstock.state.encoding.keys import UNTYPED_KEYS, KeyCodec
from penstock.state.files import FileRef
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
from penstock.state.key_groups import KeyGroupRange, keys_key_groups
from penstock.state.registry import have_same_encoding
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.files.assembly import outside, within
from penstock.state.rocksdb.files.combine import Part, combine_databases
from penstock.state.rocksdb.files.download import StoredDatabase, download
from penstock.state.rocksdb.files.manifest import ManifestUnreadable
from penstock.state.rocksdb.files.pack import BACKEND
from penstock.state.rocksdb.origins import Origin, Origins, add, origins_of, ranges
from penstock.state.rocksdb.rows import NUMBER, family_name, group_prefix, sized, space_prefix, split_row, split_timer
from penstock.state.rocksdb.timers import FAMILY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.state.files import StateFileReader
    from penstock.state.snapshot_format.segment import StateInfo, StoredBlock

logger = logging.getLogger(__name__)

_TABLES: dict[str, type[Table]] = {"value": ValueTable, "list": ListTable, "map": MapTable}


class Restore:
    """One restore of one backend.

    Args:
        work_dir: directory for temporary files.
        groups: key groups that the backend owns.
        settings: options of the databases.
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
        self.origins: Origins = {}
        self.timer_blocks: list[StoredBlock] = []

    def relevant(self, handles: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the handles that have any of the key groups. Record the highest list element number and the origins.

        Raises:
            StateFormatUnsupported: this version cannot read the format of a handle.
        """
        chosen = handles_for_range(handles, self._groups)
        for handle in chosen:
            check_format(handle)
            self.last_number = max(self.last_number, handle.get("number", 0))
            if handle["backend"] == BACKEND:
                for name, origins in origins_of(handle).items():
                    add(self.origins, name, origins, self._groups)
        return chosen

    def run(self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]) -> dict[str, FileRef]:
        """Create the database of the key groups.

        Args:
            target: directory of the database's files.
            opened: function that opens the database.

        Returns:
            The files of the database that are already in storage, by name.
        """
        if handles and all(handle["backend"] == BACKEND for handle in handles):
            try:
                return self._by_files(handles, target, opened)
            except ManifestUnreadable as error:
                logger.warning("rows are copied, because the files of RocksDB cannot be reused: %s", error)
                shutil.rmtree(target, ignore_errors=True)
        self._copy_ranges(handles, opened())
        return {}

    def _by_files(
        self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]
    ) -> dict[str, FileRef]:
        if len(handles) > 1:
            return self._combine_parts(handles, target, opened)
        stored = StoredDatabase.of(handles[0], self._reader)
        if tuple(handles[0]["key_groups"]) == self._groups:
            return stored.fetch_all(target, self._reader, self._threads)
        version = within(stored.version(), self._groups)
        files = stored.fetch(version, target, self._reader, self._threads)
        _open(opened).hide(outside(version, self._groups))
        return files

    def _combine_parts(
        self, handles: list[dict[str, Any]], target: Path, opened: Callable[[], Database]
    ) -> dict[str, FileRef]:
        parts = [self._fetch(handle, self._work_dir / f"restore-{index}") for index, handle in enumerate(handles)]
        try:
            timers = [row for part in parts for row in self._timers(part)]
            clean = [part for part in parts if part.clip(self._settings)]
            if not clean:
                raise ManifestUnreadable("all of them still contain other key groups after a compaction")
            files = combine_databases(clean, target)
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
        """Copy the rows of the key groups. Each handle provides the key groups for which it is responsible."""
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
        """Replay a snapshot of the hashmap backend, one state after the other, with encoded values.

        The blocks of a state may have different descriptions if former subtasks wrote them.
        """
        by_state: dict[str, list[tuple[StateInfo, list[StoredBlock]]]] = {}
        for block in blocks:
            if block.info.layout == "timer":
                self.timer_blocks.append(block)
                continue
            described = by_state.setdefault(block.name, [])
            same = next((of_info for info, of_info in described if have_same_encoding(info, block.info)), None)
            if same is None:
                described.append((block.info, [block]))
            else:
                same.append(block)
        for name, info, of_state in [(name, *each) for name, described in by_state.items() for each in described]:
            table = _TABLES[info.layout](name, EncodedCodec(name, expiring=info.ttl), UNTYPED_KEYS)
            for block in of_state:
                self.apply(table, block, UNTYPED_KEYS)
            groups: set[int] = set()
            into.put_all(family_name(name), self._rows_of(table, groups))
            add(self.origins, name, [Origin(part, info) for part in ranges(groups)], self._groups)

    def apply(self, table: Table, block: StoredBlock, keys: KeyCodec) -> None:
        """Apply the changes of a block to a table."""
        apply_block(table, block, self._groups, self._max_parallelism, keys)

    def _rows_of(self, table: Table, groups: set[int]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows, and add their key groups to `groups`."""
        encode = UNTYPED_KEYS.encode
        for namespace, keys in table.entries():
            space = table.spaces[namespace]
            for key, group in zip(keys, keys_key_groups(keys, self._max_parallelism).tolist(), strict=True):
                groups.add(group)
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
    """Open the database. RocksDB checks first whether files and levels are consistent."""
    try:
        return opened()
    except LocalDiskError:
        raise
    except Exception as error:
        raise ManifestUnreadable(f"RocksDB refuses them: {error}") from error
