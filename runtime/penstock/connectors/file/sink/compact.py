"""Compaction: fewer, larger files than the rolling policy makes, under PyFlink's names.

Flink writes the files of the policy as hidden files. Later it reads several of them and writes their content to one visible
file. Penstock instead keeps the part open where the policy would end the file, and writes the delimiter. The strategy decides
when the part ends. The same bytes become visible at the same checkpoints as in Flink, and nothing is written twice. Only files of one
subtask are merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.common.program.user_location import refusal


@dataclass(frozen=True)
class FileCompactStrategy:
    """The rule that decides when waiting files are merged into one file.
    >>> FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_size_threshold(1024).build().is_due(1, 2000)
    True
    """

    num_checkpoints_before_compaction: int = -1
    size_threshold: int = -1
    num_compact_threads: int = 1
    """Number of threads in Flink. It has no effect here, because no file is read again."""

    def is_due(self, checkpoints: int, size: int) -> bool:
        """Return True if files of `size` bytes that have waited for `checkpoints` checkpoints are due to be merged."""
        after = self.num_checkpoints_before_compaction
        return 0 < after <= checkpoints or 0 < self.size_threshold <= size

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        return FileCompactStrategy.Builder()

    class Builder:
        """A builder of a strategy."""

        def __init__(self) -> None:
            self._strategy = FileCompactStrategy()

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Merge files after this number of checkpoints."""
            if num_checkpoints_before_compaction < 1:
                raise refusal(
                    f"num_checkpoints_before_compaction must be positive, got {num_checkpoints_before_compaction}"
                )
            self._strategy = replace(
                self._strategy, num_checkpoints_before_compaction=num_checkpoints_before_compaction
            )
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Merge files when they have this number of bytes."""
            self._strategy = replace(self._strategy, size_threshold=size_threshold)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            self._strategy = replace(self._strategy, num_compact_threads=num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """Return the strategy.

            Raises:
                InvalidJob: neither checkpoints nor a size are given, so files would never be merged.
            """
            strategy = self._strategy
            if strategy.num_checkpoints_before_compaction <= 0 and strategy.size_threshold <= 0:
                raise refusal(
                    "FileCompactStrategy has neither a number of checkpoints nor a size",
                    "call enable_compaction_on_checkpoint or set_size_threshold",
                )
            return strategy


@dataclass(frozen=True)
class FileCompactor:
    """The way in which files are merged."""

    concatenates: bool
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Return a compactor that concatenates files, with the delimiter between two files."""
        return FileCompactor(True, file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Return a compactor that keeps each file unchanged and merges nothing."""
        return FileCompactor(False)


@dataclass(frozen=True)
class Compaction:
    """The compaction settings of a writer."""

    strategy: FileCompactStrategy
    delimiter: bytes
