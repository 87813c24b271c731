"""The writers of a subtask: with a transaction for each checkpoint, or without transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.core.sink import SinkWriter
from penstock.connectors.kafka.sink.producer import KafkaProducer
from penstock.connectors.kafka.sink.serializer import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink.transactional_producers import TransactionalProducers

if TYPE_CHECKING:
    from penstock.connectors.core.sink import WriterContext
    from penstock.connectors.kafka.client import Properties
    from penstock.connectors.kafka.sink.transaction import Owner


class MessageWriter:
    """A converter that makes messages from records, and sends them through a producer."""

    def __init__(self, schema: KafkaRecordSerializationSchema) -> None:
        self._schema = schema

    def write(self, producer: KafkaProducer, records: list[Any], timestamps: list[int] | None) -> None:
        if not records:
            return
        schema = self._schema
        values, keys = schema.values(records), schema.keys(records)
        record_times = timestamps if schema.timestamp is None else [schema.timestamp(record) for record in records]
        times = None if record_times is None else _client_times(record_times)
        topic = schema.fixed_topic
        if topic is not None and schema.headers is None and schema.partitioner is None:
            producer.send_all(topic, values, keys, times)
            return
        topics = [topic] * len(records) if topic is not None else schema.topics(records)
        for index, record in enumerate(records):
            message: dict[str, Any] = {"value": values[index]}
            if keys is not None:
                message["key"] = keys[index]
            if times is not None:
                message["timestamp"] = times[index]
            if schema.headers is not None:
                headers = schema.headers(record)
                message["headers"] = list(headers.items() if isinstance(headers, Mapping) else headers or ())
            partition = None if schema.partitioner is None else schema.partitioner(record)
            if partition is not None:
                message["partition"] = partition
            producer.send(topics[index], **message)
        producer.check()


def _client_times(times: Sequence[int | None]) -> Sequence[int | None]:
    """Return the times in the form that the client accepts. The client reads 0 as the present, and Kafka has no times before 1970.
    >>> _client_times([5, None, -1, 0])
    [5, 0, 0, 1]
    """
    if None not in times and min(times) > 0:  # type: ignore[type-var, operator]
        return times
    return [0 if time is None or time < 0 else time or 1 for time in times]


class PlainWriter(SinkWriter):
    """A writer without transactions. If `flushes` is True, a checkpoint waits for all acknowledgements (at least once)."""

    def __init__(self, schema: KafkaRecordSerializationSchema, properties: Properties, *, flushes: bool) -> None:
        self._messages = MessageWriter(schema)
        self._producer = KafkaProducer(properties)
        self._flushes = flushes

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._messages.write(self._producer, values, timestamps)

    def flush(self) -> None:
        self._producer.check()

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        if self._flushes:
            self._producer.flush()
        return []

    def finish(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class TransactionalWriter(SinkWriter):
    """An exactly-once writer. The records between two checkpoints are a transaction, which the JobManager commits."""

    def __init__(
        self, schema: KafkaRecordSerializationSchema, properties: Properties, owner: Owner, context: WriterContext
    ) -> None:
        self._messages = MessageWriter(schema)
        self._producers = TransactionalProducers(
            properties, lambda index: owner.name(context.attempt, context.subtask, index)
        )
        self._producer = self._producers.take()

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        if values and not self._producer.records:
            self._producers.make_next()
        self._messages.write(self._producer, values, timestamps)

    def flush(self) -> None:
        self._producer.check()

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        if not self._producer.records:
            return []
        self._producer.flush()
        transaction = self._producer.transaction()
        self._producers.written(self._producer, checkpoint_id)
        self._producer = self._producers.take()
        return [transaction.to_json()]

    def notify_committed(self, checkpoint_id: int) -> None:
        self._producers.committed(checkpoint_id)

    def close(self) -> None:
        self._producer.close()
        self._producers.close()
