"""Avro: records of every type in messages and files, other schema versions, and damaged data."""

from __future__ import annotations

import io
import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.types import Row
from penstock.connectors.core.source import ReadBounds
from penstock.datastream.formats.avro import (
    AvroBulkWriters,
    AvroDeserializationSchema,
    AvroFormat,
    AvroInputFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
    AvroSerializationSchema,
    ConfluentRegistryAvroDeserializationSchema,
    GenericRecordAvroTypeInfo,
)
from penstock.records.batch import RowBatch
from tests.unit.connectors.formats.avro.avro_schemas import POINT, READING, by_fastavro, record
from tests.unit.connectors.formats.avro.fake_registry import Registry

RICH = record(
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("tags", {"type": "array", "items": "string"}),
    ("where", ["null", POINT]),
    ("path", {"type": "array", "items": "Point"}),
    ("by", {"type": "map", "values": "Point"}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("raw", "bytes"),
)
RICH_VALUE = {
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
    "price": Decimal("12.34"),
    "tags": ["a", "ü"],
    "where": {"x": 1, "y": -1},
    "path": [{"x": 0, "y": 0}],
    "by": {"k": {"x": 2, "y": 3}},
    "kind": "B",
    "raw": b"\x00\xff",
}


class Tuple(NamedTuple):
    celsius: float | None
    id: str


@dataclass
class Data:
    id: str
    celsius: float | None


# --- messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [(READING, {"id": "a", "celsius": None}), (RICH, RICH_VALUE)])
def test_records_of_every_type_are_read_and_written_like_fastavro(text: str, value: Any) -> None:
    schema = AvroSchema.parse_string(text)
    message = by_fastavro(text, value)
    reads = pickle.loads(pickle.dumps(AvroDeserializationSchema.for_generic(schema)))
    writes = pickle.loads(pickle.dumps(AvroSerializationSchema.for_generic(schema)))
    assert reads.deserialize(message) == value
    assert reads.deserialize_batch([message] * 3) == [value] * 3
    assert writes.serialize(value) == message
    assert writes.serialize_batch([value] * 2) == [message] * 2


def test_records_become_rows_at_any_depth_and_back() -> None:
    reads = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=RICH)))
    row = reads.deserialize(by_fastavro(RICH, RICH_VALUE))
    assert row.where == Row(x=1, y=-1)
    assert row.path == [Row(x=0, y=0)]
    assert row.by == {"k": Row(x=2, y=3)}
    assert reads.get_produced_type().get_field_names() == list(RICH_VALUE)
    writes = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=RICH)))
    assert writes.serialize(row) == by_fastavro(RICH, RICH_VALUE)


def test_objects_are_written_by_field_name_and_defaults_fill_missing_fields() -> None:
    writes = AvroSerializationSchema.for_generic(AvroSchema(READING))
    expected = by_fastavro(READING, {"id": "a", "celsius": 1.5})
    for value in (Tuple(1.5, "a"), Data("a", 1.5), Row(id="a", celsius=1.5), {"celsius": 1.5, "id": "a"}):
        assert writes.serialize(value) == expected
    fields = [{"name": "n", "type": "int"}, {"name": "m", "type": "int", "default": 7}]
    short = AvroSerializationSchema(AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields})))
    assert short.serialize(Row(n=1)) == short.serialize({"n": 1}) == b"\x02\x0e"


@pytest.mark.parametrize("damage", [b"", b"\x02", b"\x02a\x02", b"\xff\xff\xff\xff\xff\x7fab"])
def test_damaged_messages_are_malformed(damage: bytes) -> None:
    reads = AvroDeserializationSchema.for_generic(AvroSchema(READING))
    good = by_fastavro(READING, {"id": "a", "celsius": None})
    for message in (damage, good + b"\x00"):
        with pytest.raises(RecordFormatError, match="malformed Avro message"):
            reads.deserialize(message)
        with pytest.raises(RecordFormatError, match="malformed Avro message"):
            reads.deserialize_batch([good, message])


@pytest.mark.parametrize(
    "value", [{"id": 1, "celsius": None}, {"celsius": None}, {"id": "a", "celsius": 1.0, "x": 1}, 5]
)
def test_records_that_do_not_fit_are_named(value: Any) -> None:
    with pytest.raises(RecordFormatError, match="does not fit the Avro schema"):
        AvroSerializationSchema.for_generic(AvroSchema(READING)).serialize(value)


