"""Avro: records of every type in messages and files, other versions of a schema, damage, and a schema registry.

The registry is a double that answers as Confluent's documents its REST API, for faults; `integration/registry` has a real one.
"""

from __future__ import annotations

import io
import json
import pickle
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError, SourceError
from penstock.common.types import Row
from penstock.connectors.formats import registry as registry_module
from penstock.connectors.formats.avro.registered import avro_schema, registered
from penstock.connectors.formats.registry import SchemaAbsent
from penstock.connectors.source import ReadBounds
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
    ConfluentRegistryAvroSerializationSchema,
    GenericRecordAvroTypeInfo,
    SchemaRegistry,
)
from penstock.records.batch import RowBatch


def record(*fields: tuple[str, Any], name: str = "Reading", **more: Any) -> str:
    said = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": said, **more})


READING = record(("id", "string"), ("celsius", ["null", "double"]))
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
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


def by_fastavro(text: str, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(text)), value)
    return data.getvalue()


class Tuple(NamedTuple):
    celsius: float | None
    id: str


@dataclass
class Data:
    id: str
    celsius: float | None


# --- messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [(READING, {"id": "a", "celsius": None}), (RICH, RICH_VALUE)])
def test_records_of_every_type_are_read_and_written_as_the_library_does(text: str, value: Any) -> None:
    schema = AvroSchema.parse_string(text)
    message = by_fastavro(text, value)
    reads = pickle.loads(pickle.dumps(AvroDeserializationSchema.for_generic(schema)))
    writes = pickle.loads(pickle.dumps(AvroSerializationSchema.for_generic(schema)))
    assert reads.deserialize(message) == value
    assert reads.deserialize_batch([message] * 3) == [value] * 3
    assert writes.serialize(value) == message
    assert writes.serialize_batch([value] * 2) == [message] * 2


def test_rows_come_of_records_at_any_depth_and_become_them_again() -> None:
    reads = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=RICH)))
    row = reads.deserialize(by_fastavro(RICH, RICH_VALUE))
    assert row.where == Row(x=1, y=-1)
    assert row.path == [Row(x=0, y=0)]
    assert row.by == {"k": Row(x=2, y=3)}
    assert reads.get_produced_type().get_field_names() == list(RICH_VALUE)
    writes = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=RICH)))
    assert writes.serialize(row) == by_fastavro(RICH, RICH_VALUE)


def test_objects_with_the_fields_are_written_in_any_order_and_defaults_fill_in() -> None:
    writes = AvroSerializationSchema.for_generic(AvroSchema(READING))
    expected = by_fastavro(READING, {"id": "a", "celsius": 1.5})
    for value in (Tuple(1.5, "a"), Data("a", 1.5), Row(id="a", celsius=1.5), {"celsius": 1.5, "id": "a"}):
        assert writes.serialize(value) == expected
    fields = [{"name": "n", "type": "int"}, {"name": "m", "type": "int", "default": 7}]
    short = AvroSerializationSchema(AvroSchema(json.dumps({"type": "record", "name": "R", "fields": fields})))
    assert short.serialize(Row(n=1)) == short.serialize({"n": 1}) == b"\x02\x0e"


