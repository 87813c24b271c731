"""Properties of Kafka's clients: refused properties, secrets from files, and errors for missing packages."""

from __future__ import annotations

import base64
import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, SinkError, SourceError
from penstock.common.serialization import DeserializationSchema
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.kafka.client import aiokafka, checked, explained, librdkafka, resolved
from penstock.connectors.kafka.source.deserializer import KafkaDecoder
from penstock.connectors.kafka.source.kafka_source import KafkaSource


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    builder = KafkaSource.builder().set_bootstrap_servers("any:1").set_topics("t")
    with pytest.raises(InvalidJob, match=r"(?s)needs confluent_kafka.*penstock-streaming\[kafka\]"):
        builder.set_value_only_deserializer(JsonLinesFormat()).build()


def test_properties_of_the_java_client_are_refused_with_a_replacement() -> None:
    with pytest.raises(InvalidJob, match=r"(?s)'ssl.truststore.location'.*ssl.ca.location"):
        checked({"ssl.truststore.location": "/x.jks"})
    assert checked({"enable.idempotence": True, "linger.ms": 5}) == {"enable.idempotence": "true", "linger.ms": "5"}


def test_secrets_are_read_from_files_each_time_and_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "password"
    properties = {"bootstrap.servers": "a:1,b:2", "sasl.password.file": str(path)}
    with pytest.raises(InvalidJob, match=r"sasl.password.file='.*password' cannot be read"):
        resolved(properties)
    for secret in ("one", "two"):
        path.write_text(secret + "\n")
        assert resolved(properties)["sasl.password"] == secret


def test_both_clients_get_the_same_credentials(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    properties = {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password.file": str(tmp_path / "password"),
    }
    data, transactions = librdkafka(properties), aiokafka(properties)
    assert data["sasl.password"] == transactions["sasl_plain_password"] == "s3cret"
    assert transactions["bootstrap_servers"] == ["a:1", "b:2"]
    assert transactions["sasl_mechanism"] == "SCRAM-SHA-512"


def test_a_token_expires_at_its_own_time(tmp_path: Path) -> None:
    ends = int(time.time()) + 77
    claims = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).decode().rstrip("=")
    (tmp_path / "token").write_text(f"head.{claims}.signature")
    given = librdkafka({"sasl.oauthbearer.token.file": str(tmp_path / "token")})
    assert given["oauth_cb"]("") == (f"head.{claims}.signature", ends)


def test_an_error_names_the_servers_the_reason_behind_it_and_what_to_do() -> None:
    error = explained(SinkError, "it cannot be", TimeoutError("timed out"), {"bootstrap.servers": "k:9"}, "refused")
    assert error.message == "it cannot be at k:9: timed out; refused"
    assert "security.protocol (PLAINTEXT)" in error.remedy


class Message:
    """A fake of confluent_kafka's message, with the parts that a decoder uses."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self._offset


def test_good_messages_next_to_bad_ones_keep_their_timestamps() -> None:
    decoder = KafkaDecoder(JsonLinesFormat({"n": int}), rejects=True, timestamps=True)
    values = [b'{"n": 0}', b"bad", b'{"n":\n2}', None, b'{"n": 4}\n{"n": 5}', b'{"n": 6}']
    batch, rejected = decoder.decode([Message(offset, value) for offset, value in enumerate(values)])
    assert batch is not None
    rows = batch.rows()
    assert [row["n"] for row in rows.values] == [0, 2, 6]
    assert rows.timestamps == [1_000, 1_002, 1_005]
    assert [(r.topic, r.partition, r.offset) for r in rejected] == [("t", 3, 1), ("t", 3, 3), ("t", 3, 4)]


def test_a_message_with_two_values_does_not_replace_an_empty_one() -> None:
    decoder = KafkaDecoder(JsonLinesFormat({"n": int}), rejects=True, timestamps=False)
    batch, rejected = decoder.decode([Message(0, b'{"n": 4}\n{"n": 5}'), Message(1, b"")])
    assert batch is None
    assert [message.offset for message in rejected] == [0, 1]


class Away(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        raise SourceError("the registry is away", remedy="wait")


def test_a_message_is_not_rejected_if_the_registry_is_lost() -> None:
    with pytest.raises(SourceError, match="away"):
        KafkaDecoder(Away(), rejects=True, timestamps=False).decode([Message(0, b"good")])