CHANGED: list[tuple[Any, Any]] = [
    ("long", 1.5),
    ("long", np.float32(2.7)),
    ("long", Decimal("1.5")),
    ("int", 2**31),
    ("int", np.int64(-(2**31) - 1)),
    ("boolean", "no"),
    ("boolean", 2),
    ("float", 1e300),
    ("float", "1"),
    ("double", "1"),
    ("null", 5),
    ({"type": "array", "items": "long"}, [1, 1.5]),
    ({"type": "map", "values": "int"}, {"a": 2**40}),
    ({"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}, {"n": 1.0}),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1.5),
]


@pytest.mark.parametrize(("kind", "value"), CHANGED)
def test_a_value_that_fastavro_would_change_is_refused(kind: Any, value: Any) -> None:
    schema = AvroSchema(record(("id", kind)))
    for write in (AvroSerializationSchema(schema).serialize, lambda one: written(schema, [one])):
        with pytest.raises(
            RecordFormatError,
            match=r"is not a valid (long|int|boolean|float|double|null) .*on field id|more than the 32 bits of an int",
        ):
            write({"id": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", np.int64(5)),
        ("int", -(2**31)),
        ("int", np.int8(3)),
        ("boolean", np.bool_(True)),
        ("float", np.float32(0.5)),
        ("float", float("inf")),
        ("float", 3),
        ("double", np.float64(0.1)),
        ("double", 7),
    ],
)
def test_numpy_values_are_written_unchanged(kind: str, value: Any) -> None:
    schema = AvroSchema(record(("id", kind)))
    data = AvroSerializationSchema(schema).serialize({"id": value})
    assert AvroDeserializationSchema(schema).deserialize(data) == {"id": value}
    assert [values for _, values in read(written(schema, [{"id": value}]), AvroFormat())] == [[{"id": value}]]


def test_a_missing_field_is_an_error_in_files_and_messages() -> None:
    schema = AvroSchema(record(("id", "long"), ("x", ["null", "double"])))
    for write in (AvroSerializationSchema(schema).serialize, lambda one: written(schema, [one])):
        with pytest.raises(RecordFormatError, match="does not fit the Avro schema"):
            write({"id": 1})


def test_an_invalid_schema_is_refused(tmp_path: Path) -> None:
    for text in ("{", '{"type": "record"}', '"unknown"'):
        with pytest.raises(InvalidJob, match="not an Avro schema"):
            AvroSchema.parse_string(text)
    (tmp_path / "r.avsc").write_text(READING)
    assert AvroSchema.parse_file(str(tmp_path / "r.avsc")) == AvroSchema(READING)
    with pytest.raises(InvalidJob, match=r"none.avsc.*cannot be read"):
        AvroSchema.parse_file(str(tmp_path / "none.avsc"))
    with pytest.raises(InvalidJob, match="not a record"):
        AvroRowDeserializationSchema(avro_schema_string='"string"')
    for call in (lambda: AvroInputFormat("x", None), lambda: GenericRecordAvroTypeInfo(None)):
        with pytest.raises(InvalidJob, match="is not supported"):
            call()


def evolved(kind: Any, default: Any) -> tuple[AvroSchema, AvroSchema]:
    """Return a writer's schema, and a reader's schema with one more field."""
    fields = [{"name": "id", "type": "string"}]
    more = {"name": "x", "type": kind, "default": default}
    made = (json.dumps({"type": "record", "name": "R", "fields": some}) for some in (fields, [*fields, more]))
    older, newer = map(AvroSchema, made)
    return older, newer


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "n", "type": "int", "default": 3}, {"name": "raw", "type": "bytes", "default": "\u00ff"}],
}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ({"type": "array", "items": "long"}, [], []),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u0001", b"\x01"),
        ("double", 1, 1.0),
        (["double", "null"], 1, 1.0),
        (["null", "bytes"], None, None),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0005", Decimal("0.05")),
        (INNER, {"n": 4}, {"n": 4, "raw": b"\xff"}),
        ({"type": "array", "items": INNER}, [{}], [{"n": 3, "raw": b"\xff"}]),
    ],
)
def test_a_default_has_its_fields_type_and_is_not_shared_between_records(
    registry: Registry, kind: Any, default: Any, expected: Any
) -> None:
    older, newer = evolved(kind, default)
    id = registry.add("r-value", older.text)
    message = b"\0" + id.to_bytes(4, "big") + by_fastavro(older.text, {"id": "a"})
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(newer, registry.url)
    of_messages = reads.deserialize_batch([message] * 2)
    ((_, of_files),) = read(written(older, [{"id": "a"}] * 2), AvroFormat(newer))
    for one, other in (of_messages, of_files):
        assert one == {"id": "a", "x": expected}
        assert type(one["x"]) is type(expected)
        assert one["x"] is not other["x"] or not isinstance(expected, list | dict)