@pytest.mark.parametrize("damage", [b"", b"\x02", b"\x02a\x02", b"\xff\xff\xff\xff\xff\x7fab"])
def test_damaged_messages_say_so(damage: bytes) -> None:
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
def test_a_value_that_would_become_another_is_refused(kind: Any, value: Any) -> None:
    schema = AvroSchema(record(("id", kind)))
    for write in (AvroSerializationSchema(schema).serialize, lambda one: written(schema, [one])):
        with pytest.raises(
            RecordFormatError,
            match=r"is no (long|int|boolean|float|double|null) .*on field id|more than the 32 bits of an int",
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
def test_values_of_numpy_are_written_as_what_they_are(kind: str, value: Any) -> None:
    schema = AvroSchema(record(("id", kind)))
    data = AvroSerializationSchema(schema).serialize({"id": value})
    assert AvroDeserializationSchema(schema).deserialize(data) == {"id": value}
    assert [values for _, values in read(written(schema, [{"id": value}]), AvroFormat())] == [[{"id": value}]]


def test_a_field_that_is_missing_is_told_of_in_files_as_in_messages() -> None:
    schema = AvroSchema(record(("id", "long"), ("x", ["null", "double"])))
    for write in (AvroSerializationSchema(schema).serialize, lambda one: written(schema, [one])):
        with pytest.raises(RecordFormatError, match="does not fit the Avro schema"):
            write({"id": 1})


def test_what_is_no_schema_is_refused(tmp_path: Path) -> None:
    for text in ("{", '{"type": "record"}', '"unknown"'):
        with pytest.raises(InvalidJob, match="not an Avro schema"):
            AvroSchema.parse_string(text)
    (tmp_path / "r.avsc").write_text(READING)
    assert AvroSchema.parse_file(str(tmp_path / "r.avsc")) == AvroSchema(READING)
    with pytest.raises(InvalidJob, match=r"none.avsc.*cannot be read"):
        AvroSchema.parse_file(str(tmp_path / "none.avsc"))
    with pytest.raises(InvalidJob, match="no record"):
        AvroRowDeserializationSchema(avro_schema_string='"string"')
    for call in (lambda: AvroInputFormat("x", None), lambda: GenericRecordAvroTypeInfo(None)):
        with pytest.raises(InvalidJob, match="is not supported"):
            call()


def evolved(kind: Any, default: Any) -> tuple[AvroSchema, AvroSchema]:
    """A writer's schema, and a reader's that has a field more."""
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
def test_a_default_is_a_value_of_its_fields_type_and_of_its_record_alone(
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


def test_a_default_within_a_record_that_is_met_again_by_its_name_is_its_own() -> None:
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
def test_numpys_values_and_sequences_of_any_kind_are_written(kind: Any, value: Any, expected: Any) -> None:
    schema = AvroSchema(record(("x", kind)))
    for given in ({"x": value}, Row(x=value)):
        message = AvroSerializationSchema(schema).serialize(given)
        assert AvroDeserializationSchema(schema).deserialize(message) == {"x": expected}


@pytest.mark.parametrize("value", [{"x": "abc"}, {"x": {"a": "b"}}, {"x": [], "y": 1}])
def test_a_text_is_no_array_and_fields_of_no_schema_are_not_left_out(value: Any) -> None:
    schema = AvroSchema(record(("x", {"type": "array", "items": "string"})))
    with pytest.raises(RecordFormatError, match="does not fit the Avro schema"):
        AvroSerializationSchema(schema).serialize(value)


def test_an_int_has_32_bits_at_any_depth() -> None:
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
def test_messages_of_a_batch_have_columns_and_what_is_made_of_these_is_the_same(
    text: str, value: Any, rows: bool
) -> None:
    schema = AvroSchema(text)
    reads: Any = AvroRowDeserializationSchema(avro_schema_string=text) if rows else AvroDeserializationSchema(schema)
    batch = reads.batch_decoder()([by_fastavro(text, value)] * 3)
    expected = reads.deserialize(by_fastavro(text, value))
    assert batch.rows().values == [expected] * 3
    assert batch.column("raw").to_pylist() == [value["raw"]] * 3
    (again, *_) = pickle.loads(pickle.dumps(batch.make_rows))(batch.columns)
    assert again == expected
    assert again["at"].tzinfo is UTC


def test_rows_within_rows_stay_rows() -> None:
    reads = AvroRowDeserializationSchema(avro_schema_string=RICH)
    batch = reads.batch_decoder()([by_fastavro(RICH, RICH_VALUE)])
    assert isinstance(batch, RowBatch)
    assert batch.values[0].where == Row(x=1, y=-1)


@pytest.mark.parametrize("kind", [["int", "string"], {"type": "string", "logicalType": "uuid"}])
def test_records_with_a_field_that_has_no_column_stay_records(kind: Any) -> None:
    schema = AvroSchema(record(("x", kind)))
    value = {"x": uuid.UUID(int=1) if isinstance(kind, dict) else "a"}
    batch = AvroDeserializationSchema(schema).batch_decoder()([AvroSerializationSchema(schema).serialize(value)])
    assert isinstance(batch, RowBatch)
    assert batch.values == [value]


# --- files ----------------------------------------------------------------------------------------------------


class Memory(io.BytesIO):
    def close(self) -> None:
        """The test looks at it."""


def written(schema: AvroSchema, values: list[Any]) -> bytes:
    file = Memory()
    writer = AvroBulkWriters.for_generic_record(schema).create(file)
    for begin in range(0, len(values), 100):
        writer.add(values[begin : begin + 100])
    writer.finish()
    return file.getvalue()


def read(data: bytes, format: AvroFormat, position: Any = None, most: int = 70) -> Iterator[tuple[Any, list[Any]]]:
    """Positions, and the records up to each."""
    reader = format.open("f.avro", Memory(data), 0, len(data), position)
    while not reader.finished:
        batch = reader.read(ReadBounds(max_records=most))
        if batch is not None:
            yield reader.position, list(batch.rows().values)


def test_files_are_what_the_library_reads_and_reading_goes_on_from_every_position() -> None:
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


def test_rows_of_files_whose_schema_has_the_fields_in_another_order_are_read_by_name() -> None:
    data = written(AvroSchema(record(("celsius", "double"), ("id", "string"))), [{"id": "a", "celsius": 1.0}])
    schema = AvroSchema(record(("id", "string"), ("celsius", "double")))
    assert [part for _, part in read(data, AvroFormat(schema, record="row"))] == [[Row(id="a", celsius=1.0)]]


def test_files_of_an_older_schema_are_read_as_rows_of_the_newer() -> None:
    newer = [{"name": "id", "type": "string"}, {"name": "unit", "type": "string", "default": "C"}]
    data = written(AvroSchema(READING), [{"id": "a", "celsius": 1.0}])
    schema = AvroSchema(json.dumps({"type": "record", "name": "Reading", "fields": newer}))
    assert [part for _, part in read(data, AvroFormat(schema, record="row"))] == [[Row(id="a", unit="C")]]


def test_damaged_files_are_named() -> None:
    data = written(AvroSchema(READING), [{"id": "a" * 100, "celsius": 1.0}] * 5_000)
    for bad in (b"", b"PAR1", data[: len(data) // 2], data[:200] + b"\xff" * 50 + data[250:]):
        with pytest.raises(RecordFormatError, match=r"cannot read the Avro file 'f.avro'"):
            list(read(bad, AvroFormat()))


# --- the registry ---------------------------------------------------------------------------------------------


class Registry:
    """Answers as Confluent's documents it."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.failures = 0
        self.cut_off = 0
        self.asked: list[str] = []
        self.authorization = ""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                registry.asked.append(f"{self.command} {self.path}")
                code, told = registry.answer(self.command, self.path, json.loads(body or b"{}"), self.headers)
                data = json.dumps(told).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data) + bool(registry.cut_off)))
                registry.cut_off -= bool(registry.cut_off)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer  # noqa: N815 - the library's names

            def log_message(self, format: str, *arguments: Any) -> None:
                """Tests are quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, subject: str, schema: str, **more: Any) -> int:
        id = len(self.schemas) + 1
        self.schemas[id] = {"schema": schema, **more}
        self.subjects.setdefault(subject, []).append(id)
        return id

    def answer(self, method: str, path: str, body: dict[str, Any], headers: Any) -> tuple[int, Any]:
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50301, "message": "no leader"}
        if self.authorization and headers.get("Authorization") != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", id] if int(id) in self.schemas:
                return 200, self.schemas[int(id)]
            case ["schemas", "ids", id]:
                return 404, {"error_code": 40403, "message": f"Schema {id} not found"}
            case ["subjects", subject, "versions", version]:
                return 200, self.schemas[self.subjects[subject][int(version) - 1]]
            case ["subjects", subject, *rest]:
                for id in self.subjects.get(subject, ()):
                    if self.schemas[id]["schema"] == body["schema"]:
                        return 200, {"id": id}
                if rest:
                    return 200, {"id": self.add(subject, body["schema"])}
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": f"HTTP 404 Not Found {method}"}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry_module, "_PAUSE_S", 0.01)
    server = Registry()
    yield server
    server.close()


def test_messages_carry_the_id_of_their_schema_and_each_is_asked_for_once(registry: Registry) -> None:
    schema = AvroSchema(READING)
    values = [{"id": str(n), "celsius": float(n)} for n in range(10)]
    writes = ConfluentRegistryAvroSerializationSchema.for_generic("readings-value", schema, registry.url)
    messages = pickle.loads(pickle.dumps(writes)).serialize_batch(values)
    assert messages[3] == b"\x00\x00\x00\x00\x01" + by_fastavro(READING, values[3])
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)
    assert pickle.loads(pickle.dumps(reads)).deserialize_batch(messages) == values
    assert registry.asked == ["POST /subjects/readings-value/versions", "GET /schemas/ids/1"]


def test_other_versions_of_the_schema_are_read_as_the_one_that_the_program_has(registry: Registry) -> None:
    older = registry.add("r-value", record(("id", "string")))
    newer = registry.add("r-value", record(("id", "string"), ("celsius", ["null", "double"]), ("by", "string")))
    fields = [{"name": "id", "type": "string"}, {"name": "celsius", "type": ["null", "double"], "default": None}]
    mine = AvroSchema(json.dumps({"type": "record", "name": "Reading", "fields": fields}))
    messages = [
        b"\x00" + older.to_bytes(4, "big") + b"\x02a",
        b"\x00" + newer.to_bytes(4, "big") + b"\x02b\x00\x02x",
    ]
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(mine, registry.url)
    assert reads.deserialize_batch(messages) == [{"id": "a", "celsius": None}, {"id": "b", "celsius": None}]


def test_schemas_that_refer_to_others_are_put_together(registry: Registry) -> None:
    registry.add("point", json.dumps({**POINT, "name": "geo.Point"}))
    references = [{"name": "geo.Point", "subject": "point", "version": 1}]
    text = record(("a", "geo.Point"), ("b", ["null", "geo.Point"]))
    id = registry.add("r-value", text, references=references)
    found = avro_schema(SchemaRegistry(registry.url), id)
    value = {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}}
    assert AvroDeserializationSchema(found).deserialize(AvroSerializationSchema(found).serialize(value)) == value


