"""One asyncio task per object, woken by events, by its own clock, and by a resync.

A wake-up carries no information beyond "look": what has happened is found out by looking. So events may be lost,
merged or repeated without harm. Passes over one object never overlap; over different objects they run side by side,
up to a limit that keeps the API server and this process from being overrun after a restart.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from penstock_operator.errors import KubeError, NotLeader
from penstock_operator.kube.cluster import FLINKJOB, FLINKSNAPSHOT
from penstock_operator.reconcile.loop import JobLoop
from penstock_operator.snapshot.decide import is_settled
from penstock_operator.snapshot.loop import SnapshotLoop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from penstock_operator.metrics import Metrics
    from penstock_operator.ports import Ports

log = logging.getLogger(__name__)

ObjectKind = Literal["FlinkJob", "FlinkSnapshot"]
_KINDS = {"FlinkJob": FLINKJOB, "FlinkSnapshot": FLINKSNAPSHOT}

CONCURRENT_PASSES = 16
PASS_TIMEOUT = 180.0
"""Seconds after which a pass is given up; every call in it has a shorter timeout of its own."""
SETTLE = 0.1
"""Seconds to gather further events before a pass."""
STUCK = 600.0
"""Seconds without a finished pass after which an object counts as stuck."""


class Loop(Protocol):
    """Reconciles one object."""

    @property
    def job(self) -> str | None:
        """The FlinkJob it belongs to, as far as that is known."""

    async def reconcile(self) -> timedelta | None:
        """The time until the next look, or None if nothing is to be done any more, whatever happens elsewhere."""

    def look_closer(self) -> None:
        """Something that is looked at only now and then has changed: look at everything next time."""


@dataclass
class _Runner:
    task: asyncio.Task[None]
    loop: Loop
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    finished: float = field(default_factory=time.monotonic)
    generation: int = 0


class Controller:
    """Runs the loops of all objects."""

    def __init__(self, ports: Ports, metrics: Metrics, namespaces: Sequence[str] = ()) -> None:
        self._ports, self._metrics, self._namespaces = ports, metrics, tuple(namespaces)
        self._runners: dict[tuple[ObjectKind, str, str], _Runner] = {}
        self._gate = asyncio.Semaphore(CONCURRENT_PASSES)
        self.closed = False
        """Nothing is begun any more."""
        self.fatal: asyncio.Future[None] = asyncio.get_running_loop().create_future()

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
        """List everything once: finds objects whose event was never seen."""
        for kind_name, kind in _KINDS.items():
            for namespace in self._namespaces or (None,):
                for manifest in await self._ports.cluster.list(kind, namespace):
                    meta = manifest["metadata"]
                    key: tuple[ObjectKind, str, str] = (kind_name, meta["namespace"], meta["name"])  # type: ignore[assignment]
                    if kind is FLINKSNAPSHOT and is_settled(manifest):
                        continue
                    runner = self._runners.get(key)
                    generation = int(meta.get("generation", 1))
                    if runner is None or runner.generation != generation or "deletionTimestamp" in meta:
                        self.wake(*key)
                        self._runners[key].generation = generation

    async def keep_synced(self) -> None:
        """Resync for ever."""
        while True:
            try:
                await self.resync()
            except KubeError as error:
                log.warning("resync: %s", error)
            await asyncio.sleep(self._ports.settings.resync.total_seconds())

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
            return JobLoop(namespace, name, self._ports, self._metrics.note, complain)
        return SnapshotLoop(namespace, name, self._ports, self._metrics.note_snapshot, complain)

    async def _run(self, kind: ObjectKind, namespace: str, name: str) -> None:
        runner, failures = self._runners[kind, namespace, name], 0
        while True:
            await asyncio.sleep(SETTLE)
            runner.wake.clear()
            try:
                pause = await self._pass(kind, runner.loop)
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
                return
            try:
                seconds = pause.total_seconds() if pause is not None else 0.0
                async with asyncio.timeout(seconds):
                    await runner.wake.wait()
            except TimeoutError:
                continue

    async def _pass(self, kind: ObjectKind, loop: Loop) -> timedelta | None:
        async with self._gate:
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
