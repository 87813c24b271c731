"""`KinesisStreamsSink`: records into a stream, by PyFlink's builder.

KinesisStreamsSink.builder().set_stream_name("alerts").set_serialization_schema(JsonLinesEncoder()).set_partition_key_generator(
    lambda alert: alert.station).set_kinesis_client_properties({"aws.region": "eu-central-1"}).build()
"""

from __future__ import annotations

import copy
import hashlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.aws import AwsTarget
from penstock.connectors.batching import BatchingWriter
from penstock.connectors.kafka.sink.serializer import KafkaRecordSerializationSchema
from penstock.connectors.kinesis.stream import stream_of
from penstock.connectors.sink import Sink, SinkWriter, WriterContext

MOST_RECORDS = 500
MOST_BYTES = 5 * 1024 * 1024
MOST_RECORD_BYTES = 1024 * 1024
"""Of a request, and of a record with its key: what every Kinesis takes."""
_LONGEST_KEY = 256
_THREADS = 4


class PartitionKeyGenerator:
    """A record -> its partition key, from which Kinesis has its shard. Any function does as well."""

    def __init__(self, generate: Callable[[Any], str]) -> None:
        self.generate = generate

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """One shard for each subtask, as the first record's data say."""
        return PartitionKeyGenerator(_Fixed())

    @staticmethod
    def random() -> PartitionKeyGenerator:
        return PartitionKeyGenerator(_random)


class _Fixed:
    def __init__(self) -> None:
        self._key = ""

    def __call__(self, record: Any) -> str:
        self._key = self._key or hashlib.blake2b(repr(record).encode(), digest_size=8).hexdigest()
        return self._key


def _random(record: Any) -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True)
class _Limits:
    records: int = MOST_RECORDS
    bytes: int = MOST_BYTES
    record_bytes: int = MOST_RECORD_BYTES
    requests: int = _THREADS
    wait_ms: int = 1_000
    fails_at_once: bool = False


class KinesisStreamsSink(Sink):
    """At least once; see the module's head, and `KinesisStreamsSinkBuilder`."""

    def __init__(
        self,
        target: AwsTarget,
        stream: str,
        schema: SerializationSchema | Encoder,
        key: Callable[[Any], str],
        limits: _Limits,
    ) -> None:
        self.target = target
        self.stream = stream
        self.schema = schema
        self.key = key
        self.limits = limits

    @staticmethod
    def builder() -> KinesisStreamsSinkBuilder:
        return KinesisStreamsSinkBuilder()

    def with_input_type(self, type_info: Any) -> Sink:
        if not isinstance(self.schema, Encoder):
            return self
        typed = copy.copy(self)
        typed.schema = self.schema.with_input_type(type_info)
        return typed

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return KinesisWriter(self)

    def entries(self, records: list[Any]) -> list[dict[str, Any]]:
        """
        Raises:
            RecordFormatError: a record does not fit, or has no partition key that Kinesis takes.
        """
        values = KafkaRecordSerializationSchema("", self.schema).values(records)
        return [self._entry(value, record) for value, record in zip(values, records, strict=True)]

    def _entry(self, value: Any, record: Any) -> dict[str, Any]:
        if not isinstance(value, bytes):
            raise RecordFormatError(
                f"the serializer gives {_shown(value)} for {_shown(record)}",
                remedy="let it give bytes, and filter out before the sink what is to be no record",
            )
        key = self.key(record)
        if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
            raise RecordFormatError(
                f"the partition key is {_shown(key)} for {_shown(record)}",
                remedy="let the generator give text of 1 to 256 characters",
            )
        size = len(value) + len(key.encode())
        if size > self.limits.record_bytes:
            raise RecordFormatError(
                f"the record for {_shown(record)} has {size:,} bytes with its key",
                remedy=f"the stream takes {self.limits.record_bytes:,}: write what is large to a file, and send where it is",
            )
        return {"Data": value, "PartitionKey": key}

    def validate(self) -> None:
        """
        Raises:
            SinkError: Kinesis does not answer or does not let us, or there is no such stream.
        """
        client = self.target.client(SinkError)
        self.target.asked(
            SinkError,
            "cannot be written to",
            lambda: client.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"],
        )


