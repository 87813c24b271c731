"""One asyncio task per object, woken by events, by its own timer, and by a resync.

A wake-up only means "reconcile": the task reads what has happened. So lost, merged and repeated events do no harm. The
events also update a copy of the objects (`kube/watched.py`). `reconcile/at_rest.py` defines the permitted uses of the
copy, and fresh lists correct the copy.

Passes over the same object never overlap. Passes over different objects run concurrently, up to a limit. Passes that
an event has woken run first (`process/gate.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.errors import KubeError, NotLeader
from penstock_operator.kube.cluster import FLINKCLUSTER, FLINKJOB, FLINKSNAPSHOT, SERVICE
from penstock_operator.kube.listings import ALL_NAMESPACES, Listings
from penstock_operator.kube.watched import WATCHED, list_again
from penstock_operator.process.gate import Gate
from penstock_operator.process.orphans import sweep, sweep_revisions
from penstock_operator.process.otlp import NoTraces
from penstock_operator.process.traces import OperationTraces
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.resources.names import JOB
from penstock_operator.session.loop import ClusterLoop
from penstock_operator.snapshot.decide import is_settled
from penstock_operator.snapshot.loop import SnapshotLoop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from penstock_operator.kube.cluster import Kind, Manifest
    from penstock_operator.process.metrics import Metrics
    from penstock_operator.reconcile.job_loop import Transition
    from penstock_operator.reconcile.loop import Loop
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)

ObjectKind = Literal["FlinkJob", "FlinkSnapshot", "FlinkCluster"]
_KINDS = {"FlinkJob": FLINKJOB, "FlinkSnapshot": FLINKSNAPSHOT, "FlinkCluster": FLINKCLUSTER}

CONCURRENT_PASSES = 16
SLOT_SECONDS = 2.0
"""Seconds after which a waiting pass no longer counts towards the limit of concurrent passes."""
PASS_TIMEOUT = 180.0
"""Timeout of a pass in seconds. Every call in it has a shorter timeout."""
EVENT_BATCH_SECONDS = 0.1
"""Seconds in which further events are collected before a pass."""
RELIST_SECONDS = 5.0
"""Seconds within which a restarted watch has reported all existing objects."""
STUCK_SECONDS = 600.0
"""Seconds without a finished pass after which an object counts as stuck."""


@dataclass
class _Runner:
    task: asyncio.Task[None]
    loop: Loop
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    finished: float = field(default_factory=time.monotonic)
    generation: int = 0


class Controller:
    """Runner of the reconcile loops of all objects."""

    def __init__(
        self, ports: Ports, metrics: Metrics, namespaces: Sequence[str] = (), traces: OperationTraces | None = None
    ) -> None:
        self._ports, self._metrics, self._namespaces = ports, metrics, tuple(namespaces)
        self._traces = traces or OperationTraces(NoTraces().send)
        self._runners: dict[tuple[ObjectKind, str, str], _Runner] = {}
        self._gate = Gate(CONCURRENT_PASSES, SLOT_SECONDS)
        self._listings = Listings()
        self.relist_due = asyncio.Event()
        """Event that is set when a watch has restarted. It is cleared when all objects are listed again."""
        self.closed = False
        """Whether the controller is closed and starts nothing new."""

    @functools.cached_property
    def fatal(self) -> asyncio.Future[None]:
        """Future that fails with the error for which the operator must exit."""
        return asyncio.get_running_loop().create_future()

    def handle_event(self, kind: Kind, manifest: Manifest, *, deleted: bool = False, listed: bool = False) -> None:
        """Record an event of a watch, or an entry of its first list. Wake the objects that it affects."""
        meta, labels, watched = manifest["metadata"], labels_of(manifest), self._ports.watched
        namespace, name, is_new = meta.get("namespace", ""), meta["name"], kind not in WATCHED
        if kind is FLINKCLUSTER:
            self.wake("FlinkCluster", namespace, name)
            self._wake_jobs_of(namespace, name)
            return
        if not is_new:
            stream = namespace if self._namespaces else ALL_NAMESPACES
            if self._listings.handle_event(kind, stream, str(meta.get("uid")), deleted=deleted, listed=listed):
                self.relist_due.set()
            is_new = watched.handle_event(kind, manifest, deleted=deleted)
        job = name if kind is FLINKJOB else labels.get(JOB)
        if kind is FLINKSNAPSHOT and not is_settled(manifest):
            self.wake("FlinkSnapshot", namespace, name)
        if kind is FLINKJOB and is_new:
            self.wake_snapshots(namespace, name)
            self._wake_cluster_of(manifest)
        runner = self._runners.get(("FlinkJob", namespace, job or ""))
        if job is None or not (is_new or runner is None) or not (runner or self._may_be_managed(namespace, job)):
            return
        if kind is FLINKJOB and runner is not None and runner.loop.is_echo(str(meta.get("resourceVersion"))):
            return
        self.wake("FlinkJob", namespace, job, read_all=kind is SERVICE)

    def _wake_cluster_of(self, manifest: Manifest) -> None:
        """Wake the FlinkCluster of a FlinkJob, because it may wait for the job."""
        namespace, spec = manifest["metadata"].get("namespace", ""), manifest.get("spec") or {}
        cluster = ClusterRef.named(spec.get("cluster"), namespace)
        if cluster is not None and ("FlinkCluster", cluster.namespace, cluster.name) in self._runners:
            self.wake("FlinkCluster", cluster.namespace, cluster.name)

    def _wake_jobs_of(self, namespace: str, cluster: str) -> None:
        """Wake the FlinkJobs that use a FlinkCluster after it has changed, because its turn to move a job may have come."""
        for (kind, space, name), runner in list(self._runners.items()):
            if kind == "FlinkJob" and isinstance(runner.loop, JobLoop) and runner.loop.uses(namespace, cluster):
                self.wake(kind, space, name)

    def _may_be_managed(self, namespace: str, job: str) -> bool:
        """Return whether the FlinkJob may belong to this operator. The watches also report objects of other
        operators' FlinkJobs.
        """
        return not self._ports.shard.selector.requirements or self._ports.watched.has_job(namespace, job)

    def wake(self, kind: ObjectKind, namespace: str, name: str, *, read_all: bool = False) -> None:
        """Reconcile an object soon, because it may have changed. `read_all` makes the next pass read all objects that
        belong to it.
        """
        if self.closed:
            return
        key = (kind, namespace, name)
        runner = self._runners.get(key)
        if runner is None:
            task = asyncio.create_task(self._run(kind, namespace, name), name=f"{kind} {namespace}/{name}")
            self._runners[key] = runner = _Runner(task, self._loop(kind, namespace, name))
        if read_all:
            runner.loop.read_all_objects()
        runner.wake.set()

    def wake_snapshots(self, namespace: str, job: str) -> None:
        """Wake the unfinished snapshots of a FlinkJob after the FlinkJob has changed, because these snapshots may wait
        for the change."""
        for (kind, space, name), runner in list(self._runners.items()):
            if kind == "FlinkSnapshot" and space == namespace and runner.loop.job in (job, None):
                self.wake(kind, space, name)

    async def resync(self) -> None:
        """List FlinkJobs and FlinkSnapshots, and wake the objects whose events were lost."""
        for kind_name, kind in _KINDS.items():
            for namespace in self._namespaces or (None,):
                found = await self._list(kind, namespace)
                if kind is FLINKJOB:
                    self._wake_unlisted(namespace, {m["metadata"]["name"] for m in found})
                for manifest in found:
                    meta = manifest["metadata"]
                    key: tuple[ObjectKind, str, str] = (kind_name, meta["namespace"], meta["name"])  # type: ignore[assignment]
                    if kind is FLINKSNAPSHOT and is_settled(manifest):
                        continue
                    runner = self._runners.get(key)
                    generation = int(meta.get("generation", 1))
                    if runner is None or runner.generation != generation or "deletionTimestamp" in meta:
                        self.wake(*key)
                        if key in self._runners:
                            self._runners[key].generation = generation

    def _wake_unlisted(self, namespace: str | None, names: set[str]) -> None:
        """Wake FlinkJobs that no longer exist, or that belong to another operator now."""
        for kind, space, name in list(self._runners):
            if kind == "FlinkJob" and name not in names and namespace in (None, space):
                self.wake("FlinkJob", space, name)

    async def correct_copy(self) -> None:
        """List all other kinds in the copy, and correct it."""
        for kind in WATCHED:
            for namespace in self._namespaces or (None,):
                if kind.name not in _KINDS:
                    await self._list(kind, namespace)

    async def _list(self, kind: Kind, namespace: str | None) -> list[Manifest]:
        selector = self._ports.shard.selector.text if kind is FLINKJOB else "" if kind is FLINKSNAPSHOT else JOB
        if kind not in WATCHED:
            return await self._ports.cluster.list(kind, namespace)
        found, wrong = await list_again(self._ports.cluster, self._ports.watched, kind, namespace, selector)
        for space, job in wrong:
            if ("FlinkJob", space, job) in self._runners or self._may_be_managed(space, job):
                self.wake("FlinkJob", space, job)
        return found

    async def keep_synced(self) -> None:
        """Resync periodically, and delete holds whose FlinkJob no longer exists.

        When a watch has restarted, list all kinds immediately. No event has reported the objects that were deleted
        while the watch was interrupted.
        """
        settings, corrected = self._ports.settings, time.monotonic()
        while True:
            started, relists = time.monotonic(), self.relist_due.is_set()
            self.relist_due.clear()
            try:
                await self.resync()
                if relists or started - corrected > settings.dependents_resync.total_seconds():
                    await self.correct_copy()
                    corrected = started
                await sweep(self._ports.cluster, self._namespaces)
                await sweep_revisions(self._ports.cluster, self._namespaces)
            except KubeError as error:
                log.warning("resync: %s", error)
                if relists:
                    self.relist_due.set()
                    await asyncio.sleep(RELIST_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.resync.total_seconds()):
                    await self.relist_due.wait()
                    await asyncio.sleep(RELIST_SECONDS)

    def stuck(self) -> list[str]:
        """Return the objects whose loop has not finished a pass for too long. Normally the result is empty."""
        limit = time.monotonic() - STUCK_SECONDS - self._ports.settings.resync.total_seconds() * 60
        return [f"{kind} {space}/{name}" for (kind, space, name), r in self._runners.items() if r.finished < limit]

    @property
    def size(self) -> int:
        """Number of objects with a reconcile loop."""
        return len(self._runners)

    async def close(self) -> None:
        """Stop all reconcile loops and start no new loops. The status of each resource records its next step."""
        self.closed = True
        tasks = [r.task for r in self._runners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _loop(self, kind: ObjectKind, namespace: str, name: str) -> Loop:
        report_error = functools.partial(self._report_error, kind, namespace, name)
        if kind == "FlinkCluster":
            return ClusterLoop(namespace, name, self._ports, report_error)
        if kind == "FlinkJob":
            return JobLoop(namespace, name, self._ports, self._note, report_error)
        return SnapshotLoop(namespace, name, self._ports, self._metrics.note_snapshot, report_error)

    def _note(self, transition: Transition) -> None:
        self._metrics.note(transition)
        try:
            self._traces.note(transition)
        except Exception:  # a failed trace must not stop the pass
            log.warning(
                "%s/%s: the trace of an operation was not recorded",
                transition.namespace,
                transition.name,
                exc_info=True,
            )

    async def _run(self, kind: ObjectKind, namespace: str, name: str) -> None:
        runner, failures = self._runners[kind, namespace, name], 0
        urgent = False
        while True:
            await asyncio.sleep(EVENT_BATCH_SECONDS)
            runner.wake.clear()
            try:
                pause = await self._pass(kind, runner.loop, urgent=urgent)
                failures = 0
            except NotLeader as error:
                self._give_up(error)
                return
            except Exception as error:
                failures += 1
                pause = self._ports.settings.backoff(failures) / 10
                self._report_error(kind, namespace, name, error)
            runner.finished = time.monotonic()
            if pause is None and not runner.wake.is_set():
                del self._runners[kind, namespace, name]
                if kind == "FlinkJob":
                    self._metrics.forget(namespace, name)
                    self._traces.forget(namespace, name)
                return
            try:
                seconds = pause.total_seconds() if pause is not None else 0.0
                async with asyncio.timeout(seconds):
                    await runner.wake.wait()
                urgent = True
            except TimeoutError:
                urgent = False

    async def _pass(self, kind: ObjectKind, loop: Loop, *, urgent: bool) -> timedelta | None:
        async with self._gate.slot(urgent=urgent):
            started = time.monotonic()
            try:
                async with asyncio.timeout(PASS_TIMEOUT):
                    return await loop.reconcile()
            finally:
                self._metrics.passes.observe(kind, value=time.monotonic() - started)

    def _report_error(self, kind: ObjectKind, namespace: str, name: str, error: Exception) -> None:
        reason = getattr(error, "code", type(error).__name__)
        self._metrics.errors.add(kind, str(reason))
        expected = isinstance(error, KubeError | TimeoutError)
        log.warning("%s %s/%s: %s: %s", kind, namespace, name, reason, error, exc_info=not expected)

    def _give_up(self, error: NotLeader) -> None:
        if not self.fatal.done():
            self.fatal.set_exception(error)
