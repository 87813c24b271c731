"""The files of a FlinkSnapshot, accessed with the settings with which they were written. See `access`.

If the files were certainly written with these settings, every result of the storage is valid. Other settings may open a
different storage. A file in this storage proves something, but a missing file proves nothing. The operator deletes
nothing there: an object store also reports success for the deletion of an object that it never had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.errors import in_words
from penstock_operator.reconcile.observation import Storage
from penstock_operator.reconcile.observe.storage import OTHER_SETTINGS, open_storage, query_storage
from penstock_operator.snapshot.access import accesses, has_known_maker, same_store

if TYPE_CHECKING:
    from penstock_operator.api.flinksnapshot import StorageAccess
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.snapshot.context import SnapshotContext


async def read_files(ctx: SnapshotContext, ports: Ports) -> tuple[Storage, StorageAccess | None]:
    """Return the result of reading the files, and the settings with which the storage responded."""
    path = ctx.spec.savepoint.path if ctx.spec.savepoint and ctx.deleting_since is None else None
    in_progress = (
        ctx.status.state in ("InProgress", "Pending") and ctx.kind == "savepoint" and ctx.deleting_since is None
    )
    seal = ctx.status.target_directory if in_progress else None
    folders = ctx.folders if ctx.protected and ctx.deleting_since is not None else ()
    if path is None and seal is None and not folders:
        return Storage(), None
    candidates, errors = accesses(ctx), []
    absent: Storage | None = None
    for access in candidates:
        try:
            found = await _read(ctx, ports, access, path, seal, folders)
        except Exception as error:  # see `query_storage`
            errors.append(in_words(error))
            continue
        are_own = has_known_maker(ctx) and same_store(candidates[0], access)
        if are_own or found.sealed is not None or found.within or any(v.ok for v in found.verdicts.values()):
            return found, access
        absent = absent or found
    if absent is not None and not errors:
        return absent, None
    return Storage(was_read=True, error=OTHER_SETTINGS.join(errors)), None


async def _read(
    ctx: SnapshotContext,
    ports: Ports,
    access: StorageAccess,
    path: str | None,
    seal: str | None,
    folders: tuple[str, ...],
) -> Storage:
    storage = await open_storage(ports, ctx.namespace, _spec(access))
    sealed = (await storage.savepoints(seal))[:1] if seal else []
    verdicts = {path: await storage.verify(path)} if path else {}
    within = tuple([found.path for folder in folders for found in await storage.savepoints(folder)])
    return Storage(was_read=True, sealed=sealed[0] if sealed else None, verdicts=verdicts, within=within)


async def dispose_files(ctx: SnapshotContext, ports: Ports, path: str) -> None:
    """Delete a savepoint. Do nothing if it does not exist."""
    candidates = accesses(ctx)
    specs = [_spec(access) for access in candidates if same_store(candidates[0], access)]
    await query_storage(ports, ctx.namespace, specs, lambda storage, _: storage.dispose(path))


def _spec(access: StorageAccess) -> FlinkJobSpec:
    """Return the spec of a FlinkJob with these settings, because storage is opened with such a spec. The other fields
    are not used.
    """
    storage = {
        "checkpoints": "memory://none",
        "savepoints": "memory://none",
        "secretName": access.secret_name,
    }
    configuration = dict(access.configuration)
    return FlinkJobSpec.model_validate(
        {"image": "none", "job": {"entry": "none"}, "storage": storage, "configuration": configuration}
    )
