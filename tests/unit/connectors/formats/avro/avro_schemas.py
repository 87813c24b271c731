"""Avro schemas of the tests, and their messages by fastavro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro


def record(*fields: tuple[str, Any], name: str = "Reading", **more: Any) -> str:
    declared = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": declared, **more})


READING = record(("id", "string"), ("celsius", ["null", "double"]))
POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}


def by_fastavro(text: str, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(text)), value)
    return data.getvalue()
