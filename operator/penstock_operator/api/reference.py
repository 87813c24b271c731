"""Generator of the Markdown reference of the kinds, from the CustomResourceDefinitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """# Reference of the kinds

Generated from the models in `penstock_operator.api` by `python -m penstock_operator.api.generate`; do not edit.
The same text is in the cluster: `kubectl explain flinkjob.spec --recursive`.
"""


def reference(crds: list[dict[str, Any]]) -> str:
    """Return one section per kind, with one table for the spec and one for the status."""
    lines = [_HEAD]
    for crd in crds:
        lines.extend(_kind(crd))
    return "\n".join(lines) + "\n"


def _kind(crd: dict[str, Any]) -> Iterator[str]:
    names, version = crd["spec"]["names"], crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}\n"
    yield f"{schema['description']} Short name `{names['shortNames'][0]}`, category `{names['categories'][0]}`, "
    yield f"`apiVersion: {crd['spec']['group']}/{version['name']}`.\n"
    if "scale" in version["subresources"]:
        yield f"Scale subresource: `{version['subresources']['scale']['specReplicasPath']}`.\n"
    for part in ("spec", "status"):
        yield f"### {names['kind']}.{part}\n"
        yield "| Field | Type | Default | Meaning |"
        yield "|---|---|---|---|"
        yield from _rows(schema["properties"][part], part)
        yield ""
        rules = list(_rules(schema["properties"][part], part))
        if rules:
            yield "Checked by the API server:\n"
            yield from rules
            yield ""


def _rows(schema: dict[str, Any], path: str) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        default = field.get("default", "")
        shown = (
            ""
            if default in ("", {})
            else f"`{json.dumps(default)}`"
            if not isinstance(default, str)
            else f"`{default}`"
        )
        if name in required and not shown:
            shown = "*required*"
        yield f"| `{here.partition('.')[2]}` | {_type(field)} | {shown} | {_cell(field.get('description', ''))} |"
        yield from _rows(field, here)
        if field.get("type") == "array":
            yield from _rows(field["items"], f"{here}[]")


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{v}`" for v in field["enum"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return "map"
    if "h|d" in field.get("pattern", ""):
        return "duration"
    return "time" if field.get("format") == "date-time" else kind


def _rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"- `{path}`: {rule['message']}"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
