"""Readable values of Avro and Protobuf, based only on the description in the snapshot.

If the format's library is not installed, the result is the value's bytes.
"""

from __future__ import annotations

import io
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.state.encoding.messages.protobuf_evolution import KINDS

if TYPE_CHECKING:
    from penstock.state.encoding.schema import Schema


def message_view(content: bytes, schema: Schema) -> Any:
    """Return a stored value as dicts and lists. Protobuf's enumerations become numbers, and its maps become lists of
    entries."""
    try:
        if schema["type"] == "avro":
            return _avro(content, schema["schema"])
        return _plain(_message(json.dumps(schema)).FromString(content))
    except ImportError:
        return content


def _avro(content: bytes, text: str) -> Any:
    import fastavro

    return fastavro.schemaless_reader(io.BytesIO(content), _parsed(text), None)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text))


@lru_cache(maxsize=64)
def _message(text: str) -> Any:
    """Return a class for messages of a description."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    schema = json.loads(text)
    file = descriptor_pb2.FileDescriptorProto(name="stored.proto", package="stored", syntax="proto2")
    names = {name: f"M{number}" for number, name in enumerate(schema["messages"])}
    for name, fields in schema["messages"].items():
        message = file.message_type.add(name=names[name])
        for field in fields:
            kind = "int32" if field["kind"] == "enum" else "message" if field["kind"] == "group" else field["kind"]
            one = message.field.add(name=field["name"], number=field["number"], type=KINDS.index(kind))
            one.label = 3 if field.get("repeated") else 1
            if kind == "message":
                one.type_name = f".stored.{names[field['of']]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"stored.{names[schema['name']]}"))


def _plain(message: Any) -> dict[str, Any]:
    found = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        else:
            found[field.name] = [_plain(one) for one in value] if field.is_repeated else _plain(value)
    return found
