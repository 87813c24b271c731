"""Idempotent bulk writes of documents with keys. The writer replaces buffered writes, and retries rejected writes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.common.errors import SinkError
from penstock.connectors.core.batching import BatchingWriter

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 3.0


class DocumentWrite(Protocol):
    """One write of a bulk."""

    @property
    def key(self) -> Hashable:
        """Return the key of the document. Writes with equal keys concern the same document."""

    @property
    def size(self) -> int:
        """Return the size of the write in bytes."""

    @property
    def replaces(self) -> bool:
        """Return whether the write overwrites all earlier writes of this document."""


W = TypeVar("W", bound=DocumentWrite)


class Bulk(ABC, Generic[W]):
    """The bulk requests of one sink, with retries.

    Args:
        patience_s: the seconds without progress after which the job fails over.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s

    @abstractmethod
    def _try(self, writes: Sequence[W]) -> tuple[Sequence[W], SinkError]:
        """Send the writes once. Return the writes to retry, and the reason.

        Raises:
            SinkError: a retry cannot help.
        """

    def send(self, writes: Sequence[W]) -> None:
        """Send the writes, and return when the server has accepted all of them.

        `writes` must not have two writes of one document. If the first write were rejected, its retry would come after
        the second write.

        Raises:
            SinkError: the server rejects a write, or accepts none for too long.
        """
        end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while writes:
            rejected, reason = self._try(writes)
            if not rejected:
                return
            if len(rejected) < len(writes):
                end, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
            elif time.monotonic() > end:
                raise reason
            writes = rejected
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class DocumentWriter(BatchingWriter, Generic[W]):
    """A writer that buffers at most one write per document.

    If a write replaces the buffered write of its document, the writer drops the buffered write. Otherwise it first
    sends all buffered writes.
    """

    def __init__(self, bulk: Bulk[W], batch_ms: int, batch_size: int, batch_bytes: int) -> None:
        super().__init__(batch_ms)
        self._bulk = bulk
        self._size, self._most_bytes = batch_size, batch_bytes
        self._buffered: dict[Hashable, W] = {}
        self._bytes = 0

    @property
    def holds(self) -> bool:
        return bool(self._buffered)

    def _hold(self, write: W) -> None:
        before = self._buffered.get(write.key)
        if before is not None:
            if write.replaces:
                del self._buffered[write.key]
                self._bytes -= before.size
            else:
                self.flush()
        self._buffered[write.key] = write
        self._bytes += write.size
        if len(self._buffered) >= self._size or self._bytes >= self._most_bytes:
            self.flush()

    def flush(self) -> None:
        """Send the buffered writes, and wait until the server has accepted them.

        Raises:
            SinkError: the server is unavailable for too long, or rejects a write.
        """
        if self._buffered:
            writes, self._buffered, self._bytes = list(self._buffered.values()), {}, 0
            self._bulk.send(writes)

    def close(self) -> None:
        self._bulk.close()
