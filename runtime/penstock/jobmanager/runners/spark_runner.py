"""The batched runner, and the base of both runners on Spark: placement, distribution of the job, one Spark job for all levels.

*batched*: regular shuffles. A level starts when the previous level has ended, and an epoch is one Spark job. *pipelined*
(`pipelined_runner`): pipelined shuffles. All levels run at once, each in its own Python worker.

Placement is the same for both runners. The partitions of slot i name the executor of slot i as their only preferred location. The locality
wait is longer than any task of the batched runner. Within the executor, a batched task finds the Python worker of its slot by the slot's
own environment (`cluster/jvm/BatchLevel.java`). A pipelined task does not share its worker.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer

from penstock.common.errors import EpochFailed
from penstock.jobmanager.cluster.embedded_cluster import MAX_SLOTS
from penstock.jobmanager.cluster.slots import Slot
from penstock.jobmanager.cluster.spark_access import SparkAccess
from penstock.jobmanager.coordinators.work_thread import WorkThread
from penstock.jobmanager.failover.crash import MemoryKill, crash_of, epoch_lost
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.runners.control_server import ControlServer
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.jobmanager.runners.runner import WATCH_S, Attempt, Watch, unwatched
from penstock.taskmanager.control.channel import Hello
from penstock.taskmanager.exchange.row_stream import RowSerializer
from penstock.taskmanager.exchange.rows import ACK, COMMAND
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    SnapshotAck,
    Whereabouts,
    decode_ack,
    encode_command,
)
from penstock.taskmanager.worker import CloseFunction, LevelFunction

CHECK_INTERVAL_S = 0.5
"""Interval in seconds of checks of the executors of a running Spark job."""
KILL_PATIENCE_S = 30.0
"""Time in seconds for an abandoned epoch to end after its Spark job is cancelled."""
WHEREABOUTS_S = 12.0
"""Time in seconds for which a task's location report is valid. A task repeats the report every 5 s."""
CRASH_S = 5.0
"""Time in seconds to wait for Spark's report of the cause of a Python worker's death. The wait also ends when all tasks of the job have
ended.
"""
POLL_S = 0.1
"""Maximum delay in seconds of Spark's report of a task's end."""
KILLED_S = 1.0
"""Time in seconds for a TaskManager to report an out-of-memory kill in its container."""
CLOSING_GRACE_S = 5.0
"""Time in seconds for tasks to report that they have not closed in time, before they are killed."""
_COMMAND_PREFIX = bytes((COMMAND,))
_LENGTH = struct.Struct(">i")

log = logging.getLogger(__name__)


