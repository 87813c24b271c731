"""The producers of a subtask's transactions: the one that writes, and the next.

Every transaction has a producer of its own, which got a new epoch for its id (`transaction`). Making one takes some questions
to the broker, so the next is made by a thread while the present one writes.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.sink.producer import KafkaProducer

if TYPE_CHECKING:
    from penstock.connectors.kafka.client import Properties


class TransactionalProducers:
    """Of one subtask: the next producer, and the numbers of ids that may be used.

    Args:
        names: index -> transactional id.
    """

    def __init__(self, properties: Properties, names: Any) -> None:
        self._properties = properties
        self._names = names
        self._free: list[int] = []
        self._made = 0
        self._index = -1
        self._used: dict[int, list[int]] = {}
        """Indexes of ids by the checkpoint that commits what was written under them."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-kafka-producer")
        self._next: Future[tuple[int, KafkaProducer]] | None = None
        self._lock = threading.Lock()

    def take(self) -> KafkaProducer:
        """The next one, with its transaction begun; another one is begun to be made.

        Raises:
            SinkError: it could not be made.
        """
        coming = self._next or self._thread.submit(self._make)
        self._next = None
        self._index, producer = coming.result()
        return producer

    def make_next(self) -> None:
        """Have another one made while this one writes."""
        if self._next is None:
            self._next = self._thread.submit(self._make)

    def _make(self) -> tuple[int, KafkaProducer]:
        with self._lock:
            if self._free:
                index = self._free.pop()
            else:
                index, self._made = self._made, self._made + 1
        producer = KafkaProducer(self._properties, self._names(index))
        try:
            return index, producer.prepare()
        except BaseException:
            producer.close()  # the error holds it for as long as somebody looks at that
            raise

    def written(self, producer: KafkaProducer, checkpoint_id: int) -> None:
        """The producer's transaction goes into this checkpoint; its id rests until that is committed."""
        self._used.setdefault(checkpoint_id, []).append(self._index)
        self._thread.submit(producer.close)

    def committed(self, checkpoint_id: int) -> None:
        """What was written for this checkpoint and those before it is committed: the ids may be used again."""
        done = [checkpoint for checkpoint in self._used if checkpoint <= checkpoint_id]
        with self._lock:
            for checkpoint in done:
                self._free += self._used.pop(checkpoint)

    def close(self) -> None:
        if self._next is not None:
            self._next.add_done_callback(_close)
        self._thread.shutdown(wait=False, cancel_futures=True)


def _close(made: Future[tuple[int, KafkaProducer]]) -> None:
    """One that nobody will write with: else it would end whenever it is found, in any thread."""
    if not made.cancelled() and made.exception() is None:
        made.result()[1].close()
