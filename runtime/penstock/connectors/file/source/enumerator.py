"""Finds files and makes splits of them, once or at an interval while the job runs.

Path, modification time, size and, if the store has one, version identify a file. A changed file is another file, which the
source reads completely from its beginning. So write a new file elsewhere, and move it into the directory when it is
complete (`seen_files`). Splits are ordered by modification time, then by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.common.errors import SourceError
from penstock.connectors.core.source import Split, SplitEnumerator
from penstock.connectors.file.source.seen_files import SeenFiles
from penstock.connectors.file.storage import FileStatus, Storage, StorageOptions


class FileRange(NamedTuple):
    """The part of a file that a split reads: records that begin at bytes `start` to `end` (excluded)."""

    path: str
    size: int
    modified_ms: int
    version: str
    start: int
    end: int

    def to_split(self) -> Split:
        """Return the split. Its id contains the state of the file, so that a changed file is always another split."""
        version = f"#{self.version}" if self.version else ""
        part = "" if (self.start, self.end) == (0, self.size) else f":{self.start}-{self.end}"
        return Split(
            f"{self.path}@{self.modified_ms}+{self.size}{version}{part}", self._asdict(), max(0, self.end - self.start)
        )

    @classmethod
    def of(cls, split: Split) -> FileRange:
        return cls(**split.properties)


def cut(status: FileStatus, split_size: int | None) -> list[FileRange]:
    """Return the ranges of a file of about `split_size` bytes each. Return one range if `split_size` is None.
    >>> [(r.start, r.end) for r in cut(FileStatus("/a", 25, 0), 10)]
    [(0, 8), (8, 16), (16, 25)]
    """
    parts = 1 if not split_size else max(1, -(-status.size // split_size))
    bounds = [status.size * n // parts for n in range(parts + 1)]
    return [
        FileRange(status.path, status.size, status.modified_ms, status.version, start, end)
        for start, end in itertools.pairwise(bounds)
    ]


class FileEnumerator(SplitEnumerator):
    """An enumerator that lists the paths of a file source.

    Args:
        paths: files, directories (read recursively) or glob patterns.
        interval_ms: interval in ms between two listings; None means to list once.
        split_size: approximate bytes of a range for files of a splittable format; None means one split per file.
        now_ms: a monotonic clock. None means the clock of the process.
    """

    forgets_finished = True

    def __init__(
        self,
        paths: tuple[str, ...],
        options: StorageOptions,
        interval_ms: int | None,
        split_size: int | None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self.discovery_interval_ms = interval_ms
        self._paths = paths
        self._split_size = split_size
        self._storages = [Storage(path, options) for path in paths]
        self._seen = SeenFiles(interval_ms, now_ms)

    def discover(self) -> list[Split]:
        present = self.find()
        if self.discovery_interval_ms is None and not present:
            raise SourceError(
                f"no files to read in {', '.join(map(repr, self._paths))}: the directory is empty",
                remedy="put files there before the start, or use monitor_continuously(interval) to wait for them "
                "(names that begin with '.' or '_' are not read)",
            )
        new = self._seen.take_new(present)
        return [part.to_split() for status in new for part in cut(status, self._split_size)]

    def find(self) -> list[FileStatus]:
        """Return all present files, each once, in reading order.

        Raises:
            SourceError: a path does not exist or cannot be listed.
        """
        found: dict[str, FileStatus] = {}
        for path, storage in zip(self._paths, self._storages, strict=True):
            try:
                statuses = storage.find(path)
            except SourceError as error:
                if isinstance(error.__cause__, FileNotFoundError) and self._may_come_later(path):
                    continue
                raise
            found.update((status.path, status) for status in statuses)
        return sorted(found.values(), key=lambda status: (status.modified_ms, status.path))

    def _may_come_later(self, path: str) -> bool:
        """Return True for a pattern or key prefix in continuous mode. Such a path may match no file yet."""
        return self.discovery_interval_ms is not None and (any(m in path for m in "*?[") or path.endswith("/"))

    def snapshot(self) -> Any:
        return self._seen.snapshot()

    def restore(self, state: Any) -> None:
        if state is not None:
            self._seen.restore(state)
