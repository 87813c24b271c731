"""Objects that record something: ControllerRevisions and FlinkSnapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock_operator.api.version import API_VERSION
from penstock_operator.resources.names import FINALIZER, JOB, MANAGER, REVISION, SNAPSHOT_TYPE, TRIGGER, Owner

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec


def controller_revision(owner: Owner, name: str, spec: FlinkJobSpec, generation: int) -> dict[str, Any]:
    """Return a ControllerRevision with the spec. The operator compares later specs with this spec, and a rollback
    returns to it.
    """
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
    """Return a FlinkSnapshot that a nonce or a schedule requests, or that represents a savepoint of an upgrade.

    It has no owner, because savepoints outlive their job. It has the finalizer from the start, so that it is never
    deleted before the operator has checked whether a restore needs the files.

    Args:
        path: location of a savepoint that already exists.
        revision: the revision that made the savepoint.
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
