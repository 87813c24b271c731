"""Avro values and Protobuf messages as state: they are restored, also by programs whose schema has changed."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from penstock.common.errors import InvalidJob, StateSchemaIncompatible, StateTypeError
from penstock.common.typeinfo import Types
from penstock.datastream.formats.avro import AvroSchema
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from penstock.state.encoding.described import described
from penstock.state.encoding.messages.protobuf_evolution import describe_message
from penstock.state.encoding.schema import incompatibility
from penstock.state.encoding.serializers import codec_for
from penstock.state.encoding.tagged import unpack
from tests.unit.state.support import Backends, at, plain


def record(*fields: Any, name: str = "Reading", **more: Any) -> str:
    declared = [{"name": field[0], "type": field[1], **(field[2] if len(field) > 2 else {})} for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": declared, **more})


def default(value: Any) -> dict[str, Any]:
    return {"default": value}


V1 = record(("id", "string"), ("n", "int"), ("gone", "boolean"))
V2 = record(
    ("key", "string", {"aliases": ["id"]}),
    ("n", ["null", "double"]),
    ("more", {"type": "array", "items": "long"}, default([])),
)

_KINDS = {
    "int32": 5,
    "int64": 3,
    "string": 9,
    "bytes": 12,
    "double": 1,
    "bool": 8,
    "enum": 14,
    "message": 11,
    "sint32": 17,
}


def message(
    *fields: tuple[Any, ...], name: str = "Reading", package: str = "weather", values: tuple[int, ...] = (0, 1)
) -> Any:
    """Return a class as protoc generates it. A field has a number, a name, a kind, and optionally "repeated" or
    "required"."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    enum = file.enum_type.add(name="Kind")
    for number in values:
        enum.value.add(name=f"K{number}", number=number)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=_KINDS["int32"], label=1)
    made = file.message_type.add(name=name)
    labels = {"repeated": 3, "required": 2}
    for number, field_name, kind, *how in fields:
        field = made.field.add(name=field_name, number=number, type=_KINDS[kind], label=labels[how[0]] if how else 1)
        if kind in ("enum", "message"):
            field.type_name = f".{package}.{'Kind' if kind == 'enum' else 'Inner'}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


Old = message((1, "id", "string"), (2, "n", "int32"), (3, "gone", "bool"), (4, "inner", "message"))
New = message(
    (1, "key", "string"), (2, "n", "int64"), (4, "inner", "message"), (5, "more", "string", "repeated"), name="Renamed"
)


def old_message() -> Any:
    value = Old(id="a", n=7, gone=True)
    value.inner.x = 3
    return value


def new_message() -> Any:
    value = New(key="a", n=7)
    value.inner.x = 3
    return value


AVRO = (
    Types.AVRO(V1),
    {"id": "a", "n": 7, "gone": True},
    Types.AVRO(AvroSchema(V2)),
    {"key": "a", "n": 7.0, "more": []},
)


def known(value: Any) -> Any:
    """Return messages without removed fields, which Protobuf keeps as unknown fields."""
    for one in value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]:
        if isinstance(one, New):
            one.DiscardUnknownFields()
    return value


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"), [AVRO, (Old, old_message(), New, new_message())], ids=["avro", "protobuf"]
)
def test_a_newer_schema_reads_old_values(backends: Backends, old: Any, value: Any, new: Any, expected: Any) -> None:
    def descriptors(kind: Any) -> list[Any]:
        found = [
            ValueStateDescriptor("x", kind),
            ListStateDescriptor("l", kind),
            MapStateDescriptor("m", str, kind),
            ValueStateDescriptor("t", kind),
        ]
        found[3].enable_time_to_live(StateTtlConfig.new_builder(datetime.timedelta(hours=1)).build())
        return found

    backend = backends.create()
    at(backend, "a")
    single, elements, entries, expiring = map(backend.get_state, descriptors(old))
    single.update(value)
    elements.add(value)
    entries["e"] = value
    expiring.update(value)
    (same,) = backends.restored([backends.snapshot(backend, 1)], owned=True)
    at(same, "a")
    assert plain(same.get_state(descriptors(old)[0])) == value
    (changed,) = backends.restored([backends.snapshot(same, 2)], owned=True)
    for _ in range(2):
        at(changed, "a")
        found = [known(plain(changed.get_state(one))) for one in descriptors(new)]
        assert found == [expected, [expected], {"e": expected}, expected]
        (changed,) = backends.restored([backends.snapshot(changed, 3)])
    with pytest.raises(StateSchemaIncompatible):
        changed.get_state(ValueStateDescriptor("x", str))


def test_stored_bytes_do_not_change_with_the_value() -> None:
    for kind, value in ((Types.AVRO(V1), {"id": "a", "n": 1, "gone": False}), (Old, old_message())):
        codec = codec_for(kind, state="s")
        frozen = codec.freeze([value, None])
        if isinstance(value, dict):
            value["n"] = 2
        else:
            value.n = 2
        first, second = codec.decode_column(*codec.encode_column(frozen))
        assert (first["n"] if isinstance(first, dict) else first.n) in (1, 7)
        assert second is None


