"""Kafka messages of records with unusual parts: either an equivalent message, or an error that names the part."""

from __future__ import annotations

import re
import time
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from penstock.common.errors import RecordFormatError, SinkError
from penstock.common.serialization import SerializationSchema
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaRecordSerializationSchemaBuilder
from tests.integration.kafka.support import read, topic
from tests.integration.kafka.test_sink import plain, strings, writer
from tools.servers.kafka import KafkaServer

pytestmark = pytest.mark.kafka


def sent(
    kafka: KafkaServer,
    schema: KafkaRecordSerializationSchemaBuilder,
    values: list[Any],
    times: list[int] | None = None,
    partitions: int = 1,
) -> list[Any]:
    name = topic(kafka, partitions)
    writes = writer(plain(kafka, schema.set_topic(name)).build())
    try:
        writes.write(values, times, 0)
        writes.prepare_commit(1)
    finally:
        writes.close()
    return read(kafka.bootstrap_servers, name)


@pytest.mark.parametrize("is_extracted", [False, True])
def test_a_record_without_a_time_or_before_1970_has_the_present_and_the_others_their_own(
    kafka: KafkaServer, is_extracted: bool
) -> None:
    given = [1_000, -1, -(2**63), 0, 2_000]
    schema = strings()
    if is_extracted:
        given[1] = None  # type: ignore[call-overload]
        schema = schema.set_timestamp_extractor(lambda value: given[int(value)])
    messages = sent(kafka, schema, ["0", "1", "2", "3", "4"], None if is_extracted else given)
    times = [message.timestamp()[1] for message in messages]
    assert [times[0], times[3], times[4]] == [1_000, 1, 2_000]
    assert min(times[1:3]) > (time.time() - 60) * 1_000


def test_an_empty_key_has_a_fixed_partition_and_none_does_not(kafka: KafkaServer) -> None:
    keys = {"none": None, "bytes": b"", "text": ""}
    schema = strings().set_key_serialization_schema(keys.__getitem__)
    name = topic(kafka, 7)
    writes = writer(plain(kafka, schema.set_topic(name)).build())
    for _ in range(40):  # like Java's client, this client stays with one partition for a while
        writes.write(list(keys), None, 0)
        writes._producer.flush()
    writes.close()
    found: dict[str, set[int]] = {}
    for message in read(kafka.bootstrap_servers, name):
        found.setdefault(message.value().decode(), set()).add(message.partition())
    of_empty = 275646681 % 7  # murmur2 of nothing, by Kafka's Java client
    assert found["bytes"] == found["text"] == {of_empty}
    assert len(found["none"]) > 1


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        {"a": b"1", "b": "ü", "c": None},
        MappingProxyType({"a": b"1"}),
        (("a", b"1"), ("a", None), ("", b"")),
    ],
)
def test_headers_are_pairs_a_mapping_or_none(kafka: KafkaServer, headers: Any) -> None:
    (message,) = sent(kafka, strings().set_header_provider(lambda value: headers), ["v"])
    pairs = list(headers.items() if hasattr(headers, "items") else headers or ())
    assert (message.headers() or []) == [(name, v.encode() if isinstance(v, str) else v) for name, v in pairs]


class Makes(SerializationSchema):
    """A schema that returns a fixed value for any record."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def serialize(self, element: Any) -> Any:
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


def test_no_value_is_a_tombstone(kafka: KafkaServer) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(Makes(None))
    (message,) = sent(kafka, schema.set_key_serialization_schema(lambda value: b"k"), ["v"])
    assert (message.key(), message.value()) == (b"k", None)


def test_numbers_of_numpy_are_valid_times_and_partitions(kafka: KafkaServer) -> None:
    schema = strings().set_partitioner(lambda value: np.int64(2)).set_timestamp_extractor(lambda value: np.int64(5_000))  # type: ignore[arg-type, return-value]
    (message,) = sent(kafka, schema, ["v"], partitions=4)
    assert (message.partition(), message.timestamp()[1]) == (2, 5_000)


WRONG = {
    "a key that is a number": (strings().set_key_serialization_schema(lambda value: 7), r"key 7 \(int\)"),
    "a header that is a number": (strings().set_header_provider(lambda value: {"h": 1}), r"\('h', 1\)"),
    "a time that is no whole number": (strings().set_timestamp_extractor(lambda value: 1.5), r"1\.5 \(float\)"),  # type: ignore[arg-type, return-value]
    "a partition below 0": (strings().set_partitioner(lambda value: -1), "partitions are numbered from 0"),
    "a partition that is text": (strings().set_partitioner(lambda value: "x"), r"partition 'x' \(str\)"),  # type: ignore[arg-type, return-value]
    "a value that is a number": (
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema(Makes(5)),
        r"value 5 \(int\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_record_that_cannot_become_a_message_is_an_error_that_shows_it(kafka: KafkaServer, case: str) -> None:
    schema, shown = WRONG[case]
    with pytest.raises(RecordFormatError, match=r"cannot become a message for topic 'topic-\w+'") as error:
        sent(kafka, schema, ["v"])
    assert re.search(shown, error.value.message)


def test_the_error_for_a_missing_partition_has_a_remedy(kafka: KafkaServer) -> None:
    with pytest.raises(SinkError, match=r"(?s)_UNKNOWN_PARTITION.*correct the partitioner"):
        sent(kafka, strings().set_partitioner(lambda value: 9), ["v"], partitions=4)


def test_an_exception_of_a_serializer_is_not_changed(kafka: KafkaServer) -> None:
    schema = KafkaRecordSerializationSchema.builder().set_value_serialization_schema(Makes(ValueError("as ordered")))
    with pytest.raises(ValueError, match="as ordered"):
        sent(kafka, schema, ["v"])
