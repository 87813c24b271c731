"""Objects that record something: revisions, snapshots, events."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import format_time
from penstock_operator.api.version import API_VERSION
from penstock_operator.resources.names import FINALIZER, JOB, MANAGER, REVISION, SNAPSHOT_TYPE, TRIGGER, Owner

if TYPE_CHECKING:
    from datetime import datetime

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.actions import CreateSnapshot, Event


def controller_revision(owner: Owner, name: str, spec: FlinkJobSpec, generation: int) -> dict[str, Any]:
    """A spec under the name of its revision: what is diffed against, and what a rollback goes back to."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owner.metadata(name),
        "data": {"spec": spec.to_manifest()},
        "revision": generation,
    }


def flink_snapshot(owner: Owner, wish: CreateSnapshot) -> dict[str, Any]:
    """A FlinkSnapshot asked for by nonce or clock, or standing for a savepoint that an upgrade has made.

    It has no owner: savepoints outlive their job. The finalizer is there from the first moment, so that nobody's deletion
    comes before the question whether a restore needs the files.
    """
    spec: dict[str, Any] = {"jobRef": {"name": owner.name}}
    if wish.kind == "checkpoint":
        spec["checkpoint"] = {}
    elif wish.path is None:
        spec["savepoint"] = {}
    else:
        spec["savepoint"] = {"path": wish.path}
    return {
        "apiVersion": API_VERSION,
        "kind": "FlinkSnapshot",
        "metadata": {
            "name": wish.name,
            **({"annotations": {REVISION: wish.revision}} if wish.revision else {}),
            "namespace": owner.namespace,
            "finalizers": [FINALIZER],
            "labels": {
                JOB: owner.name,
                TRIGGER: wish.trigger,
                SNAPSHOT_TYPE: wish.kind,
                "app.kubernetes.io/managed-by": MANAGER,
            },
        },
        "spec": spec,
    }


def kube_event(kind: str, owner: Owner, event: Event, now: datetime, instance: str) -> dict[str, Any]:
    """A Kubernetes Event. Its name follows from what it tells, so that telling it again makes no second one."""
    digest = hashlib.sha256(f"{owner.uid}|{event.key}|{event.reason}".encode()).hexdigest()[:16]
    time = format_time(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{owner.name}.{digest}", "namespace": owner.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": kind,
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "reportingInstance": instance,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
