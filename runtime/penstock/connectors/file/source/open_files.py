"""A limit on how many files a subtask has open at once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Releasable(Protocol):
    """A reader that `OpenFiles` can close for a time."""

    def release(self) -> None:
        """Release handles and buffers. The next read opens them again, at the position reached."""
        ...


class OpenFiles:
    """The files that a subtask has read last. Only these files keep their handles and buffers.

    A subtask may hold thousands of splits at once and reads them in turns. File descriptors and the buffers of object stores
    would not suffice for all of them. Other files release their handles, and open them again for the next read.
    """

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._open: OrderedDict[int, Releasable] = OrderedDict()

    def use(self, source: Releasable) -> None:
        self._open[id(source)] = source
        self._open.move_to_end(id(source))
        if len(self._open) > self._limit:
            self._open.popitem(last=False)[1].release()

    def close(self, source: Releasable) -> None:
        self._open.pop(id(source), None)
        source.release()
