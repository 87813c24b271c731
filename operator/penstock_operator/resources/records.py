"""Objects that record something: revisions and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock_operator.api.version import API_VERSION
from penstock_operator.resources.names import FINALIZER, JOB, MANAGER, REVISION, SNAPSHOT_TYPE, TRIGGER, Owner

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec


def controller_revision(owner: Owner, name: str, spec: FlinkJobSpec, generation: int) -> dict[str, Any]:
    """A spec under the name of its revision: what is diffed against, and what a rollback goes back to."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owner.metadata(name),
        "data": {"spec": spec.to_manifest()},
        "revision": generation,
    }


def flink_snapshot(
    owner: Owner,
    name: str,
    *,
    trigger: Literal["nonce", "periodic", "upgrade"],
    kind: Literal["savepoint", "checkpoint"],
    path: str | None = None,
    revision: str | None = None,
) -> dict[str, Any]:
    """A FlinkSnapshot asked for by nonce or clock, or standing for a savepoint that an upgrade has made.

    It has no owner: savepoints outlive their job. The finalizer is there from the first moment, so that nobody's deletion
    comes before the question whether a restore needs the files.

    Args:
        path: of a savepoint that exists already.
        revision: the one that made it.
    """
    spec: dict[str, Any] = {"jobRef": {"name": owner.name}}
    if kind == "checkpoint":
        spec["checkpoint"] = {}
    elif path is None:
        spec["savepoint"] = {}
    else:
        spec["savepoint"] = {"path": path}
    return {
        "apiVersion": API_VERSION,
        "kind": "FlinkSnapshot",
        "metadata": {
            "name": name,
            **({"annotations": {REVISION: revision}} if revision else {}),
            "namespace": owner.namespace,
            "finalizers": [FINALIZER],
            "labels": {
                JOB: owner.name,
                TRIGGER: trigger,
                SNAPSHOT_TYPE: kind,
                "app.kubernetes.io/managed-by": MANAGER,
            },
        },
        "spec": spec,
    }
