"""Check of manifests without a cluster. It applies the rules of the API server and of the operator, and reports fields
that are not known.

The API server drops fields that it does not know. A misspelt optional field would therefore have no effect and no message.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from penstock_operator.api.cluster_fields import checked_alone, refused_fields
from penstock_operator.api.flinkcluster import FlinkClusterSpec
from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec
from penstock_operator.api.schema.crds import MAX_CLUSTER_NAME, MAX_NAME
from penstock_operator.api.validation import parse_cluster_spec, parse_spec
from penstock_operator.api.version import API_VERSION, GROUP
from penstock_operator.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KINDS: dict[str, type[BaseModel]] = {
    "FlinkJob": FlinkJobSpec,
    "FlinkSnapshot": FlinkSnapshotSpec,
    "FlinkCluster": FlinkClusterSpec,
}
_LONGEST = {"FlinkJob": MAX_NAME, "FlinkCluster": MAX_CLUSTER_NAME}
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_SEE = "See kubectl explain {kind}.spec, or docs/operator/reference.md."


@dataclass(frozen=True)
class Finding:
    """A problem of one manifest in a file, and the line of its field (from 1)."""

    line: int
    manifest: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.manifest}: {self.problem}"


@dataclass
class Report:
    """The result of a check of a YAML text."""

    manifests: list[str] = field(default_factory=list)
    """Kind and name of each manifest of Penstock, such as `FlinkJob weather`."""
    findings: list[Finding] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)
    """Secrets that the FlinkJobs refer to. They must exist before the job starts."""


def check_manifests(text: str) -> Report:
    """Check all manifests of Penstock in a YAML text. Documents of other kinds are skipped.

    If the text is not valid YAML, the report has a finding with the line of the syntax error.
    """
    report = Report()
    loader = yaml.SafeLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _check(report, node, loader.construct_document(node))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = Problem("YAML", str(getattr(error, "problem", error)), "Correct the syntax.")
        report.findings.append(Finding(mark.line + 1 if mark else 1, "the file", problem))
    finally:
        loader.dispose()
    return report


def _check(report: Report, node: yaml.Node, manifest: Any) -> None:
    if not isinstance(manifest, dict) or not str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/"):
        return
    metadata = manifest.get("metadata")
    name = f"{manifest.get('kind')} {metadata.get('name', '?') if isinstance(metadata, dict) else '?'}"
    report.manifests.append(name)
    report.findings += [Finding(_line(node, problem.field), name, problem) for problem in _problems(manifest)]
    report.secrets |= set(_secrets(manifest.get("spec")))


def _secrets(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _secrets(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("secretName", "tlsSecretName", "rest.ssl.secret-name") and isinstance(value, str):
                yield value
            elif key in ("secretRef", "secretKeyRef", "secret") and isinstance(value, dict) and value.get("name"):
                yield str(value["name"])
            elif key == "imagePullSecrets" and isinstance(value, list):
                yield from (str(item["name"]) for item in value if isinstance(item, dict) and item.get("name"))
            yield from _secrets(value)


def _problems(manifest: Mapping[str, Any]) -> Iterator[Problem]:
    kind = str(manifest.get("kind"))
    model = KINDS.get(kind)
    if model is None:
        yield Problem("kind", f"{kind!r} is not a kind of {GROUP}", f"Use one of {', '.join(KINDS)}.")
        return
    if manifest["apiVersion"] != API_VERSION:
        yield Problem("apiVersion", f"{manifest['apiVersion']} does not exist", f"Write {API_VERSION}.")
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        yield Problem("metadata.name", "the name is missing", "Set it.")
    elif len(name) > _LONGEST.get(kind, len(name)):
        yield Problem("metadata.name", f"{name} has {len(name)} characters", f"Choose at most {_LONGEST[kind]}.")
    yield from _unknown_names(dict.fromkeys(manifest), _TOP, "")
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        yield Problem("spec", "it is missing or not an object", _SEE.format(kind=kind.lower()))
        return
    yield from _unknown(spec, model, "spec")
    yield from _invalid(spec, model, kind)


def _invalid(spec: Mapping[str, Any], model: type[BaseModel], kind: str) -> Iterator[Problem]:
    try:
        if model is FlinkJobSpec and spec.get("cluster"):
            yield from refused_fields(spec)
            parse_spec(checked_alone(spec))
        elif model is FlinkJobSpec:
            parse_spec(spec)
        elif model is FlinkClusterSpec:
            parse_cluster_spec(spec)
        elif ("savepoint" in spec) == ("checkpoint" in spec):
            yield Problem("spec", "there must be exactly one of savepoint and checkpoint", "Remove one.")
        else:
            model.model_validate(spec)
    except SpecError as error:
        yield from error.problems
    except ValidationError as error:
        for item in error.errors():
            yield Problem(".".join(["spec", *map(str, item["loc"])]), item["msg"], _SEE.format(kind=kind.lower()))


def _unknown(node: Mapping[str, Any], model: type[BaseModel], path: str) -> Iterator[Problem]:
    """Yield a problem for each field that the model does not have, at every depth."""
    fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    yield from _unknown_names(node, fields, path)
    for key, value in node.items():
        inner = _model_of(fields.get(str(key)))
        if inner is None:
            continue
        if isinstance(value, dict):
            yield from _unknown(value, inner, f"{path}.{key}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from _unknown(item, inner, f"{path}.{key}.{index}")


def _unknown_names(node: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...], path: str) -> Iterator[Problem]:
    for key in node:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Remove it. The fields are {', '.join(known)}."
            yield Problem(f"{path}.{key}".lstrip("."), "this field does not exist", remedy)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in an annotation such as `Ingress | None` or `tuple[ImagePullSecret, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_of(inner)) is not None), None)


def _line(node: yaml.Node, path: str) -> int:
    """Return the line of the deepest node on a path such as `spec.job.args.0`."""
    line: int = node.start_mark.line + 1
    rest = path.replace("['", ".").replace("']", "").replace("[", ".").replace("]", "")
    while rest:
        step = _step(node, rest)
        if step is None:
            break
        line, node, rest = step
    return line


def _step(node: yaml.Node, rest: str) -> tuple[int, yaml.Node, str] | None:
    """Return the line of the first field of a path, its value, and the rest of the path. Keys may contain dots."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            if rest == name or rest.startswith(f"{name}."):
                return key.start_mark.line + 1, value, rest[len(name) + 1 :]
    if isinstance(node, yaml.SequenceNode):
        index, _, after = rest.partition(".")
        if index.isdecimal() and int(index) < len(node.value):
            item = node.value[int(index)]
            return item.start_mark.line + 1, item, after
    return None
