"""The defaults of a platform for FlinkJobs, and the time when a change of the defaults takes effect. Pure functions.

A ConfigMap `flinkjob-defaults` has the key `spec` with a part of a FlinkJob's spec in YAML. The ConfigMap in the
operator's namespace applies to all FlinkJobs. A ConfigMap in the namespace of the jobs takes precedence over it. The
FlinkJob itself takes precedence over both ConfigMaps. The operator merges the three specs like pod templates.

The status records the defaults of the running revision (`status.defaults`). It also records the defaults of the
revision that is being rolled out, and of the revision that a rollback would return to. If an edit is rejected, the
defaults that were read for the edit change nothing.

The operator first evaluates the FlinkJob with the recorded defaults. If the result is the running revision, or the
revision that is being rolled out, nothing changes. The current ConfigMaps do not matter then. So an edit of a default
does not restart all jobs of a cluster.

A job may be started for another reason, such as an edit, a resume or a nonce. The start then uses the current defaults,
and the upgrade reports the difference. Jobs without a record started before defaults existed, and run without defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.api.cluster_fields import CLUSTER_KEYS
from penstock_operator.api.status.flinkjob_status import RevisionDefaults
from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import Problem, SpecError
from penstock_operator.resources.pods import merge_lists

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.reconcile.decide.context import Subject

CONFIG_MAP_NAME = "flinkjob-defaults"
KEY = "spec"

_ALLOWED: Mapping[str, Collection[str]] = {
    "configuration": (),
    "imagePullSecrets": (),
    "ingress": (),
    "master": ("podTemplate", "resources"),
    "networkPolicy": ("restFrom",),
    "podTemplate": (),
    "serviceAccount": (),
    "storage": ("secretName",),
    "worker": ("podTemplate", "resources"),
}
"""Fields that can have a default, with the allowed subfields. All other fields have a default in the CRD, so the
operator could not detect that the user omitted them.
"""


@dataclass(frozen=True)
class Preset:
    """The current defaults, or the problem that prevents their use."""

    spec: Mapping[str, Any] | None
    problem: Problem | None = None


NOTHING_PRESET = Preset({})


def preset(texts: Mapping[str, str]) -> Preset:
    """Return the merged defaults.

    Args:
        texts: YAML by its source (`ConfigMap team-a/flinkjob-defaults`). Later entries take precedence over earlier
            entries.

    >>> preset({"ConfigMap a/flinkjob-defaults": "{configuration: {a: 1, b: 1}}", "ConfigMap b/x": "{configuration: {b: 2}}"}).spec
    {'configuration': {'a': 1, 'b': 2}}
    """
    found: dict[str, Any] = {}
    for where, text in texts.items():
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError as error:
            return Preset(None, Problem(where, f"{KEY} is not YAML: {' '.join(str(error).split())}", "Correct it."))
        parsed = {} if parsed is None else parsed
        problem = next(_problems(parsed, where), None)
        if problem is not None:
            return Preset(None, problem)
        found = _merged(found, parsed)
    return Preset(found)


def of_session_job(current: Preset) -> Preset:
    """Return the defaults that apply to a FlinkJob in a FlinkCluster: the configuration, without the keys of the whole cluster. All other
    fields with a default belong to the FlinkCluster.

    >>> of_session_job(Preset({"configuration": {"a": 1, "rest.port": 1}, "podTemplate": {}})).spec
    {'configuration': {'a': 1}}
    """
    if current.spec is None:
        return current
    kept = {k: v for k, v in (current.spec.get("configuration") or {}).items() if not str(k).startswith(CLUSTER_KEYS)}
    return Preset({"configuration": kept}) if kept else NOTHING_PRESET


def _problems(parsed: object, where: str) -> Iterator[Problem]:
    if not isinstance(parsed, dict):
        yield Problem(where, f"{KEY} is not an object", "Write fields of a FlinkJob's spec, such as configuration.")
        return
    for key, value in parsed.items():
        parts = _ALLOWED.get(key)
        if parts is None:
            known = ", ".join(_ALLOWED)
            yield Problem(f"{where} {key}", "this field cannot be preset", f"Presets are possible for {known}.")
        elif key != "imagePullSecrets" and not isinstance(value, dict):
            yield Problem(f"{where} {key}", "it must be an object", "Write it as in a FlinkJob.")
        elif parts and isinstance(value, dict) and (others := sorted(value.keys() - set(parts))):
            yield Problem(
                f"{where} {key}.{others[0]}",
                "this field cannot be preset",
                f"Presets of {key} are possible for {', '.join(parts)}.",
            )


def merged_over(presets: Mapping[str, Any], raw: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """Return a FlinkJob's spec merged over the defaults. The Ingress is not merged: the FlinkJob's Ingress replaces the
    default. The default Ingress may contain `{namespace}` and `{name}`.
    """
    under = dict(presets)
    if "ingress" in under:
        under["ingress"] = _with_placeholders_filled(under["ingress"], namespace, name)
        if raw.get("ingress") is not None:
            del under["ingress"]
    return _merged(under, raw)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any], *, template: bool = False) -> dict[str, Any]:
    """Merge maps by key, and lists of named items by name. A null value in `over` removes the value in `under`.

    In a pod template, the null value remains, so that it also removes the operator's value later.
    """
    out = dict(under)
    for key, value in over.items():
        mine, inside = out.get(key), template or key == "podTemplate"
        if value is None and not template:
            out.pop(key, None)
        elif isinstance(mine, dict) and isinstance(value, dict):
            out[key] = _merged(mine, value, template=inside)
        elif isinstance(mine, list) and isinstance(value, list):
            whole = key == "volumes"  # a volume has one source
            out[key] = merge_lists(mine, value, partial(_item, whole=whole))
        else:
            out[key] = value
    return out


def _item(under: Mapping[str, Any], over: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    return dict(over) if whole else _merged(under, over, template=True)


def _with_placeholders_filled(value: Any, namespace: str, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_placeholders_filled(entry, namespace, name) for key, entry in value.items()}
    return value.replace("{namespace}", namespace).replace("{name}", name) if isinstance(value, str) else value


def recorded_defaults(status: FlinkJobStatus) -> dict[str, dict[str, Any]]:
    """Return the defaults of the revision that is being rolled out and of the running revision, in this order."""
    known, op, running = _known(status), status.operation, status.running
    revisions = (op and op.target_revision, running and running.revision)
    return {revision: known.get(revision, {}) for revision in revisions if revision}


def recorded(
    before: FlinkJobStatus, after: FlinkJobStatus, revision: str | None, used: Mapping[str, Any]
) -> FlinkJobStatus:
    """Return the next status with the defaults of the revisions in it.

    Args:
        before: the status that the decision used.
        revision: the revision of the current spec. None means that the spec is not valid.
        used: the defaults of that revision.
    """
    known = _known(before)
    if revision is not None:
        known[revision] = dict(used)
    op, running = after.operation, after.running
    others = {after.stable_revision, *((op.target_revision, op.fallback_revision) if op else ())}
    defaults = after.defaults
    if running is not None:
        defaults = known.get(running.revision) or None
        others.discard(running.revision)
    kept = (
        RevisionDefaults(revision=name, defaults=known[name])
        for name in sorted(filter(None, others))
        if known.get(name)
    )
    return after.model_copy(update={"defaults": defaults, "revision_defaults": tuple(kept)})


def _known(status: FlinkJobStatus) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {kept.revision: kept.defaults for kept in status.revision_defaults}
    if status.running is not None:
        known[status.running.revision] = status.defaults or {}
    return known


def spec_with_defaults(
    raw: Mapping[str, Any],
    subject: Subject,
    recorded_defaults: Mapping[str, Mapping[str, Any]],
    current: Preset,
    parse: Callable[[object], FlinkJobSpec] = parse_spec,
) -> tuple[FlinkJobSpec, Mapping[str, Any]]:
    """Return the spec with its defaults, and these defaults.

    Args:
        recorded_defaults: the defaults of the revisions that run or are being rolled out.
        parse: `parse_spec`, or a cache of it.

    Raises:
        SpecError: the spec or the defaults are not valid.
    """

    def with_presets(presets: Mapping[str, Any]) -> FlinkJobSpec:
        return parse(merged_over(presets, raw, subject.namespace, subject.name) if presets else raw)

    for presets in recorded_defaults.values():
        if presets == current.spec:
            continue
        try:
            spec = with_presets(presets)
        except SpecError:
            continue  # the spec may be valid with the current defaults
        if not subject.revision_names(spec).isdisjoint(recorded_defaults):
            return spec, presets
    if current.spec is None:
        assert current.problem is not None
        raise SpecError((current.problem,))
    return with_presets(current.spec), current.spec
