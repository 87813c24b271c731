"""Checkpoint storages: locations for checkpoints that a program can pass to `CheckpointConfig.set_checkpoint_storage`.

Checkpoints are always files below a URL. The storage classes accept Flink's arguments. Arguments about the JobManager's
memory have no effect.
"""

from __future__ import annotations

from abc import ABC

from penstock.common.config import options
from penstock.common.program.user_location import refusal


class CheckpointStorage(ABC):  # noqa: B024 - subclasses differ only in their class
    """Base class of the checkpoint storages."""

    def __init__(self, checkpoint_path: str | None = None) -> None:
        self._path = checkpoint_path.rstrip("/") if checkpoint_path else checkpoint_path

    def get_checkpoint_path(self) -> str | None:
        """Return the URL of the directory that contains one directory for each job."""
        return self._path

    def get_savepoint_path(self) -> str | None:
        """Return the URL of the directory for savepoints, or None for the environment's default savepoint directory."""
        return None

    def to_settings(self) -> dict[str, str]:
        """Return the storage as configuration keys and values."""
        return {} if self._path is None else {options.CHECKPOINT_DIRECTORY.key: self._path}


class JobManagerCheckpointStorage(CheckpointStorage):
    """Storage of small states. Flink keeps these states in the memory of the JobManager. Penstock writes files below the configured
    directory, as for every storage.

    >>> JobManagerCheckpointStorage().get_max_state_size()
    5242880
    """

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(self, checkpoint_path: str | None = None, max_state_size: int | None = None) -> None:
        super().__init__(checkpoint_path)
        self._max_state_size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size

    def get_max_state_size(self) -> int:
        """Return the limit in bytes. Penstock does not apply it: states may be larger."""
        return self._max_state_size

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage(checkpoints to JobManager) (maxStateSize: {self._max_state_size})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Storage in files below a URL.

    >>> storage = FileSystemCheckpointStorage("s3://bucket/checkpoints")
    >>> storage.get_checkpoint_path(), storage.get_min_file_size_threshold()
    ('s3://bucket/checkpoints', 20480)

    Args:
        file_state_size_threshold: size in bytes below which Flink stores state in the metadata file. It has no effect in Penstock,
            which merges small states into shared files (`execution.checkpointing.file-merging.…`).
        write_buffer_size: size in bytes. It has no effect.
    """

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024
    _DEFAULT_THRESHOLD = 20 * 1024
    _DEFAULT_BUFFER = 4 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if checkpoint_path is None:
            raise refusal("FileSystemCheckpointStorage needs the URL of the folder for checkpoints")
        threshold = self._DEFAULT_THRESHOLD if file_state_size_threshold is None else file_state_size_threshold
        if not -1 <= threshold <= self.MAX_FILE_STATE_THRESHOLD:
            raise refusal(f"file_state_size_threshold is at most {self.MAX_FILE_STATE_THRESHOLD}, got {threshold}")
        super().__init__(checkpoint_path)
        self._threshold = self._DEFAULT_THRESHOLD if threshold == -1 else threshold
        self._buffer = write_buffer_size

    def get_min_file_size_threshold(self) -> int:
        return self._threshold

    def get_write_buffer_size(self) -> int:
        return max(self._threshold, self._DEFAULT_BUFFER) if self._buffer == -1 else self._buffer


class CustomCheckpointStorage(CheckpointStorage):
    """Storage that is implemented in Java. Penstock does not support it."""

    def __init__(self, j_custom_checkpoint_storage: object) -> None:
        raise refusal(
            "a CustomCheckpointStorage is a Java object, but checkpoints are not written by a JVM",
            "use FileSystemCheckpointStorage with a URL that fsspec reads",
        )
