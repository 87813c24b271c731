"""A file that is opened when it is read first: a subtask may hold many splits."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.source import ReadBounds, SplitReader


class LazyReader(SplitReader):
    """Stands for the reader of a file, with or without having it open.

    Args:
        files: of the subtask, which closes some when there are too many; `release` is for that.
        position: where to go on; None: at the beginning.
    """

    def __init__(self, files: OpenFiles, position: Any) -> None:
        self._files = files
        self._position = position
        self._file: Any = None
        self._reader: SplitReader | None = None
        self._closed = False

    @abstractmethod
    def _opened(self) -> SplitReader:
        """A reader of the file from `_position` on. Sets `_file` to what is to be closed, as soon as it is open."""

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
