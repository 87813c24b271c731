"""`KinesisStreamsSink`: write records to a stream, with PyFlink's builder.

KinesisStreamsSink.builder().set_stream_name("alerts").set_serialization_schema(JsonLinesEncoder()).set_partition_key_generator(
    lambda alert: alert.station).set_kinesis_client_properties({"aws.region": "eu-central-1"}).build()
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.core.aws import AwsTarget
from penstock.connectors.core.sink import SinkWriter, WriterContext
from penstock.connectors.kinesis.stream import stream_of
from penstock.connectors.messages.aws_writer import AwsWriter, Entry
from penstock.connectors.messages.sink import MessageSink, check_serializer, short_repr

MOST_RECORDS = 500
MOST_BYTES = 5 * 1024 * 1024
MOST_RECORD_BYTES = 1024 * 1024
"""Maximum number and bytes of the records of a request, and maximum bytes of a record with its key.

Every service with the protocol of Kinesis accepts these sizes.
"""
_LONGEST_KEY = 256
_THREADS = 4


class PartitionKeyGenerator:
    """A function from a record to its partition key, which determines the shard. Any function works as well."""

    def __init__(self, generate: Callable[[Any], str]) -> None:
        self.generate = generate

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """Return a generator that uses one shard per subtask, chosen by the first record."""
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


class KinesisStreamsSink(MessageSink):
    """A sink with at-least-once delivery; see the package and `KinesisStreamsSinkBuilder`."""

    def __init__(
        self,
        target: AwsTarget,
        stream: str,
        schema: SerializationSchema | Encoder,
        key: Callable[[Any], str],
        limits: _Limits,
    ) -> None:
        super().__init__(schema)
        self.target = target
        self.stream = stream
        self.key = key
        self.limits = limits

    @staticmethod
    def builder() -> KinesisStreamsSinkBuilder:
        return KinesisStreamsSinkBuilder()

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return KinesisWriter(self)

    def entries(self, records: list[Any]) -> list[Entry]:
        """Return the request entries of the records.

        Raises:
            RecordFormatError: a record is too large, or Kinesis does not accept its partition key.
        """
        return [self._entry(value, record) for value, record in zip(self.bodies(records), records, strict=True)]

    def _entry(self, value: bytes, record: Any) -> Entry:
        key = self.key(record)
        if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
            raise RecordFormatError(
                f"the partition key generator returned {short_repr(key)} for {short_repr(record)}, which is not a partition key",
                remedy="return text of 1 to 256 characters",
            )
        size = len(value) + len(key.encode())
        if size > self.limits.record_bytes:
            raise RecordFormatError(
                f"the record for {short_repr(record)} has {size:,} bytes with its key",
                remedy=f"the limit of the stream is {self.limits.record_bytes:,}: write large data to a file, and send its location",
            )
        return {"Data": value, "PartitionKey": key}

    def validate(self) -> None:
        """Check before the job starts that the stream exists and is accessible.

        Raises:
            SinkError: Kinesis does not answer or refuses access, or the stream does not exist.
        """
        client = self.target.client(SinkError)
        self.target.retry(
            SinkError,
            "cannot be written to",
            lambda: client.describe_stream_summary(StreamName=self.stream)["StreamDescriptionSummary"],
        )


class KinesisStreamsSinkBuilder:
    """PyFlink's builder. `set_stream_name`, `set_serialization_schema` and `set_partition_key_generator` are required."""

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
        """Set a schema, or an encoder of lines such as `JsonLinesEncoder`, which encodes batches."""
        check_serializer(serialization_schema)
        self._schema = serialization_schema
        return self

    def set_partition_key_generator(
        self, partition_key_generator: PartitionKeyGenerator | Callable[[Any], str]
    ) -> Self:
        found = getattr(partition_key_generator, "generate", partition_key_generator)
        if not callable(found):
            raise InvalidJob(
                f"{partition_key_generator!r} does not return partition keys",
                remedy="pass PartitionKeyGenerator.random(), or a function of a record",
            )
        self._key = found
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: Mapping[str, Any]) -> Self:
        """Set `aws.region` and `aws.endpoint`. The sink finds credentials in the same places as every AWS client."""
        unknown = sorted(set(kinesis_client_properties) - {"aws.region", "aws.endpoint"})
        if unknown:
            raise InvalidJob(
                f"KinesisStreamsSink does not support the properties {', '.join(unknown)}",
                remedy="use aws.region and aws.endpoint. Set credentials as for every AWS client, with environment variables or a role",
            )
        self._properties = {key: str(value) for key, value in kinesis_client_properties.items()}
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Set whether the first rejected record causes a failover of the job. Otherwise the sink retries for half a
        minute."""
        return self._limit(fails_at_once=bool(fail_on_error))

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        return self._limit(records=_between("max_batch_size", max_batch_size, MOST_RECORDS))

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        return self._limit(requests=_between("max_in_flight_requests", max_in_flight_requests, 64))

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        """Ignore the value: at most one request waits in addition to those in flight."""
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

    def _limit(self, **limits: Any) -> Self:
        self._limits = replace(self._limits, **limits)
        return self

    def build(self) -> KinesisStreamsSink:
        """Return the sink with these settings.

        Raises:
            InvalidJob: a required setting is missing.
        """
        for name, value in (("serialization_schema", self._schema), ("partition_key_generator", self._key)):
            if value is None:
                raise InvalidJob(f"a KinesisStreamsSink needs a {name}", remedy=f"call set_{name}(…)")
        assert self._key is not None
        region, endpoint = self._properties.get("aws.region", ""), self._properties.get("aws.endpoint")
        target = stream_of(self._stream, region, endpoint, 30.0)
        return KinesisStreamsSink(target, self._stream, self._schema, self._key, self._limits)


class KinesisWriter(AwsWriter):
    """A writer that sends requests from several threads."""

    def __init__(self, sink: KinesisStreamsSink) -> None:
        limits = sink.limits
        super().__init__(
            sink.target,
            limits.wait_ms,
            most=limits.records,
            most_bytes=limits.bytes,
            threads=limits.requests,
            most_requests=limits.requests,
        )
        self._sink = sink

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        for entry in self._sink.entries(values):
            self._add(entry, len(entry["Data"]) + len(entry["PartitionKey"].encode()))

    def _request(self, entries: list[Entry]) -> tuple[list[Entry], str]:
        answer = self._client.put_records(StreamName=self._sink.stream, Records=entries)
        results = zip(entries, answer["Records"], strict=True)
        rejected = [(entry, result) for entry, result in results if not result.get("SequenceNumber")]
        if not rejected:
            return [], ""
        reason = f"{rejected[0][1].get('ErrorCode')}: {rejected[0][1].get('ErrorMessage', '')}"
        if self._sink.limits.fails_at_once:
            raise SinkError(
                f"{self._sink.target.shown} rejected {len(rejected)} records: {reason}",
                remedy="add shards, or retry rejected records: set_fail_on_error(False)",
            )
        return [entry for entry, _ in rejected], reason


def _between(name: str, value: int, most: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidJob(
            f"{name}={value!r} is not between 1 and {most:,}", remedy=f"set {name} to a number from 1 to {most:,}"
        )
    return value
