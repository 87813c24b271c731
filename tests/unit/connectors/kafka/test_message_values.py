"""A message is one record. Line ends in its value do not end the record."""

from __future__ import annotations

import pytest

from penstock.common.errors import RecordFormatError
from penstock.connectors.formats.csv import CsvFormat
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.connectors.formats.record_format import StreamFormat
from penstock.connectors.kafka.source.deserializer import KafkaDecoder
from tests.unit.connectors.kafka.test_kafka_properties import Message


def decoded(format: StreamFormat, *values: bytes | None) -> list[object]:
    decoder = KafkaDecoder(format, rejects=False, timestamps=False)
    batch, rejected = decoder.decode([Message(offset, value) for offset, value in enumerate(values)])
    assert not rejected
    assert batch is not None
    return list(batch.rows().values)


def test_text_is_read_unchanged() -> None:
    values = ["a\nb", "c\r", "", "ü", "\n", "d\r\n"]
    for each in (values, *([value] for value in values)):
        assert decoded(StreamFormat.text_line_format(), *(value.encode() for value in each)) == each


def test_an_error_about_undecodable_text_names_its_message() -> None:
    for bad, reason in ((b"\xff", "not utf-8"), (None, "tombstone")):
        with pytest.raises(RecordFormatError, match=rf"t-3 at offset 1: .*{reason}"):
            decoded(StreamFormat.text_line_format(), b"good", bad)


def test_quoted_line_ends_of_csv_are_kept() -> None:
    rows = decoded(CsvFormat({"id": int, "text": str}), b'1,"a\nb"', b"2,c")
    assert rows == [{"id": 1, "text": "a\nb"}, {"id": 2, "text": "c"}]


def test_json_over_several_lines_is_one_record() -> None:
    assert decoded(JsonLinesFormat({"id": int}), b'{\n "id":\n 1}', b'{"id": 2}\n') == [{"id": 1}, {"id": 2}]
