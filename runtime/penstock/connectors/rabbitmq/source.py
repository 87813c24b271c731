"""`RMQSource`: the messages of a queue.

config = RMQConnectionConfig.Builder().set_host("mq").set_user_name("job").set_password_file("/secrets/password").build()
RMQSource(config, "orders", True, JsonLinesFormat(Order))
"""

from __future__ import annotations

import time
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.rabbitmq.client import connected, explained, package, refusal_of
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.consumer import Consumer, Delivery
from penstock.connectors.rabbitmq.decoder import BodyDecoder
from penstock.connectors.rabbitmq.seen_ids import SeenIds
from penstock.connectors.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.records.batch import Batch


class RMQSource(Source):
    """
    Args:
        connection_config: where the broker is.
        queue_name: of the queue, which must be there.
        use_correlation_id: exactly once, by ids that the producer gives; one subtask reads, as the only consumer. Else at least once, and all subtasks read.
        deserialization_schema: of bodies: a schema, or a format of lines, such as `JsonLinesFormat`, which decodes many at once into columns.
        create_queue: declare the queue, durable, if it is not there.
        on_error: what becomes of a message that cannot be read: "fail", or "side-output" to `error_tag` as `RMQRejectedMessage`.
        keep_ids: how long ids stay in the state after their acknowledgement: longer than a broker that dies may forget one.
    """

    bounded = False

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema | StreamFormat,
        *,
        create_queue: bool = False,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
        keep_ids: TimeLike = 30_000,
    ) -> None:
        package()
        if on_error not in ("fail", "side-output"):
            raise InvalidJob(f"on_error={on_error!r}", remedy="write 'fail' or 'side-output'")
        if not queue_name:
            raise InvalidJob("a RabbitMQ source without a queue", remedy="name the queue that it reads")
        self.config = connection_config
        self.queue = queue_name
        self.is_exact = use_correlation_id
        self.schema = deserialization_schema
        self.create_queue = create_queue
        self.keep_ids_s = as_millis(keep_ids, "keep_ids") / 1000
        self._error_tag = getattr(error_tag, "tag_id", error_tag) if on_error == "side-output" else None
        self.decoder()

    def decoder(self) -> BodyDecoder:
        return BodyDecoder(self.queue, self.schema, rejects=self._error_tag is not None)

    @property
    def sole_use(self) -> str | None:
        return f"queue {self.queue!r} of {self.config.shown}" if self.is_exact else None

    def create_enumerator(self) -> SplitEnumerator:
        return QueueEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return RMQSourceReader(self, context)

    def produced_type(self) -> Any:
        if isinstance(self.schema, StreamFormat):
            return self.schema.produced_type()
        return self.schema.get_produced_type()

    def side_output_tags(self) -> tuple[str, ...]:
        return () if self._error_tag is None else (self._error_tag,)

    def check_checkpoints(self, interval_ms: int) -> None:
        if not interval_ms:
            raise InvalidJob(
                "a RabbitMQ source without checkpoints: nothing would ever be acknowledged",
                remedy="env.enable_checkpointing(1000)",
            )

    def validate(self) -> None:
        """
        Raises:
            SourceError: the broker does not answer or does not let us, or there is no such queue or right.
        """
        with connected(self.config, SourceError) as connection:
            connection.channel().queue_declare(self.queue, passive=not self.create_queue, durable=True)
            refusal = refusal_of(connection.channel(), self._consume_wrongly)
            if refusal is not None:
                raise explained(self.config, SourceError, refusal)

    def _consume_wrongly(self, channel: Any) -> None:
        channel.basic_consume(self.queue, lambda *_: None, arguments={"x-priority": "no number"})


