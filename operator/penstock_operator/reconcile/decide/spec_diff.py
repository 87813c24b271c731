"""The effect that a change of each field of the spec has on a running job.

    class      fields                                  effect
    NOTHING    upgradeMode, snapshots, autoscaling, …   the operator uses the new value from now on, and sends the
                                                        section autoscaling to the running job
    CHILDREN   ingress, networkPolicy, annotations      objects around the pods are applied
    RESCALE    job.parallelism, worker.replicas         live, without a restart
    STATE      job.state                                suspend or resume
    RESTART    image, entry, args, configuration, …     a new revision: check → savepoint → stop → start → watch
    REDEPLOY   job.savepointRedeployNonce               the same, from a savepoint that the user names

A field without an entry has the class RESTART. So a new field that is missing from this table has the safe effect,
and a test fails. The comparison is always between the current spec and the stored spec of the running revision. It
never uses the old and new object of an event, because events can be lost and merged.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.types import Api


class Effect(IntEnum):
    """The effect of a change. The strongest effect of all changed fields applies."""

    NOTHING = 0
    CHILDREN = 1
    RESCALE = 2
    STATE = 3
    RESTART = 4
    REDEPLOY = 5


EFFECTS: Mapping[str, Effect] = {
    "job.parallelism": Effect.RESCALE,
    "job.maxParallelism": Effect.RESTART,
    "job.state": Effect.STATE,
    "job.upgradeMode": Effect.NOTHING,
    "job.initialSavepointPath": Effect.NOTHING,
    "job.startFrom": Effect.NOTHING,
    "job.allowNonRestoredState": Effect.NOTHING,
    "job.savepointTriggerNonce": Effect.NOTHING,
    "job.checkpointTriggerNonce": Effect.NOTHING,
    "job.savepointRedeployNonce": Effect.REDEPLOY,
    "job.restartNonce": Effect.RESTART,
    "job.entry": Effect.RESTART,
    "job.args": Effect.RESTART,
    "job.script": Effect.RESTART,
    "job.sql": Effect.RESTART,
    "job.source": Effect.RESTART,
    "job.requirements": Effect.RESTART,
    "cluster": Effect.RESTART,
    "image": Effect.RESTART,
    "imagePullPolicy": Effect.RESTART,
    "imagePullSecrets": Effect.RESTART,
    "configuration": Effect.RESTART,
    "podTemplate": Effect.RESTART,
    "master": Effect.RESTART,
    "worker.slots": Effect.RESTART,
    "worker.resources": Effect.RESTART,
    "worker.podTemplate": Effect.RESTART,
    "worker.replicas": Effect.RESCALE,
    "storage.checkpoints": Effect.RESTART,
    "storage.savepoints": Effect.NOTHING,
    "storage.secretName": Effect.RESTART,
    "autoscaling": Effect.NOTHING,
    "snapshots": Effect.NOTHING,
    "upgrade": Effect.NOTHING,
    "rollback": Effect.NOTHING,
    "recovery": Effect.NOTHING,
    "health": Effect.NOTHING,
    "deletion": Effect.NOTHING,
    "serviceAccount.annotations": Effect.CHILDREN,
    "serviceAccount.name": Effect.RESTART,
    "ingress": Effect.CHILDREN,
    "networkPolicy": Effect.CHILDREN,
}
"""Effects by path in the spec. An entry also applies to the fields below its path."""


@dataclass(frozen=True)
class Change:
    """One changed field."""

    path: str
    before: Any
    after: Any
    effect: Effect

    def __str__(self) -> str:
        before, after = _excerpts(_text(self.before), _text(self.after))
        return f"{self.path}: {before} → {after}"


def effect_of(path: str) -> Effect:
    """Return the effect of a change at `path` (`worker.slots`, `configuration.rest.port`)."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = EFFECTS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return Effect.RESTART


def diff(before: FlinkJobSpec, after: FlinkJobSpec) -> tuple[Change, ...]:
    """Return all changed fields, those with the strongest effect first."""
    changes = [Change(p, b, a, effect_of(p)) for p, b, a in _walk(before.to_manifest(), after.to_manifest(), "")]
    return tuple(sorted(changes, key=lambda c: (-c.effect, c.path)))


