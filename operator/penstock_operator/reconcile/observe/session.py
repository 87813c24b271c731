"""Observation of a job that a FlinkCluster runs. The job has no pods and no Deployments.

The record of its start takes the place of the Deployments, and the program in the session that of the pods:

    record                 │ job in the session              │ observed as
    ───────────────────────│─────────────────────────────────│─────────────────────────────────────────────────────────
    none                   │ any                             │ no Deployments
    the job should run     │ it exists, whatever its state   │ Deployments with their pods
    the job should run     │ its start is in progress        │ Deployments, and a master that is not ready
    the job should run     │ its start was refused           │ Deployments, and a master that ends again and again
    the job should run     │ the session does not know it    │ no Deployments: the job must be started again
    the job should not run │ it has ended, or is unknown     │ Deployments without pods
    the job should not run │ it still runs                   │ Deployments with pods, so that it is cancelled again
    any                    │ the session does not respond    │ as if the job existed, if the session has run it before
    any                    │ the session's revision is gone  │ as if the session did not know the job

So the decisions about other jobs also apply to these jobs.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.api.flinkjob import rest_tls_secret
from penstock_operator.errors import EngineError, ProgramRefused, in_words
from penstock_operator.kube.cluster import CONFIG_MAP, REVISION
from penstock_operator.reconcile.observation import ENDING, TERMINAL, Deployment, Pod, Trouble
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.engine import job_client
from penstock_operator.reconcile.observe.secrets import Address
from penstock_operator.resources.names import INCARNATION
from penstock_operator.resources.names import REVISION as REVISION_MARK
from penstock_operator.resources.submission import record_name

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observation import Observation
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)

State = str | Literal["starting", "refused", "unknown", "silent"]


@dataclass(frozen=True)
class Record:
    """The record of the last start."""

    job_id: str
    revision: str
    cluster: str
    runs: bool
    start: tuple[str, ...] = ()


async def observe_session(ctx: Context, ports: Ports, cache: Cache, *, fresh: bool) -> Observation:
    """Return the observation with the job in its session."""
    owner, seen = ctx.subject.owner, ctx.seen
    if fresh:
        found = await ports.cluster.get(CONFIG_MAP, owner.namespace, record_name(owner))
        cache.dependents_at = ports.now()
        cache.record = found if parsed_record(ctx, found) is not None else None
    record = parsed_record(ctx, cache.record) or record_of_running(ctx)
    if record is None:
        return seen
    state, failure = await _state(ctx, ports, cache, record)
    running = ctx.status.running
    was_seen = running is not None and running.job_id == record.job_id
    if record.runs and (state == "unknown" or (state == "silent" and not was_seen)):
        return seen
    lives = state not in ("unknown", *TERMINAL)
    runs = record.runs or (lives and state not in (*ENDING, "silent", "refused"))
    view = Deployment(
        "master", record.revision, record.job_id, int(runs), starts_from=manifests.restore_of(record.start)
    )
    workers = replace(view, role="worker", replicas=_workers(ctx) if runs else 0, starts_from=None)
    pods = (_pod(record, state, failure, ports),) if record.runs or lives else ()
    return replace(seen, master=view, worker=workers, pods=pods)


def parsed_record(ctx: Context, found: Manifest | None) -> Record | None:
    """Return the record of a start, or None if it does not exist or another client has changed it.

    Users of the namespace may edit ConfigMaps. So a record only counts if it names the FlinkCluster of its revision.
    Otherwise the operator would cancel jobs in a FlinkCluster that the users may not use.
    """
    if found is None or not manifests.is_made_for(ctx.subject.owner, found):
        return None
    marks, data = manifests.annotations_of(found), found.get("data") or {}
    job_id, revision, cluster = marks.get(INCARNATION, ""), marks.get(REVISION_MARK, ""), data.get("cluster")
    running, spec = ctx.status.running, ctx.revision_spec(revision)
    known = spec.cluster if spec is not None else None
    if running is not None and running.job_id == job_id:
        known = running.cluster
    try:
        start = json.loads(data.get("start") or "[]")
    except ValueError:
        return None
    if known is None or cluster != known or not isinstance(start, list):
        return None
    return Record(job_id, revision, known, data.get("runs") == "true", tuple(map(str, start)))


def record_of_running(ctx: Context) -> Record | None:
    """Return the record that must have existed, if another client has deleted it."""
    running = ctx.status.running
    if running is None or running.cluster is None:
        return None
    return Record(running.job_id, running.revision, running.cluster, running.finished_at is None)


async def _state(ctx: Context, ports: Ports, cache: Cache, record: Record) -> tuple[State, str]:
    """Return the state of the job in the session, and the reason if its start has failed."""
    submission = cache.submission
    if submission is not None and submission.job_id == record.job_id:
        if submission.is_in_progress:
            return "starting", ""
        if isinstance(submission.failure, ProgramRefused):
            return "refused", in_words(submission.failure)
        if (
            submission.failure is not None
        ):  # for example because the session has ended, so the job must be started again
            log.info("%s: the start of job %s has failed: %s", record.cluster, record.job_id, submission.failure)
            cache.submission = None
    ref = ClusterRef.parse(record.cluster)
    if ref is None:
        return "unknown", ""
    try:
        client = await job_client(ctx, ports, cache, address_of(ctx, record))
        overview = await client.overview(record.job_id)
        if overview is not None:
            return overview.job.state, ""
        known = {job.id: job.state for job in await client.jobs()}
        return known.get(record.job_id, "unknown"), ""
    except EngineError:
        if await ports.cluster.get(REVISION, ref.namespace, ref.revision) is None:
            return "unknown", ""
        return "silent", ""


def address_of(ctx: Context, record: Record) -> Address:
    """Return the address of the session of a start."""
    spec = ctx.revision_spec(record.revision)
    return Address(record.cluster, rest_tls_secret(spec) if spec is not None else "")


def missing_record(ctx: Context, cache: Cache) -> tuple[str, ...]:
    """Return the name of the record if the job runs without one."""
    running = ctx.status.running
    if cache.record is not None or running is None or running.finished_at is not None:
        return ()
    return (f"ConfigMap {record_name(ctx.subject.owner)} (missing)",)


def _workers(ctx: Context) -> int:
    """Return the number of workers that the job would have. The FlinkCluster has the workers, so no rescale changes them."""
    running, op = ctx.status.running, ctx.status.operation
    if running is None:
        return 1
    target = op.target_parallelism if op is not None and op.kind == "Rescale" and op.step != "RemoveWorkers" else None
    return max(ctx.running_workers(running.parallelism), ctx.running_workers(target or 1))


def _pod(record: Record, state: State, failure: str, ports: Ports) -> Pod:
    name = f"the program in FlinkCluster {record.cluster.partition('@')[0]}"
    pod = Pod(name, "master", record.job_id, ready=state == "RUNNING", started=True, ip="session")
    if state == "starting":
        return replace(pod, started=False, ip="")
    if state == "refused":
        remedy = "Correct the program, its arguments or its packages, and edit the FlinkJob"
        trouble = Trouble("ProgramRefused", failure, remedy)
        return replace(pod, ip="", restarts=ports.settings.crash_restarts, trouble=trouble)
    return pod
