"""Conversion of pydantic models to structural schemas, the subset of OpenAPI that a CustomResourceDefinition may use.

Kubernetes requires a type on every node, and allows no `$ref`, no `null` and no titles. It applies a default inside
an object only if the object itself is present. So an object whose fields have defaults gets the default `{}`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from penstock_operator.api.types import FORMER_NAME, Api, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

_DROPPED = ("title", "$defs", FORMER_NAME)


class _Generator(GenerateJsonSchema):
    """Schema generator that writes default durations in their short form, such as `10m`."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        return super().encode_default(dft)


def structural_schema(model: type[Api], *, defaults: bool) -> Schema:
    """Return the structural schema of `model`.

    The schema of a spec has defaults. The schema of a status has none, because the API server would fill in values
    that the operator did not observe.
    """
    raw = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    return _convert(raw, raw.get("$defs", {}), defaults=defaults)


def closed_schema(node: Schema) -> Schema:
    """Return a structural schema as a JSON schema that refuses unknown fields, for values of a Helm chart.

    The JSON schema has no defaults, because the API server sets them. Objects without a schema accept all fields.
    """
    out: Schema = {}
    for key, value in node.items():
        if key == "default" or key.startswith("x-kubernetes-"):
            continue
        if key == "properties":
            out |= {key: {name: closed_schema(inner) for name, inner in value.items()}, "additionalProperties": False}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            out[key] = closed_schema(value)
        else:
            out[key] = value
    return out


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
        if FORMER_NAME in raw:
            about = (
                f"Former name of `{name}`. The operator reads this field if `{name}` is not set, and does not write it."
            )
            out[raw[FORMER_NAME]] = {**schema, "description": about}
    return out


def _resolve(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Follow `$ref`, and replace a type that may be null by the same type without null. Keys next to `$ref` or `anyOf` take
    precedence.
    """
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
    """Put the description, the type and the default first, because people read the generated files."""
    head = [k for k in ("description", "type", "default") if k in node]
    return {k: node[k] for k in [*head, *(k for k in node if k not in head)]}
