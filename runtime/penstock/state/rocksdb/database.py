"""The database under the RocksDB backend: options, column families, opening, closing.

There is no write-ahead log: what is not in a checkpoint is lost with the process anyway, and replayed.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    BottommostLevelCompaction,
    Cache,
    CompactOptions,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.common.errors import StorageError
from penstock.state.rocksdb.files.manifest_tail import ManifestTail
from penstock.state.rocksdb.memory import SlotMemory
from penstock.state.rocksdb.options import MEMORY, WRITES
from penstock.state.rocksdb.rows import STATE, after, group_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.state.backend import KeyGroupRange

BATCH_ROWS = 10_000
_WRITE_BUFFERS = 4
"""Of a state, with those that are being flushed: a snapshot begins one anew, and must not wait until another is on disk."""
_COMPACT_AT_FILES = 8
"""Of level 0. Compaction writes much of a state anew, which the next checkpoint uploads; each file costs a look-up a Bloom filter."""
_SLOW_AT_FILES, _STOP_AT_FILES = 40, 60
"""Of level 0: a snapshot adds one to it, and must not wait for compaction, which by default slows writes down from 20 on."""

_NEVER, _ENDLESS = 1 << 20, 1 << 50
"""Files, and bytes, that no level has."""
_LONGER_THAN_ANY_JOB_S = "4000000000"
"""When the end of `Database.hold` may make RocksDB write files of the lowest level anew, only to set their sequence numbers to zero, which the
next checkpoint would upload: it does so at once otherwise, with every first file of a key range."""
_PAUSE_S = 0.005
"""Between two looks at what the background does."""


class Database:
    """One RocksDB instance.

    Args:
        path: directory; opened if there is a database, made otherwise.
        options: what `rocksdb_options.read_options` gave.
        read_only: opens what a restore reads.
        compacts: files are put together in the background.
        one_step: compaction takes files of level 0 to level 1, and no further.
        counts: what it does is counted (`statistics`), which costs some percent of its time.
    """

    def __init__(
        self,
        path: str,
        options: Mapping[str, Any],
        *,
        read_only: bool = False,
        compacts: bool = True,
        one_step: bool = False,
        counts: bool = False,
    ) -> None:
        self.path = path
        self.manifest = ManifestTail(Path(path))
        """Kept here so that a snapshot reads what came since the one before."""
        self._settings = options
        self._compacts = compacts
        self._one_step = one_step
        self._memory = _memory_of(options)
        self._cache = Cache(options["block.cache-size"]) if self._memory is None else self._memory.cache
        exists = (Path(path) / "CURRENT").exists()
        names = [name for name in Rdict.list_cf(path) if name != "default"] if exists else []
        access = AccessType.read_only() if read_only else AccessType.read_write()
        self._options = self._make_options()
        if counts:
            self._options.enable_statistics()
        self._db = Rdict(path, self._options, {name: self._make_options() for name in names} or None, access)
        self._write = WriteOptions()
        self._write.disable_wal = True
        self._families: dict[str, Rdict] = {}
        for name in names:
            self._families[name] = self._opened(self._db.get_column_family(name), read_only)

    def _make_options(self) -> Options:
        settings = self._settings
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_write_buffer_size(settings["writebuffer.size"])
        if self._memory is not None:
            options.set_write_buffer_manager(self._memory.writes)
        options.set_max_background_jobs(settings["thread.num"])
        options.set_compression_type(getattr(DBCompressionType, settings["compression"])())
        options.set_keep_log_file_num(1)
        options.set_max_write_buffer_number(_WRITE_BUFFERS)
        options.set_level_zero_file_num_compaction_trigger(_COMPACT_AT_FILES)
        options.set_level_zero_slowdown_writes_trigger(_SLOW_AT_FILES)
        options.set_level_zero_stop_writes_trigger(_STOP_AT_FILES)
        options.set_atomic_flush(True)  # see `frozen`
        options.set_disable_auto_compactions(not self._compacts)
        options.set_level_compaction_dynamic_level_bytes(not self._one_step)
        if self._one_step:
            options.set_level_zero_file_num_compaction_trigger(1)
            options.set_level_zero_slowdown_writes_trigger(_NEVER)
            options.set_level_zero_stop_writes_trigger(_NEVER)
            options.set_max_bytes_for_level_base(_ENDLESS)
        table = BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_block_size(settings["block.blocksize"])
        table.set_bloom_filter(10, False)
        if settings[WRITES]:  # else they lie beside the cache, and grow with the state
            table.set_cache_index_and_filter_blocks(True)
            table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(table)
        return options

    def _opened(self, family: Rdict, read_only: bool = False) -> Rdict:
        if not read_only:
            family.set_write_options(self._write)
            family.set_options({"bottommost_file_compaction_delay": _LONGER_THAN_ANY_JOB_S})
        return family

    def statistics(self) -> str:
        """RocksDB's counts since it was opened, a line each; empty: it does not count. Takes some 0.3 ms."""
        return self._options.get_statistics() or ""

    @property
    def families(self) -> dict[str, Rdict]:
        """Column families by name, without the default one."""
        return self._families

    def family(self, name: str) -> Rdict:
        """The column family, made if there is none."""
        family = self._families.get(name)
        if family is None:
            family = self._opened(self._db.create_column_family(name, self._make_options()))
            self._families[name] = family
        return family

    def drop(self, name: str) -> None:
        family = self._families.pop(name, None)
        if family is not None:
            family.close()
            self._db.drop_column_family(name)

    def batch(self) -> WriteBatch:
        return WriteBatch(raw_mode=True)

    def handle(self, name: str) -> Any:
        """What a write batch needs to write into a column family."""
        return self._db.get_column_family_handle(name)

    def write(self, batch: WriteBatch) -> None:
        self._db.write(batch, self._write)

    def put_all(self, name: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
        """Write many rows."""
        self.family(name)
        handle, batch = self.handle(name), self.batch()
        for row, value in rows:
            batch.put(row, value, handle)
            if len(batch) >= BATCH_ROWS:
                self.write(batch)
                batch = self.batch()
        self.write(batch)

    def begin_flush(self) -> int:
        """What is in memory is written to files from now on, in the background, apart from whatever comes later.

        Returns:
            The last sequence number of what is being written.
        """
        for family in self._families.values():
            family.flush(wait=False)
        return int(self._db.latest_sequence_number())

    def hold(self) -> Any:
        """As long as the object is there, what is written later keeps its sequence numbers, and takes nothing away that is there now."""
        return self._db.snapshot()

    def is_flushed(self) -> bool:
        """
        Raises:
            StorageError: it cannot be written.
        """
        self._check_disk()
        families = list(self._families.values())
        return not any(family.property_int_value("rocksdb.num-immutable-mem-table") for family in families)

    def _check_disk(self) -> None:
        if self._db.property_int_value("rocksdb.background-errors"):
            raise StorageError(
                f"RocksDB cannot write to {self.path}",
                remedy="look at the disk: is it full? The log of RocksDB is beside it",
            )

    def hide(self, ranges: Mapping[str, Iterable[KeyGroupRange]]) -> None:
        """Delete the rows of key groups, by state, without looking at them: each range in a file of its own, so that this reaches no further than it."""
        for name, of_state in ranges.items():
            for groups in of_state:
                batch = self.batch()
                batch.delete_range(*_bounds(groups), self.handle(name))
                self.write(batch)
                self._families[name].flush()

    def compact(self, ranges: Mapping[str, Iterable[KeyGroupRange]]) -> None:
        """Write the files anew that have anything of key groups, by state, without what is hidden there."""
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        for name, of_state in ranges.items():
            for groups in of_state:
                self._families[name].compact_range(*_bounds(groups), options)

    def step_down(self) -> None:
        """Have the background take all files of level 0 one step down, and wait for it.

        Raises:
            StorageError: it cannot be written.
        """
        states = [self._families[name] for name in self._states()]
        for family in states:
            family.set_options({"disable_auto_compactions": "false"})
        while any(family.property_value("rocksdb.num-files-at-level0") != "0" for family in states):
            self._check_disk()
            time.sleep(_PAUSE_S)

    def _states(self) -> list[str]:
        return [name for name in self._families if name.startswith(STATE)]

    def close(self) -> None:
        for family in self._families.values():
            family.close()
        self._families.clear()
        self._db.close()

    def destroy(self) -> None:
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)


