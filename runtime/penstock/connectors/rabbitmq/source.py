"""`RMQSource`: read the messages of a queue.

config = RMQConnectionConfig.Builder().set_host("mq").set_user_name("job").set_password_file("/secrets/password").build()
RMQSource(config, "orders", True, JsonLinesFormat(Order))
"""

from __future__ import annotations

import time
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.common.time import TimeLike, as_millis
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, StreamFormat
from penstock.connectors.messages.queue_source import QueueSource, QueueSplitReader
from penstock.connectors.messages.source import error_tag_of
from penstock.connectors.rabbitmq.client import connected, explained, package, refusal_of
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.consumer import Consumer, Delivery
from penstock.connectors.rabbitmq.decoder import BodyDecoder
from penstock.connectors.rabbitmq.seen_ids import SeenIds


class RMQSource(QueueSource):
    """A source that reads the messages of a queue.

    Args:
        connection_config: the connection to the broker.
        queue_name: the name of an existing queue.
        use_correlation_id: if True, the source reads exactly once, by ids that the producer sets. One subtask reads, as the only
            consumer. If False, the source reads at least once, and all subtasks read.
        deserialization_schema: the decoder of bodies: a schema, or a format of lines such as `JsonLinesFormat`, which decodes batches
            into columns.
        create_queue: whether to declare a durable queue if the queue does not exist.
        on_error: how to treat a message that cannot be decoded: "fail", or "side-output" to `error_tag` as `RMQRejectedMessage`.
        keep_ids: how long the state keeps ids after their acknowledgement. A crashing broker may lose the acknowledgements of its last
            seconds. Set a longer time than that.
    """

    split_prefix = "consumer-"
    never_acknowledges = "a RabbitMQ source without checkpoints would never acknowledge messages"

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
        super().__init__(deserialization_schema, error_tag_of(on_error, error_tag), is_exact=use_correlation_id)
        if not queue_name:
            raise InvalidJob("a RabbitMQ source needs a queue", remedy="pass the name of a queue")
        self.config = connection_config
        self.queue = queue_name
        self.create_queue = create_queue
        self.keep_ids_s = as_millis(keep_ids, "keep_ids") / 1000
        self.decoder()

    def decoder(self) -> BodyDecoder:
        return BodyDecoder(self.queue, self.schema, rejects=self.rejects)

    @property
    def sole_use(self) -> str | None:
        return f"queue {self.queue!r} of {self.config.shown}" if self.is_exact else None

    def open_queue(self, name: str, position: str) -> QueueReader:
        return QueueReader(self, name, position)

    def validate(self) -> None:
        """Check before the job starts that the broker is accessible and the queue exists.

        Raises:
            SourceError: the broker does not answer or refuses access, or the queue or a right is missing.
        """
        with connected(self.config, SourceError) as connection:
            connection.channel().queue_declare(self.queue, passive=not self.create_queue, durable=True)
            refusal = refusal_of(connection.channel(), self._consume_wrongly)
            if refusal is not None:
                raise explained(self.config, SourceError, refusal)

    def _consume_wrongly(self, channel: Any) -> None:
        channel.basic_consume(self.queue, lambda *_: None, arguments={"x-priority": "no number"})


class QueueReader(QueueSplitReader[SeenIds]):
    """A reader with one consumer."""

    def __init__(self, source: RMQSource, name: str, position: str) -> None:
        self._queue = source.queue
        self._consumer = Consumer(source.config, source.queue, is_alone=source.is_exact, name=name)
        super().__init__(source, source.decoder(), self._consumer, SeenIds(position, source.keep_ids_s))
        self._number = 0
        self._last: tuple[int, int] | None = None
        """The connection and the tag of the last message that was read."""

    def _take(self, bounds: ReadBounds) -> list[Delivery]:
        taken = self._consumer.take(bounds.max_records, bounds.max_bytes)
        self._note_connection()
        if taken:
            self._last = taken[-1].connection, taken[-1].tag
        else:
            self._note_empty()
        return taken

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

    def _is_new(self, message: Delivery) -> bool:
        id = message.correlation_id
        if not id:  # all messages with "" would have the same id
            raise RecordFormatError(
                f"a message in queue {self._queue!r} has no correlation id: {message.body[:200]!r}",
                remedy="let the producer give each message a unique correlation_id, or read with use_correlation_id=False (at least "
                "once)",
            )
        if not message.is_redelivered:
            self._seen.forget(message.came_at)
        return self._seen.add(id)

    def _read_so_far(self) -> tuple[int, int] | None:
        return self._last

    def _acknowledge(self, pending: list[tuple[int, int] | None], checkpoint_id: int) -> None:
        if pending[-1] is not None:
            self._consumer.acknowledge(*pending[-1], checkpoint_id)