def _walk(before: Any, after: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _walk(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    else:
        yield path, before, after


def revision_hash(spec: FlinkJobSpec) -> str:
    """Return ten characters that identify the part of the spec from which the pods are created.

    Specs that differ only in fields with an effect weaker than RESTART have the same hash, because they are the same
    revision. Fields with their default value are ignored. So a new version of the operator with more fields does not
    restart all jobs.
    """
    return _revision_hash(_Same(spec))


def former_revision_hash(spec: FlinkJobSpec) -> str:
    """Return the hash of earlier versions of the operator, which restarted a job after a change of `autoscaling`. They had
    no field `autoscaling.memory`.
    """
    fields = _non_default_fields(spec)
    known = {key: value for key, value in fields.get("autoscaling", {}).items() if key != "memory"}
    return _digest({**dict(_relevant(fields, "")), **({"autoscaling": known} if known else {})})


@dataclass(frozen=True, eq=False)
class _Same:
    """Wrapper that compares a spec by identity, as a key of the cache. A pass needs the hash often, and a spec with
    maps is not hashable.
    """

    spec: FlinkJobSpec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.spec is self.spec

    def __hash__(self) -> int:
        return id(self.spec)


@lru_cache(maxsize=256)
def _revision_hash(same: _Same) -> str:
    return _digest(dict(_relevant(_non_default_fields(same.spec), "")))


def _non_default_fields(part: Api) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    return part.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def fingerprint(spec: FlinkJobSpec, hash_of: Callable[[FlinkJobSpec], str] = revision_hash) -> str:
    """Return a hash of all fields that decide whether a spec can work. A rejected spec with the same hash is not
    tried again.

    Fields of later versions are ignored as long as they have their default value, as in `revision_hash`. So a new
    version of the operator does not stop a running job to try a rejected spec again.
    """
    job = spec.job
    return _digest(
        {
            "revision": hash_of(spec),
            "allowNonRestoredState": job.allow_non_restored_state,
            "redeploy": job.savepoint_redeploy_nonce,
            "initialSavepointPath": job.initial_savepoint_path,
            **({"startFrom": job.start_from} if job.start_from else {}),
            "upgradeMode": job.upgrade_mode,
            "around": [
                None if part is None else {**first, **_non_default_fields(part)}
                for part, first in (
                    (spec.ingress, {"annotations": {}}),
                    (spec.network_policy, {"enabled": True, "restFrom": []}),
                    (spec.service_account, {"annotations": {}}),
                )
            ],
        }
    )


def args_hash(spec: FlinkJobSpec) -> str:
    """Return a hash of the program: entry, script or SQL, source, and arguments."""
    source = spec.job.source
    content = [] if source is None else [source.sha256 or _non_default_fields(source)]
    return _digest([spec.job.entry or spec.job.script or spec.job.sql, *content, *spec.job.args])


def _relevant(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        if here in EFFECTS:
            if EFFECTS[here] is Effect.RESTART:
                yield here, value
        elif isinstance(value, dict) and any(known.startswith(f"{here}.") for known in EFFECTS):
            yield from _relevant(value, here)
        else:
            yield here, value


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:10]


_SHOWN = 60
_CONTEXT = 15
"""Number of characters shown of the common part before the first difference."""


def _text(value: object) -> str:
    return "unset" if value is None else json.dumps(value, sort_keys=True)


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Return both texts, cut to the part where they differ.

    >>> _excerpts("x" * 100 + "1", "x" * 100 + "2")
    ('…xxxxxxxxxxxxxxx1', '…xxxxxxxxxxxxxxx2')
    """
    shared = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(map(len, (before, after)))
    )
    fits = max(len(before), len(after)) <= _SHOWN
    start = 0 if fits or shared < _SHOWN - _CONTEXT else shared - _CONTEXT
    return _cut(before, start), _cut(after, start)


def _cut(text: str, start: int) -> str:
    head, tail = "…" if start else "", "…" if len(text) - start > _SHOWN else ""
    return f"{head}{text[start : start + _SHOWN]}{tail}"
