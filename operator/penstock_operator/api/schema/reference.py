"""Generator of the Markdown reference of the kinds, from the CustomResourceDefinitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import DURATION_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """# Fields of FlinkJob, FlinkSnapshot and FlinkCluster

<!-- Generated from the models in `penstock_operator.api` by `python -m penstock_operator.api.schema.generate`. Do not edit. -->

Use this page to find the type, the default and the meaning of a field. Users write `spec`. The operator writes `status`.
[upgrade.md](upgrade.md) describes the effect of a change of each field on a running job. The same descriptions are in the
cluster: `kubectl explain flinkjob.spec.job`.

The tables use these terms:

| Term | Meaning |
|---|---|
| duration | One or more numbers with a unit (`ms`, `s`, `m`, `h`, `d`), such as `30s` or `1h30m` |
| fence off | Make sure that an incarnation can complete no more checkpoints, even if one of its pods still runs |
| incarnation | One start of the job with new pods. Each incarnation has its own job id and its own folder of checkpoints |
| nonce | A number whose value has no meaning. A change of the number triggers an action |
| revision | A version of the spec from which pods are created, stored in a ControllerRevision |
| stable | A revision is stable when its job has been RUNNING and has completed a checkpoint |
"""


_MANY_FIELDS = 5
"""An object with at least this many fields is described only once. Other objects with the same fields refer to it."""


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
        yield from _rows(schema["properties"][part], part, {})
        yield ""
        rules = list(_rules(schema["properties"][part], part))
        if part == "spec":
            rules.extend(f"- `metadata.name`: {rule['message']}" for rule in schema.get("x-kubernetes-validations", ()))
        if rules:
            yield "The API server refuses an object that breaks one of these rules:\n"
            yield from rules
            yield ""


def _rows(schema: dict[str, Any], path: str, shown_at: dict[str, str]) -> Iterator[str]:
    """Yield the row of each field, followed by the rows of the fields below it.

    Args:
        shown_at: path of each object that is already in the table. The key is the object's fields. Another object with
            the same fields refers to this path.
    """
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
        is_list = field.get("type") == "array"
        inner, inside = (field["items"], f"{here}[]") if is_list else (field, here)
        fields = json.dumps(inner.get("properties", {}))
        first = shown_at.setdefault(fields, inside) if len(inner.get("properties", {})) >= _MANY_FIELDS else inside
        same = "" if first == inside else f" It has the same fields as `{first.partition('.')[2]}`."
        path_in_part = here.partition(".")[2]
        yield f"| `{path_in_part}` | {_type(field)} | {shown} | {_cell(field.get('description', ''))}{same} |"
        if not same:
            yield from _rows(inner, inside, shown_at)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{v}`" for v in field["enum"])
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and "additionalProperties" in field:
        return "map"
    if field.get("pattern") == DURATION_PATTERN:
        return "duration"
    return "time" if field.get("format") == "date-time" else kind


def _rules(schema: dict[str, Any], path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"- `{path}`: {rule['message']}"
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
