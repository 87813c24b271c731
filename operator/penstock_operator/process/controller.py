"""One asyncio task per object, woken by events, by its own clock, and by a resync.

A wake-up carries no information beyond "look": what has happened is found out by looking. So events may be lost,
merged or repeated without harm. What they tell goes into a copy (`kube/watched.py`), which may be believed as far as
`reconcile/at_rest.py` says; fresh lists correct it. Passes over one object never overlap; over different objects they run side by side,
up to a limit, those that an event has woken first (`process/gate.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock_operator.errors import KubeError, NotLeader
from penstock_operator.kube.cluster import FLINKJOB, FLINKSNAPSHOT, SERVICE
from penstock_operator.kube.listings import CLUSTER, Listings
from penstock_operator.kube.watched import WATCHED, list_again
from penstock_operator.process.gate import Gate
from penstock_operator.process.orphans import sweep
from penstock_operator.process.otlp import NoTraces
from penstock_operator.process.traces import OperationTraces
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.observe.manifests import labels_of
from penstock_operator.resources.names import JOB
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

ObjectKind = Literal["FlinkJob", "FlinkSnapshot"]
_KINDS = {"FlinkJob": FLINKJOB, "FlinkSnapshot": FLINKSNAPSHOT}

CONCURRENT_PASSES = 16
PLACE_LENT = 2.0
"""Seconds after which a pass that waits for others no longer counts as one of them."""
PASS_TIMEOUT = 180.0
"""Seconds after which a pass is given up; every call in it has a shorter timeout of its own."""
SETTLE = 0.1
"""Seconds to gather further events before a pass."""
RELISTED = 5.0
"""Seconds after the first sign of a watch that began anew in which it has told of all there is."""
STUCK = 600.0
"""Seconds without a finished pass after which an object counts as stuck."""


@dataclass
class _Runner:
    task: asyncio.Task[None]
    loop: Loop
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    finished: float = field(default_factory=time.monotonic)
    generation: int = 0


class Controller:
    """Runs the loops of all objects."""

    def __init__(
        self, ports: Ports, metrics: Metrics, namespaces: Sequence[str] = (), traces: OperationTraces | None = None
    ) -> None:
        self._ports, self._metrics, self._namespaces = ports, metrics, tuple(namespaces)
        self._traces = traces or OperationTraces(NoTraces().send)
        self._runners: dict[tuple[ObjectKind, str, str], _Runner] = {}
        self._gate = Gate(CONCURRENT_PASSES, PLACE_LENT)
        self._listings = Listings()
        self.doubt = asyncio.Event()
        """A watch has begun anew, and not everything has been listed since."""
        self.closed = False
        """Nothing is begun any more."""

    @functools.cached_property
    def fatal(self) -> asyncio.Future[None]:
        """Fails with what the operator has to end for."""
        return asyncio.get_running_loop().create_future()

    def hear(self, kind: Kind, manifest: Manifest, *, gone: bool = False, listed: bool = False) -> None:
        """An event of a watch, or an entry of the list that it begins with: note it, and wake whom it concerns."""
        meta, labels, watched = manifest["metadata"], labels_of(manifest), self._ports.watched
        namespace, name, news = meta.get("namespace", ""), meta["name"], kind not in WATCHED
        if not news:
            stream = namespace if self._namespaces else CLUSTER
            if self._listings.hear(kind, stream, str(meta.get("uid")), gone=gone, listed=listed):
                self.doubt.set()
            news = watched.hear(kind, manifest, gone=gone)
        job = name if kind is FLINKJOB else labels.get(JOB)
        if kind is FLINKSNAPSHOT and not is_settled(manifest):
            self.wake("FlinkSnapshot", namespace, name)
        if kind is FLINKJOB and news:
            self.wake_snapshots(namespace, name)
        runner = self._runners.get(("FlinkJob", namespace, job or ""))
        if job is None or not (news or runner is None) or not (runner or self._may_be_ours(namespace, job)):
            return
        if kind is FLINKJOB and runner is not None and runner.loop.is_echo(str(meta.get("resourceVersion"))):
            return
        self.wake("FlinkJob", namespace, job, closer=kind is SERVICE)

    def _may_be_ours(self, namespace: str, job: str) -> bool:
        """What belongs to a FlinkJob of another operator is heard of, too."""
        return not self._ports.shard.selector.requirements or self._ports.watched.has_job(namespace, job)

    def wake(self, kind: ObjectKind, namespace: str, name: str, *, closer: bool = False) -> None:
        """Something about the object may have changed: look at it soon, with `closer` at all that belongs to it."""
        if self.closed:
            return
        key = (kind, namespace, name)
        runner = self._runners.get(key)
        if runner is None:
            task = asyncio.create_task(self._run(kind, namespace, name), name=f"{kind} {namespace}/{name}")
            self._runners[key] = runner = _Runner(task, self._loop(kind, namespace, name))
        if closer:
            runner.loop.look_closer()
        runner.wake.set()

    def wake_snapshots(self, namespace: str, job: str) -> None:
        """A FlinkJob changed: those of its snapshots that are not at their end may have waited for that."""
        for (kind, space, name), runner in list(self._runners.items()):
            if kind == "FlinkSnapshot" and space == namespace and runner.loop.job in (job, None):
                self.wake(kind, space, name)

    async def resync(self) -> None:
        """List FlinkJobs and FlinkSnapshots: finds those whose event was never seen."""
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
        """FlinkJobs that are gone, or are another operator's by now."""
        for kind, space, name in list(self._runners):
            if kind == "FlinkJob" and name not in names and namespace in (None, space):
                self.wake("FlinkJob", space, name)

    async def correct(self) -> None:
        """List everything else that is copied."""
        for kind in WATCHED:
            for namespace in self._namespaces or (None,):
                if kind.name not in _KINDS:
                    await self._list(kind, namespace)

    async def _list(self, kind: Kind, namespace: str | None) -> list[Manifest]:
        selector = self._ports.shard.selector.text if kind is FLINKJOB else "" if kind is FLINKSNAPSHOT else JOB
        found, wrong = await list_again(self._ports.cluster, self._ports.watched, kind, namespace, selector)
        for space, job in wrong:
            if ("FlinkJob", space, job) in self._runners or self._may_be_ours(space, job):
                self.wake("FlinkJob", space, job)
        return found

    async def keep_synced(self) -> None:
        """Resync for ever, and remove what is left of FlinkJobs that went without us; when a watch began anew, at once and everything: what is gone since no event has told."""
        settings, corrected = self._ports.settings, time.monotonic()
        while True:
            begun, doubted = time.monotonic(), self.doubt.is_set()
            self.doubt.clear()
            try:
                await self.resync()
                if doubted or begun - corrected > settings.dependents_resync.total_seconds():
                    await self.correct()
                    corrected = begun
                await sweep(self._ports.cluster, self._namespaces)
            except KubeError as error:
                log.warning("resync: %s", error)
                if doubted:
                    self.doubt.set()
                    await asyncio.sleep(RELISTED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.resync.total_seconds()):
                    await self.doubt.wait()
                    await asyncio.sleep(RELISTED)

    def stuck(self) -> list[str]:
        """Objects whose loop has not finished a pass for too long; there should never be any."""
        limit = time.monotonic() - STUCK - self._ports.settings.resync.total_seconds() * 60
        return [f"{kind} {space}/{name}" for (kind, space, name), r in self._runners.items() if r.finished < limit]

    @property
    def size(self) -> int:
        """Objects that are looked after."""
        return len(self._runners)

    async def close(self) -> None:
        """Stop all loops where they are, and start none any more; whatever they were about to do is in the statuses."""
        self.closed = True
        tasks = [r.task for r in self._runners.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _loop(self, kind: ObjectKind, namespace: str, name: str) -> Loop:
        complain = functools.partial(self._complain, kind, namespace, name)
        if kind == "FlinkJob":
            return JobLoop(namespace, name, self._ports, self._note, complain)
        return SnapshotLoop(namespace, name, self._ports, self._metrics.note_snapshot, complain)

    def _note(self, transition: Transition) -> None:
        self._metrics.note(transition)
        try:
            self._traces.note(transition)
        except Exception:  # what the pass is about to do must not wait for a trace
            log.warning("%s/%s: an operation is not traced", transition.namespace, transition.name, exc_info=True)

    async def _run(self, kind: ObjectKind, namespace: str, name: str) -> None:
        runner, failures = self._runners[kind, namespace, name], 0
        urgent = False
        while True:
            await asyncio.sleep(SETTLE)
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
                self._complain(kind, namespace, name, error)
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
        async with self._gate.place(urgent=urgent):
            begun = time.monotonic()
            try:
                async with asyncio.timeout(PASS_TIMEOUT):
                    return await loop.reconcile()
            finally:
                self._metrics.passes.observe(kind, value=time.monotonic() - begun)

    def _complain(self, kind: ObjectKind, namespace: str, name: str, error: Exception) -> None:
        reason = getattr(error, "code", type(error).__name__)
        self._metrics.errors.add(kind, str(reason))
        expected = isinstance(error, KubeError | TimeoutError)
        log.warning("%s %s/%s: %s: %s", kind, namespace, name, reason, error, exc_info=not expected)

    def _give_up(self, error: NotLeader) -> None:
        if not self.fatal.done():
            self.fatal.set_exception(error)
