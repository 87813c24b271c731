"""The settings with which the files of a FlinkSnapshot are read and deleted. Pure functions.

The settings with which the files were written come first, then the settings of the stable revision. The current spec
comes last, because a new edit may not work. When the FlinkJob no longer exists, the settings in the status of the
FlinkSnapshot are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.api.flinksnapshot import StorageAccess

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.snapshot.context import SnapshotContext


def accesses(ctx: SnapshotContext) -> tuple[StorageAccess, ...]:
    """Return all known settings in the order in which to try them. The result has at least one entry."""
    noted = ctx.status.storage
    return _distinct(*([noted] if noted is not None else []), *_of_revisions(ctx, ctx.revision))


def own_access(ctx: SnapshotContext, revision: str) -> StorageAccess:
    """Return the settings with which a job of this revision writes."""
    return _distinct(*_of_revisions(ctx, revision))[0]


def has_known_maker(ctx: SnapshotContext) -> bool:
    """Return whether the first entry of `accesses` has the settings with which the files were written."""
    made_by = ctx.job.revisions.get(ctx.revision) if ctx.job is not None and ctx.revision is not None else None
    return ctx.status.storage is not None or made_by is not None


def same_store(one: StorageAccess, other: StorageAccess) -> bool:
    """Return whether both settings refer to the same object store. Only their keys may differ."""
    return one.configuration == other.configuration


def _of_revisions(ctx: SnapshotContext, first: str | None) -> list[StorageAccess]:
    job = ctx.job
    if job is None:
        return []
    named = [job.revisions.get(name) for name in (first, job.status.stable_revision) if name is not None]
    return [_access(spec) for spec in (*named, job.spec) if spec is not None]


def _distinct(*found: StorageAccess) -> tuple[StorageAccess, ...]:
    return tuple(a for i, a in enumerate(found) if a not in found[:i]) or (StorageAccess(),)


def _access(spec: FlinkJobSpec) -> StorageAccess:
    keys = {k: str(v) for k, v in spec.configuration.items() if k.startswith("s3.")}
    return StorageAccess(secret_name=spec.storage.secret_name, configuration=keys)
