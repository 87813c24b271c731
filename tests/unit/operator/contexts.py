"""Short constructors of specs, statuses and observations for the table tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
from penstock_operator.api.status.incarnation import Running
from penstock_operator.api.status.operation import Operation
from penstock_operator.api.status.snapshots import Restore
from penstock_operator.engine.account import Checkpoints
from penstock_operator.reconcile.decide.context import Context, Subject
from penstock_operator.reconcile.decide.spec_diff import revision_hash
from penstock_operator.reconcile.observation import Deployment, Engine, Observation, Pod, Revisions, Storage
from penstock_operator.storage.snapshots import StoredSnapshot
from tests.unit.operator.world import flinkjob

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
JOB_ID = "a" * 32
CHK = f"s3://bucket/checkpoints/{JOB_ID}/chk-7"
SAVEPOINT = "s3://bucket/savepoints/default/weather/op-1/savepoint-aaaaaa-1"


def make_spec(**changes: Any) -> FlinkJobSpec:
    raw = flinkjob()["spec"]
    for key, value in changes.items():
        raw[key] = {**raw.get(key, {}), **value} if isinstance(value, dict) else value
    return FlinkJobSpec.model_validate(raw)


def revision(spec: FlinkJobSpec | None = None) -> str:
    return f"weather-{revision_hash(spec or make_spec())}"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def make_running(spec: FlinkJobSpec | None = None, **changes: Any) -> Running:
    spec = spec or make_spec()
    values: dict[str, Any] = {
        "revision": revision(spec),
        "generation": 1,
        "job_id": JOB_ID,
        "image": spec.image,
        "parallelism": 2,
        "started_at": ago(600),
        "restored_from": Restore(kind="Fresh", reason="first deployment"),
        "stable": True,
        "had_checkpoint": True,
    }
    return Running(**{**values, **changes})


def make_op(kind: str, step: str, **changes: Any) -> Operation:
    values: dict[str, Any] = {
        "id": "op",
        "kind": kind,
        "step": step,
        "started_at": ago(10),
        "step_since": ago(5),
        "target_revision": revision(),
        "target_generation": 1,
    }
    return Operation(**{**values, **changes})


def chk(**changes: Any) -> StoredSnapshot:
    return StoredSnapshot(**{"path": CHK, "checkpoint_id": 7, "job_id": JOB_ID, "time": ago(20), **changes})


def pod(role: str = "master", **changes: Any) -> Pod:
    values = {
        "name": f"weather-{role}-1",
        "role": role,
        "job_id": JOB_ID,
        "ready": True,
        "started": True,
        "ip": "10.0.0.1",
    }
    return Pod(**{**values, **changes})


def deployment(role: str = "master", **changes: Any) -> Deployment:
    replicas = 1 if role == "master" else 2
    values = {"role": role, "revision": revision(), "job_id": JOB_ID, "replicas": replicas, "ready": replicas}
    return Deployment(**{**values, **changes})


def engine(state: str | None = "RUNNING", **changes: Any) -> Engine:
    if state is None:
        return Engine(error="nobody answers", silent_for=timedelta(minutes=5))
    points = Checkpoints(completed=7, latest_id=7, latest_path=CHK, latest_at=ago(20))
    return Engine(reachable=True, job_id=JOB_ID, state=state, checkpoints=points, **changes)


def stored(newest: StoredSnapshot | None = None, **changes: Any) -> Storage:
    return Storage(was_read=True, newest=newest, **changes)


def up(**changes: Any) -> Observation:
    """Return the observation of a job that runs normally."""
    seen = Observation(
        master=deployment("master"),
        worker=deployment("worker"),
        pods=(pod("master"), pod("worker"), pod("worker", name="weather-worker-2")),
        engine=engine(),
        storage=stored(chk()),
        revisions=Revisions({revision(): make_spec().to_manifest()}),
    )
    return replace(seen, **changes)


def make_context(
    spec: FlinkJobSpec | None = None,
    *,
    seen: Observation | None = None,
    subject: dict[str, Any] | None = None,
    **status: Any,
) -> Context:
    """Return the context of a FlinkJob with a finalizer whose job runs, except for the given changes."""
    who = Subject("default", "weather", "uid-1", 1, created=ago(3600), finalizer=True)
    status.setdefault("running", make_running())
    status.setdefault("stable_revision", revision())
    return Context(
        subject=replace(who, **(subject or {})),
        spec=spec or make_spec(),
        status=FlinkJobStatus(**status),
        now=NOW,
        seen=seen or up(),
    )
