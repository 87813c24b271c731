"""One pass over one FlinkSnapshot: read, observe, decide, emit events, write the status, act."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from penstock_operator.api.flinkjob import FlinkJobSpec
from penstock_operator.api.flinksnapshot import FlinkSnapshotSpec, parse_snapshot_status
from penstock_operator.api.status.flinkjob_status import parse_status
from penstock_operator.errors import (
    Conflict,
    Denied,
    EngineUnreachable,
    KubeError,
    NotLeader,
    OperatorError,
    Unavailable,
    in_words,
    log_unexpected,
)
from penstock_operator.kube.cluster import FLINKJOB, FLINKSNAPSHOT, REVISION, SECRET
from penstock_operator.reconcile.decide.decision import Event
from penstock_operator.reconcile.decide.savepoints.retention import awaited_paths, protected_paths
from penstock_operator.reconcile.loop import Loop
from penstock_operator.reconcile.observation import Engine
from penstock_operator.reconcile.observe.dependents import is_lasting
from penstock_operator.reconcile.observe.manifests import annotations_of, labels_of
from penstock_operator.reconcile.observe.secrets import master_of, read_master_tls, read_secret
from penstock_operator.reconcile.ownership import is_ours
from penstock_operator.reconcile.presets.defaults import merged_over
from penstock_operator.resources.names import FINALIZER, JOB, SNAPSHOT_TYPE, TRIGGER
from penstock_operator.resources.names import REVISION as REVISION_NAME
from penstock_operator.snapshot.actions import Dispose, Protect, Release, SnapshotAction, TakeSnapshot
from penstock_operator.snapshot.context import OwnJob, SnapshotContext
from penstock_operator.snapshot.decide import DISPOSAL_TIMEOUT, decide, is_settled, unreadable
from penstock_operator.snapshot.files import dispose_files, read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinksnapshot import FlinkSnapshotStatus
    from penstock_operator.api.status.flinkjob_status import Ownership
    from penstock_operator.engine.client import EngineClient
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotTransition:
    """The change of the status in one pass, for metrics."""

    kind: Literal["savepoint", "checkpoint"]
    trigger: str
    before: FlinkSnapshotStatus
    after: FlinkSnapshotStatus
    now: datetime


class _Elsewhere(Exception):
    """Signal that the FlinkJob belongs to another operator, or to no operator yet. Its FlinkSnapshot belongs to the
    same operator.

    If the FlinkJob no longer exists, every operator may delete the files.
    """

    def __init__(self, owner: Ownership | None) -> None:
        self.owner = owner


class SnapshotLoop(Loop):
    """Reconcile loop of one FlinkSnapshot."""

    kind = FLINKSNAPSHOT

    def __init__(
        self,
        namespace: str,
        name: str,
        ports: Ports,
        watch: Callable[[SnapshotTransition], None] = lambda transition: None,
        report_error: Callable[[Exception], None] = log_unexpected,
    ) -> None:
        super().__init__(namespace, name, ports, report_error)
        self._watch = watch
        self._job_name: str | None = None
        self._failure = ""
        """Reason why the last action was refused."""
        self._disposed: set[str] = set()
        """Paths of the files that were deleted."""
        self._deleting_since: datetime | None = None
        self._unread_since: datetime | None = None
        """Time of the first failed read of another object. None if all reads succeed, or if the FlinkSnapshot itself
        cannot be read.
        """

    @property
    def job(self) -> str | None:
        """Name of the snapshot's FlinkJob, or None before the first read."""
        return self._job_name

    def read_all_objects(self) -> None:
        """Do nothing, because every pass reads everything."""

    async def _step(self) -> tuple[timedelta | None, bool]:
        try:
            manifest = await self._ports.cluster.get(FLINKSNAPSHOT, self.namespace, self.name)
        except Unavailable:
            self._unread_since = None
            raise
        if manifest is None or is_settled(manifest):
            return None, False
        self._job_name = str(((manifest.get("spec") or {}).get("jobRef") or {}).get("name"))
        try:
            ctx = await self._context(manifest)
            self._unread_since = None
            decision = decide(ctx)
        except _Elsewhere as elsewhere:
            return (None if elsewhere.owner else self._ports.settings.progress), False
        except Denied as error:  # a missing permission; the operator can still write the status
            return await self._unreadable(manifest, error), False
        except Unavailable as error:
            self._unread_since = self._unread_since or self._ports.now()
            if not is_lasting(self._unread_since, self._ports):
                raise
            return await self._unreadable(manifest, error), False
        except (KubeError, NotLeader):
            raise
        except Exception as error:
            return await self._unreadable(manifest, error), False
        self._failure = ""
        await self._record_events(ctx.uid, decision.events)
        if decision.status.to_manifest() != (manifest.get("status") or {}):
            await self._write(manifest, decision.status.to_manifest())
        self._watch(SnapshotTransition(ctx.kind, ctx.trigger, ctx.status, decision.status, ctx.now))
        if decision.action is not None:
            await self._act(ctx, decision.action)
        return decision.requeue, decision.requeue is None

    async def _unreadable(self, manifest: Manifest, error: Exception) -> timedelta:
        """Report the error and change nothing else. After a timeout, remove the finalizer of an object that is being
        deleted.

        Otherwise an object that the operator cannot read could never be deleted.
        """
        meta, now = manifest["metadata"], self._ports.now()
        invalid = isinstance(error, ValidationError)
        if not invalid:
            self._report_error(error)
        problem = "it is not valid" if invalid else "the operator failed while it observed it"
        text, reason = f"{problem}: {in_words(error)}"[: self._ports.settings.text_limit], OperatorError.code
        generation = int(meta.get("generation", 1))
        before = parse_snapshot_status(manifest.get("status"))
        status = unreadable(before, generation, now, "InvalidSpec" if invalid else reason, text).to_manifest()
        if status != (manifest.get("status") or {}):
            await self._write(manifest, status)
        since = self._deleting(meta, now)
        if since is not None and now - since > DISPOSAL_TIMEOUT and FINALIZER in (meta.get("finalizers") or ()):
            kept = Event("FilesKept", f"{text}; its files stay", "Warning", key=f"{meta['uid']}/kept")
            await self._record_events(meta["uid"], (kept,))
            await self._finalizers([])
        return self._ports.settings.resync

    async def _context(self, manifest: Manifest) -> SnapshotContext:
        meta = manifest["metadata"]
        spec = FlinkSnapshotSpec.model_validate(manifest.get("spec") or {})
        labels = labels_of(manifest)
        now = self._ports.now()
        ctx = SnapshotContext(
            namespace=self.namespace,
            name=self.name,
            uid=meta["uid"],
            generation=int(meta.get("generation", 1)),
            spec=spec,
            status=parse_snapshot_status(manifest.get("status")),
            now=now,
            trigger=labels.get(TRIGGER, "manual"),
            revision=annotations_of(manifest).get(REVISION_NAME),
            protected=FINALIZER in (meta.get("finalizers") or ()) and (JOB in labels or "deletionTimestamp" in meta),
            deleting_since=self._deleting(meta, now),
            failure=self._failure,
            disposed=frozenset(self._disposed),
            settings=self._ports.settings,
        )
        ctx = replace(ctx, job=await self._job(spec.job_ref.name))
        if ctx.protected and ctx.deleting_since is not None:
            ctx = replace(ctx, needed=await self._needed(spec.job_ref.name))
        ctx = replace(ctx, engine=await self._engine(ctx), keys_are_gone=await self._keys_are_gone(ctx))
        storage, opened = await read_files(ctx, self._ports)
        return replace(ctx, storage=storage, opened=opened)

    def _deleting(self, meta: Mapping[str, Any], now: datetime) -> datetime | None:
        """Return the time when this process first saw that the object is being deleted. The timestamp in the object is
        not used, because it comes from the clock of the API server.
        """
        self._deleting_since = (self._deleting_since or now) if "deletionTimestamp" in meta else None
        return self._deleting_since

    async def _job(self, name: str) -> OwnJob | None:
        manifest = await self._ports.cluster.get(FLINKJOB, self.namespace, name)
        if manifest is None:
            return None
        status = parse_status(manifest.get("status"))
        if not is_ours(self._ports.shard, labels_of(manifest), status.operator):
            raise _Elsewhere(status.operator)
        try:
            raw = merged_over(status.defaults or {}, manifest.get("spec") or {}, self.namespace, name)
            spec = FlinkJobSpec.model_validate(raw)
        except ValidationError:
            spec = None
        meta, stored = manifest["metadata"], await self._revisions(name)
        if spec is None and status.running is not None:  # a job of a FlinkCluster has only the rest of a spec
            spec = stored.get(status.running.revision)
        return OwnJob(meta["uid"], spec, status, "deletionTimestamp" in meta, stored)

    async def _revisions(self, name: str) -> dict[str, FlinkJobSpec]:
        found: dict[str, FlinkJobSpec] = {}
        for manifest in await self._ports.cluster.list(REVISION, self.namespace, {JOB: name}):
            with contextlib.suppress(ValidationError):
                spec = FlinkJobSpec.model_validate((manifest.get("data") or {}).get("spec"))
                found[manifest["metadata"]["name"]] = spec
        return found

    async def _needed(self, own_name: str) -> dict[str, frozenset[str]]:
        """Return the paths from which each FlinkJob of the namespace may still be started. Skip a FlinkJob that is
        being deleted.
        """
        found = await self._ports.cluster.list(FLINKJOB, self.namespace)
        return {
            meta["name"]: _paths_of(manifest, own=meta["name"] == own_name)
            for manifest in found
            if "deletionTimestamp" not in (meta := manifest["metadata"])
        }

    async def _engine(self, ctx: SnapshotContext) -> Engine:
        running = ctx.job.status.running if ctx.job else None
        under_way = ctx.status.state == "InProgress" and ctx.protected
        if running is None or (ctx.deleting_since is not None and not under_way):
            return Engine(error="no job is running")
        try:
            client = await self._client(ctx)
            job = next((j for j in await client.jobs() if j.id == running.job_id), None)
            if job is None:
                return Engine(reachable=True, error="the master does not have the job")
            engine = Engine(reachable=True, job_id=job.id, state=job.state)
            request = ctx.status.request_id or ctx.status.trigger_id
            if ctx.status.state == "InProgress" and request and ctx.status.job_id == job.id:
                found = await client.request(job.id, ctx.kind, request)
                engine = replace(engine, request=found, checkpoints=await client.checkpoints(job.id))
        except Exception as error:  # as in `reconcile.observe.engine`, an invalid response counts as no response
            return Engine(error=in_words(error))
        return engine

    async def _keys_are_gone(self, ctx: SnapshotContext) -> bool:
        """Return whether the Secret of the storage does not exist and will not be created again. While the FlinkJob
        exists and is not being deleted, return False, because a user may create the Secret again.
        """
        name = ctx.status.storage.secret_name if ctx.status.storage is not None else None
        if name is None or not (ctx.job is None or ctx.job.deleting):
            return False
        return await self._ports.cluster.get(SECRET, self.namespace, name) is None

    async def _client(self, ctx: SnapshotContext) -> EngineClient:
        running = ctx.job.status.running if ctx.job else None
        where = master_of(self.namespace, ctx.spec.job_ref.name, running)
        secret = await read_secret(self._ports, where.namespace, where.secrets)
        tls = await read_master_tls(self._ports, where.namespace, running) if running else None
        return self._ports.engines(where.namespace, where.name, secret.get("rest-token"), tls)

    async def _act(self, ctx: SnapshotContext, action: SnapshotAction) -> None:
        try:
            if isinstance(action, Protect):
                await self._protect(ctx)
            elif isinstance(action, Release):
                await self._finalizers([])
            elif isinstance(action, Dispose):
                await dispose_files(ctx, self._ports, action.path)
                self._disposed.add(action.path)
            else:
                await self._take(ctx, action)
        except EngineUnreachable as error:
            log.info("%s/%s: %s", self.namespace, self.name, error)
        except (Conflict, NotLeader):
            raise
        except Exception as error:
            if not isinstance(error, OperatorError):
                self._report_error(error)
            self._failure = in_words(error)

    async def _take(self, ctx: SnapshotContext, action: TakeSnapshot) -> None:
        client = await self._client(ctx)
        if action.kind == "savepoint":
            await client.savepoint(action.job_id, action.directory, action.trigger_id)
        else:
            await client.checkpoint(action.job_id, action.trigger_id)

    async def _protect(self, ctx: SnapshotContext) -> None:
        labels = {JOB: ctx.spec.job_ref.name, SNAPSHOT_TYPE: ctx.kind, TRIGGER: ctx.trigger}
        await self._finalizers([FINALIZER], labels)

    async def _finalizers(self, wanted: list[str], labels: dict[str, str] | None = None) -> None:
        manifest = await self._ports.cluster.get(FLINKSNAPSHOT, self.namespace, self.name)
        if manifest is None:
            return
        meta = manifest["metadata"]
        others = [f for f in meta.get("finalizers") or () if f != FINALIZER]
        patch = {"finalizers": [*others, *wanted], "resourceVersion": meta["resourceVersion"]}
        body = {"metadata": patch | ({"labels": labels} if labels else {})}
        await self._ports.cluster.merge(FLINKSNAPSHOT, self.namespace, self.name, body)


def _paths_of(manifest: Manifest, *, own: bool) -> frozenset[str]:
    """Return the paths from which a FlinkJob may be started. Read them from the raw spec, because a user may still
    correct a spec that is not valid.
    """
    job = (manifest.get("spec") or {}).get("job") or {}
    status, initial = parse_status(manifest.get("status")), job.get("initialSavepointPath")
    return (
        protected_paths(status, initial) if own else awaited_paths(status, initial, job.get("savepointRedeployNonce"))
    )
