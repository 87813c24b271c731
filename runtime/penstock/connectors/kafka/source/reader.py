"""Read partitions: a subtask has one consumer of librdkafka, which distributes its messages to the readers of the subtask's splits.

A separate consumer for each partition would need separate threads and connections. So the first reader that polls takes
the messages of all partitions, and the other readers find their messages in an inbox. If no reader takes the messages
of a partition (watermark alignment), the consumer pauses the partition when its inbox is full.

Some offsets do not belong to records: offsets of transaction markers, and of aborted or compacted records. So a position also advances when
the end of the partition is reached. Otherwise an idle partition would show a lag forever. After retention has removed the marker, the
position after the last record would no longer exist.
"""

from __future__ import annotations

import weakref
from collections import deque
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from penstock.common.errors import SourceError
from penstock.connectors.core.source import ReadBounds, ReaderContext, SourceReader, Split, SplitReader
from penstock.connectors.kafka.client import LOGGER, Complaints, Properties, explained, librdkafka, package
from penstock.connectors.kafka.offsets import create_client
from penstock.connectors.messages.decoder import MessageDecoder
from penstock.connectors.messages.source import MessageReader

if TYPE_CHECKING:
    from penstock.records.batch import Batch

MOST_WAITING = 50_000
MOST_BYTES = 16 << 20
"""Limits of a partition's inbox, in messages and in bytes of their values. A partition is paused at one of the limits,
and resumed below half of both limits."""
_CONSUMED = 10_000
_NOT_COMMITTED = "offsets were not committed to group %r, so its reported lag is too large: %s"
_DEFAULTS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "10",
    "group.id": "penstock",
}
"""Properties that apply to every consumer. librdkafka requires a group even if it commits no offsets."""


