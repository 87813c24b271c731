"""The producers of a subtask's transactions: the current and the next producer.

Every transaction has a separate producer with a new epoch for its id (`transaction`). A new producer needs several requests to
the broker. So a thread prepares the next producer while the present producer writes.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.sink.producer import KafkaProducer

if TYPE_CHECKING:
    from penstock.connectors.kafka.client import Properties


class TransactionalProducers:
    """The next producer of one subtask, and the indexes of ids that may be used.

    Args:
        names: index -> transactional id.
    """

    def __init__(self, properties: Properties, names: Any) -> None:
        self._properties = properties
        self._names = names
        self._free: list[int] = []
        self._created = 0
        self._index = -1
        self._used: dict[int, list[int]] = {}
        """Checkpoint -> the indexes of the ids whose transactions it commits."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-kafka-producer")
        self._next: Future[tuple[int, KafkaProducer]] | None = None
        self._lock = threading.Lock()

    def take(self) -> KafkaProducer:
        """Return the next producer. It has started its transaction.

        Raises:
            SinkError: the producer could not be prepared.
        """
        coming = self._next or self._thread.submit(self._make)
        self._next = None
        self._index, producer = coming.result()
        return producer

    def make_next(self) -> None:
        """Prepare the next producer while the present producer writes."""
        if self._next is None:
            self._next = self._thread.submit(self._make)

    def _make(self) -> tuple[int, KafkaProducer]:
        with self._lock:
            if self._free:
                index = self._free.pop()
            else:
                index, self._created = self._created, self._created + 1
        producer = KafkaProducer(self._properties, self._names(index))
        try:
            return index, producer.prepare()
        except BaseException:
            producer.close()  # the error keeps the producer alive as long as a caller holds the error
            raise

    def written(self, producer: KafkaProducer, checkpoint_id: int) -> None:
        """Assign the producer's transaction to this checkpoint. The transaction's id is not used again until the commit."""
        self._used.setdefault(checkpoint_id, []).append(self._index)
        self._thread.submit(producer.close)

    def committed(self, checkpoint_id: int) -> None:
        """Release the ids of this checkpoint and of earlier checkpoints. Their transactions are committed."""
        done = [checkpoint for checkpoint in self._used if checkpoint <= checkpoint_id]
        with self._lock:
            for checkpoint in done:
                self._free += self._used.pop(checkpoint)

    def close(self) -> None:
        if self._next is not None:
            self._next.add_done_callback(_close)
        self._thread.shutdown(wait=False, cancel_futures=True)


def _close(created: Future[tuple[int, KafkaProducer]]) -> None:
    """Close an unused producer. Otherwise the garbage collector would close it at any time, in any thread."""
    if not created.cancelled() and created.exception() is None:
        created.result()[1].close()
