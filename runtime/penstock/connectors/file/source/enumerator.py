"""Finds files and makes splits of them: once, or again and again for as long as the job runs (K22, K25).

A file is known by path, time of modification, size and, where the store has one, version. A file that changed is another
one and is read again from its beginning, completely; write elsewhere and move into the directory to have every file read
once (`seen_files`). Splits come in the order of modification time, then name (K23).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.common.errors import SourceError
from penstock.connectors.file.source.seen_files import SeenFiles
from penstock.connectors.file.storage import FileStatus, Storage, StorageOptions
from penstock.connectors.source import Split, SplitEnumerator


class FileRange(NamedTuple):
    """The part of a file that a split stands for: records that begin at bytes `start` to `end` (excluded)."""

    path: str
    size: int
    modified_ms: int
    version: str
    start: int
    end: int

    def to_split(self) -> Split:
        """The split; its id names the file's state, so that a changed file is another split for ever."""
        version = f"#{self.version}" if self.version else ""
        part = "" if (self.start, self.end) == (0, self.size) else f":{self.start}-{self.end}"
        return Split(
            f"{self.path}@{self.modified_ms}+{self.size}{version}{part}", self._asdict(), max(0, self.end - self.start)
        )

    @classmethod
    def of(cls, split: Split) -> FileRange:
        return cls(**split.properties)


def cut(status: FileStatus, split_size: int | None) -> list[FileRange]:
    """A file in ranges of about `split_size` bytes; one range if it is None.

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
    """Lists the paths of a file source.

    Args:
        paths: files, directories (read with everything below them) or glob patterns.
        interval_ms: list again after so many ms; None: once.
        split_size: cut files of a splittable format into ranges of about so many bytes; None: one split per file.
        now_ms: a clock that only goes forward; None: the process's.
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
        """All files there are now, each once, in reading order.

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
        """A pattern without a match yet, or a key prefix that holds nothing yet, is no mistake in continuous mode."""
        return self.discovery_interval_ms is not None and (any(m in path for m in "*?[") or path.endswith("/"))

    def snapshot(self) -> Any:
        return self._seen.snapshot()

    def restore(self, state: Any) -> None:
        if state is not None:
            self._seen.restore(state)
