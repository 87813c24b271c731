"""The database under the RocksDB backend: options, column families, opening, closing.

The database has no write-ahead log. State that is not in a checkpoint is lost with the process, and its records are
replayed.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

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

from penstock.common.errors import LocalDiskError
from penstock.state.local_disk import is_disk_error, is_from_rocksdb, refuse_failed_write, writing
from penstock.state.rocksdb.files.manifest_tail import ManifestTail
from penstock.state.rocksdb.memory import SlotMemory
from penstock.state.rocksdb.options import MEMORY, WRITES
from penstock.state.rocksdb.rows import STATE, after, group_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.state.key_groups import KeyGroupRange

logger = logging.getLogger(__name__)

BATCH_ROWS = 10_000
_WRITE_BUFFERS = 4
"""Write buffers of a state, including those that are being flushed. A snapshot starts a new buffer and must not wait for a flush."""
_COMPACT_AT_FILES = 8
"""Number of files on level 0 that starts a compaction. A compaction rewrites much of a state, and the next checkpoint uploads the new
files.

For each file, a look-up checks one Bloom filter.
"""
_SLOW_AT_FILES, _STOP_AT_FILES = 40, 60
"""Number of files on level 0 at which writes slow down or stop. A snapshot adds a file and must not wait for compaction.

RocksDB's default slows down writes from 20 files on.
"""

_NEVER, _ENDLESS = 1 << 20, 1 << 50
"""Numbers of files and bytes that no level reaches."""
_LONGER_THAN_ANY_JOB_S = "4000000000"
"""Time after which the end of `Database.hold` may start a rewrite of the lowest level's files. It is longer than any job.

