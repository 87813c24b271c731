"""What a change of the spec does to a running job, field by field.

    class      fields                                  what happens
    NOTHING    upgradeMode, snapshots, rollback, …      the operator acts differently from now on
    CHILDREN   ingress, networkPolicy, annotations      objects around the pods are applied
    RESCALE    job.parallelism, worker.replicas         live, without a restart
    STATE      job.state                                suspend or resume
    RESTART    image, entry, args, configuration, …     a new revision: check → savepoint → stop → start → watch
    REDEPLOY   job.savepointRedeployNonce               the same, from a savepoint the user names

A field without an entry is RESTART: whoever adds a field and forgets this table gets the safe answer (and a failing
test). The comparison is always between the spec as it is and the spec stored with the running revision, never between
the old and the new object of an event, because events get lost and merged.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.types import Api


class Effect(IntEnum):
    """What a change asks for; the strongest of all changed fields wins."""

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
"""Path in the spec (or of everything below it) → what a change of it does."""


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    path: str
    before: Any
    after: Any
    effect: Effect

    def __str__(self) -> str:
        before, after = _excerpts(_text(self.before), _text(self.after))
        return f"{self.path}: {before} → {after}"


def effect_of(path: str) -> Effect:
    """The effect of a change at `path` (`worker.slots`, `configuration.rest.port`)."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = EFFECTS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return Effect.RESTART


def diff(before: FlinkJobSpec, after: FlinkJobSpec) -> tuple[Change, ...]:
    """All changed fields, strongest effect first."""
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
    """Ten characters that stand for everything in the spec that pods are made from.

    Specs that differ only in fields of a weaker effect have the same hash: they are the same revision. Values equal
    to their default do not count, so that a new version of the operator, which knows more fields, does not see a new
    revision of every job and restart them all.
    """
    return _revision_hash(_Same(spec))


@dataclass(frozen=True, eq=False)
class _Same:
    """One spec, by identity: a pass asks for its hash a dozen times, and a spec holds maps, which have none."""

    spec: FlinkJobSpec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.spec is self.spec

    def __hash__(self) -> int:
        return id(self.spec)


@lru_cache(maxsize=256)
def _revision_hash(same: _Same) -> str:
    return _digest(dict(_relevant(_said(same.spec), "")))


def _said(part: Api) -> dict[str, Any]:
    """Without what is as if nothing had been said."""
    return part.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


def fingerprint(spec: FlinkJobSpec) -> str:
    """Stands for everything that decides whether a spec can work: a rejected one is not tried again unchanged.

    As with `revision_hash`, fields of later versions do not count as long as they have their default, so that a new version of the
    operator does not stop a running job to try again what was rejected.
    """
    job = spec.job
    return _digest(
        {
            "revision": revision_hash(spec),
            "allowNonRestoredState": job.allow_non_restored_state,
            "redeploy": job.savepoint_redeploy_nonce,
            "initialSavepointPath": job.initial_savepoint_path,
            **({"startFrom": job.start_from} if job.start_from else {}),
            "upgradeMode": job.upgrade_mode,
            "around": [
                None if part is None else {**first, **_said(part)}
                for part, first in (
                    (spec.ingress, {"annotations": {}}),
                    (spec.network_policy, {"enabled": True, "restFrom": []}),
                    (spec.service_account, {"annotations": {}}),
                )
            ],
        }
    )


def args_hash(spec: FlinkJobSpec) -> str:
    """Stands for the program: entry and arguments."""
    return _digest([spec.job.entry, *spec.job.args])


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
"""Characters shown of what both sides have in common before they differ."""


def _text(value: object) -> str:
    return "unset" if value is None else json.dumps(value, sort_keys=True)


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Both texts, cut to where they differ.

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
