"""`RMQSink`: publish records as messages.

RMQSink(config, "alerts", JsonLinesEncoder())
RMQSink(config, "", JsonLinesEncoder(), exchange="alerts", routing_key=lambda alert: alert.station)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.core.sink import SinkWriter, WriterContext
from penstock.connectors.messages.sink import MessageSink
from penstock.connectors.rabbitmq.client import connected, explained, package, refusal_of
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.message import Message, Text, encodable, is_short, texts
from penstock.connectors.rabbitmq.publisher import Publisher

_PERSISTENT = {"delivery_mode": 2}


class RMQSink(MessageSink):
    """A sink with at-least-once delivery.

    Args:
        connection_config: the connection to the broker.
        queue_name: the name of an existing queue, or "" if an exchange is given.
        serialization_schema: the encoder of bodies: a schema, or an encoder of lines such as `JsonLinesEncoder`, which encodes batches.
        exchange: an exchange instead of a queue, or a function from a record to its exchange.
        routing_key: a routing key, or a function from a record to its routing key. The default is "".
        properties: a function from a record to its message's properties, by their names in AMQP: correlation_id, message_id, headers,
            priority, expiration, content_type, … Messages are persistent unless `delivery_mode` is set.
        create_queue: whether to declare a durable queue if the queue does not exist.
    """

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        serialization_schema: SerializationSchema | Encoder,
        *,
        exchange: Text | None = None,
        routing_key: Text = "",
        properties: Callable[[Any], Mapping[str, Any]] | None = None,
        create_queue: bool = False,
    ) -> None:
        package()
        if bool(queue_name) == (exchange is not None) or (queue_name and routing_key):
            raise InvalidJob(
                "a RabbitMQ sink writes either to a queue or to an exchange, but got "
                f"queue_name={queue_name!r}, exchange={exchange!r}, routing_key={routing_key!r}",
                remedy="pass the name of a queue; or pass queue_name='', an exchange and a routing key",
            )
        for text in (queue_name, exchange, routing_key):
            if isinstance(text, str) and not is_short(text):
                raise InvalidJob(
                    f"{text[:100]!r}… is too long for a name or a routing key of RabbitMQ",
                    remedy="use at most 255 bytes of UTF-8",
                )
        super().__init__(serialization_schema)
        self.config = connection_config
        self.queue = queue_name
        self.exchange: Text = "" if exchange is None else exchange
        self.routing_key: Text = queue_name or routing_key
        self.properties = properties
        self.create_queue = create_queue

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return RMQWriter(self, f"{context.uid} {context.subtask}")

    def messages(self, records: list[Any]) -> list[Message]:
        """Return the messages of the records.

        Raises:
            RecordFormatError: a record does not fit the schema, or a function returns a value that no message can have.
        """
        exchanges, keys = texts("exchange", self.exchange, records), texts("routing key", self.routing_key, records)
        if self.properties is None:
            properties = [package().BasicProperties(**_PERSISTENT)] * len(records)
        else:
            most = self.config.requested_frame_max
            properties = [
                encodable({**_PERSISTENT, **self.properties(record)}, record, frame=most) for record in records
            ]
        return list(map(Message, exchanges, keys, self.bodies(records), properties))

    def validate(self) -> None:
        """Check before the job starts that the broker is accessible, and that the queue or exchange exists.

        Raises:
            SinkError: the broker does not answer or refuses access, or the queue, the exchange or a right is missing.
        """
        with connected(self.config, SinkError) as connection:
            if self.queue:
                connection.channel().queue_declare(self.queue, passive=not self.create_queue, durable=True)
            if isinstance(self.exchange, str):
                refusal = refusal_of(connection.channel(), self._publish_wrongly)
                if refusal is not None:
                    raise explained(self.config, SinkError, refusal)

    def _publish_wrongly(self, channel: Any) -> None:
        channel.confirm_delivery()
        channel.basic_publish(self.exchange, "", b"", package().BasicProperties(expiration="no number"))


class RMQWriter(SinkWriter):
    """A writer that waits at each barrier until the broker has confirmed all messages."""

    def __init__(self, sink: RMQSink, name: str) -> None:
        self._sink = sink
        self._publisher = Publisher(sink.config, name)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._publisher.send(self._sink.messages(values))

    def flush(self) -> None:
        self._publisher.check()

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self._publisher.flush()
        return []

    def finish(self) -> None:
        self._publisher.flush()

    def close(self) -> None:
        self._publisher.close()