def _memory_of(options: Mapping[str, Any]) -> SlotMemory | None:
    memory = options[MEMORY]
    if not memory or isinstance(memory, SlotMemory):
        return memory or None
    return SlotMemory(int(memory), float(options["memory.write-buffer-ratio"]))


def _bounds(groups: KeyGroupRange) -> tuple[bytes, bytes]:
    """Of rows of states."""
    return group_prefix(groups.start), group_prefix(groups.end + 1)


def scan(family: Rdict, start: bytes, stop: bytes, options: ReadOptions | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Rows from `start` up to, not including, `stop`, as they were when the scan began.

    Raises:
        StorageError: there are more, and they cannot be read. `Rdict.items` ends there as if there were none.
    """
    options = (
        options or ReadOptions()
    )  # the iterator reads the bound where it lies in the options: they must live as long
    options.set_iterate_upper_bound(stop)
    rows = family.iter(options)
    rows.seek(start)
    while rows.valid():
        yield rows.key(), rows.value()
        rows.next()
    try:
        rows.status()
    except Exception as error:
        raise StorageError(
            f"RocksDB cannot read its files: {error}",
            remedy="look at the disk of this TaskManager; the job goes back to its newest checkpoint",
        ) from error


def scan_prefix(family: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    return scan(family, prefix, after(prefix))


def has_prefix(family: Rdict, prefix: bytes) -> bool:
    return next(scan_prefix(family, prefix), None) is not None
