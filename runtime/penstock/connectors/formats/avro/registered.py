"""Avro schemas of a registry, completed with the schemas that they refer to."""

from __future__ import annotations

import json
from typing import Any

from penstock.connectors.formats.avro.schema import AvroSchema
from penstock.connectors.formats.registry import Reference, RegisteredSchema, SchemaRegistry

KIND = "AVRO"


def registered(schema: AvroSchema) -> RegisteredSchema:
    """Return the schema in the registry's form."""
    return RegisteredSchema(KIND, schema.text)


def avro_schema(registry: SchemaRegistry, id: int) -> AvroSchema:
    """Return the Avro schema of an id.

    Raises:
        SchemaAbsent: the id has no schema, or a schema of another kind.
        SourceError: the registry does not answer, or refuses the request.
    """
    found = registry.schema(id, KIND)
    named: dict[str, Any] = {}
    _name(registry, found.references, named)
    return AvroSchema(json.dumps(_inlined(json.loads(found.text), "", named)) if named else found.text)


def _name(registry: SchemaRegistry, references: tuple[Reference, ...], named: dict[str, Any]) -> None:
    for reference in references:
        found = registry.version(reference.subject, reference.version)
        _name(registry, found.references, named)
        named[reference.name] = {**json.loads(found.text), "name": reference.name}


def _inlined(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """Return the schema, with the first use of each name in `named` replaced by its definition.

    >>> inner = {"type": "record", "name": "a.In", "fields": []}
    >>> _inlined({"type": "record", "name": "a.R", "fields": [{"name": "x", "type": ["null", "In"]}]}, "", {"a.In": inner})
    {'type': 'record', 'name': 'a.R', 'fields': [{'name': 'x', 'type': ['null', {'type': 'record', 'name': 'a.In', 'fields': []}]}]}
    """
    if isinstance(schema, str):
        name = next((one for one in (schema, f"{namespace}.{schema}") if one in named), "")
        return _inlined(named.pop(name), namespace, named) if name else schema
    if isinstance(schema, list):
        return [_inlined(one, namespace, named) for one in schema]
    before = schema.get("name", "").rpartition(".")[0]
    namespace = before or schema.get("namespace", namespace)
    whole = dict(schema)
    for part in ("type", "items", "values"):
        if part in whole:
            whole[part] = _inlined(whole[part], namespace, named)
    if "fields" in whole:
        whole["fields"] = [{**field, "type": _inlined(field["type"], namespace, named)} for field in whole["fields"]]
    return whole
