"""What checkpoint storage says of a job, opened with the settings of whoever has written there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.errors import KubeError, NotLeader, StorageError, in_words
from penstock_operator.reconcile.decide.health.rules import restart_due
from penstock_operator.reconcile.decide.operations.dispose import longest_answer
from penstock_operator.reconcile.decide.savepoints.asked import late_folders
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observation import Storage
from penstock_operator.reconcile.observe.scope import storage_scope
from penstock_operator.reconcile.observe.secrets import read_secret
from penstock_operator.resources.names import incarnation_prefix, savepoint_folder
from penstock_operator.storage.snapshots import Left, StoredSnapshot, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observe.scope import Scope
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.storage.protocol import Storage as StoragePort

_T = TypeVar("_T")

OTHER_SETTINGS = "; and with the settings of another revision: "


async def open_storage(ports: Ports, namespace: str, spec: FlinkJobSpec) -> StoragePort:
    """The storage of a job, with the credentials it names."""
    name = spec.storage.secret_name
    try:
        secret = await read_secret(ports, namespace, name) if name else {}
    except KubeError as error:
        msg = f"the Secret {name} (storage.secretName) cannot be read: {error}"
        raise StorageError(msg) from error
    if name and not secret:
        msg = f"the Secret {name} (storage.secretName) does not exist or is empty"
        raise StorageError(msg)
    return ports.storages(spec, secret)


async def ask_storage(
    ports: Ports,
    namespace: str,
    specs: Sequence[FlinkJobSpec],
    ask: Callable[[StoragePort, FlinkJobSpec], Awaitable[_T]],
) -> _T:
    """The answer of storage, opened with the settings of the first spec with which it answers."""
    errors: list[str] = []
    for spec in specs:
        try:
            return await ask(await open_storage(ports, namespace, spec), spec)
        except NotLeader:
            raise
        except (
            Exception
        ) as error:  # whatever a driver raises: storage has not answered, and that is all there is to know
            errors.append(in_words(error))
    raise StorageError(OTHER_SETTINGS.join(errors))


async def ask_for_state(ctx: Context, ports: Ports) -> Storage:
    """What the decision depends on, and nothing else."""
    scope = storage_scope(ctx.status, ctx.seen.engine, ctx.seen.master, restart=restart_due(ctx))
    if not (scope.newest or scope.left or scope.seal or scope.verify):
        return Storage()
    specs = storage_specs(ctx)
    if ctx.status.operation is not None and ctx.status.operation.step == "Verify":
        specs = tuple(s for s in (ctx.effective_spec,) if s is not None)
    if not specs:
        return Storage(error="no valid spec says where the storage is")
    own = specs[0]

    async def read(storage: StoragePort, spec: FlinkJobSpec) -> Storage:
        found = await _read(storage, own.storage.checkpoints, scope)
        if scope.left:
            found = replace(found, left=await _left(ctx, storage, spec))
        if spec is not own and not _has_it(found, scope):
            raise StorageError(f"{spec.storage.checkpoints} answers, but has nothing of the job that runs")
        return found

    try:
        async with asyncio.timeout(longest_answer(ctx)):
            return await ask_storage(ports, ctx.subject.namespace, specs, read)
    except StorageError as error:
        return Storage(asked=True, error=str(error))
    except TimeoutError:
        return Storage(asked=True, error="checkpoint storage did not answer in the time that the deletion has")


async def ask_for_late(ctx: Context, ports: Ports) -> dict[str, StoredSnapshot | None]:
    """What has become of savepoints that nobody waits for any more; nothing of those that storage says nothing about."""
    found: dict[str, StoredSnapshot | None] = {}
    folders = set(late_folders(ctx.status, ctx.now))
    for entry in ctx.status.asked_savepoints:
        if entry.directory not in folders:
            continue
        specs, folder = disposal_specs(ctx, entry.revision), entry.directory
        try:
            async with asyncio.timeout(longest_answer(ctx)):
                made = await ask_storage(ports, ctx.subject.namespace, specs, lambda s, _, f=folder: s.savepoints(f))  # type: ignore[misc]
        except (StorageError, TimeoutError):
            break
        found[folder] = made[0] if made else None
    return found


async def _read(storage: StoragePort, root: str, scope: Scope) -> Storage:
    newest: StoredSnapshot | None = None
    verdicts: dict[str, Verdict] = {}
    if scope.newest_of:
        newest = await storage.newest_complete(root, scope.newest_of)
    for path in scope.verify:
        verdicts[path] = await storage.verify(path)
    sealed = (await storage.savepoints(scope.seal))[:1] if scope.seal else []
    return Storage(asked=True, newest=newest, sealed=sealed[0] if sealed else None, verdicts=verdicts)


async def _left(ctx: Context, storage: StoragePort, spec: FlinkJobSpec) -> Left:
    """What earlier FlinkJobs of the name have left: in the folders of the name, and wherever a FlinkSnapshot says."""
    subject, places = ctx.subject, spec.storage
    prefix = incarnation_prefix(subject.namespace, subject.name)
    found = await storage.left_by(
        places.checkpoints, prefix, places.savepoints, savepoint_folder(subject.namespace, subject.name)
    )
    running = ctx.status.running
    own = {running.job_id} if running is not None else set()
    known = {snapshot.path for snapshot in found.snapshots}
    more = [
        snapshot
        for snapshot in ctx.seen.snapshots
        if snapshot.kind == "savepoint" and snapshot.state == "Completed" and snapshot.path and not snapshot.deleting
    ]
    noted: list[StoredSnapshot] = []
    for snapshot in more:
        if snapshot.path is None or snapshot.path in known or (running is not None and snapshot.made_by in own):
            continue
        verdict = await storage.verify(snapshot.path)
        torn = "" if verdict.ok else verdict.reason
        time = verdict.time or snapshot.completed_at
        noted.append(StoredSnapshot(snapshot.path, verdict.checkpoint_id, snapshot.made_by, time, torn=torn))
    return Left(
        tuple(job_id for job_id in found.incarnations if job_id not in own),
        tuple(s for s in (*found.snapshots, *noted) if s.job_id not in own),
    )


def _has_it(found: Storage, scope: Scope) -> bool:
    """What may be another store proves something by what it has, and nothing by what it has not.

    Other settings than the job's own may open another one although they name the same endpoint, or none: a Secret may name
    one, and if the job's own Secret is gone nobody knows which.
    """
    newest = found.newest is not None or not scope.newest_of
    sealed = found.sealed is not None or not scope.seal
    return newest and sealed and all(v.ok for v in found.verdicts.values())