class _Inbox:
    """The messages of one partition that wait for its reader."""

    __slots__ = ("_runs", "ended_at", "is_paused", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self._runs: deque[tuple[list[Any], int]] = deque()
        self.waiting = 0
        self.waiting_bytes = 0
        self.ended_at = -1
        """The last known end of the partition. -1 means unknown."""
        self.is_paused = False

    def put(self, run: list[Any]) -> None:
        """Add a run of messages. The bytes of a single run are not counted, because the client's queue bounds them and most runs are read
        at once."""
        size = sum(map(len, run)) if self._runs else 0
        self._runs.append((run, size))
        self.waiting += len(run)
        self.waiting_bytes += size

    def take(self, most: int) -> list[Any]:
        """Return up to `most` messages. Take them from several runs if necessary, because a run can have a single message."""
        taken: list[Any] = []
        while self._runs and len(taken) < most:
            run, size = self._runs.popleft()
            free = most - len(taken)
            if len(run) > free:
                rest = size * (len(run) - free) // len(run)
                self._runs.appendleft((run[free:], rest))
                run, size = run[:free], size - rest
            taken += run
            self.waiting_bytes -= size
        self.waiting -= len(taken)
        return taken

    def holds(self, share: float) -> bool:
        """Return whether the inbox has reached this share of its limits."""
        return self.waiting > share * MOST_WAITING or self.waiting_bytes > share * MOST_BYTES


class SharedConsumer:
    """The consumer of one subtask."""

    def __init__(self, properties: Properties) -> None:
        kafka = self._kafka = package("confluent_kafka")
        self._properties = properties
        me = weakref.ref(self)  # if a client is in a reference cycle, the garbage collector destroys it in any thread
        self._complaints = Complaints()
        settings = librdkafka({**_DEFAULTS, **properties}, self._complaints)
        settings |= {"enable.partition.eof": True, "on_commit": lambda error, at: _on_commit(me(), error, at)}
        self._consumer = create_client(lambda: kafka.Consumer(settings), properties)
        self.committed: dict[tuple[str, int], int] = {}
        """The offsets that were committed to the group last, by partition."""
        self.has_more = False
        """Whether the client may hold more messages than the last poll returned."""
        self._inboxes: dict[tuple[str, int], _Inbox] = {}
        self._eof = kafka.KafkaError._PARTITION_EOF
        self._of_message = methodcaller("partition")

    def add(self, topic: str, partition: int, offset: int) -> _Inbox:
        inbox = self._inboxes[topic, partition] = _Inbox()
        self._consumer.incremental_assign([self._kafka.TopicPartition(topic, partition, offset)])
        topics = {name for name, _ in self._inboxes}
        if len(topics) > 1:
            self._of_message = lambda message: (message.topic(), message.partition())  # type: ignore[assignment]
        return inbox

    def remove(self, topic: str, partition: int) -> None:
        if self._inboxes.pop((topic, partition), None) is not None:
            self._consumer.incremental_unassign([self._kafka.TopicPartition(topic, partition)])

    def fill(self) -> None:
        """Distribute received messages without waiting.

        Raises:
            SourceError: a partition cannot be read any longer.
        """
        messages = self._consumer.consume(_CONSUMED, 0.0)
        self.has_more = len(messages) == _CONSUMED
        self._complaints.renew(self._consumer, self._properties)
        if self._complaints.is_shut_out:
            raise explained(
                SourceError, "topics cannot be read", PermissionError(self._complaints.refusal), self._properties
            )
        if not messages:
            return
        errors = [message for message in messages if message.error() is not None]
        if errors:
            messages = [message for message in messages if message.error() is None]
        for _, group in groupby(messages, self._of_message):
            run = list(group)
            inbox = self._inboxes.get((run[0].topic(), run[0].partition()))
            if inbox is not None:
                inbox.put(run)
                if not inbox.is_paused and inbox.holds(1.0):
                    self._pause(run[0].topic(), run[0].partition(), inbox)
        for message in errors:
            self._on_error(message)

    def _pause(self, topic: str, partition: int, inbox: _Inbox) -> None:
        self._consumer.pause([self._kafka.TopicPartition(topic, partition)])
        inbox.is_paused = True

    def resume(self, topic: str, partition: int, inbox: _Inbox) -> None:
        self._consumer.resume([self._kafka.TopicPartition(topic, partition)])
        inbox.is_paused = False

    def _on_error(self, message: Any) -> None:
        error = message.error()
        if error.code() == self._eof:
            inbox = self._inboxes.get((message.topic(), message.partition()))
            if inbox is not None:
                inbox.ended_at = message.offset()
            return
        if error.code() == self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
            LOGGER.warning(_NOT_COMMITTED, self._properties.get("group.id"), error.str())
            return
        where = "topics" if message.topic() is None else f"{message.topic()}-{message.partition()}"
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            raise SourceError(
                f"{where} no longer has a record at offset {message.offset()}: {error.str()}",
                remedy="unread records are lost: the topic was created again, or its retention is shorter than the time for which the job was stopped. "
                "To continue without them, set auto.offset.reset to earliest or latest, or start without this source's state",
            )
        if not error.retriable() and error.code() not in self._passing:
            raise explained(
                SourceError,
                f"{where} cannot be read",
                self._kafka.KafkaException(error),
                self._properties,
                self._complaints.last,
            )
        LOGGER.warning("%s: %s", where, error.str())

    @property
    def _passing(self) -> tuple[int, ...]:
        """Return the errors that librdkafka resolves by itself with retries."""
        kind = self._kafka.KafkaError
        return (
            kind._TRANSPORT,
            kind._ALL_BROKERS_DOWN,
            kind._DESTROY_BROKER,
            kind._TIMED_OUT,
            kind.LEADER_NOT_AVAILABLE,
            kind.NOT_LEADER_FOR_PARTITION,
        )

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """Return the offset after the last record, as the last fetch reported it, or None before the first fetch."""
        try:
            high: int = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(topic, partition), cached=True)[
                1
            ]
        except self._kafka.KafkaException:
            return None
        return high if high >= 0 else None

    def commit(self, offsets: dict[tuple[str, int], int]) -> None:
        """Commit the job's progress to the group for monitoring. The job neither waits for the commit nor depends on it."""
        positions = [self._kafka.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        try:
            self._consumer.commit(offsets=positions, asynchronous=True)
        except self._kafka.KafkaException as error:
            LOGGER.warning(_NOT_COMMITTED, self._properties.get("group.id"), error)

    def note_commit(self, error: Any, partitions: list[Any]) -> None:
        """Record the result of a commit."""
        for at in partitions:
            error = error or at.error
            if error is None and at.offset >= 0:
                self.committed[at.topic, at.partition] = at.offset
        if error is not None:
            LOGGER.warning(_NOT_COMMITTED, self._properties.get("group.id"), error.str())

    def close(self) -> None:
        self._consumer.close()


def _on_commit(consumer: SharedConsumer | None, error: Any, partitions: list[Any]) -> None:
    if consumer is not None:
        consumer.note_commit(error, partitions)


def check_properties(properties: Properties) -> None:
    """Check that the consumer accepts the properties.

    Raises:
        InvalidJob: the consumer rejects a property.
    """
    kafka = package("confluent_kafka")
    create_client(lambda: kafka.Consumer(librdkafka({**_DEFAULTS, **properties})), properties).close()


class KafkaSourceReader(SourceReader):
    """The reader of one subtask.

    Args:
        commits: commit offsets to the group when a checkpoint is complete.
    """

    def __init__(
        self, properties: Properties, decoder: MessageDecoder, context: ReaderContext, *, commits: bool
    ) -> None:
        client_id = f"{properties.get('client.id', 'penstock')}-{context.uid}-{context.subtask}"
        self._properties = {**properties, "client.id": client_id}
        self._decoder = decoder
        self._commits = commits
        self._context = context
        self._consumer: SharedConsumer | None = None
        self._readers: dict[tuple[str, int], PartitionReader] = {}
        self._taken: dict[int, dict[tuple[str, int], int]] = {}
        """Offsets by checkpoint, until the checkpoint is complete."""

    def open_split(self, split: Split, position: Any) -> SplitReader:
        if self._consumer is None:
            self._consumer = SharedConsumer(self._properties)
        about = split.properties
        key = about["topic"], about["partition"]
        offset = about["start"] if position is None else position
        reader = self._readers[key] = PartitionReader(self._consumer, self._decoder, *key, offset, about["stop"])
        operator = self._context.operator
        if operator is not None and operator.metrics is not None:
            group = operator.metrics.add_group("KafkaSourceReader").add_group("topic", key[0])
            group = group.add_group("partition", str(key[1]))
            group.gauge("currentOffset", lambda: reader.position)
            group.gauge("recordsLag", lambda: -1 if (lag := reader.lag()) is None else lag)
            group.gauge("committedOffset", lambda: reader.committed)
        return reader

    def snapshot(self, checkpoint_id: int) -> None:
        if self._commits:
            self._taken[checkpoint_id] = {key: reader.position for key, reader in self._readers.items()}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        offsets = self._taken.get(checkpoint_id)
        self._taken = {taken: of for taken, of in self._taken.items() if taken > checkpoint_id}
        if offsets and self._consumer is not None:
            self._consumer.commit(offsets)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class PartitionReader(MessageReader):
    """The reader of one partition. Its position is the offset of the next record, or the end of the partition."""

    moves_without_records = True

    def __init__(
        self,
        consumer: SharedConsumer,
        decoder: MessageDecoder,
        topic: str,
        partition: int,
        offset: int,
        stop: int | None,
    ) -> None:
        super().__init__(decoder)
        self._consumer = consumer
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._stop = stop
        self._finished = stop is not None and offset >= stop
        self._inbox = _Inbox() if self._finished else consumer.add(topic, partition, offset)

    def read(self, bounds: ReadBounds) -> Batch | None:
        inbox = self._inbox
        if not inbox.waiting and not self._finished:
            self._consumer.fill()
        messages = inbox.take(bounds.max_records)
        if inbox.is_paused and not inbox.holds(0.5):
            self._consumer.resume(self._topic, self._partition, inbox)
        if not messages:
            if not inbox.waiting and not self._finished:
                self._offset = max(self._offset, inbox.ended_at)
                self._finished = self._stop is not None and self._offset >= self._stop
            return None
        stop, last = self._stop, messages[-1].offset()
        if stop is not None and last >= stop - 1:
            messages = [message for message in messages if message.offset() < stop]
            self._finished = True
        self._offset = last + 1 if stop is None else min(last + 1, stop)
        if not messages:
            return None
        return self._decode(messages)

    def is_caught_up(self) -> bool:
        return not self._inbox.waiting and not self._consumer.has_more

    @property
    def position(self) -> int:
        return self._offset

    @property
    def finished(self) -> bool:
        return self._finished

    @property
    def committed(self) -> int:
        """Return the offset that was committed to the group last. -1 means none yet."""
        return self._consumer.committed.get((self._topic, self._partition), -1)

    def lag(self) -> int | None:
        """Return the number of offsets from the next record to the partition's end, or to the stopping offset."""
        if self._stop is not None:
            return max(0, self._stop - self._offset)
        high = self._consumer.high_watermark(self._topic, self._partition)
        return None if high is None else max(0, high - self._offset)

    def close(self) -> None:
        self._consumer.remove(self._topic, self._partition)
