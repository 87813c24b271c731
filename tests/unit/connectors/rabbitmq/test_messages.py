"""A record that cannot become a message is an error that names the record. It never reaches the connection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import SerializationSchema, SimpleStringSchema
from penstock.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSink

CONFIG = RMQConnectionConfig.Builder().build()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"correlation_id": 5}, "property correlation_id=5 of"),
        ({"expiration": 60000}, "property expiration=60000 of"),
        ({"priority": 300}, "property priority=300 of"),
        ({"priority": 3, "message_id": "i" * 256}, "property message_id='iii"),
        ({"headers": {"celsius": 3.5}}, r"property headers=\{'celsius': 3.5\} of"),
        ({"headers": {"n": np.int64(3)}}, "property headers="),
        ({"no_such": "x"}, "property no_such='x' of"),
    ],
)
def test_a_property_that_cannot_be_encoded_is_named_with_its_record(given: dict[str, Any], named: str) -> None:
    sink = RMQSink(
        CONFIG, "q", SimpleStringSchema(), properties=lambda record: given if record == "bad" else {"priority": 1}
    )
    with pytest.raises(RecordFormatError, match=rf"{named}.*'bad'"):
        sink.messages(["good", "bad"])


@pytest.mark.parametrize("frame", [0, 4096])
def test_properties_larger_than_a_frame_are_refused(frame: int) -> None:
    config = RMQConnectionConfig.Builder().set_requested_frame_max(frame).build()
    sink = RMQSink(config, "q", SimpleStringSchema(), properties=lambda record: {"headers": {"text": record}})
    length = frame or 131_072
    assert len(sink.messages(["x" * (length - 100)])) == 1
    with pytest.raises(RecordFormatError, match=r"'xxx.* take .* bytes"):
        sink.messages(["x" * (length - 20)])


@pytest.mark.parametrize("text", ["k" * 256, "ä" * 128, "\ud800", 5, None])
def test_a_routing_key_or_exchange_that_is_not_a_short_text_is_an_error(text: Any) -> None:
    def function(record: str) -> Any:
        return text if record == "bad" else "ä" * 127

    for sink in (
        RMQSink(CONFIG, "", SimpleStringSchema(), exchange="x", routing_key=function),
        RMQSink(CONFIG, "", SimpleStringSchema(), exchange=function),
    ):
        assert len(sink.messages(["good"])) == 1
        with pytest.raises(RecordFormatError, match=r"(exchange|routing key) is .* for 'bad'"):
            sink.messages(["good", "bad"])


def test_a_name_that_is_too_long_is_an_invalid_job() -> None:
    for queue, exchange, key in (("q" * 256, None, ""), ("", "x" * 256, ""), ("", "x", "k" * 256)):
        with pytest.raises(InvalidJob, match="is too long for a name or a routing key"):
            RMQSink(CONFIG, queue, SimpleStringSchema(), exchange=exchange, routing_key=key)


@pytest.mark.parametrize("body", [None, "text", 5])
def test_a_serializer_must_return_bytes(body: Any) -> None:
    class Odd(SerializationSchema):
        def serialize(self, value: Any) -> Any:
            return body if value == "bad" else b""

    with pytest.raises(RecordFormatError, match=f"the serializer returned {body!r} for 'bad'"):
        RMQSink(CONFIG, "q", Odd()).messages(["good", "bad"])
    assert [message.body for message in RMQSink(CONFIG, "q", Odd()).messages(["good"])] == [b""]


def test_messages_are_persistent_by_default() -> None:
    assert RMQSink(CONFIG, "q", SimpleStringSchema()).messages(["a"])[0].properties.delivery_mode == 2
    sink = RMQSink(CONFIG, "q", SimpleStringSchema(), properties=lambda _: {"delivery_mode": 1, "message_id": "i"})
    properties = sink.messages(["a"])[0].properties
    assert (properties.delivery_mode, properties.message_id) == (1, "i")