class KinesisStreamsSinkBuilder:
    """PyFlink's. `set_stream_name`, `set_serialization_schema` and `set_partition_key_generator` are needed."""

    def __init__(self) -> None:
        self._stream = ""
        self._schema: Any = None
        self._key: Callable[[Any], str] | None = None
        self._properties: dict[str, str] = {}
        self._limits = _Limits()

    def set_stream_name(self, stream_name: str | Any) -> Self:
        self._stream = stream_name
        return self

    def set_serialization_schema(self, serialization_schema: SerializationSchema | Encoder) -> Self:
        """A schema, or an encoder of lines such as `JsonLinesEncoder`, which encodes many at once."""
        if not isinstance(serialization_schema, SerializationSchema | Encoder):
            raise InvalidJob(
                f"{serialization_schema!r} is no serializer of records",
                remedy="give a SerializationSchema such as SimpleStringSchema(), or JsonLinesEncoder()",
            )
        self._schema = serialization_schema
        return self

    def set_partition_key_generator(
        self, partition_key_generator: PartitionKeyGenerator | Callable[[Any], str]
    ) -> Self:
        found = getattr(partition_key_generator, "generate", partition_key_generator)
        if not callable(found):
            raise InvalidJob(
                f"{partition_key_generator!r} gives no partition keys",
                remedy="give PartitionKeyGenerator.random(), or a function of a record",
            )
        self._key = found
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, Any]) -> Self:
        """`aws.region` and `aws.endpoint`; credentials are found as by every AWS client."""
        unknown = sorted(set(kinesis_client_properties) - {"aws.region", "aws.endpoint"})
        if unknown:
            raise InvalidJob(
                f"KinesisStreamsSink does not know {', '.join(unknown)}",
                remedy="it knows aws.region and aws.endpoint; credentials are found as by every AWS client (variables, a role)",
            )
        self._properties = {key: str(value) for key, value in kinesis_client_properties.items()}
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Fail the job over at the first record that is not taken, instead of sending it again for half a minute."""
        return self._limit(fails_at_once=bool(fail_on_error))

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        return self._limit(records=_between("max_batch_size", max_batch_size, MOST_RECORDS))

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        return self._limit(requests=_between("max_in_flight_requests", max_in_flight_requests, 64))

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        """Nothing to do: what waits is a request, and those in flight."""
        _between("max_buffered_requests", max_buffered_requests, 1 << 31)
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        return self._limit(bytes=_between("max_batch_size_in_bytes", max_batch_size_in_bytes, 10 * 1024 * 1024))

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> Self:
        return self._limit(wait_ms=_between("max_time_in_buffer_ms", max_time_in_buffer_ms, 1 << 31))

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        return self._limit(
            record_bytes=_between("max_record_size_in_bytes", max_record_size_in_bytes, 10 * 1024 * 1024)
        )

    def _limit(self, **given: Any) -> Self:
        self._limits = replace(self._limits, **given)
        return self

    def build(self) -> KinesisStreamsSink:
        """
        Raises:
            InvalidJob: something that is needed was not set.
        """
        for name, value in (("serialization_schema", self._schema), ("partition_key_generator", self._key)):
            if value is None:
                raise InvalidJob(f"a KinesisStreamsSink without {name}", remedy=f"call set_{name}(…)")
        assert self._key is not None
        region, endpoint = self._properties.get("aws.region", ""), self._properties.get("aws.endpoint")
        target = stream_of(self._stream, region, endpoint, 30.0)
        return KinesisStreamsSink(target, self._stream, self._schema, self._key, self._limits)


class KinesisWriter(BatchingWriter):
    """Sends requests from several threads."""

    def __init__(self, sink: KinesisStreamsSink) -> None:
        super().__init__(sink.limits.wait_ms)
        self._sink = sink
        self._client = sink.target.client(SinkError, sink.limits.requests)
        self._pool = ThreadPoolExecutor(sink.limits.requests, thread_name_prefix="kinesis")
        self._held: list[dict[str, Any]] = []
        self._bytes = 0
        self._sent: list[Future[None]] = []
        self._is_closed = False

    @property
    def holds(self) -> bool:
        return bool(self._held or self._sent)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        limits = self._sink.limits
        for entry in self._sink.entries(values):
            size = len(entry["Data"]) + len(entry["PartitionKey"].encode())
            if len(self._held) == limits.records or (self._held and self._bytes + size > limits.bytes):
                self._send()
            self._held.append(entry)
            self._bytes += size

    def _send(self) -> None:
        entries, self._held, self._bytes = self._held, [], 0
        while len(self._sent) >= self._sink.limits.requests:
            self._sent.pop(0).result()
        self._sent.append(self._pool.submit(self._send_now, entries))

    def _send_now(self, entries: list[dict[str, Any]]) -> None:
        sink, left = self._sink, entries

        def send() -> None:
            nonlocal left
            answer = self._client.put_records(StreamName=sink.stream, Records=left)
            pairs = list(zip(left, answer["Records"], strict=True))
            refused = [told for _, told in pairs if not told.get("SequenceNumber")]
            left = [entry for entry, told in pairs if not told.get("SequenceNumber")]
            if left and sink.limits.fails_at_once:
                raise SinkError(
                    f"{sink.target.shown} has not taken {len(left)} records: {refused[0].get('ErrorCode')}: {refused[0].get('ErrorMessage', '')}",
                    remedy="add shards, or let them be sent again: set_fail_on_error(False)",
                )
            if left:  # the others are in
                raise OSError(
                    f"{len(left)} records: {refused[0].get('ErrorCode')}: {refused[0].get('ErrorMessage', '')}"
                )

        sink.target.asked(SinkError, "takes no records", send, lambda: self._is_closed)

    def flush(self) -> None:
        if self._held:
            self._send()
        sent, self._sent = self._sent, []
        for future in sent:
            future.result()

    def finish(self) -> None:
        self.flush()

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(cancel_futures=True)


def _between(name: str, value: int, most: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidJob(f"{name}={value!r}", remedy=f"give 1 to {most:,}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