def test_a_registry_that_is_busy_is_asked_again_and_one_that_is_away_is_no_malformed_message(
    registry: Registry,
) -> None:
    id = registry.add("r-value", READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    registry.failures = 3
    message = b"\x00" + id.to_bytes(4, "big") + by_fastavro(READING, {"id": "a", "celsius": None})
    assert reads.deserialize(message)["id"] == "a"
    away = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), "http://127.0.0.1:1")
    for call in (lambda: away.deserialize(message), lambda: away.deserialize_batch([message])):
        with pytest.raises(SourceError, match="does not answer GET /schemas/ids/1"):
            call()
    both = SchemaRegistry(f"http://127.0.0.1:1,{registry.url}")
    assert avro_schema(both, id) == AvroSchema(READING)


def test_answers_that_are_cut_off_or_of_another_server_make_no_message_malformed(registry: Registry) -> None:
    registry.add("r-value", READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    message = b"\x00\x00\x00\x00\x01" + by_fastavro(READING, {"id": "a", "celsius": None})
    registry.cut_off = 9
    with pytest.raises(SourceError, match=r"does not answer.*IncompleteRead"):
        reads.deserialize(message)
    registry.cut_off = 1
    assert reads.deserialize(message)["id"] == "a"
    for number, strange in enumerate(({"version": 1}, [], "schema", {"schema": READING, "references": [{}]}), 5):
        registry.schemas[number] = strange  # type: ignore[assignment]
        with pytest.raises(SourceError, match="what answers for a schema registry says"):
            reads.deserialize_batch([b"\x00\x00\x00\x00" + bytes([number]) + message[5:]])


def test_records_within_each_other_without_end_are_malformed_and_end_no_process() -> None:
    chain = record(("next", ["null", "Chain"]), name="Chain")
    for reads in (AvroDeserializationSchema(AvroSchema(chain)), AvroRowDeserializationSchema(avro_schema_string=chain)):
        assert reads.deserialize(b"\x02\x02\x00") is not None
        assert reads.deserialize(b"\x02" * 90 + b"\x00") is not None
        with pytest.raises(RecordFormatError, match="RecursionError"):
            reads.deserialize(b"\x02" * 500_000 + b"\x00")


def test_records_within_each_other_without_end_make_a_file_unreadable_and_end_no_process() -> None:
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


def test_a_message_with_an_id_that_the_registry_does_not_know_is_malformed_and_asked_for_once(
    registry: Registry,
) -> None:
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(AvroSchema(READING), registry.url)
    proto = registry.add("p-value", 'syntax = "proto3";', schemaType="PROTOBUF")
    for id, said in ((9, "404 Schema 9 not found"), (proto, "is a PROTOBUF schema"), (9, "404 Schema 9 not found")):
        message = b"\x00" + id.to_bytes(4, "big") + b"\x02a\x00"
        for call in (
            lambda message=message: reads.deserialize(message),
            lambda message=message: reads.deserialize_batch([message]),
        ):
            with pytest.raises(RecordFormatError, match=said):
                call()
    assert registry.asked.count("GET /schemas/ids/9") == 2, "the second time for one that is new"


def test_what_the_registry_refuses_says_what_to_do(registry: Registry, tmp_path: Path) -> None:
    schema = AvroSchema(READING)
    reads = ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)
    with pytest.raises(SourceError, match=r"(?s)404 HTTP 404 Not Found.*no ids"):
        avro_schema(SchemaRegistry(f"{registry.url}/elsewhere"), 9)
    for message in (b"{}", b"\x01\x00\x00\x00\x01", b""):
        with pytest.raises(RecordFormatError, match="does not begin with a schema's id"):
            reads.deserialize(message)
    proto = registry.add("p-value", 'syntax = "proto3";', schemaType="PROTOBUF")
    with pytest.raises(SourceError, match="is a PROTOBUF schema"):
        avro_schema(SchemaRegistry(registry.url), proto)
    with pytest.raises(SinkError, match="Schema not found"):
        SchemaRegistry(registry.url, registers=False).register("none-value", registered(schema))
    registry.add("r-value", READING)
    registry.authorization = "Basic bWU6c2VjcmV0"
    with pytest.raises(SourceError, match=r"(?s)401.*user_info_file"):
        avro_schema(SchemaRegistry(registry.url), 1)
    (tmp_path / "user").write_text("me:secret\n")
    assert avro_schema(SchemaRegistry(registry.url, user_info_file=str(tmp_path / "user")), 2)
    with pytest.raises(InvalidJob, match="cannot be read"):
        avro_schema(SchemaRegistry(registry.url, user_info_file=str(tmp_path / "none")), 1)
    with pytest.raises(InvalidJob, match="give a URL"):
        SchemaRegistry("registry:8081")


