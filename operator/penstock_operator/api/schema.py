"""From pydantic models to structural schemas, the dialect of OpenAPI that a CustomResourceDefinition may use.

Kubernetes wants every node typed, no `$ref`, no `null`, no titles, and defaults that reach nested objects: a default
inside an object is applied only if the object itself is there, so objects whose fields have defaults get the default
`{}`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from penstock_operator.api.types import Api, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

_DROPPED = ("title", "$defs")


class _Generator(GenerateJsonSchema):
    """Spells default durations as a person would."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        return super().encode_default(dft)


def structural_schema(model: type[Api], *, defaults: bool) -> Schema:
    """The schema of `model` as Kubernetes takes it.

    A spec carries defaults; a status must not, or the API server would make up facts nobody has seen.
    """
    raw = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    return _convert(raw, raw.get("$defs", {}), defaults=defaults)


def _convert(node: Schema, definitions: Mapping[str, Schema], *, defaults: bool) -> Schema:
    node = _resolve(node, definitions)
    out: Schema = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "default" and not defaults):
            continue
        if key == "properties":
            out[key] = _properties(node, definitions, defaults=defaults)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = _convert(value, definitions, defaults=defaults)
        else:
            out[key] = value
    if out.get("default", ...) in (None, [], {}):
        del out["default"]
    return _ordered(out)


def _properties(node: Schema, definitions: Mapping[str, Schema], *, defaults: bool) -> Schema:
    required = set(node.get("required", ()))
    out = {}
    for name, raw in node["properties"].items():
        schema = _convert(raw, definitions, defaults=defaults)
        if defaults and name not in required and not _nullable(raw) and _has_defaults(schema):
            schema = _ordered({**schema, "default": {}})
        out[name] = schema
    return out


def _resolve(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Follow `$ref`, and take the one real branch of an optional type; what stands beside them wins."""
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return {**_resolve(target, definitions), **_without(node, "$ref")}
    if _nullable(node):
        [branch] = [b for b in node["anyOf"] if b.get("type") != "null"]
        return {**_resolve(branch, definitions), **_without(node, "anyOf")}
    return node


def _nullable(node: Schema) -> bool:
    return any(branch.get("type") == "null" for branch in node.get("anyOf", ()))


def _has_defaults(schema: Schema) -> bool:
    properties = schema.get("properties", {})
    return any("default" in p or _has_defaults(p) for p in properties.values()) and not schema.get("required")


def _without(node: Schema, key: str) -> Schema:
    return {k: v for k, v in node.items() if k != key}


def _ordered(node: Schema) -> Schema:
    """Description and type first: the files are read by people."""
    head = [k for k in ("description", "type", "default") if k in node]
    return {k: node[k] for k in [*head, *(k for k in node if k not in head)]}
