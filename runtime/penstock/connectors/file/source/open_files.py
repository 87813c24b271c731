"""How many files a subtask has open at once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Releasable(Protocol):
    """What is read through `OpenFiles`."""

    def release(self) -> None:
        """Let go of handles and buffers; the next read takes them anew, at the position reached."""
        ...


class OpenFiles:
    """Keeps the handles and buffers of the files read last; those of others are released and taken again when needed.

    A subtask may hold thousands of splits at once, which are read in turns; neither file descriptors nor the buffers of
    object stores would do for all of them.
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