def test_logical_types_are_restored_as_python_values() -> None:
    fields = [
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("next", ["null", "Reading"], default(None)),
    ]
    codec = codec_for(Types.AVRO(record(*fields)), state="s")
    at_ = datetime.datetime(2013, 7, 1, 12, tzinfo=datetime.UTC)
    value = {"at": at_, "day": at_.date(), "price": Decimal("12.50"), "next": None}
    assert codec.decode(codec.encode({**value, "next": value})) == {**value, "next": value}


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Types.AVRO(V1), {"id": "a"}, "Avro schema: .*missing"),
        (Types.AVRO(V1), {"id": "a", "n": "1", "gone": False}, "Avro schema"),
        (Types.AVRO(V1), {"id": "a", "n": 1, "gone": False, "more": 1}, "Avro schema"),
        *(
            (Types.AVRO(record(("a", kind))), {"a": value}, "Avro schema: ")
            for kind, value in [
                ("int", 1.9),
                ("int", True),
                ("int", 2**31),
                ("long", 2**63),
                ("boolean", "no"),
                (["null", "int"], 1.9),
                ({"type": "array", "items": "int"}, [1, 2.5]),
                ("string", b"x"),
            ]
        ),
        (Old, New(key="a"), "message weather.Reading, and the value is a .*Renamed"),
        (message((1, "id", "string", "required")), None, "message weather.Reading"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_stored(kind: Any, value: Any, reason: str) -> None:
    codec = codec_for(kind, state="last", operator="op")
    with pytest.raises(StateTypeError, match=f"state 'last' cannot be stored: it .*{reason}"):
        codec.encode(kind() if value is None else value)


DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
UUID = {"type": "string", "logicalType": "uuid"}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "d", "type": DATE, "default": 1}]}


@pytest.mark.parametrize(
    ("kind", "json_default", "expected"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00ff\u0000", b"\xff\0"),
        ("double", 1, 1.0),
        (DATE, 10, datetime.date(1970, 1, 11)),
        (MILLIS, 0, datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
        (DECIMAL, "\u0001\u0000", Decimal("2.56")),
        (UUID, str(uuid.UUID(int=0)), uuid.UUID(int=0)),
        (["null", DATE], None, None),
        ([DATE, "null"], 1, datetime.date(1970, 1, 2)),
        ({"type": "array", "items": DATE}, [0], [datetime.date(1970, 1, 1)]),
        ({"type": "map", "values": "bytes"}, {"a": "b"}, {"a": b"b"}),
        (INNER, {}, {"d": datetime.date(1970, 1, 2)}),
    ],
)
def test_the_default_of_a_new_field_can_be_stored_again(kind: Any, json_default: Any, expected: Any) -> None:
    old = codec_for(Types.AVRO(record(("a", "int"))), state="s")
    new = codec_for(Types.AVRO(record(("a", "int"), ("b", kind, default(json_default)))), state="s")
    found = new.reader_of(old.schema).decode(old.encode({"a": 1}))
    assert found == {"a": 1, "b": expected}
    assert type(found["b"]) is type(expected)
    assert new.decode(new.encode(found)) == new.decode(new.encode({"a": 1})) == found


def test_each_old_value_has_a_separate_default_of_a_new_field() -> None:
    old = codec_for(Types.AVRO(record(("a", "int"))), state="s")
    reader = codec_for(
        Types.AVRO(record(("a", "int"), ("b", {"type": "array", "items": "int"}, default([])))), state="s"
    )
    reader = reader.reader_of(old.schema)
    reader.decode(old.encode({"a": 1}))["b"].append(7)
    assert reader.decode(old.encode({"a": 2})) == {"a": 2, "b": []}


def test_a_default_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidJob, match="field 'b' of an Avro schema has the default 'x'"):
        codec_for(Types.AVRO(record(("b", UUID, default("x")))), state="s")


def test_an_invalid_schema_is_refused() -> None:
    with pytest.raises(InvalidJob, match="not an Avro schema"):
        Types.AVRO('{"type": "rekord"}')
    with pytest.raises(StateTypeError, match="cannot be encoded"):
        codec_for(Types.TUPLE([Types.AVRO(V1)]), state="s")


