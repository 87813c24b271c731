"""State backends: the storage of keyed state. The objects of this module are only sets of configuration values. `penstock.state`
contains the implementations of the backends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, NoReturn
from urllib.parse import urlsplit

from penstock.common.config import options
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import refusal


class PredefinedOptions(Enum):
    """Predefined sets of RocksDB options, each for one kind of disk."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class StateBackend(ABC):
    """Base class of the state backends that a program can choose."""

    @abstractmethod
    def to_settings(self) -> dict[str, Any]:
        """Return the backend as configuration keys and values."""


class HashMapStateBackend(StateBackend):
    """Backend that keeps state as Python objects in memory. It is the fastest backend. Checkpoints write a changelog."""

    def to_settings(self) -> dict[str, Any]:
        return {options.STATE_BACKEND.key: "hashmap"}


class EmbeddedRocksDBStateBackend(StateBackend):
    """Backend that keeps state in RocksDB on local disk, for state larger than memory. Checkpoints upload only new files.

    >>> backend = EmbeddedRocksDBStateBackend()
    >>> backend.set_db_storage_paths("/data/rocksdb")
    >>> backend.get_db_storage_paths()
    ['/data/rocksdb']
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        if enable_incremental_checkpointing is False:
            warn_no_effect("enable_incremental_checkpointing=False", "checkpoints always upload only what changed")
        self._incremental = enable_incremental_checkpointing
        self._paths: list[str] = []
        self._options = PredefinedOptions.DEFAULT
        self._threads = options.ROCKSDB_TRANSFER_THREADS.default

    def to_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            options.STATE_BACKEND.key: "rocksdb",
            options.ROCKSDB_PREDEFINED_OPTIONS.key: self._options.name,
            options.ROCKSDB_TRANSFER_THREADS.key: self._threads,
        }
        if self._paths:
            settings[options.ROCKSDB_LOCAL_DIRECTORY.key] = ",".join(self._paths)
        if self._incremental is not None:
            settings[options.INCREMENTAL_CHECKPOINTS.key] = self._incremental
        return settings

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the local directories for the files of RocksDB, one on each disk. Each directory is a path or a `file:` URL.

        >>> backend = EmbeddedRocksDBStateBackend()
        >>> backend.set_db_storage_paths("file:///disk1/rocksdb/", "/disk2/rocksdb")
        >>> backend.get_db_storage_paths()
        ['/disk1/rocksdb', '/disk2/rocksdb']
        """
        if not paths or not all(paths):
            raise refusal("set_db_storage_paths needs at least one path, and no path may be empty")
        self._paths = list(map(_local_path, paths))

    def get_db_storage_paths(self) -> list[str] | None:
        return list(self._paths) or None

    def is_incremental_checkpoints_enabled(self) -> bool:
        return options.INCREMENTAL_CHECKPOINTS.default if self._incremental is None else self._incremental

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        self._options = options

    def get_predefined_options(self) -> PredefinedOptions:
        return self._options

    def set_options(self, options_factory_class_name: str) -> NoReturn:
        raise refusal(
            f"{options_factory_class_name!r} names a Java class, but state is not in a JVM",
            "use set_predefined_options",
        )

    def get_options(self) -> None:
        """Return None, because Penstock does not use options from a Java class."""

    def get_number_of_transfer_threads(self) -> int:
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        if number_of_transfering_threads < 1:
            raise refusal(f"the number of transfer threads must be at least 1, got {number_of_transfering_threads}")
        self._threads = number_of_transfering_threads


class CustomStateBackend(StateBackend):
    """Backend that is implemented in Java. Penstock does not support it."""

    def __init__(self, j_custom_state_backend: object) -> None:
        raise refusal(
            "a CustomStateBackend is a Java object, but state is not in a JVM",
            "use HashMapStateBackend or EmbeddedRocksDBStateBackend",
        )

    def to_settings(self) -> dict[str, Any]:
        return {}


def _local_path(path: str) -> str:
    scheme, _, rest = path.partition(":")
    if scheme == "file":
        return urlsplit(path).path.rstrip("/") or "/"
    if rest.startswith("//"):
        raise refusal(
            f"RocksDB stores its files on a local disk, but {path!r} is not a local path",
            "pass a local folder of the worker. Set the folder of checkpoints with execution.checkpointing.dir",
        )
    return path
