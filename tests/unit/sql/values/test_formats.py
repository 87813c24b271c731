"""Formats of tables with input that is not a row."""

from __future__ import annotations

import pickle

import pytest

from penstock.common.errors import RecordFormatError
from penstock.connectors.kafka.source.deserializer import KafkaDecoder, KafkaRecordDeserializationSchema
from penstock.sql.plan.nodes import Column, TableInfo
from penstock.sql.plan.types import type_of
from penstock.sql.tables.formats import Format, RowMessages, format_of
from penstock.sql.tables.options import TableOptions

COLUMNS = (Column("n", type_of("INT")), Column("ts", type_of("TIMESTAMP(3)")), Column("b", type_of("BYTES")))
DAMAGED = {
    "json": [
        b"\xff\xfe",
        b"{",
        b"5",
        b"[" * 100_000,
        b'{"n": "x"}',
        b'{"ts": 5}',
        b'{"ts": []}',
        b'{"b": "%%%"}',
        b'{"b": 5}',
        b'{"n": 1e999}',
    ],
    "csv": [b"\xff,,", b"1", b"1,2,3,4", b"x,,", b"1,noon,", b"1," + b"1" * 200_000 + b",", b"1,,%%%"],
}


def of(name: str, **options: str) -> Format:
    given = {f"{name}.{key.replace('_', '-')}": value for key, value in options.items()}
    return format_of(TableOptions(TableInfo("t", COLUMNS, {"connector": "kafka", "format": name, **given})))


@pytest.mark.parametrize(("name", "message"), [(name, message) for name in DAMAGED for message in DAMAGED[name]])
def test_a_damaged_row_is_an_error_or_is_skipped(name: str, message: bytes) -> None:
    with pytest.raises(RecordFormatError):
        of(name).read(message)
    skipping = of(name, ignore_parse_errors="true")
    assert skipping.read(message) is None
    assert pickle.loads(pickle.dumps(skipping)).read(message) is None


def test_a_missing_field_is_null_or_an_error() -> None:
    assert of("json").read('{"n": 1, "ts": null}') == (1, None, None)
    strict = pickle.loads(pickle.dumps(of("json", **{"fail-on-missing-field": "true"})))
    with pytest.raises(RecordFormatError, match="the field 'b' is missing"):
        strict.read('{"n": 1, "ts": null}')


@pytest.mark.parametrize(("standard", "separator"), [("SQL", " "), ("ISO-8601", "T")])
def test_a_timestamp_is_written_in_the_chosen_form_and_read_in_both(standard: str, separator: str) -> None:
    format = pickle.loads(pickle.dumps(of("json", **{"timestamp-format.standard": standard})))
    assert format.write((1, 1_500_000, None)) == f'{{"n":1,"ts":"1970-01-01{separator}00:00:01.5","b":null}}'
    for text in ("1970-01-01 00:00:01.5", "1970-01-01T00:00:01.5"):
        assert format.read(f'{{"n":1,"ts":"{text}","b":null}}') == (1, 1_500_000, None)


class Message:
    """A message of the Kafka client."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return b"k"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def headers(self) -> None:
        return None


def test_a_message_without_a_value_is_no_row() -> None:
    """Compacted topics have such messages. Flink skips them, too."""
    schema = KafkaRecordDeserializationSchema.of(RowMessages(of("json")).row_of)
    decoder = KafkaDecoder(pickle.loads(pickle.dumps(schema)), rejects=False, timestamps=True)
    batch, rejected = decoder.decode([Message(None), Message(b'{"n": 1}'), Message(None)])
    assert batch is not None
    assert batch.rows().values == [(1, None, None)]
    assert rejected == []
