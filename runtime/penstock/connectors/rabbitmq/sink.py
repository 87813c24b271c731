"""`RMQSink`: records as messages.

RMQSink(config, "alerts", JsonLinesEncoder())
RMQSink(config, "", JsonLinesEncoder(), exchange="alerts", routing_key=lambda alert: alert.station)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from penstock.common.errors import InvalidJob, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.kafka.sink.serializer import KafkaRecordSerializationSchema
from penstock.connectors.rabbitmq.client import connected, explained, package, refusal_of
from penstock.connectors.rabbitmq.config import RMQConnectionConfig
from penstock.connectors.rabbitmq.message import Message, Text, checked_bodies, encodable, is_short, texts
from penstock.connectors.rabbitmq.publisher import Publisher
from penstock.connectors.sink import Sink, SinkWriter, WriterContext

_PERSISTENT = {"delivery_mode": 2}


class RMQSink(Sink):
    """At least once.

    Args:
        connection_config: where the broker is.
        queue_name: of the queue, which must be there; "" where an exchange is given.
        serialization_schema: of bodies: a schema, or an encoder of lines such as `JsonLinesEncoder`, which encodes many at once.
        exchange: instead of a queue: an exchange, or a function of a record that gives one.
        routing_key: the same; "" unless given.
        properties: a function of a record that gives properties of its message, by their names in AMQP: correlation_id, message_id, headers, priority,
            expiration, content_type, … Messages are persistent unless `delivery_mode` says otherwise.
        create_queue: declare the queue, durable, if it is not there.
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
                f"a RabbitMQ sink with queue_name={queue_name!r}, exchange={exchange!r}, routing_key={routing_key!r}",
                remedy="name a queue, or give queue_name='' with an exchange and a routing key",
            )
        for text in (queue_name, exchange, routing_key):
            if isinstance(text, str) and not is_short(text):
                raise InvalidJob(
                    f"a RabbitMQ sink to {text[:100]!r}…",
                    remedy="names and routing keys are text of at most 255 bytes of UTF-8",
                )
        if not isinstance(serialization_schema, SerializationSchema | Encoder):
            raise InvalidJob(
                f"{serialization_schema!r} is no serializer of bodies",
                remedy="give a SerializationSchema such as SimpleStringSchema(), or JsonLinesEncoder()",
            )
        self.config = connection_config
        self.queue = queue_name
        self.schema = serialization_schema
        self.exchange: Text = "" if exchange is None else exchange
        self.routing_key: Text = queue_name or routing_key
        self.properties = properties
        self.create_queue = create_queue

    def with_input_type(self, type_info: Any) -> Sink:
        if not isinstance(self.schema, Encoder):
            return self
        typed = copy.copy(self)
        typed.schema = self.schema.with_input_type(type_info)
        return typed

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return RMQWriter(self, f"{context.uid} {context.subtask}")

    def messages(self, records: list[Any]) -> list[Message]:
        """
        Raises:
            RecordFormatError: a record does not fit, or a function gives for it what no message can have.
        """
        bodies = checked_bodies(KafkaRecordSerializationSchema("", self.schema).values(records), records)
        exchanges, keys = texts("exchange", self.exchange, records), texts("routing key", self.routing_key, records)
        if self.properties is None:
            properties = [package().BasicProperties(**_PERSISTENT)] * len(records)
        else:
            most = self.config.requested_frame_max
            properties = [
                encodable({**_PERSISTENT, **self.properties(record)}, record, frame=most) for record in records
            ]
        return list(map(Message, exchanges, keys, bodies, properties))

    def validate(self) -> None:
        """
        Raises:
            SinkError: the broker does not answer or does not let us, or there is no such queue, exchange or right.
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
    """At a barrier it waits until all is confirmed."""

    def __init__(self, sink: RMQSink, name: str) -> None:
        self._sink = sink
        self._publisher = Publisher(sink.config, name)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._publisher.send(self._sink.messages(values))

    def flush(self) -> None:
        self._publisher.look()

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self._publisher.flush()
        return []

    def finish(self) -> None:
        self._publisher.flush()

    def close(self) -> None:
        self._publisher.close()
