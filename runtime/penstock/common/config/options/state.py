"""State backends, and the restore of state."""

from __future__ import annotations

from penstock.common.config.option import (
    choice_option,
    flag_option,
    fraction_option,
    int_option,
    list_option,
    size_option,
    text_option,
)

STATE_BACKEND = choice_option(
    "state.backend.type",
    ("hashmap", "rocksdb"),
    "hashmap",
    "Storage of keyed state. hashmap: Python objects in memory. rocksdb: RocksDB on local disk, for state larger "
    "than memory.",
    "state.backend",
)
ROCKSDB_LOCAL_DIRECTORY = text_option(
    "state.backend.rocksdb.localdir",
    None,
    "Local folder of RocksDB's files. Several folders, separated by commas, are distributed over the slots. Not set: "
    "a folder in io.tmp.dirs.",
)
ROCKSDB_PREDEFINED_OPTIONS = choice_option(
    "state.backend.rocksdb.predefined-options",
    ("DEFAULT", "SPINNING_DISK_OPTIMIZED", "SPINNING_DISK_OPTIMIZED_HIGH_MEM", "FLASH_SSD_OPTIMIZED"),
    "DEFAULT",
    "Predefined set of RocksDB options for a kind of disk.",
)
ROCKSDB_TRANSFER_THREADS = int_option(
    "state.backend.rocksdb.checkpoint.transfer.thread.num",
    4,
    "Threads that upload and download state files.",
    minimum=1,
)
ROCKSDB_FIXED_PER_SLOT = size_option(
    "state.backend.rocksdb.memory.fixed-per-slot",
    None,
    "RocksDB's memory in a slot, shared by all operators of the slot. Overrides taskmanager.memory.managed.size.",
)
ROCKSDB_WRITE_BUFFER_RATIO = fraction_option(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    0.5,
    "Share of RocksDB's memory for write buffers. The rest is block cache.",
)
CHANGELOG_STATE_BACKEND = flag_option(
    "state.changelog.enabled",
    False,
    "No effect; accepted for compatibility with Flink. The hashmap backend always writes a changelog.",
)
RECOVERY_PATH = text_option(
    "execution.state-recovery.path",
    None,
    "Savepoint or checkpoint that the job starts from.",
    "execution.savepoint.path",
)
RECOVERY_FROM_LOCAL = flag_option(
    "execution.state-recovery.from-local",
    True,
    "Task-local recovery: keep copies of RocksDB's files on the TaskManager's disk, and restore from these copies "
    "if they exist.",
    "state.backend.local-recovery",
)
IGNORE_UNCLAIMED_STATE = flag_option(
    "execution.state-recovery.ignore-unclaimed-state",
    False,
    "Start even if the snapshot has state that no operator declares. The log lists the dropped state.",
    "execution.savepoint.ignore-unclaimed-state",
)
ALLOW_DROPPED_STATE = list_option(
    "penstock.restore.allow-dropped",
    "Uids, or uid/state names, whose state may be dropped when a job starts from a snapshot.",
)