@pytest.mark.parametrize(
    "url", ["http://job:s3cret@registry:8081", "job:s3cret@registry:8081", "http://a:8081,http://job:s3cret@b:8081"]
)
def test_a_registrys_url_with_a_password_is_refused_and_not_told(url: str) -> None:
    with pytest.raises(InvalidJob) as told:
        SchemaRegistry(url)
    assert "s3cret" not in str(told.value)
    assert "registry" in str(told.value)


def test_a_registrys_password_follows_no_redirect_to_another_server(registry: Registry, tmp_path: Path) -> None:
    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{registry.url}{self.path}")
            self.end_headers()

    registry.add("r-value", READING)
    (tmp_path / "user").write_text("me:secret\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asks = SchemaRegistry(f"http://127.0.0.1:{server.server_port}", user_info_file=str(tmp_path / "user"))
    try:
        assert avro_schema(asks, 1)
        registry.authorization = "Basic bWU6c2VjcmV0"
        with pytest.raises(SourceError, match="401"):
            avro_schema(SchemaRegistry(asks.urls[0], user_info_file=asks.user_info_file), 1)
    finally:
        server.shutdown()
        server.server_close()


def test_a_schema_that_comes_to_the_registry_late_is_found_after_some_seconds(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a minute's messages: one server of several may have it later than the producer."""
    asks = SchemaRegistry(registry.url)
    with pytest.raises(SchemaAbsent):
        asks.schema(1, "AVRO")
    registry.add("r-value", READING)
    later = monotonic() + 6
    monkeypatch.setattr(registry_module, "time", SimpleNamespace(monotonic=lambda: later))
    assert asks.schema(1, "AVRO").kind == "AVRO"