class SparkRunner:
    """Runner that runs epochs on a SparkCluster.

    Args:
        cluster: cluster that was already started.
    """

    streaming = False
    """Whether rows flow between two calls of `run_epoch`."""
    look_ups: LiveLookUps | None = None

    def __init__(self, cluster: SparkAccess) -> None:
        self._cluster = cluster
        self.spark = cluster.sql
        self._server = ControlServer(cluster.config.host, self._on_frame, self._on_gone)
        self.task_settings: dict[str, Any] = {
            "report_address": self._server.address,
            "control_token": self._server.token,
        }
        self._whereabouts: dict[tuple[int, int], tuple[float, Whereabouts]] = {}
        self._failed: LevelAck | None = None
        """Acknowledgement of a task that reports a hang before the end of its epoch."""
        self._holds_tasks = False
        """Whether the last epoch has succeeded. If so, the workers hold functions that must be closed."""
        self.on_wait: Callable[[], None] | None = None
        self.more_slots: Callable[[int], object] | None = None
        """Function that starts workers of a local cluster. None means that workers are started elsewhere."""
        self._attempt: Attempt | None = None
        self._placement: list[Slot] = []
        self._task_managers: list[str] = []
        self._functions: Any = None
        self._broadcast: Any = None
        self.bundle: Path | None = None
        """Bundle of the program for the workers. None means that the workers already have the code of the program."""
        self._sent_bundle: Any = None
        self._executors_with_workers: set[str] = set()
        """Locations of executors that keep the Python workers of this job."""
        self._group = ""
        self._work = WorkThread("penstock-epoch")
        self._cancelled = threading.Event()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return "batched"

    @property
    def placement(self) -> list[Slot]:
        """Return the slots of the job, in order."""
        return list(self._placement)

    @property
    def task_managers(self) -> list[str]:
        return list(self._task_managers)

    def available_slots(self, wanted: int = 0, priority: int = 0) -> int:
        return len(self._cluster.slots.available(self, list(self._cluster.all_slots()), wanted, priority))

    @property
    def can_add_slots(self) -> bool:
        return self.more_slots is not None

    @property
    def slot_limit(self) -> int | None:
        return MAX_SLOTS if self._cluster.config.embedded else None

    def expects_returning_slots(self) -> bool:
        if not self._placement:
            return False
        slots = self._cluster.all_slots()
        here = {slot.executor.id for slot in slots.values()}
        expected = {member.host for member in self._cluster.registry.members() if member.executor not in here}
        free = Counter(slots[name].executor.host for name in self._cluster.slots.available(self, list(slots)))
        wanted = Counter(slot.executor.host for slot in self._placement)
        return any(host in expected and free[host] < count for host, count in wanted.items())

    def ensure_slots(self, count: int) -> None:
        if self.more_slots is not None:
            self.more_slots(count)

    def place(self, count: int) -> None:
        slots = self._cluster.all_slots()
        hosts = {name: slot.executor.host for name, slot in slots.items()}
        self._placement = [slots[name] for name in self._cluster.slots.place(self, count, list(slots), hosts)]
        worker_of = {name: worker.id for worker in self._cluster.workers() for name in worker.slots}
        self._task_managers = [worker_of.get(slot.id, slot.executor.host) for slot in self._placement]

    def start(self, attempt: Attempt) -> None:
        self._cancelled.clear()
        self._whereabouts.clear()
        self._failed = None
        self._server.expect(attempt.number, attempt.slots, attempt.levels)
        self._destroy_broadcast()
        context = self._cluster.context
        if self.bundle is not None and self._sent_bundle is None:
            self._sent_bundle = context.broadcast(self.bundle.read_bytes())
        self._broadcast = context.broadcast(attempt.payload)
        self._functions = self._cluster.new_function_array(
            [self._function(context, attempt, level) for level in range(attempt.levels)]
        )
        self._attempt = attempt

    def _function(self, context: Any, attempt: Attempt, level: int) -> Any:
        is_last = level == attempt.levels - 1
        return self._wrapped(
            context,
            LevelFunction(
                self._broadcast, attempt.job_id, attempt.number, level, is_last=is_last, bundle=self._sent_bundle
            ),
        )

    def _wrapped(self, context: Any, function: Callable[..., Any]) -> Any:
        serializer = RowSerializer() if self.streaming else NoOpSerializer()
        return _wrap_function(TaskContext(context), function, serializer, serializer)

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        attempt = self._attempt
        assert attempt is not None

        def is_wanted() -> bool:
            watch()
            return not self._cancelled.is_set()

        with self.spark.access_lock.shared(is_wanted) as has_turn:
            if not has_turn:
                raise EpochFailed("the epoch was cancelled while a DataFrame had the cluster")
            self._holds_tasks = False
            acks = _split(self._watched(self._work.submit(lambda: self._submit(commands)), watch))
            self._whereabouts.clear()
        failed = any(ack.failure is not None for ack in acks)
        self._holds_tasks = not failed
        if len(acks) != attempt.slots * attempt.levels and not failed:
            raise EpochFailed(
                f"epoch {commands[0].epoch}: only {len(acks)} of {attempt.slots * attempt.levels} tasks have acknowledged"
            )
        return acks

    def _watched(self, epoch: Future[bytes], watch: Watch) -> bytes:
        """Wait for the epoch. Its Spark job must end before anything else uses these slots, even if the epoch is abandoned."""
        try:
            while wait([epoch], WATCH_S).not_done:
                watch()
        except BaseException:
            self._kill(epoch)
            raise
        return epoch.result()

    def _kill(self, epoch: Future[bytes]) -> None:
        """Cancel the Spark job. Spark kills the Python workers of a cancelled job that do not respond."""
        deadline = time.monotonic() + KILL_PATIENCE_S
        while not epoch.done() and time.monotonic() < deadline:
            self._cluster.cancel(self._group)
            wait([epoch], 1.0)
        if not epoch.done():
            self._work.close()
            self._work = WorkThread("penstock-epoch")

    def unanswered(self) -> list[tuple[int, int]]:
        return self._cluster.running_tasks(self._group)

    def _on_frame(self, hello: Hello, frame: bytes) -> None:
        """Handle the report of a slow task: its location, or that a step exceeded its limit."""
        ack = decode_ack(frame)
        if ack.where is not None:
            self._whereabouts[ack.slot, ack.level] = time.monotonic(), ack.where
        elif ack.failure is not None:
            self._failed = ack

    def _on_gone(self, hello: Hello) -> None:
        """Ignore the end of a connection, because the task has sent all its messages."""

    def whereabouts(self) -> dict[tuple[int, int], Whereabouts]:
        oldest = time.monotonic() - WHEREABOUTS_S
        return {task: where for task, (at, where) in list(self._whereabouts.items()) if at > oldest}

    def _check_placement(self) -> None:
        """Fail at once if an executor is known to be lost. Spark would first wait for its return."""
        alive = {executor.id for executor in self._cluster.executors()}
        lost = [number for number, slot in enumerate(self._placement) if slot.executor.id not in alive]
        if lost:
            executor = self._placement[lost[0]].executor
            slots = f"slot{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"
            gone = f"executor {executor.id} on {executor.host} is lost, with {slots}"
            raise epoch_lost(gone, self._killed(executor.host))

    def _killed(self, host: str) -> MemoryKill | None:
        """Return the recent out-of-memory kill on the host. A TaskManager that is lost in the kill cannot report the kill."""
        registry, deadline = self._cluster.registry, time.monotonic() + KILLED_S
        while (kill := registry.killed_on(host)) is None and registry.is_at(host) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return kill

    def _submit(self, commands: list[EpochCommand]) -> bytes:
        """Run the Spark job of all levels with these commands as its input. Return the rows of the last level.

        Raises:
            EpochFailed: Spark lost the epoch.
        """
        attempt = self._attempt
        assert attempt is not None
        self._check_placement()
        block = []
        for command in commands:
            row = _COMMAND_PREFIX + encode_command(command)
            block += [_LENGTH.pack(len(row)), row]
        group = f"{attempt.job_id}-{attempt.number}-{commands[0].epoch}"
        return self._run_job(attempt, b"".join(block), self._functions, group, pipelined=self.streaming)

    def _run_job(
        self, attempt: Attempt, block: bytes, functions: Any, group: str, *, pipelined: bool, closing: bool = False
    ) -> bytes:
        with self._lock:
            self._group = group
        ended = threading.Event()
        lost: list[EpochFailed] = []
        watch = threading.Thread(target=self._watch, args=(group, ended, lost), name="penstock-watch", daemon=True)
        watch.start()
        if not pipelined:
            self._executors_with_workers.update(slot.executor.location for slot in self._placement)
        try:
            return self._cluster.run_epoch(
                block, self._placement, functions, job_id=attempt.job_id, pipelined=pipelined, group=group
            )
        except Exception as error:
            failed = self._failed
            if failed is not None and failed.failure is not None:
                raise JobFailed(failed.failure, failed.host) from None
            known = self._crash(attempt, group, 0.0 if lost else CRASH_S, closing)
            if known is not None:
                raise known from None
            failure = lost[0] if lost else self._epoch_error(error)
            raise EpochFailed(failure.message, remedy=failure.remedy or "the job restarts automatically") from error
        finally:
            ended.set()
            watch.join()

    def _epoch_error(self, error: Exception) -> EpochFailed:
        """Convert Spark's error, and add a recent out-of-memory kill. Spark may notice a lost executor before `_watch` does."""
        hosts = {slot.executor.host for slot in self._placement}
        kill = next(filter(None, map(self._cluster.registry.killed_on, sorted(hosts))), None)
        return epoch_lost(_cause(error), kill)

    def _crash(self, attempt: Attempt, group: str, patience_s: float, closing: bool) -> Exception | None:
        """Return the cause of a Python worker's death.

        Spark ends the job with the first task failure that it receives. This may be a task that lost its connection to the dead worker. The
        cause is known when the dead worker's own task has ended.
        """
        deadline = time.monotonic() + patience_s
        have_ended = False
        while attempt.graph is not None and not self._cancelled.is_set():
            ends = self._cluster.failures(group)
            found = crash_of(ends, attempt.graph, closing=closing, killed=self._killed)
            if found is not None or have_ended or time.monotonic() > deadline:
                return found
            have_ended = not self._cluster.running_tasks(group)
            time.sleep(POLL_S)
        return None

    def _watch(self, group: str, ended: threading.Event, lost: list[EpochFailed]) -> None:
        """End the Spark job when one of its executors is lost.

        Spark would not treat the loss as a failure of the task. It would wait for the executor until the locality wait ends, and then start
        the task on an executor without its state.
        """
        while not ended.wait(CHECK_INTERVAL_S):
            try:
                self._check_placement()
                if self._failed is not None and self._failed.failure is not None:
                    raise EpochFailed(self._failed.failure.message)
            except EpochFailed as error:
                lost.append(error)
                self._cluster.cancel(group)
                return

    def end_attempt(self) -> None:
        """End the attempt. Tasks of this runner end with their epoch, but the workers hold the tasks' objects until the functions are
        closed.
        """
        attempt, holds_tasks = self._attempt, self._holds_tasks
        self._holds_tasks = False
        if attempt is None or not holds_tasks or self._cancelled.is_set():
            return
        deadline = time.monotonic() + attempt.closing_s
        group = f"{attempt.job_id}-{attempt.number}-close"
        killer = threading.Timer(attempt.closing_s + CLOSING_GRACE_S, self._cluster.cancel, [group])
        with self.spark.access_lock.shared(lambda: time.monotonic() < deadline) as has_turn:
            if not has_turn:
                log.warning("functions of job %s are not closed: a DataFrame has the cluster", attempt.job_id)
                return
            killer.start()
            try:
                functions = self._cluster.new_function_array(
                    [self._wrapped(self._cluster.context, CloseFunction(attempt.job_id, attempt.number))]
                )
                row = bytes((COMMAND,))
                block = (_LENGTH.pack(len(row)) + row) * attempt.slots
                acks = _split(self._run_job(attempt, block, functions, group, pipelined=False, closing=True))
            except EpochFailed as error:  # the workers are lost together with their objects
                log.warning("functions of job %s are not closed: %s", attempt.job_id, error.message)
                return
            finally:
                killer.cancel()
        for ack in acks:
            if ack.failure is not None:
                raise JobFailed(ack.failure, ack.host)

    def take_news(self) -> list[SnapshotAck]:
        """Return nothing, because tasks of this runner report only at the end of an epoch."""
        return []

    def request_barrier(self) -> None:
        """Do nothing: sources check the clock, so an epoch ends within its time limit."""

    def cancel(self) -> None:
        """End the running epoch, so that `run_epoch` raises EpochFailed. Spark kills Python workers that do not respond."""
        self._cancelled.set()
        with self._lock:
            group = self._group
        if group:
            self._cluster.cancel(group)

    def close(self) -> None:
        self._server.close()
        executors, self._executors_with_workers = sorted(self._executors_with_workers), set()
        self._placement, self._task_managers = [], []
        try:
            if executors and self._attempt is not None:
                self._cluster.release_workers(self._attempt.job_id, executors)
        finally:
            self._cluster.slots.release(self)
            self._work.close()
            self._destroy_broadcast()
            sent, self._sent_bundle = self._sent_bundle, None
            if sent is not None:
                sent.destroy()

    def _destroy_broadcast(self) -> None:
        """Delete the job's code everywhere, including the driver's copies in memory and on disk."""
        broadcast, self._broadcast = self._broadcast, None
        if broadcast is not None:
            broadcast.destroy()


class TaskContext:
    """A SparkContext whose functions run in workers for tasks.

    Spark pools Python workers by environment, so functions of DataFrames never use the workers that hold state. Several jobs use the
    SparkContext at the same time, so its own environment does not change.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self.environment = {**context.environment, "PENSTOCK_TASKS": "1"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _split(block: bytes) -> list[LevelAck]:
    acks = []
    position = 0
    while position < len(block):
        (length,) = _LENGTH.unpack_from(block, position)
        position += 4
        if block[position] == ACK:
            acks.append(decode_ack(block[position + 1 : position + length]))
        position += length
    return acks


def _cause(error: Exception) -> str:
    """Return the line of a long Java exception that describes the cause."""
    text = str(getattr(error, "java_exception", None) or error)
    for line in text.splitlines():
        if "ExecutorLostFailure" in line or "Job aborted" in line or "cancelled" in line:
            return line.strip()[:500]
    return text.strip().splitlines()[0][:500] if text.strip() else type(error).__name__