class QueueEnumerator(SplitEnumerator):
    """A split is a consumer: one, or one for each subtask of the first start."""

    forgets_finished = True

    def __init__(self, source: RMQSource) -> None:
        self._source = source
        self._is_found = False

    def discover(self) -> list[Split]:
        if self._is_found:
            return []
        self._is_found = True
        return [Split(f"consumer-{number}") for number in range(1 if self._source.is_exact else self.parallelism)]

    def snapshot(self) -> Any:
        return self._is_found

    def restore(self, state: Any) -> None:
        self._is_found = bool(state)


class RMQSourceReader(SourceReader):
    """Of one subtask."""

    def __init__(self, source: RMQSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._readers: list[QueueReader] = []

    def open_split(self, split: Split, position: Any) -> SplitReader:
        name = f"{self._context.uid} {self._context.subtask} {split.id}"
        reader = QueueReader(self._source, name, position or "")
        self._readers.append(reader)
        return reader

    def snapshot(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.snapshot(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for reader in self._readers:
            reader.notify_checkpoint_complete(checkpoint_id)


class QueueReader(SplitReader):
    """One consumer. The position is the ids of messages that may come again."""

    def __init__(self, source: RMQSource, name: str, position: str) -> None:
        self._source = source
        self._decoder = source.decoder()
        self._seen = SeenIds(position, source.keep_ids_s)
        self._consumer = Consumer(source.config, source.queue, is_alone=source.is_exact, name=name)
        self._number = 0
        self._last: tuple[int, int] | None = None
        """Connection and tag of the last message that was read."""
        self._taken: dict[int, tuple[int, int]] = {}
        """The same by checkpoint, until it is complete."""
        self._rejected: list[Any] = []

    def read(self, bounds: ReadBounds) -> Batch | None:
        deliveries: list[Delivery] = []
        while not deliveries:  # what only came again is no turn of the task's, which may be long to come
            taken = self._consumer.take(bounds.max_records, bounds.max_bytes)
            self._note_connection()
            if not taken:
                self._note_empty()
                return None
            self._last = taken[-1].connection, taken[-1].tag
            deliveries = [delivery for delivery in taken if self._is_new(delivery)] if self._source.is_exact else taken
        batch, rejected = self._decoder.decode(deliveries)
        self._rejected += rejected
        return batch

    def _note_connection(self) -> None:
        consumer = self._consumer
        confirmed = consumer.confirmed()
        if confirmed is not None:
            self._seen.acknowledged(confirmed, time.monotonic())
        if consumer.number != self._number:
            self._number = consumer.number
            self._seen.connected(consumer.connected_at)

    def _note_empty(self) -> None:
        emptied = self._consumer.emptied
        if emptied is None:
            return
        connection, tag = self._last or (0, 0)
        if emptied.tag == 0 or (connection == emptied.connection and tag >= emptied.tag):
            self._seen.forget(emptied.at)

    def _is_new(self, delivery: Delivery) -> bool:
        id = delivery.correlation_id
        if not id:  # "" would be one id of many messages
            raise RecordFormatError(
                f"a message in queue {self._source.queue!r} has no correlation id: {delivery.body[:200]!r}",
                remedy="let the producer give each message a correlation_id of its own, or read with use_correlation_id=False (at least once)",
            )
        if not delivery.is_redelivered:
            self._seen.forget(delivery.came_at)
        return self._seen.add(id)

    def has_given_all(self) -> bool:
        return not self._consumer.waiting

    def take_rejected(self) -> list[Any]:
        rejected, self._rejected = self._rejected, []
        return rejected

    def snapshot(self, checkpoint_id: int) -> None:
        self._seen.snapshot(checkpoint_id)
        if self._last is not None:
            self._taken[checkpoint_id] = self._last

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        last = self._taken.get(checkpoint_id)
        self._taken = {taken: of for taken, of in self._taken.items() if taken > checkpoint_id}
        if last is not None:
            self._consumer.acknowledge(*last, checkpoint_id)

    @property
    def position(self) -> str:
        return self._seen.position

    @property
    def finished(self) -> bool:
        return False

    def lag(self) -> int | None:
        return self._consumer.lag

    def close(self) -> None:
        self._consumer.close()