Such a rewrite only sets sequence numbers to zero, and the next checkpoint would upload the files. Without this setting RocksDB starts the
rewrite immediately, for every first file of a key range.
"""
_PAUSE_S = 0.005
"""Pause between two checks of the background work."""
_FILES_PER_THREAD, _MAX_OPENING_THREADS = 64, 16
"""Files that one thread opens when a database is opened, and the maximum number of these threads (RocksDB's default).

RocksDB starts all threads for each column family, even for one file. Starting them would take most of the time that it
takes to open a small database.
"""


class Database:
    """One RocksDB instance.

    Args:
        path: directory. If it contains a database, this is opened. Otherwise a new database is created.
        options: result of `options.read_options`.
        read_only: opens a database that a restore reads.
        compacts: compaction runs in the background.
        one_step: compaction moves files from level 0 to level 1, and no further.
        counts: RocksDB counts its work (`statistics`), which costs a few percent of its time.
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
        """Kept here so that each snapshot reads only the changes since the previous snapshot."""
        self._settings = options
        self._compacts = compacts
        self._one_step = one_step
        self._memory = _memory_of(options)
        self._cache = Cache(options["block.cache-size"]) if self._memory is None else self._memory.cache
        exists = (Path(path) / "CURRENT").exists()
        names = [name for name in Rdict.list_cf(path) if name != "default"] if exists else []
        files = sum(1 for file in os.scandir(path) if file.name.endswith(".sst")) if exists else 0
        self._opening_threads = max(1, min(files // _FILES_PER_THREAD, _MAX_OPENING_THREADS))
        self._delays_rewrites = False
        access = AccessType.read_only() if read_only else AccessType.read_write()
        self._options = self._make_options()
        if counts:
            self._options.enable_statistics()
        others = {name: self._make_options() for name in names} or None
        try:
            self._db = Rdict(path, self._options, others, access)
        except Exception as error:
            if is_disk_error(error):
                refuse_failed_write(path, error)
            raise
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
        options.set_max_file_opening_threads(self._opening_threads)
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
        if settings[WRITES]:  # otherwise index and filter blocks are outside of the cache, and grow with the state
            table.set_cache_index_and_filter_blocks(True)
            table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(table)
        return options

    def _opened(self, family: Rdict, read_only: bool = False) -> Rdict:
        if not read_only:
            family.set_write_options(self._write)
            if self._delays_rewrites:
                _delay_rewrites(family)
        return family

    def statistics(self) -> str:
        """Return RocksDB's counters since the database was opened, one per line, or an empty text if RocksDB does not count. The call takes
        about 0.3 ms.
        """
        return self._options.get_statistics() or ""

    @property
    def families(self) -> dict[str, Rdict]:
        """Column families by name, without the default one."""
        return self._families

    def family(self, name: str) -> Rdict:
        """Return the column family. Create the family if it does not exist."""
        family = self._families.get(name)
        if family is None:
            with writing(self.path):
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
        """Return the handle with which a write batch writes to a column family."""
        return self._db.get_column_family_handle(name)

    def write(self, batch: WriteBatch) -> None:
        with writing(self.path):
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
        """Start to flush the memory to files in the background, separately from later writes.

        Returns:
            The last sequence number of the flushed data.
        """
        with writing(self.path):
            for family in self._families.values():
                family.flush(wait=False)
        return int(self._db.latest_sequence_number())

    def hold(self) -> Any:
        """Return an object that protects the current data. While it exists, later writes keep their sequence numbers and
        remove none of the data.
        """
        if not self._delays_rewrites:  # not at the opening, because RocksDB writes a file for each family
            self._delays_rewrites = True
            for family in self._families.values():
                _delay_rewrites(family)
        return self._db.snapshot()

    def is_flushed(self) -> bool:
        """Return whether the flush is complete.

        Raises:
            LocalDiskError: the flush failed.
        """
        self._check_disk()
        families = list(self._families.values())
        return not any(family.property_int_value("rocksdb.num-immutable-mem-table") for family in families)

    def _check_disk(self) -> None:
        if self._db.property_int_value("rocksdb.background-errors"):
            refuse_failed_write(self.path, OSError("RocksDB has background errors. Its file LOG has the reason"))

    def hide(self, ranges: Mapping[str, Iterable[KeyGroupRange]]) -> None:
        """Delete the rows of key groups, by state, without reading them. Each range gets its own file, which covers only that range."""
        for name, of_state in ranges.items():
            for groups in of_state:
                batch = self.batch()
                batch.delete_range(*_bounds(groups), self.handle(name))
                self.write(batch)
                with writing(self.path):
                    self._families[name].flush()

    def compact(self, ranges: Mapping[str, Iterable[KeyGroupRange]]) -> None:
        """Rewrite the files that have rows of the key groups, by state, without the hidden rows."""
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        for name, of_state in ranges.items():
            for groups in of_state:
                with writing(self.path):
                    self._families[name].compact_range(*_bounds(groups), options)

    def step_down(self) -> None:
        """Move all files of level 0 down by one level in the background, and wait for the end.

        Raises:
            LocalDiskError: the files cannot be written.
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
        """Write the memory to disk and close the database.

        Raises:
            LocalDiskError: the write failed. The database is closed in this case, too.
        """
        families = list(self._families.values())
        self._families.clear()
        failures = [failure for opened in (*families, self._db) if (failure := _failure_of_close(opened)) is not None]
        if failures:
            refuse_failed_write(self.path, failures[0])

    def destroy(self) -> None:
        """Close the database and delete its files, even if RocksDB cannot write its memory."""
        try:
            self.close()
        except LocalDiskError as error:
            logger.warning("RocksDB was closed without its last writes, and its files are deleted: %s", error)
        finally:
            shutil.rmtree(self.path, ignore_errors=True)


def _delay_rewrites(family: Rdict) -> None:
    """Prevent RocksDB from rewriting the lowest level's files when `Database.hold` ends."""
    family.set_options({"bottommost_file_compaction_delay": _LONGER_THAN_ANY_JOB_S})


def _failure_of_close(opened: Rdict) -> Exception | None:
    try:
        opened.close()
    except Exception as error:
        return error
    return None


def _memory_of(options: Mapping[str, Any]) -> SlotMemory | None:
    memory = options[MEMORY]
    if not memory or isinstance(memory, SlotMemory):
        return memory or None
    return SlotMemory(int(memory), float(options["memory.write-buffer-ratio"]))


def _bounds(groups: KeyGroupRange) -> tuple[bytes, bytes]:
    """Return the bounds of the rows that states have in these key groups. The upper bound is excluded."""
    return group_prefix(groups.start), group_prefix(groups.end + 1)


def scan(family: Rdict, start: bytes, stop: bytes, options: ReadOptions | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows from `start` to `stop` (excluded) as they were at the start of the scan.

    Raises:
        LocalDiskError: more rows exist and cannot be read. In this case, `Rdict.items` would end without an error.
    """
    options = options or ReadOptions()  # must live as long as the iterator, which reads the bound inside the options
    options.set_iterate_upper_bound(stop)
    rows = family.iter(options)
    rows.seek(start)
    while rows.valid():
        yield rows.key(), rows.value()
        rows.next()
    try:
        rows.status()
    except Exception as error:
        _refuse_files(error)


def refuse_unreadable_files(error: Exception) -> None:
    """Return if the error does not come from RocksDB. The binding raises plain `Exception`s and its own classes.

    Raises:
        LocalDiskError: RocksDB cannot read its files.
    """
    if is_from_rocksdb(error) or isinstance(error, OSError):
        _refuse_files(error)


def _refuse_files(error: Exception) -> NoReturn:
    raise LocalDiskError(
        f"RocksDB cannot read its files: {error}",
        remedy="check the disk of this TaskManager. The job restarts from its newest checkpoint",
    ) from error


def scan_prefix(family: Rdict, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    return scan(family, prefix, after(prefix))


def has_prefix(family: Rdict, prefix: bytes) -> bool:
    return next(scan_prefix(family, prefix), None) is not None
