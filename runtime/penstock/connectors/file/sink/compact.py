"""Compaction: fewer, larger files than the rolling policy makes, under PyFlink's names.

Flink writes the policy's files hidden, reads them again, and writes one visible file of several. Here a part simply goes on
where the policy's file would have ended, with the delimiter in between, and ends when the strategy says so: the same bytes
are visible at the same checkpoints, and nothing is written twice. Files of one subtask are merged, never those of several.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.common.program.user_location import refusal


@dataclass(frozen=True)
class FileCompactStrategy:
    """When the files that wait become one.

    >>> FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_size_threshold(1024).build().is_due(1, 2000)
    True
    """

    num_checkpoints_before_compaction: int = -1
    size_threshold: int = -1
    num_compact_threads: int = 1
    """No effect: nothing is read again."""

    def is_due(self, checkpoints: int, size: int) -> bool:
        """Whether files of `size` bytes that have seen so many checkpoints become one."""
        after = self.num_checkpoints_before_compaction
        return 0 < after <= checkpoints or 0 < self.size_threshold <= size

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        return FileCompactStrategy.Builder()

    class Builder:
        """Collects a strategy."""

        def __init__(self) -> None:
            self._strategy = FileCompactStrategy()

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Files become one after so many checkpoints."""
            if num_checkpoints_before_compaction < 1:
                raise refusal(
                    f"num_checkpoints_before_compaction must be positive, got {num_checkpoints_before_compaction}"
                )
            self._strategy = replace(
                self._strategy, num_checkpoints_before_compaction=num_checkpoints_before_compaction
            )
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Files become one when they have so many bytes."""
            self._strategy = replace(self._strategy, size_threshold=size_threshold)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            self._strategy = replace(self._strategy, num_compact_threads=num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """
            Raises:
                InvalidJob: neither checkpoints nor a size are given, so files would never become one.
            """
            strategy = self._strategy
            if strategy.num_checkpoints_before_compaction <= 0 and strategy.size_threshold <= 0:
                raise refusal(
                    "a FileCompactStrategy without a number of checkpoints and without a size",
                    "call enable_compaction_on_checkpoint or set_size_threshold",
                )
            return strategy


@dataclass(frozen=True)
class FileCompactor:
    """How files become one."""

    concatenates: bool
    delimiter: bytes = b""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """One after the other, with the delimiter between two."""
        return FileCompactor(True, file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Each file as it is: nothing is merged."""
        return FileCompactor(False)


@dataclass(frozen=True)
class Compaction:
    """What a writer needs to know."""

    strategy: FileCompactStrategy
    delimiter: bytes
