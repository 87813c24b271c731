"""The requests of a pass in addition to the Deployments and pods, which every pass reads. Pure functions.

Storage is only read if a decision depends on it, because listing and verifying cost requests. A running job reports
its newest checkpoint over REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock_operator.reconcile.decide.health.causes import counted_failovers
from penstock_operator.reconcile.decide.restore.predecessor import EMPTY

if TYPE_CHECKING:
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.operation import Operation
    from penstock_operator.reconcile.observation import Deployment, Engine

_NEWEST_STEPS = frozenset({"Check", "Stop", "Teardown", "Watch"})


def engine_scope(status: FlinkJobStatus) -> Scope:
    """Return the requests to the master."""
    op = status.operation
    if op is None or op.trigger_id is None or op.step not in ("Stop", "Rescale"):
        return Scope(workers=_wants_workers(op), restarts=counted_failovers(status))
    kind: Literal["stop", "rescale"] = "rescale" if op.step == "Rescale" else "stop"
    return Scope(request=op.request_id or op.trigger_id, request_kind=kind, workers=_wants_workers(op))


def storage_scope(status: FlinkJobStatus, engine: Engine, master: Deployment | None, *, restart: bool = False) -> Scope:
    """Return the requests to storage, after the cluster and the engine were read. `restart` means that the pods will
    be restarted.
    """
    op, running = status.operation, status.running
    verify: tuple[str, ...] = ()
    if op is not None and op.step in ("Verify", "Seal") and op.restore is not None and op.restore.path:
        verify = (op.restore.path,)
    seal = op.target_directory if op is not None and op.step == "Stop" and op.trigger_id is not None else None
    first = op is not None and op.kind == "Deploy" and op.step in ("Verify", "Watch") and not op.looked_back
    reads_earlier_state = first and op is not None and op.source not in (None, EMPTY)
    over = running is None or (running.finished_at is not None and op is None)
    unknown = running is not None and running.origin_unknown and (op is None or op.kind != "Delete")
    newest = not over and (restart or unknown or _wants_newest(op, engine, master))
    newest_of = running.job_id if newest and running else None
    return Scope(
        newest=newest,
        newest_of=newest_of,
        beginning=newest and unknown,
        left=reads_earlier_state,
        seal=seal,
        verify=verify,
    )


def _wants_newest(op: Operation | None, engine: Engine, master: Deployment | None) -> bool:
    if op is not None and op.step in _NEWEST_STEPS and op.kind not in ("Delete", "Rescale"):
        return True
    if op is not None and (op.kind, op.step) != ("Redeploy", "Verify"):
        return False
    gone = master is None or master.replicas == 0
    return gone or engine.terminal or engine.ending


def _wants_workers(op: Operation | None) -> bool:
    return op is not None and op.kind == "Rescale"


@dataclass(frozen=True)
class Scope:
    """The requests to storage, engine and cluster that this decision needs."""

    newest: bool = False
    """Read the newest complete checkpoint of the running incarnation, and verify it."""
    newest_of: str | None = None
    """Job id of that incarnation."""
    beginning: bool = False
    """Read the records in storage that show how that incarnation was started."""
    left: bool = False
    """Read the state that earlier FlinkJobs of the name have left."""
    seal: str | None = None
    verify: tuple[str, ...] = ()
    request: str | None = None
    request_kind: Literal["stop", "rescale"] = "stop"
    restarts: int | None = None
    """Number of known restarts. If the job has more, read the cause, even if the job is RUNNING again."""
    check: bool = False
    workers: bool = False
