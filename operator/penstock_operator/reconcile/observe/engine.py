"""Observation of the job's master. If the master does not respond, the result records that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.engine.account import Progress
from penstock_operator.engine.client import JobOverview
from penstock_operator.errors import EngineError, EngineUnreachable, in_words
from penstock_operator.reconcile.cache import Newest
from penstock_operator.reconcile.decide.health.pace import known_without_checkpoint
from penstock_operator.reconcile.decide.operations.dispose import storage_timeout
from penstock_operator.reconcile.observation import Engine
from penstock_operator.reconcile.observe.manifests import in_the_spec
from penstock_operator.reconcile.observe.scope import engine_scope
from penstock_operator.reconcile.observe.secrets import master_of, read_master_tls, read_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from penstock_operator.engine.client import EngineClient
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observe.scope import Scope
    from penstock_operator.reconcile.observe.secrets import ServedMaster
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.resources.names import Owner

_T = TypeVar("_T")
_D = TypeVar("_D")


async def query_master(ctx: Context, ports: Ports, cache: Cache) -> Engine:
    """Return the state of the job, and the information that the operation in progress needs."""
    running, seen = ctx.status.running, ctx.seen
    alive = any(p.ip and not p.terminating for p in seen.pods_of("master"))
    if running is None or seen.master is None or not alive:
        cache.silent_since = None
        return Engine(error="the job has no master", absent=True)
    try:
        client = await job_client(ctx, ports, cache, running)
        async with asyncio.timeout(storage_timeout(ctx)):
            engine = await _query(client, running.job_id, engine_scope(ctx.status))
            if running.cluster is not None and engine.slots_total:
                free = (await client.session()).free_slots  # jobs of other FlinkJobs have the other slots
                engine = replace(engine, slots_total=free + (engine.parallelism or 0))
            engine = await _with_autoscaler(ctx, client, engine)
    except Exception as error:  # an invalid response must not stop the handling of the job
        if isinstance(error, EngineError) and error.status == 401:
            cache.token = None
        cache.tls_of = ""  # the CA may have been renewed
        now = ports.now()
        cache.silent_since = cache.silent_since or now
        return Engine(error=in_words(error), silent_for=now - cache.silent_since)
    cache.silent_since = None
    return engine


async def job_client(ctx: Context, ports: Ports, cache: Cache, running: ServedMaster) -> EngineClient:
    """Return a client for the master of an incarnation. The token and the CA are read once for each master."""
    where = master_of(ctx.subject.namespace, ctx.subject.name, running)
    if cache.token is None or cache.token_of != where.secrets:
        cache.token, cache.token_of = await _token(where, ports), where.secrets
    if running.rest_tls and cache.tls_of != running.rest_tls:
        cache.tls = await read_master_tls(ports, where.namespace, running)
        cache.tls_of = running.rest_tls
    return ports.engines(where.namespace, where.name, cache.token, cache.tls if running.rest_tls else None)


def without_checkpoint(ctx: Context, engine: Engine, cache: Cache, monotonic: float) -> timedelta:
    """Return the time for which no new checkpoint of the running incarnation was observed. Remember the newest
    checkpoint.

    A new process continues from the minimum time that the status shows. A checkpoint is new if it differs from the
    checkpoint in the status.
    """
    running, last, newest = ctx.status.running, ctx.status.last_checkpoint, cache.newest
    if running is None:
        cache.newest = None
        return timedelta(0)
    reported = engine.checkpoints.latest_id if engine.reachable and engine.job_id == running.job_id else None
    if newest is None or newest.job_id != running.job_id:
        known = last.id if last is not None and last.job_id == running.job_id else None
        waited = known_without_checkpoint(ctx.status, ctx.effective_spec) if newest is None else timedelta(0)
        newest = Newest(running.job_id, known, monotonic - waited.total_seconds())
    if reported is not None and reported != newest.checkpoint:
        newest = Newest(running.job_id, reported, monotonic)
    cache.newest = newest
    return timedelta(seconds=monotonic - newest.since)


async def _query(client: EngineClient, job_id: str, scope: Scope) -> Engine:
    overview = await client.overview(job_id) or await _overview_by_parts(client, job_id)
    if isinstance(overview, str):
        return Engine(reachable=True, error=overview)
    engine = Engine(
        reachable=True,
        job_id=job_id,
        state=overview.job.state,
        parallelism=overview.job.parallelism,
        checkpoints=overview.checkpoints,
        restarts=overview.progress.restarts,
        rescaled=overview.progress.rescaled,
        exception=overview.exception,
        end_of_input=overview.end_of_input,
    )
    if scope.restarts is not None and engine.restarts > scope.restarts and not engine.exception:
        engine = replace(engine, exception=await _or_default(client.exception(job_id), ""))
    engine = replace(engine, exception=in_the_spec(engine.exception))
    if scope.workers:
        engine = replace(
            engine,
            slots_total=await client.slots(),
            parallelism=await client.parallelism(job_id),
            busy_workers=await _or_default(client.busy_workers(), frozenset()),
        )
    if scope.request:
        request = await client.request(job_id, scope.request_kind, scope.request)
        engine = replace(engine, request=request)
    return engine


async def _with_autoscaler(ctx: Context, client: EngineClient, engine: Engine) -> Engine:
    """Add the autoscaler of a running job. If the job has spare workers, add the workers that run part of the job."""
    wanted, worker = ctx.autoscaling.enabled or ctx.status.autoscaling is not None, ctx.seen.worker
    if not engine.running or engine.job_id is None or not wanted:
        return engine
    try:
        found = await client.autoscaler(engine.job_id)
    except EngineUnreachable:
        raise
    except EngineError as error:
        return replace(engine, has_autoscaler=error.status != HTTPStatus.NOT_FOUND)
    if worker is not None and worker.replicas > ctx.running_workers(found.needed):
        engine = replace(engine, busy_workers=await _or_default(client.busy_workers(), frozenset()))
    return replace(engine, autoscaler=found)


async def _overview_by_parts(client: EngineClient, job_id: str) -> JobOverview | str:
    """Return the summary from a master of an earlier version, with several requests. Return a message if the master
    does not know the job.
    """
    jobs = await client.jobs()
    job = next((j for j in jobs if j.id == job_id), None)
    if job is None:
        others = f"; it has the jobs {', '.join(j.id for j in jobs[:3])}" if jobs else ""
        return f"the master does not have job {job_id} (yet){others}"
    points = await client.checkpoints(job_id)
    progress = await _or_default(client.progress(job_id), Progress())
    exception = await _or_default(client.exception(job_id), "") if job.state != "RUNNING" else ""
    return JobOverview(job, points, progress, exception)


async def _or_default(response: Awaitable[_T], default: _D) -> _T | _D:
    """Return the response, or `default` if the master refuses the request. A master of another version may not know
    the request.
    """
    try:
        return await response
    except EngineUnreachable:
        raise
    except EngineError:
        return default


async def _token(owner: Owner, ports: Ports) -> str | None:
    return (await read_secret(ports, owner.namespace, owner.secrets)).get("rest-token")