def avro(schema: Any) -> dict[str, Any]:
    return {"type": "avro", "schema": schema if isinstance(schema, str) else json.dumps(schema)}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("int", "double", ""),
        ("double", "float", "the value was double and is float"),
        (record(("a", "int")), record(("a", "int"), ("b", "int")), "field 'b' of the value is new and has no default"),
        (record(("a", "int")), record(("a", "int"), name="Other"), "was record 'Reading' and is 'Other'"),
        (record(("a", "int")), record(("a", "int"), name="Other", aliases=["old.Reading"]), ""),
        (record(("a", "int"), namespace="x"), record(("a", "long"), namespace="y"), ""),
        (
            record(("a", ["null", "int"])),
            record(("a", "int")),
            "field 'a' of the value could be null and no longer can",
        ),
        (
            record(("a", "int")),
            record(("a", ["null", "string"])),
            "field 'a' of the value was int and is one of null, string",
        ),
        (
            record(("a", {"type": "array", "items": "int"})),
            record(("a", {"type": "array", "items": "string"})),
            "an item of field 'a'",
        ),
        (
            record(("a", {"type": "map", "values": ENUM})),
            record(("a", {"type": "map", "values": ENUM | {"symbols": ["A"]}})),
            "can no longer be B",
        ),
        (ENUM, ENUM | {"symbols": ["A"], "default": "A"}, ""),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, "had 4 bytes and has 8"),
        (record(("a", DATE)), record(("a", MILLIS)), "was int .date. and is long .timestamp-millis."),
        (record(("a", DATE)), record(("a", "long")), "was int .date. and is long"),
        (record(("a", "int")), record(("a", MILLIS)), "was int and is long .timestamp-millis."),
        (record(("a", DECIMAL)), record(("a", "string")), "was bytes .decimal. and is string"),
        (record(("a", "int")), record(("a", ["null", MILLIS, "int"])), "field 'a' of the value was int and is one of"),
        (record(("a", "int")), record(("a", ["null", "long", MILLIS])), ""),
        (
            record(("a", {"type": "array", "items": "int"})),
            record(("a", ["null", {"type": "array", "items": "long"}])),
            "",
        ),
        (record(("a", INNER)), record(("a", ["null", INNER])), ""),
        ("long", {"type": "long", "logicalType": "timestamp-millis"}, "was long and is long .timestamp-millis."),
        (
            record(("a", "int"), ("next", ["null", "Reading"])),
            record(("a", "string"), ("next", ["null", "Reading"])),
            "'a' of the value was int",
        ),
    ],
)
def test_avro_schemas_are_resolved_by_the_rules_of_avro(old: Any, new: Any, reason: str) -> None:
    old, new = (
        schema if isinstance(schema, dict) or schema.startswith("{") else json.dumps(schema) for schema in (old, new)
    )
    found = incompatibility(avro(old), avro(new))
    assert re.search(reason, found) if reason else not found, found


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ([(1, "a", "int32")], [(1, "b", "int64"), (2, "c", "string")], ""),
        ([(1, "a", "int64")], [(1, "a", "int32")], "field 1 .'a'. of the value was int64 and is int32"),
        ([(1, "a", "int32")], [(1, "a", "sint32")], "was int32 and is sint32"),
        ([(1, "a", "string")], [(1, "a", "string", "repeated")], ""),
        ([(1, "a", "string", "repeated")], [(1, "a", "string")], "was repeated and is not"),
        (
            [(1, "a", "string")],
            [(1, "a", "string"), (2, "b", "string", "required")],
            "field 2 .'b'. of the value is new and required",
        ),
        ([(1, "a", "string")], [(1, "a", "string", "required")], "field 1 .'a'. of the value was not required and is"),
        ([(1, "a", "string", "required")], [(1, "a", "string")], ""),
        ([(1, "a", "message")], [(1, "a", "string")], "was message and is string"),
        ([(1, "a", "string")], [], ""),
    ],
)
def test_protobuf_messages_are_compared_by_their_numbers(old: Any, new: Any, reason: str) -> None:
    found = incompatibility(describe_message(message(*old).DESCRIPTOR), describe_message(message(*new).DESCRIPTOR))
    assert re.search(reason, found) if reason else not found, found


def test_removed_numbers_of_an_enumeration_are_reported() -> None:
    old, new = (describe_message(message((1, "k", "enum"), values=values).DESCRIPTOR) for values in ((0, 1, 2), (0, 2)))
    assert incompatibility(new, old) == ""
    assert incompatibility(old, new) == "field 1 ('k') of the value can no longer be 1"


def test_a_message_may_be_declared_only_by_its_class() -> None:
    codec = codec_for(timestamp_pb2.Timestamp, state="s")
    assert codec.decode(codec.encode(timestamp_pb2.Timestamp(seconds=5))) == timestamp_pb2.Timestamp(seconds=5)
    assert codec.schema["messages"]["google.protobuf.Timestamp"][0] == {"number": 1, "name": "seconds", "kind": "int64"}


def test_stored_values_are_shown_without_the_classes_of_the_program() -> None:
    for kind, value, shown in (
        (Types.AVRO(V1), {"id": "a", "n": 7, "gone": True}, {"id": "a", "n": 7, "gone": True}),
        (Old, old_message(), {"id": "a", "n": 7, "gone": True, "inner": {"x": 3}}),
        (New, New(more=["x", "y"]), {"more": ["x", "y"]}),
    ):
        codec = codec_for(kind, state="s")
        assert described(unpack(codec.encode(value)), json.loads(json.dumps(codec.schema))) == shown
