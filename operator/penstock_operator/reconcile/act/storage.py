"""Changes of checkpoint storage: fence incarnations, release them, and delete their checkpoints."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock_operator.errors import StorageError
from penstock_operator.reconcile.decide import actions
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observe.storage import query_storage
from penstock_operator.resources.names import is_incarnation_of
from penstock_operator.storage.concurrency import few_at_a_time

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.storage.protocol import Storage


async def fence_incarnation(ctx: Context, ports: Ports, action: actions.FenceIncarnation) -> None:
    """Fence an incarnation in the storage that it writes to, even if an edit of the spec names another storage. A
    repeated call does no harm.

    Settings of another revision may open a different storage, where fencing has no effect. So the function first
    checks that the opened storage has data of the incarnation.
    """
    specs = storage_specs(ctx)
    if not specs:
        return
    first_spec, root = specs[0], specs[0].storage.checkpoints

    async def fence(storage: Storage, spec: FlinkJobSpec) -> None:
        if spec is not first_spec and await storage.newest_complete(root, action.job_id) is None:
            raise StorageError(f"{root} is reachable, but has no data of the incarnation to fence off")
        await storage.fence(root, action.job_id)

    await query_storage(ports, ctx.subject.namespace, specs, fence)


async def release_incarnation(ctx: Context, ports: Ports, action: actions.ReleaseIncarnation) -> None:
    """Write the release record with the settings that the waiting master was started with. A repeated call
    changes nothing.
    """
    spec = ctx.running_spec
    if spec is None:
        msg = "the revision to release cannot be read"
        raise StorageError(msg)
    root = spec.storage.checkpoints
    await query_storage(
        ports, ctx.subject.namespace, (spec,), lambda storage, _: storage.release(root, action.job_id, action.path)
    )


async def fence_predecessors(ctx: Context, ports: Ports, action: actions.FencePredecessors) -> None:
    """Fence the incarnations of earlier FlinkJobs. The settings of the current spec open their storage, because the
    operator found the incarnations with these settings.
    """
    specs = storage_specs(ctx)

    async def fence(job_id: str) -> None:
        await query_storage(
            ports,
            ctx.subject.namespace,
            specs,
            lambda storage, spec: storage.fence(spec.storage.checkpoints, job_id),
        )

    await few_at_a_time(partial(fence, job_id) for job_id in action.job_ids)


async def dispose_job_storage(ctx: Context, ports: Ports, action: actions.DisposeJobStorage) -> None:
    """Delete all checkpoints of an incarnation from the storage that it wrote to."""
    specs = disposal_specs(ctx, action.revision)
    if not specs:
        msg = "no valid revision names the storage"
        raise StorageError(msg)
    root, namespace = specs[0].storage.checkpoints, ctx.subject.namespace
    if not is_incarnation_of(namespace, ctx.subject.name, action.job_id):
        msg = f"{root}/{action.job_id} is not a folder of this FlinkJob. The operator deletes nothing in it"
        raise StorageError(msg)
    op = ctx.status.operation
    disposing = op is not None and op.kind == "Delete"
    remaining = op.deadline - ctx.now if op is not None and op.deadline else ctx.settings.dispose_timeout
    try:
        async with asyncio.timeout(max(remaining.total_seconds(), 1.0) if disposing else None):
            await query_storage(ports, namespace, specs, lambda s, _: s.dispose_job(root, action.job_id))
    except TimeoutError as error:
        msg = "checkpoint storage did not respond within the timeout of the deletion"
        raise StorageError(msg) from error
