"""Observation of a job's checkpoint storage, with the settings with which the files were written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.errors import KubeError, NotLeader, StorageError, in_words
from penstock_operator.reconcile.decide.health.rules import restart_due
from penstock_operator.reconcile.decide.operations.dispose import storage_timeout
from penstock_operator.reconcile.decide.savepoints.requested import late_folders
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observation import Storage
from penstock_operator.reconcile.observe.scope import storage_scope
from penstock_operator.reconcile.observe.secrets import read_secret
from penstock_operator.resources.names import incarnation_prefix, is_incarnation_of, savepoint_folder
from penstock_operator.storage.snapshots import Beginning, Left, StoredSnapshot, Verdict

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
    """Open the storage of a job with the credentials in its spec."""
    name = spec.storage.secret_name
    try:
        secret = await read_secret(ports, namespace, name) if name else {}
    except KubeError as error:
        msg = f"the Secret {name} (storage.secretName) cannot be read: {error}"
        raise StorageError(msg) from error
    if name and not secret:
        msg = f"the Secret {name} (storage.secretName) does not exist or is empty"
        raise StorageError(msg)
    return ports.storages(spec, secret, namespace)


async def query_storage(
    ports: Ports,
    namespace: str,
    specs: Sequence[FlinkJobSpec],
    call: Callable[[StoragePort, FlinkJobSpec], Awaitable[_T]],
) -> _T:
    """Try the settings of each spec in turn. Return the first response of the storage."""
    errors: list[str] = []
    for spec in specs:
        try:
            return await call(await open_storage(ports, namespace, spec), spec)
        except NotLeader:
            raise
        except Exception as error:  # any error of a driver counts as no response of the storage
            errors.append(in_words(error))
    raise StorageError(OTHER_SETTINGS.join(errors))


async def read_state(ctx: Context, ports: Ports) -> Storage:
    """Read the parts of storage that the decision needs."""
    scope = storage_scope(ctx.status, ctx.seen.engine, ctx.seen.master, restart=restart_due(ctx))
    if not (scope.newest or scope.left or scope.seal or scope.verify):
        return Storage()
    specs = storage_specs(ctx)
    if ctx.status.operation is not None and ctx.status.operation.step == "Verify":
        specs = tuple(s for s in (ctx.effective_spec,) if s is not None)
    if not specs:
        return Storage(error="no valid spec names the storage")
    first_spec = specs[0]

    async def read(storage: StoragePort, spec: FlinkJobSpec) -> Storage:
        found = await _read(storage, first_spec.storage.checkpoints, scope)
        if scope.left:
            found = replace(found, left=await _state_of_earlier_jobs(ctx, storage, spec))
        if spec is not first_spec and not _has_it(found, scope):
            raise StorageError(f"{spec.storage.checkpoints} is reachable, but has no data of the running job")
        return found

    try:
        async with asyncio.timeout(storage_timeout(ctx)):
            return await query_storage(ports, ctx.subject.namespace, specs, read)
    except StorageError as error:
        return Storage(was_read=True, error=str(error))
    except TimeoutError:
        return Storage(was_read=True, error="checkpoint storage did not respond within the timeout of the deletion")


async def read_late_savepoints(ctx: Context, ports: Ports) -> dict[str, StoredSnapshot | None]:
    """Return the savepoints of requests that no operation is waiting for. Skip folders that storage could not
    read.
    """
    found: dict[str, StoredSnapshot | None] = {}
    folders = set(late_folders(ctx.status, ctx.now))
    for entry in ctx.status.requested_savepoints:
        if entry.directory not in folders:
            continue
        specs, folder = disposal_specs(ctx, entry.revision), entry.directory
        try:
            async with asyncio.timeout(storage_timeout(ctx)):
                late = await query_storage(ports, ctx.subject.namespace, specs, lambda s, _, f=folder: s.savepoints(f))  # type: ignore[misc]
        except (StorageError, TimeoutError):
            break
        found[folder] = late[0] if late else None
    return found


async def _read(storage: StoragePort, root: str, scope: Scope) -> Storage:
    newest: StoredSnapshot | None = None
    verdicts: dict[str, Verdict] = {}
    beginning: Beginning | None = None
    if scope.newest_of:
        newest = await storage.newest_complete(root, scope.newest_of)
        beginning = await storage.beginning(root, scope.newest_of) if scope.beginning else None
    for path in scope.verify:
        verdicts[path] = await storage.verify(path)
    sealed = (await storage.savepoints(scope.seal))[:1] if scope.seal else []
    first = sealed[0] if sealed else None
    return Storage(was_read=True, newest=newest, sealed=first, verdicts=verdicts, beginning=beginning)


async def _state_of_earlier_jobs(ctx: Context, storage: StoragePort, spec: FlinkJobSpec) -> Left:
    """Return the state that earlier FlinkJobs of the name have left, in the folders of the name and at the paths of
    FlinkSnapshots.
    """
    subject, places = ctx.subject, spec.storage
    prefix = incarnation_prefix(subject.namespace, subject.name)
    found = await storage.left_by(
        places.checkpoints, prefix, places.savepoints, savepoint_folder(subject.namespace, subject.name)
    )
    running = ctx.status.running
    own_job_ids = {running.job_id} if running is not None else set()
    known = {snapshot.path for snapshot in found.snapshots}
    more = [
        snapshot
        for snapshot in ctx.seen.snapshots
        if snapshot.kind == "savepoint" and snapshot.state == "Completed" and snapshot.path and not snapshot.deleting
    ]
    noted: list[StoredSnapshot] = []
    for snapshot in more:
        if snapshot.path is None or snapshot.path in known or (running is not None and snapshot.made_by in own_job_ids):
            continue
        verdict = await storage.verify(snapshot.path)
        torn = "" if verdict.ok else verdict.reason
        time = verdict.time or snapshot.completed_at
        noted.append(StoredSnapshot(snapshot.path, verdict.checkpoint_id, snapshot.made_by, time, torn=torn))
    return Left(
        tuple(
            job_id
            for job_id in found.incarnations
            if job_id not in own_job_ids and is_incarnation_of(subject.namespace, subject.name, job_id)
        ),
        tuple(s for s in (*found.snapshots, *noted) if s.job_id not in own_job_ids),
    )


def _has_it(found: Storage, scope: Scope) -> bool:
    """Return whether the storage has everything that was requested. Otherwise the settings may have opened a different
    storage, whose results are not valid.

    Settings of another revision may open a different storage, even if they name the same endpoint or no endpoint. A
    Secret may name the endpoint. If the job's Secret is missing, this endpoint is not known.
    """
    newest = found.newest is not None or not scope.newest_of
    sealed = found.sealed is not None or not scope.seal
    return newest and sealed and all(v.ok for v in found.verdicts.values())
