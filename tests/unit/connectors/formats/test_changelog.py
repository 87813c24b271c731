"""Changes of tables in messages and lines. The messages are shortened examples from the documentation of the tools."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.kafka.source.deserializer import KafkaDecoder
from penstock.datastream.connectors.file_system import FileSource
from penstock.datastream.formats.changelog import CanalJsonFormat, DebeziumJsonFormat, MaxwellJsonFormat
from tests.unit.connectors.support import read_with_restarts, splits_of

FIELDS = {"id": int, "name": str, "weight": float | None}
SOURCE = {"db": "shop", "schema": "public", "table": "products", "ts_ms": 1_700_000_000_000, "lsn": 24023128}


def debezium(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": SOURCE, "ts_ms": 1_700_000_000_123}


def row(id: int, name: str = "scooter", weight: float | None = 3.5) -> dict[str, Any]:
    return {"id": id, "name": name, "weight": weight}


def changes(format: Any, *messages: Any) -> list[str]:
    rows = format.decoder(b"")(b"\n".join(json.dumps(message).encode() for message in messages)).rows().values
    return [f"{row.get_row_kind()} {tuple(row)}" for row in rows]


def test_debezium_events_become_changes() -> None:
    events = [
        debezium("r", None, row(1)),
        {"schema": {"type": "struct"}, "payload": debezium("c", None, row(2) | {"unknown": 1})},
        debezium("u", row(1), row(1, "car")),
        debezium("d", row(2)),
        debezium("m"),
    ]
    assert changes(DebeziumJsonFormat(FIELDS), *events) == [
        "+I (1, 'scooter', 3.5)",
        "+I (2, 'scooter', 3.5)",
        "-U (1, 'scooter', 3.5)",
        "+U (1, 'car', 3.5)",
        "-D (2, 'scooter', 3.5)",
    ]


def test_an_upsert_needs_only_the_key_of_the_row_before() -> None:
    events = [debezium("u", None, row(1, "car")), debezium("d", {"id": 1})]
    upsert = DebeziumJsonFormat(FIELDS, mode="upsert")
    assert changes(upsert, *events) == ["+U (1, 'car', 3.5)", "-D (1, None, None)"]
    with pytest.raises(MalformedBlock, match="replica identity full, or use mode='upsert'"):
        changes(DebeziumJsonFormat(FIELDS), events[0])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (debezium("c", None, row(1) | {"id": "1"}), "Expected `int`, got `str`"),
        (debezium("c", None, {"id": 1}), "missing required field `name`"),
        (debezium("c", None, None), "the new row is None"),
        (debezium("t"), "op is 't'"),
        (debezium("u", row(1), row(1, "__debezium_unavailable_value")), "the database's log omits name"),
        ([1], "Expected `object`"),
    ],
)
def test_an_error_names_the_reason_why_a_message_is_not_a_change(event: Any, reason: str) -> None:
    with pytest.raises(MalformedBlock, match=reason):
        changes(DebeziumJsonFormat(FIELDS), event)


def test_canal_messages_have_several_rows_of_strings() -> None:
    message = {"database": "shop", "table": "products", "isDdl": False, "ts": 1}
    strings = {"id": "1", "name": "car", "weight": "3.5"}
    messages = [
        message | {"type": "INSERT", "data": [strings, strings | {"id": "2", "weight": None}], "old": None},
        message | {"type": "UPDATE", "data": [strings | {"name": "bus"}], "old": [{"name": "car"}]},
        message | {"type": "DELETE", "data": [strings], "old": None},
        message | {"type": "ALTER", "isDdl": True, "data": None, "sql": "alter table products …"},
    ]
    assert changes(CanalJsonFormat(FIELDS), *messages) == [
        "+I (1, 'car', 3.5)",
        "+I (2, 'car', None)",
        "-U (1, 'car', 3.5)",
        "+U (1, 'bus', 3.5)",
        "-D (1, 'car', 3.5)",
    ]
    for is_ddl in (False, True):
        with pytest.raises(MalformedBlock, match="type is 'TRUNCATE'"):
            changes(CanalJsonFormat(FIELDS), message | {"type": "TRUNCATE", "isDdl": is_ddl})


class Price(TypedDict):
    net: Decimal
    tax: float


def test_decimals_that_are_json_numbers_keep_their_digits() -> None:
    fields = {"cents": Decimal | None, "parts": list[Decimal], "price": Price, "weight": float, "more": dict}
    image = (
        b'{"cents": 12345678901234567.89, "parts": [0.10, 12345678901234567890123456789], '
        b'"price": {"net": 9999999999999999.99, "tax": 0.5}, "weight": 3.5, "more": {"a": [1.5]}}'
    )
    numbers = Decimal("12345678901234567.89"), [Decimal("0.10"), Decimal("12345678901234567890123456789")]
    price = {"net": Decimal("9999999999999999.99"), "tax": 0.5}
    for format, message in (
        (MaxwellJsonFormat, b'{"type": "insert", "source": {"ts": 1.25}, "data": %s}'),
        (DebeziumJsonFormat, b'{"op": "c", "source": {"ts": 1.25}, "after": %s}'),
        (CanalJsonFormat, b'{"type": "INSERT", "source": {"ts": 1.25}, "data": [%s]}'),
    ):
        [found] = format(fields, metadata={"at": "source.ts"}).decoder(b"")(message % image).rows().values
        assert tuple(found) == (*numbers, price, 3.5, {"a": [1.5]}, 1.25)
        floats = [found["weight"], found["price"]["tax"], found["more"]["a"][0], found["at"]]
        assert [type(one) for one in floats] == [float] * 4


def test_maxwell_messages_contain_the_old_values() -> None:
    message = {"database": "shop", "table": "products", "ts": 1596684883, "xid": 7125, "commit": True}
    messages = [
        message | {"type": "bootstrap-start", "data": {}},
        message | {"type": "bootstrap-insert", "data": row(1)},
        message | {"type": "insert", "data": row(2)},
        message | {"type": "update", "data": row(1, "car"), "old": {"name": "scooter"}},
        message | {"type": "delete", "data": row(2)},
        message | {"type": "table-alter", "sql": "…"},
    ]
    assert [change[:5] for change in changes(MaxwellJsonFormat(FIELDS), *messages)] == [
        "+I (1",
        "+I (2",
        "-U (1",
        "+U (1",
        "-D (2",
    ]
    with pytest.raises(MalformedBlock, match="does not have the old values"):
        changes(MaxwellJsonFormat(FIELDS), message | {"type": "update", "data": row(1)})


def test_changes_of_other_tables_are_skipped_and_metadata_is_added() -> None:
    other = debezium("c", None, {"code": 1}) | {"source": SOURCE | {"table": "others"}}
    events = [other, debezium("c", None, row(1))]
    for name in ("products", "public.products", "shop.products"):
        assert changes(DebeziumJsonFormat(FIELDS, tables=[name]), *events) == ["+I (1, 'scooter', 3.5)"]
    paths = {"at": "source.ts_ms", "none": "source.txId"}
    format = DebeziumJsonFormat(FIELDS, tables=["products"], metadata=paths)
    [found] = format.decoder(b"")(json.dumps(events[1]).encode()).rows().values
    assert found == Row(id=1, name="scooter", weight=3.5, at=1_700_000_000_000, none=None)
    assert format.produced_type().get_field_names() == ["id", "name", "weight", "at", "none"]
    with pytest.raises(InvalidJob, match="metadata id"):
        DebeziumJsonFormat(FIELDS, metadata={"id": "op"})


def test_times_numbers_and_bytes_become_the_declared_types() -> None:
    fields = {"day": datetime.date, "at": datetime.datetime, "cents": Decimal, "raw": bytes, "tags": list[str]}
    after = {"day": 15887, "at": 1_372_680_000_000, "cents": "12.50", "raw": "aGk=", "tags": ["a"]}
    texts = after | {"day": "2013-07-01", "at": "2013-07-01T14:00:00+02:00", "cents": 12.5}
    at, day = datetime.datetime(2013, 7, 1, 12), datetime.date(2013, 7, 1)
    decode = DebeziumJsonFormat(fields, time_unit="ms").decoder(b"")
    for image in (after, texts):
        [found] = decode(json.dumps(debezium("c", None, image)).encode()).rows().values
        assert tuple(found) == (day, at, Decimal("12.5"), b"hi", ["a"])
    with pytest.raises(MalformedBlock, match="its unit is not known"):
        changes(DebeziumJsonFormat(fields), debezium("c", None, after))


class Message:
    def __init__(self, offset: int, value: Any) -> None:
        self._offset = offset
        self._value = None if value is None else json.dumps(value).encode()

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._offset * 1000

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "products"

    def partition(self) -> int:
        return 0

    key = headers = lambda self: None


def test_rows_have_the_timestamp_of_their_message() -> None:
    messages = [
        Message(1, debezium("u", row(1), row(1, "car"))),
        Message(2, None),
        Message(3, debezium("x")),
        Message(4, debezium("d", row(1))),
    ]
    decoder = KafkaDecoder(DebeziumJsonFormat(FIELDS), rejects=True, timestamps=True)
    batch, rejected = decoder.decode(messages)
    assert batch is not None
    assert batch.rows().timestamps == [1000, 1000, 4000]
    assert [(message.offset, message.reason) for message in rejected] == [(3, "op is 'x', not one of c, r, u, d, m")]
    with pytest.raises(RecordFormatError, match="products-0 at offset 3: op is 'x'"):
        KafkaDecoder(DebeziumJsonFormat(FIELDS), rejects=False, timestamps=True).decode(messages)


def test_files_of_events_are_read(tmp_path: Path) -> None:
    lines = [json.dumps(debezium("u", row(n), row(n, "car"))) for n in range(50)]
    (tmp_path / "events.json").write_text("\n".join(lines) + "\nno event\n")
    format = DebeziumJsonFormat(FIELDS, on_error="side-output")
    source = FileSource.for_record_stream_format(format, str(tmp_path)).build()
    [split] = splits_of(source)
    values, rejected = read_with_restarts(source, split, ReadBounds(max_bytes=1000))
    assert [value.id for value in values] == [n for n in range(50) for _ in range(2)]
    assert [record.line for record in rejected] == [51]
