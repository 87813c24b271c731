"""What a platform presets for FlinkJobs, and when a change of it takes effect. Pure.

A ConfigMap `flinkjob-defaults` (key `spec`: a part of a FlinkJob's spec, in YAML) beside the operator counts for all of
them, one in their namespace for those there and before that, and what a FlinkJob says itself before both. They are merged
like pod templates.

What a job runs with is recorded (`status.defaults`), as is what a revision has that is being brought up or would be gone back to:
what was merely read, of an edit that is then rejected, changes nothing. As long as a FlinkJob, with what is recorded, asks for the
revision that runs or is on its way, that counts, whatever the ConfigMaps say by now: nobody restarts all jobs of a cluster by
editing a default. When a job is started anyway, by an edit, a resume or a nonce, the defaults of that moment are taken, and the
difference is told with the upgrade. Jobs without a record, from before there were any, run with none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from penstock_operator.api.status import RevisionDefaults
from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import Problem, SpecError
from penstock_operator.resources.pods import merge_lists

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import FlinkJobStatus
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
"""Fields that may be preset, and of some only these. The CRD has defaults for the rest, so nobody could tell what was left out."""


@dataclass(frozen=True)
class Preset:
    """What the ConfigMaps say now, or why that cannot be used."""

    spec: Mapping[str, Any] | None
    problem: Problem | None = None


NOTHING_PRESET = Preset({})


def preset(texts: Mapping[str, str]) -> Preset:
    """
    Args:
        texts: by where they are from (`ConfigMap team-a/flinkjob-defaults`), from weak to strong.

    >>> preset({"ConfigMap a/flinkjob-defaults": "{configuration: {a: 1, b: 1}}", "ConfigMap b/x": "{configuration: {b: 2}}"}).spec
    {'configuration': {'a': 1, 'b': 2}}
    """
    found: dict[str, Any] = {}
    for where, text in texts.items():
        try:
            given = yaml.safe_load(text)
        except yaml.YAMLError as error:
            return Preset(None, Problem(where, f"{KEY} is no YAML: {' '.join(str(error).split())}", "Correct it."))
        given = {} if given is None else given
        problem = next(_problems(given, where), None)
        if problem is not None:
            return Preset(None, problem)
        found = _laid_over(found, given)
    return Preset(found)


def _problems(given: object, where: str) -> Iterator[Problem]:
    if not isinstance(given, dict):
        yield Problem(where, f"{KEY} is no object", "Write a part of a FlinkJob's spec.")
        return
    for key, value in given.items():
        parts = _ALLOWED.get(key)
        if parts is None:
            known = ", ".join(_ALLOWED)
            yield Problem(f"{where} {key}", "this field cannot be preset", f"Presets are possible for {known}.")
        elif key != "imagePullSecrets" and not isinstance(value, dict):
            yield Problem(f"{where} {key}", "it must be an object", "Write it as in a FlinkJob.")
        elif parts and isinstance(value, dict) and (others := sorted(value.keys() - set(parts))):
            yield Problem(f"{where} {key}.{others[0]}", "this field cannot be preset", f"Of {key}: {', '.join(parts)}.")


def laid_under(presets: Mapping[str, Any], raw: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    """A FlinkJob's spec with what it leaves out. An Ingress is preset as a whole, and may hold `{namespace}` and `{name}`."""
    under = dict(presets)
    if "ingress" in under:
        under["ingress"] = _filled(under["ingress"], namespace, name)
        if raw.get("ingress") is not None:
            del under["ingress"]
    return _laid_over(under, raw)


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any], *, template: bool = False) -> dict[str, Any]:
    """Maps by key, lists of named things by name. Null removes; in a pod template it stays, to remove what the operator sets, too."""
    out = dict(under)
    for key, value in over.items():
        mine, inside = out.get(key), template or key == "podTemplate"
        if value is None and not template:
            out.pop(key, None)
        elif isinstance(mine, dict) and isinstance(value, dict):
            out[key] = _laid_over(mine, value, template=inside)
        elif isinstance(mine, list) and isinstance(value, list):
            whole = key == "volumes"  # a volume has one source
            out[key] = merge_lists(mine, value, partial(_item, whole=whole))
        else:
            out[key] = value
    return out


def _item(under: Mapping[str, Any], over: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    return dict(over) if whole else _laid_over(under, over, template=True)


def _filled(value: Any, namespace: str, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(entry, namespace, name) for key, entry in value.items()}
    return value.replace("{namespace}", namespace).replace("{name}", name) if isinstance(value, str) else value


def held(status: FlinkJobStatus) -> dict[str, dict[str, Any]]:
    """The revisions that are being brought up or run, in this order, and what was preset in them."""
    known, op, running = _known(status), status.operation, status.running
    revisions = (op and op.target_revision, running and running.revision)
    return {revision: known.get(revision, {}) for revision in revisions if revision}


def recorded(
    before: FlinkJobStatus, after: FlinkJobStatus, revision: str | None, used: Mapping[str, Any]
) -> FlinkJobStatus:
    """The next status, with what is preset in the revisions that it speaks of.

    Args:
        before: what the decision was made from.
        revision: the one that the FlinkJob asks for; None if it is not valid.
        used: what is preset in that.
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
    raw: Mapping[str, Any], subject: Subject, held: Mapping[str, Mapping[str, Any]], current: Preset
) -> tuple[FlinkJobSpec, Mapping[str, Any]]:
    """The spec, and the defaults in it.

    Args:
        held: the defaults of the revisions that run or are on their way.

    Raises:
        SpecError: the spec is not valid, or the defaults that would be taken are not.
    """

    def with_these(presets: Mapping[str, Any]) -> FlinkJobSpec:
        return parse_spec(laid_under(presets, raw, subject.namespace, subject.name) if presets else raw)

    for presets in held.values():
        if presets == current.spec:
            continue
        try:
            spec = with_these(presets)
        except SpecError:
            continue  # it may be valid with what is preset now
        if subject.revision_name(spec) in held:
            return spec, presets
    if current.spec is None:
        assert current.problem is not None
        raise SpecError((current.problem,))
    return with_these(current.spec), current.spec