def test_a_default_in_a_record_type_used_by_name_is_not_shared() -> None:
    def holder(*fields: Any) -> AvroSchema:
        inner = {"type": "record", "name": "I", "fields": list(fields)}
        return AvroSchema(record(("a", inner), ("b", ["null", "I"]), ("c", {"type": "array", "items": "I"})))

    more = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    n = {"name": "n", "type": "int"}
    data = written(holder(n), [{"a": {"n": 1}, "b": {"n": 2}, "c": [{"n": 3}]}])
    ((_, (value,)),) = read(data, AvroFormat(holder(n, more)))
    value["a"]["tags"].append("changed")
    assert value["b"] == {"n": 2, "tags": []}
    assert value["c"] == [{"n": 3, "tags": []}]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (["null", "boolean"], np.bool_(True), True),
        (["null", {"type": "array", "items": "double"}], np.array([1.0, 2.0]), [1.0, 2.0]),
        (["null", {"type": "array", "items": "long"}], (1, 2), [1, 2]),
        ({"type": "array", "items": "string"}, ("a", "b"), ["a", "b"]),
        (["null", "long"], np.int32(5), 5),
        (["null", "double"], np.float32(1.5), 1.5),
        ("string", "x" * 1_000_000, "x" * 1_000_000),
    ],
)
def test_numpy_values_and_sequences_of_any_kind_are_written(kind: Any, value: Any, expected: Any) -> None:
    schema = AvroSchema(record(("x", kind)))
    for given in ({"x": value}, Row(x=value)):
        message = AvroSerializationSchema(schema).serialize(given)
        assert AvroDeserializationSchema(schema).deserialize(message) == {"x": expected}


@pytest.mark.parametrize("value", [{"x": "abc"}, {"x": {"a": "b"}}, {"x": [], "y": 1}])
def test_a_text_as_an_array_and_an_unknown_field_are_refused(value: Any) -> None:
    schema = AvroSchema(record(("x", {"type": "array", "items": "string"})))
    with pytest.raises(RecordFormatError, match="does not fit the Avro schema"):
        AvroSerializationSchema(schema).serialize(value)


def test_an_int_of_more_than_32_bits_is_refused_at_any_depth() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "n", "type": "int"}]}
    schema = AvroSchema(record(("n", "int"), ("many", {"type": "array", "items": "int"}), ("in", inner)))
    most = {"n": 2**31 - 1, "many": [-(2**31)], "in": {"n": np.int32(5)}}
    assert AvroDeserializationSchema(schema).deserialize(AvroSerializationSchema(schema).serialize(most)) == most
    flat = AvroSerializationSchema(AvroSchema(record(("n", "int"))))
    for writes, value in (
        (AvroSerializationSchema(schema), {**most, "n": 2**31}),
        (AvroSerializationSchema(schema), {**most, "many": [0, -(2**31) - 1]}),
        (AvroSerializationSchema(schema), {**most, "in": {"n": 2**40}}),
        (flat, {"n": np.int64(2**31)}),
        (flat, Row(n=2**31)),
    ):
        with pytest.raises(RecordFormatError, match="more than the 32 bits of an int"):
            writes.serialize(value)


