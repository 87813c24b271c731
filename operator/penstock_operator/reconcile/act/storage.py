"""What is done to checkpoint storage: incarnations are fenced off, their checkpoints deleted."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observe.storage import ask_storage
from penstock_operator.storage.concurrency import few_at_a_time

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.storage.protocol import Storage


async def fence_incarnation(ctx: Context, ports: Ports, action: actions.FenceIncarnation) -> None:
    """Taking a further number does no harm. It is taken where the incarnation writes, wherever an edit points.

    Other settings than its own may open another store, in which a number fences nobody off: there it must be found.
    """
    specs = storage_specs(ctx)
    if not specs:
        return
    own, root = specs[0], specs[0].storage.checkpoints

    async def fence(storage: Storage, spec: FlinkJobSpec) -> None:
        if spec is not own and await storage.newest_complete(root, action.job_id) is None:
            raise StorageError(f"{root} answers, but has nothing of the incarnation to fence off")
        await storage.fence(root, action.job_id)

    await ask_storage(ports, ctx.subject.namespace, specs, fence)


async def release_incarnation(ctx: Context, ports: Ports, action: actions.ReleaseIncarnation) -> None:
    """Where its master looks: with the settings it was started with. Once more with the same place changes nothing."""
    spec = ctx.running_spec
    if spec is None:
        msg = "the revision that is to be released cannot be read"
        raise StorageError(msg)
    root = spec.storage.checkpoints
    await ask_storage(
        ports, ctx.subject.namespace, (spec,), lambda storage, _: storage.release(root, action.job_id, action.path)
    )


async def fence_predecessors(ctx: Context, ports: Ports, action: actions.FencePredecessors) -> None:
    """They were found with the settings of the spec as it is, and there they write."""
    specs = storage_specs(ctx)

    async def fence(job_id: str) -> None:
        await ask_storage(
            ports,
            ctx.subject.namespace,
            specs,
            lambda storage, spec: storage.fence(spec.storage.checkpoints, job_id),
        )

    await few_at_a_time(partial(fence, job_id) for job_id in action.job_ids)


async def dispose_job_storage(ctx: Context, ports: Ports, action: actions.DisposeJobStorage) -> None:
    """All checkpoints of an incarnation, where it wrote them."""
    specs = disposal_specs(ctx, action.revision)
    if not specs:
        msg = "no valid revision says where the storage is"
        raise StorageError(msg)
    root, namespace = specs[0].storage.checkpoints, ctx.subject.namespace
    op = ctx.status.operation
    disposing = op is not None and op.kind == "Delete"
    left = op.deadline - ctx.now if op is not None and op.deadline else ctx.settings.dispose_timeout
    try:
        async with asyncio.timeout(max(left.total_seconds(), 1.0) if disposing else None):
            await ask_storage(ports, namespace, specs, lambda s, _: s.dispose_job(root, action.job_id))
    except TimeoutError as error:
        msg = "checkpoint storage did not answer in the time that the deletion has"
        raise StorageError(msg) from error
