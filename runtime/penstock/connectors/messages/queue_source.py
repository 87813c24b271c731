"""Sources of queues: the server delivers a message again until the source has acknowledged it.

A source acknowledges messages when the checkpoint that contains them is complete. In the exactly-once mode, the checkpoint also has the
ids of the messages that may be redelivered, and one subtask reads. In the other mode, every subtask reads, and the
source reads each message at least once.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.errors import InvalidJob
from penstock.connectors.core.source import ReadBounds, ReaderContext, SourceReader, Split, SplitEnumerator, SplitReader
from penstock.connectors.messages.seen_ids import SeenIds
from penstock.connectors.messages.source import MessageReader, MessageSource

if TYPE_CHECKING:
    from penstock.connectors.messages.decoder import MessageDecoder
    from penstock.connectors.messages.inbox import QueueClient
    from penstock.records.batch import Batch

S = TypeVar("S", bound=SeenIds)


class QueueSource(MessageSource):
    """A source of one queue.

    Args:
        is_exact: read exactly once, with one subtask.
    """

    split_prefix: str
    """Beginning of the splits' ids. A number follows. The ids are part of checkpoints."""
    never_acknowledges: str
    """Text of the error for a job without checkpoints."""

    def __init__(self, schema: Any, error_tag: str | None, *, is_exact: bool) -> None:
        super().__init__(schema, error_tag)
        self.is_exact = is_exact

    def create_enumerator(self) -> SplitEnumerator:
        return QueueEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return QueueSourceReader(self, context)

    @abstractmethod
    def open_queue(self, name: str, position: str) -> QueueSplitReader[Any]:
        """Return a reader of the queue. `name` identifies the reader in logs and at the server."""

    def check_checkpoints(self, interval_ms: int) -> None:
        if not interval_ms:
            raise InvalidJob(self.never_acknowledges, remedy="env.enable_checkpointing(1000)")


class QueueEnumerator(SplitEnumerator):
    """The enumerator of a queue's splits. Each split is one reader of the queue.

    A source that reads exactly once has one split. Otherwise the source has one split for each subtask of its first start.
    """

    forgets_finished = True

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._is_found = False

    def discover(self) -> list[Split]:
        if self._is_found:
            return []
        self._is_found = True
        count = 1 if self._source.is_exact else self.parallelism
        return [Split(f"{self._source.split_prefix}{number}") for number in range(count)]

    def snapshot(self) -> Any:
        return self._is_found

    def restore(self, state: Any) -> None:
        self._is_found = bool(state)


class QueueSourceReader(SourceReader):
    """The reader of one subtask."""

    def __init__(self, source: QueueSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._readers: list[QueueSplitReader[Any]] = []

    def open_split(self, split: Split, position: Any) -> SplitReader:
        name = f"{self._context.uid} {self._context.subtask} {split.id}"
        self._readers.append(self._source.open_queue(name, position or ""))
        return self._readers[-1]

    def snapshot(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.notify_checkpoint_complete(checkpoint_id)


class QueueSplitReader(MessageReader, Generic[S]):
    """A reader of the queue. Its position is the ids of messages that may be redelivered.

    Args:
        client: the client of the queue. The reader closes it.
        seen: the ids of the messages that may be redelivered. A source that reads at least once adds no ids.
    """

    def __init__(self, source: QueueSource, decoder: MessageDecoder, client: QueueClient[Any], seen: S) -> None:
        super().__init__(decoder)
        self._client = client
        self._is_exact = source.is_exact
        self._seen = seen
        self._pending: dict[int, Any] = {}
        """The results of `_read_so_far` by checkpoint, until the checkpoint is complete."""

    @abstractmethod
    def _take(self, bounds: ReadBounds) -> list[Any]:
        """Return received messages without waiting, and record what the server has confirmed."""

    @abstractmethod
    def _is_new(self, message: Any) -> bool:
        """Add the message's id, and return whether the message was not read before."""

    @abstractmethod
    def _read_so_far(self) -> Any:
        """Return the data with which `_acknowledge` acknowledges the messages that were read before this barrier."""

    @abstractmethod
    def _acknowledge(self, pending: list[Any], checkpoint_id: int) -> None:
        """Acknowledge the messages of complete checkpoints. `pending` has the data of each, in order."""

    def read(self, bounds: ReadBounds) -> Batch | None:
        new: list[Any] = []
        while not new:  # a batch of only redelivered messages is not worth returning
            taken = self._take(bounds)
            if not taken:
                return None
            new = [message for message in taken if self._is_new(message)] if self._is_exact else taken
        return self._decode(new)

    def snapshot(self, checkpoint_id: int) -> None:
        self._seen.snapshot(checkpoint_id)
        self._pending[checkpoint_id] = self._read_so_far()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        complete = sorted(pending for pending in self._pending if pending <= checkpoint_id)
        if complete:
            self._acknowledge([self._pending.pop(pending) for pending in complete], checkpoint_id)

    def is_caught_up(self) -> bool:
        return not self._client.waiting

    @property
    def position(self) -> str:
        return self._seen.position if self._is_exact else ""

    @property
    def finished(self) -> bool:
        return False

    def lag(self) -> int | None:
        return self._client.lag

    def close(self) -> None:
        self._client.close()
