"""What a pass has to ask, beyond the Deployments and pods it always looks at. Pure.

Storage is asked only when a decision depends on it: listing and verifying cost requests, and a running job tells its
newest checkpoint by REST.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock_operator.reconcile.decide.health.causes import failovers_told
from penstock_operator.reconcile.decide.restore.predecessor import EMPTY

if TYPE_CHECKING:
    from penstock_operator.api.status import FlinkJobStatus, Operation
    from penstock_operator.reconcile.observation import Deployment, Engine

_NEWEST_STEPS = frozenset({"Check", "Stop", "Teardown", "Watch"})


def engine_scope(status: FlinkJobStatus) -> Scope:
    """What to ask the master."""
    op = status.operation
    if op is None or op.trigger_id is None or op.step not in ("Stop", "Rescale"):
        return Scope(workers=_wants_workers(op), restarts=failovers_told(status))
    kind: Literal["stop", "rescale"] = "rescale" if op.step == "Rescale" else "stop"
    return Scope(request=op.request_id or op.trigger_id, request_kind=kind, workers=_wants_workers(op))


def storage_scope(status: FlinkJobStatus, engine: Engine, master: Deployment | None, *, restart: bool = False) -> Scope:
    """What to ask storage, now that cluster and engine have been looked at; `restart`: the pods are to be restarted."""
    op, running = status.operation, status.running
    verify: tuple[str, ...] = ()
    if op is not None and op.step in ("Verify", "Seal") and op.restore is not None and op.restore.path:
        verify = (op.restore.path,)
    seal = op.target_directory if op is not None and op.step == "Stop" and op.trigger_id is not None else None
    first = op is not None and op.kind == "Deploy" and op.step in ("Verify", "Watch") and not op.looked_back
    left = first and op is not None and op.source not in (None, EMPTY)
    over = running is None or (running.finished_at is not None and op is None)
    newest = not over and (restart or _wants_newest(op, engine, master))
    newest_of = running.job_id if newest and running else None
    return Scope(newest=newest, newest_of=newest_of, left=left, seal=seal, verify=verify)


def _wants_newest(op: Operation | None, engine: Engine, master: Deployment | None) -> bool:
    if op is not None:
        return op.step in _NEWEST_STEPS and op.kind not in ("Delete", "Rescale")
    gone = master is None or master.replicas == 0
    return gone or engine.terminal or engine.ending


def _wants_workers(op: Operation | None) -> bool:
    return op is not None and op.kind == "Rescale"


@dataclass(frozen=True)
class Scope:
    """What `observe` must ask storage, engine and cluster for this decision; the rest is not worth the cost."""

    newest: bool = False
    """The newest complete checkpoint of the running incarnation, verified."""
    newest_of: str | None = None
    """Its job id."""
    left: bool = False
    """What earlier FlinkJobs of the name have left."""
    seal: str | None = None
    verify: tuple[str, ...] = ()
    request: str | None = None
    request_kind: Literal["stop", "rescale"] = "stop"
    restarts: int | None = None
    """Of more than these the cause is asked, also of a job that is RUNNING again."""
    check: bool = False
    workers: bool = False
