"""Writers that send what they hold when enough has come, when it has waited, and at every barrier."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.connectors.sink import SinkWriter


class BatchingWriter(SinkWriter):
    """A writer says what it holds (`holds`), and sends all of it (`flush`).

    Args:
        batch_ms: how long anything waits at most.
    """

    def __init__(self, batch_ms: int) -> None:
        self._batch_ms = batch_ms
        self._since = 0

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Whether anything waits."""

    @abstractmethod
    def flush(self) -> None:
        """Send it; returns when the server has it."""

    def advance_processing_time(self, now: int) -> None:
        if now >= self._since + self._batch_ms:
            self._since = now
            self.flush()

    def next_processing_time(self, now: int) -> int | None:
        return now + self._batch_ms if self.holds else None

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self.flush()
        return []
