"""A reader that opens its file at the first read, because a subtask may hold many splits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.connectors.core.source import ReadBounds, SplitReader
from penstock.connectors.file.source.open_files import OpenFiles


class LazyReader(SplitReader):
    """A reader of a file that is open only while it is in use.

    Args:
        files: the open files of the subtask. If too many are open, `OpenFiles` calls `release` of a reader.
        position: the position to continue at; None means the beginning.
    """

    def __init__(self, files: OpenFiles, position: Any) -> None:
        self._files = files
        self._position = position
        self._file: Any = None
        self._reader: SplitReader | None = None
        self._closed = False

    @abstractmethod
    def _opened(self) -> SplitReader:
        """Return a reader of the file from `_position` on. As soon as the file is open, set `_file` to the object that must be closed."""

    def read(self, bounds: ReadBounds) -> Any:
        if self._closed:
            return None
        self._files.use(self)
        if self._reader is None:
            self._reader = self._opened()
        reader = self._reader
        batch = reader.read(bounds)
        self._position = reader.position
        if reader.finished:
            self.close()
        return batch

    @property
    def position(self) -> Any:
        return self._position

    @property
    def finished(self) -> bool:
        return self._closed

    def lag(self) -> int | None:
        return self._reader.lag() if self._reader is not None else None

    def close(self) -> None:
        self._closed = True
        self._files.close(self)

    def release(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._file is not None:
            self._file.close()
            self._file = None
