"""Writers that collect records. They send the records at a limit of size, at a limit of time, and at every barrier."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.connectors.core.sink import SinkWriter


class BatchingWriter(SinkWriter):
    """A writer whose subclass reports whether it has unsent records (`holds`) and sends all of them (`flush`).

    Args:
        batch_ms: the longest time in ms that a record waits.
    """

    def __init__(self, batch_ms: int) -> None:
        self._batch_ms = batch_ms
        self._since = 0

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Return True if unsent records wait."""

    @abstractmethod
    def flush(self) -> None:
        """Send all records. Return when the server has confirmed them."""

    def advance_processing_time(self, now: int) -> None:
        if not 0 <= now - self._since < self._batch_ms:  # this is also the case if the clock was set back
            self._since = now
            self.flush()

    def next_processing_time(self, now: int) -> int | None:
        return now + self._batch_ms if self.holds else None

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.flush()
        return []
