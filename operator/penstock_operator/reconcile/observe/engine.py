"""What the job's master says of it. One that does not answer is recorded as that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.engine.account import Progress
from penstock_operator.engine.client import Glance
from penstock_operator.errors import EngineError, EngineUnreachable, in_words
from penstock_operator.reconcile.decide.operations.dispose import longest_answer
from penstock_operator.reconcile.observation import Engine
from penstock_operator.reconcile.observe.manifests import in_the_spec
from penstock_operator.reconcile.observe.scope import engine_scope
from penstock_operator.reconcile.observe.secrets import read_secret
from penstock_operator.resources.names import Owner

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from penstock_operator.engine.client import EngineClient
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observe.scope import Scope
    from penstock_operator.reconcile.ports import Ports

_T = TypeVar("_T")


async def ask_master(ctx: Context, ports: Ports, cache: Cache) -> Engine:
    """How the job is, and what else the operation in progress needs to know."""
    running, seen = ctx.status.running, ctx.seen
    alive = any(p.ip and not p.terminating for p in seen.pods_of("master"))
    if running is None or seen.master is None or not alive:
        cache.silent_since = None
        return Engine(error="there is no master", absent=True)
    try:
        if cache.token is None:
            cache.token = await _token(ctx.subject.owner, ports)
        client = ports.engines(ctx.subject.namespace, ctx.subject.name, cache.token)
        async with asyncio.timeout(longest_answer(ctx)):
            engine = await _ask(client, running.job_id, engine_scope(ctx.status))
    except Exception as error:  # a master that says what nobody understands is no reason to leave its job alone
        if isinstance(error, EngineError) and error.status == 401:
            cache.token = None
        now = ports.now()
        cache.silent_since = cache.silent_since or now
        return Engine(error=in_words(error), silent_for=now - cache.silent_since)
    cache.silent_since = None
    return engine


async def _ask(client: EngineClient, job_id: str, scope: Scope) -> Engine:
    glance = await client.glance(job_id) or await _pieces(client, job_id)
    if isinstance(glance, str):
        return Engine(reachable=True, error=glance)
    engine = Engine(
        reachable=True,
        job_id=job_id,
        state=glance.job.state,
        parallelism=glance.job.parallelism,
        checkpoints=glance.checkpoints,
        restarts=glance.progress.restarts,
        rescaled=glance.progress.rescaled,
        exception=glance.exception,
        end_of_input=glance.end_of_input,
    )
    if scope.restarts is not None and engine.restarts > scope.restarts and not engine.exception:
        engine = replace(engine, exception=await _told(client.exception(job_id), ""))
    engine = replace(engine, exception=in_the_spec(engine.exception))
    if scope.workers:
        engine = replace(
            engine,
            slots_total=await client.slots(),
            parallelism=await client.parallelism(job_id),
            busy_workers=await _told(client.busy_workers(), frozenset()),
        )
    if scope.request:
        request = await client.request(job_id, scope.request_kind, scope.request)
        engine = replace(engine, request=request)
    return engine


async def _pieces(client: EngineClient, job_id: str) -> Glance | str:
    """The same from a master of an earlier version; in words, if it does not know the job."""
    jobs = await client.jobs()
    job = next((j for j in jobs if j.id == job_id), None)
    if job is None:
        others = f"; it knows {', '.join(j.id for j in jobs[:3])}" if jobs else ""
        return f"the master does not know job {job_id} (yet){others}"
    points = await client.checkpoints(job_id)
    progress = await _told(client.progress(job_id), Progress())
    exception = await _told(client.exception(job_id), "") if job.state != "RUNNING" else ""
    return Glance(job, points, progress, exception)


async def _told(answer: Awaitable[_T], otherwise: _T) -> _T:
    """What a master may leave unanswered without harm: one of another version does not know every question."""
    try:
        return await answer
    except EngineUnreachable:
        raise
    except EngineError:
        return otherwise


async def _token(owner: Owner, ports: Ports) -> str | None:
    return (await read_secret(ports, owner.namespace, owner.secrets)).get("rest-token")