COLUMNS = record(
    ("id", "string"),
    ("n", ["null", "long"]),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("time", {"type": "long", "logicalType": "time-micros"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("f", "float"),
    ("raw", "bytes"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
)
COLUMNS_VALUE = {
    "id": "a",
    "n": None,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "local": datetime(2026, 1, 2, 3, 4, 5, 678000),
    "day": date(2026, 1, 2),
    "time": time(1, 2, 3, 4),
    "price": Decimal("12.34"),
    "f": 1.5,
    "raw": b"\xff",
    "kind": "B",
}


@pytest.mark.parametrize(
    ("text", "value", "rows"),
    [(COLUMNS, COLUMNS_VALUE, False), (COLUMNS, COLUMNS_VALUE, True), (RICH, RICH_VALUE, False)],
)
def test_a_batch_of_messages_has_columns_that_restore_the_same_records(text: str, value: Any, rows: bool) -> None:
    schema = AvroSchema(text)
    reads: Any = AvroRowDeserializationSchema(avro_schema_string=text) if rows else AvroDeserializationSchema(schema)
    batch = reads.batch_decoder()([by_fastavro(text, value)] * 3)
    expected = reads.deserialize(by_fastavro(text, value))
    assert batch.rows().values == [expected] * 3
    assert batch.column("raw").to_pylist() == [value["raw"]] * 3
    (again, *_) = pickle.loads(pickle.dumps(batch.make_rows))(batch.columns)
    assert again == expected
    assert again["at"].tzinfo is UTC


def test_nested_rows_are_not_converted_to_columns() -> None:
    reads = AvroRowDeserializationSchema(avro_schema_string=RICH)
    batch = reads.batch_decoder()([by_fastavro(RICH, RICH_VALUE)])
    assert isinstance(batch, RowBatch)
    assert batch.values[0].where == Row(x=1, y=-1)


@pytest.mark.parametrize("kind", [["int", "string"], {"type": "string", "logicalType": "uuid"}])
def test_records_with_a_field_without_a_column_are_not_converted_to_columns(kind: Any) -> None:
    schema = AvroSchema(record(("x", kind)))
    value = {"x": uuid.UUID(int=1) if isinstance(kind, dict) else "a"}
    batch = AvroDeserializationSchema(schema).batch_decoder()([AvroSerializationSchema(schema).serialize(value)])
    assert isinstance(batch, RowBatch)
    assert batch.values == [value]


# --- files ----------------------------------------------------------------------------------------------------


class Memory(io.BytesIO):
    def close(self) -> None:
        """Keep the buffer open, because the test reads it."""


def written(schema: AvroSchema, values: list[Any]) -> bytes:
    file = Memory()
    writer = AvroBulkWriters.for_generic_record(schema).create(file)
    for begin in range(0, len(values), 100):
        writer.add(values[begin : begin + 100])
    writer.finish()
    return file.getvalue()


def read(data: bytes, format: AvroFormat, position: Any = None, most: int = 70) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the positions, each with the records up to it."""
    reader = format.open("f.avro", Memory(data), 0, len(data), position)
    while not reader.finished:
        batch = reader.read(ReadBounds(max_records=most))
        if batch is not None:
            yield reader.position, list(batch.rows().values)


def test_fastavro_reads_the_files_and_reading_continues_from_every_position() -> None:
    schema = AvroSchema(READING)
    values = [{"id": f"station-{n}" * 20, "celsius": n / 2} for n in range(2_000)]
    data = written(schema, values)
    assert list(fastavro.reader(io.BytesIO(data))) == values
    parts = list(read(data, AvroFormat()))
    assert [value for _, part in parts for value in part] == values
    assert len({position[0] for position, _ in parts}) > 3, "there are several blocks"
    seen = 0
    for position, part in parts:
        seen += len(part)
        rest = [value for _, more in read(data, AvroFormat(), json.loads(json.dumps(position)), 999) for value in more]
        assert rest == values[seen:]


def test_rows_are_read_by_name_if_the_files_schema_has_another_field_order() -> None:
    data = written(AvroSchema(record(("celsius", "double"), ("id", "string"))), [{"id": "a", "celsius": 1.0}])
    schema = AvroSchema(record(("id", "string"), ("celsius", "double")))
    assert [part for _, part in read(data, AvroFormat(schema, record="row"))] == [[Row(id="a", celsius=1.0)]]


def test_files_with_an_older_schema_are_read_as_rows_of_the_newer_one() -> None:
    newer = [{"name": "id", "type": "string"}, {"name": "unit", "type": "string", "default": "C"}]
    data = written(AvroSchema(READING), [{"id": "a", "celsius": 1.0}])
    schema = AvroSchema(json.dumps({"type": "record", "name": "Reading", "fields": newer}))
    assert [part for _, part in read(data, AvroFormat(schema, record="row"))] == [[Row(id="a", unit="C")]]


def test_damaged_files_are_named() -> None:
    data = written(AvroSchema(READING), [{"id": "a" * 100, "celsius": 1.0}] * 5_000)
    for bad in (b"", b"PAR1", data[: len(data) // 2], data[:200] + b"\xff" * 50 + data[250:]):
        with pytest.raises(RecordFormatError, match=r"cannot read the Avro file 'f.avro'"):
            list(read(bad, AvroFormat()))


# --- records that cannot be converted ---------------------------------------------------------------------------


def test_records_nested_too_deep_are_malformed_and_do_not_crash_the_process() -> None:
    chain = record(("next", ["null", "Chain"]), name="Chain")
    for reads in (AvroDeserializationSchema(AvroSchema(chain)), AvroRowDeserializationSchema(avro_schema_string=chain)):
        assert reads.deserialize(b"\x02\x02\x00") is not None
        assert reads.deserialize(b"\x02" * 90 + b"\x00") is not None
        with pytest.raises(RecordFormatError, match="RecursionError"):
            reads.deserialize(b"\x02" * 500_000 + b"\x00")


def test_records_nested_too_deep_make_a_file_unreadable_and_do_not_crash_the_process() -> None:
    chain = AvroSchema(record(("next", ["null", "Chain"]), name="Chain"))
    values = [{"next": None}, {"next": {"next": None}}]
    data = written(chain, values)
    (first, one), (_, other) = read(data, AvroFormat(), most=1)
    assert one + other == values
    assert [more for _, more in read(data, AvroFormat(), first)] == [values[1:]]
    plain = io.BytesIO()
    fastavro.writer(plain, chain.parsed, [], codec="null")
    deep = b"\x02" * 127_999 + b"\x00"
    block = b"\x02" + b"\x80\xd0\x0f" + deep + plain.getvalue()[-16:]
    with pytest.raises(RecordFormatError, match="RecursionError"):
        list(read(plain.getvalue() + block, AvroFormat()))


_INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "string"}]}
_OTHER = {**_INNER, "name": "Other", "fields": [*_INNER["fields"], {"name": "y", "type": "string"}]}
UNKNOWN_NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": (READING, {"id": "a", "celsius": 1.0, "amount": 2}),
    "flat with a missing optional field": (READING, {"id": "a", "amount": 2}),
    "flat with an int": (record(("id", "int")), {"id": 1, "amount": 2}),
    "flat with None": (READING, {"id": "a", "celsius": None, "amount": None}),
    "fastavro's hint": (record(("id", "int")), {"id": 1, "-type": "Reading"}),
    "optional record": (record(("p", ["null", _INNER])), {"p": {"x": "a", "amount": 2}}),
    "union of records": (record(("p", [_INNER, _OTHER])), {"p": {"x": "a", "amount": 2}}),
    "array": (record(("p", {"type": "array", "items": _INNER})), {"p": [{"x": "a", "amount": 2}]}),
    "map": (record(("p", {"type": "map", "values": _INNER})), {"p": {"k": {"x": "a", "amount": 2}}}),
}


@pytest.mark.parametrize("place", UNKNOWN_NAMES)
@pytest.mark.parametrize("way", ["message", "file"])
def test_an_error_names_a_field_that_the_schema_does_not_have(way: str, place: str) -> None:
    text, value = UNKNOWN_NAMES[place]
    schema = AvroSchema(text)
    sink: Any = io.BytesIO()
    if way == "message":
        write: Callable[[], Any] = partial(AvroSerializationSchema(schema).serialize, value)
    else:
        write = partial(AvroBulkWriters.for_generic_record(schema).create(sink).add, [value])
    with pytest.raises(RecordFormatError, match=r"does not fit the Avro schema: [^{]*(amount|-type)") as refusal:
        write()
    assert refusal.value.remedy == "write records with the schema's fields and types"
