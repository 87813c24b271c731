"""Restore of the RocksDB backend: open the files of a snapshot of the same key groups, copy rows of any other."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.state.backend import FileRef, KeyGroupRange
from penstock.state.encoding.codec import EncodedCodec
from penstock.state.encoding.keys import UNTYPED_KEYS, KeyCodec
from penstock.state.hashmap.collection_tables import ListTable, MapTable
from penstock.state.hashmap.reading import (
    READ_THREADS,
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
from penstock.state.rocksdb.rows import NUMBER, family_name, group_prefix, sized, space_prefix, split_row, split_timer
from penstock.state.rocksdb.snapshot import BACKEND, PACK
from penstock.state.rocksdb.timers import FAMILY
from penstock.state.snapshot_format.segment import StateInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.state.backend import StateFileReader
    from penstock.state.snapshot_format.segment import StoredBlock

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

    def as_a_whole(self, handles: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The handle whose files can be opened as they are, if that is all there is."""
        if len(handles) == 1 and handles[0]["backend"] == BACKEND and tuple(handles[0]["key_groups"]) == self._groups:
            return handles[0]
        return None

    def download(self, handle: dict[str, Any], directory: Path) -> dict[str, FileRef]:
        """Put a snapshot's files into a directory; its SST files by name."""
        return download(handle, directory, self._reader, self._settings["checkpoint.transfer.thread.num"])

    def copy_ranges(self, handles: list[dict[str, Any]], into: Database) -> None:
        """Copy the rows of the key groups, of each handle those it is responsible for."""
        for index, handle in enumerate(handles):
            within = overlap(KeyGroupRange(*handle["key_groups"]), self._groups)
            if handle["backend"] == HASHMAP:
                self._import_blocks(read_chain(chain_files(handle, self._groups), self._reader), into)
                continue
            directory = self._work_dir / f"restore-{index}"
            self.download(handle, directory)
            source = Database(str(directory), self._settings, read_only=True)
            try:
                for name, family in source.families.items():
                    into.put_all(name, _rows_within(name, family, within))
            finally:
                source.close()
                shutil.rmtree(directory, ignore_errors=True)

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


def download(
    handle: dict[str, Any], directory: Path, reader: StateFileReader, threads: int = READ_THREADS
) -> dict[str, FileRef]:
    """Put the files of a RocksDB snapshot into a directory, as RocksDB left them.

    Returns:
        The SST files by name.

    Raises:
        CorruptStateFile.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    files = {entry["name"]: FileRef.of_json(entry) for entry in handle["files"]}
    pack = files.pop(PACK)
    small = msgspec.msgpack.decode(reader.read(pack), type=dict[str, bytes])
    for name, content in small.items():
        (directory / name).write_bytes(content)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda item: reader.download(item[1], str(directory / item[0])), files.items()))
    return files
