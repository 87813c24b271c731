"""The compatibility of two Avro schemas: whether values of one schema can be read with the other schema ("Schema Resolution" in Avro's
specification).
"""

from __future__ import annotations

import json
from typing import Any

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED = ("record", "error", "enum", "fixed")


def avro_incompatibility(old: dict[str, Any], new: dict[str, Any], at: str) -> str:
    """Return why two descriptions of a state's values are incompatible, or an empty text.

    >>> def described(*fields):
    ...     return {"schema": json.dumps({"type": "record", "name": "R", "fields": list(fields)})}
    >>> ids = {"name": "id", "type": "int"}
    >>> avro_incompatibility(described(ids), described(ids, {"name": "n", "type": "long", "default": 0}), "the value")
    ''
    >>> avro_incompatibility(described(ids), described({"name": "id", "type": "string"}), "the value")
    "field 'id' of the value was int and is string"
    """
    if old["schema"] == new["schema"]:
        return ""
    return _Resolution(json.loads(old["schema"]), json.loads(new["schema"])).problem(at)


class _Resolution:
    def __init__(self, writer: Any, reader: Any) -> None:
        self._roots = writer, reader
        self._writers: dict[str, Any] = {}
        self._readers: dict[str, Any] = {}
        collect_named(writer, "", self._writers)
        collect_named(reader, "", self._readers)
        self._under_way: set[tuple[int, int]] = set()

    def problem(self, at: str) -> str:
        return self._differ(*self._roots, at)

    def _differ(self, writer: Any, reader: Any, at: str) -> str:
        writer, reader = plain(writer, self._writers), plain(reader, self._readers)
        if isinstance(writer, list):
            for branch in writer:
                reason = self._differ(branch, reader, at)
                if reason:
                    return f"{at} could be {_name(plain(branch, self._writers))} and no longer can: {reason}"
            return ""
        if isinstance(reader, list):
            first = next((branch for branch in reader if self._takes(writer, branch)), None)
            if first is not None and not self._differ(writer, first, at):
                return ""
            return f"{at} was {_name(writer)} and is one of {', '.join(_name(plain(one, self._readers)) for one in reader)}"
        was, now = writer["type"], reader["type"]
        if was != now:
            # a wider type would read the number or bytes of a logical type as a plain value
            is_wider = now in _WIDER.get(was, ()) and "logicalType" not in writer and "logicalType" not in reader
            return "" if is_wider else f"{at} was {_name(writer)} and is {_name(reader)}"
        if was in _NAMED and not _same_name(writer, reader):
            return f"{at} was {was} {writer['name']!r} and is {reader['name']!r}, which has no such alias"
        if was in ("record", "error"):
            return self._fields(writer, reader, at)
        if was == "enum":
            gone = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            return f"{at} can no longer be {', '.join(gone)}" if gone and "default" not in reader else ""
        if was == "fixed" and writer["size"] != reader["size"]:
            return f"{at} had {writer['size']} bytes and has {reader['size']}"
        if writer.get("logicalType") == reader.get("logicalType") == "decimal" and writer.get("scale", 0) != reader.get(
            "scale", 0
        ):
            return f"{at} was decimal of scale {writer.get('scale', 0)} and is of {reader.get('scale', 0)}"
        if writer.get("logicalType") != reader.get("logicalType"):
            return f"{at} was {_name(writer)} and is {_name(reader)}"
        if was == "array":
            return self._differ(writer["items"], reader["items"], f"an item of {at}")
        return self._differ(writer["values"], reader["values"], f"a value of {at}") if was == "map" else ""

    def _takes(self, writer: Any, reader: Any) -> bool:
        """Return whether a branch of a union matches. Avro uses the first branch that matches. The match ignores logical types and fields
        of records.
        """
        writer, reader = plain(writer, self._writers), plain(reader, self._readers)
        if isinstance(writer, list) or isinstance(reader, list):
            return True
        was, now = writer["type"], reader["type"]
        if was != now:
            return now in _WIDER.get(was, ())
        if was in _NAMED:
            return _same_name(writer, reader)
        below = {"array": "items", "map": "values"}.get(was)
        return below is None or self._takes(writer[below], reader[below])

    def _fields(self, writer: Any, reader: Any, at: str) -> str:
        pair = id(writer), id(reader)
        if pair in self._under_way:
            return ""
        self._under_way.add(pair)
        before = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            was = next((before[name] for name in names if name in before), None)
            if was is None:
                if "default" not in field:
                    return f"field {field['name']!r} of {at} is new and has no default"
                continue
            reason = self._differ(was["type"], field["type"], f"field {field['name']!r} of {at}")
            if reason:
                return reason
        return ""


def collect_named(schema: Any, namespace: str, found: dict[str, Any]) -> None:
    """Collect the named types, by their names with and without namespace."""
    if isinstance(schema, list):
        for one in schema:
            collect_named(one, namespace, found)
        return
    if not isinstance(schema, dict):
        return
    if schema.get("type") in _NAMED:
        name = schema["name"]
        namespace = name.rpartition(".")[0] or schema.get("namespace", namespace)
        simple = name.rpartition(".")[2]
        found[f"{namespace}.{simple}" if namespace else simple] = schema
        found.setdefault(simple, schema)
    for part in ("items", "values", "type"):
        collect_named(schema.get(part), namespace, found)
    for field in schema.get("fields", ()):
        collect_named(field["type"], namespace, found)


def plain(schema: Any, named: dict[str, Any]) -> Any:
    """Return a union as a list, and any other schema as a dict with a simple "type"."""
    if isinstance(schema, str):
        return named.get(schema) or {"type": schema}
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return plain(schema["type"], named)
    if isinstance(schema, dict) and schema["type"] in named:
        return named[schema["type"]]
    return schema


def _name(schema: Any) -> str:
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    kind = str(schema["type"]) if isinstance(schema, dict) else "a union"
    return f"{kind} ({logical})" if logical else kind


def _same_name(writer: Any, reader: Any) -> bool:
    names = {str(name).rpartition(".")[2] for name in [reader["name"], *reader.get("aliases", ())]}
    return str(writer["name"]).rpartition(".")[2] in names
