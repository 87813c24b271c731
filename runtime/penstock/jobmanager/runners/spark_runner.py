"""The batched runner, and what both runners on Spark share: placement, shipping of the job, one Spark job of all levels.

*batched*: regular shuffles; a level starts when the one before has ended; an epoch is one Spark job. *pipelined*
(`pipelined_runner`): pipelined shuffles; all levels run at once, each in a Python worker of its own. Placement is the same in
both: slot i's partitions name the executor that slot i is in as their only preferred location, and the locality wait is longer
than any task of the batched runner takes. Within the executor a batched task finds the Python worker of its slot by an
environment that is the slot's own (`cluster/jvm/BatchLevel.java`). A pipelined task has its worker for itself.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer

from penstock.common.errors import EpochFailed
from penstock.jobmanager.cluster.slots import Slot
from penstock.jobmanager.cluster.spark_cluster import SparkCluster
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

LOOK_S = 0.5
"""How often the executors of a running Spark job are looked at."""
KILL_PATIENCE_S = 30.0
"""How long an epoch that nobody waits for any more may take to end, once its Spark job is cancelled."""
WHEREABOUTS_S = 12.0
"""What a task said longer ago than that, and did not say again, is over: it says so every five seconds."""
CRASH_S = 5.0
"""How long Spark may take to tell what a Python worker died of, as long as tasks of the job have not ended."""
HEARD_S = 0.1
"""How long Spark's news of a task's end takes at most to whom it tells it."""
KILLED_S = 1.0
"""How long a TaskManager may take to tell that the system has killed something of its container."""
CLOSING_GRACE_S = 5.0
"""For tasks to say that they have not closed in time, before they are killed."""
_COMMAND_PREFIX = bytes((COMMAND,))
_LENGTH = struct.Struct(">i")

log = logging.getLogger(__name__)


class SparkRunner:
    """Runs epochs on a SparkCluster.

    Args:
        cluster: started.
    """

    streaming = False
    """Whether rows flow between two calls of `run_epoch`."""
    look_ups: LiveLookUps | None = None

    def __init__(self, cluster: SparkCluster) -> None:
        self._cluster = cluster
        self.spark = cluster.sql
        self._server = ControlServer(cluster.config.host, self._on_frame, self._on_gone)
        self.task_settings: dict[str, Any] = {
            "report_address": self._server.address,
            "control_token": self._server.token,
        }
        self._whereabouts: dict[tuple[int, int], tuple[float, Whereabouts]] = {}
        self._failed: LevelAck | None = None
        """A task that says so before the end of its epoch: it hangs."""
        self._holds_tasks = False
        """The last epoch has gone well: there are functions to be closed."""
        self.on_wait: Callable[[], None] | None = None
        self.more_slots: Callable[[int], object] | None = None
        """Starts workers of a local cluster; None: workers come from outside."""
        self._attempt: Attempt | None = None
        self._placement: list[Slot] = []
        self._task_managers: list[str] = []
        self._functions: Any = None
        self._broadcast: Any = None
        self._held: set[str] = set()
        """Locations of executors that were told to keep the Python workers of this job."""
        self._group = ""
        self._work = WorkThread("penstock-epoch")
        self._cancelled = threading.Event()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return "batched"

    @property
    def placement(self) -> list[Slot]:
        """Where every slot of the job is, in order."""
        return list(self._placement)

    @property
    def task_managers(self) -> list[str]:
        return list(self._task_managers)

    def available_slots(self) -> int:
        return len(self._cluster.slots.available(self, list(self._cluster.all_slots())))

    def expects_home(self) -> bool:
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
        self._broadcast = context.broadcast(attempt.payload)
        self._functions = self._cluster.new_function_array(
            [self._function(context, attempt, level) for level in range(attempt.levels)]
        )
        self._attempt = attempt

    def _function(self, context: Any, attempt: Attempt, level: int) -> Any:
        is_last = level == attempt.levels - 1
        return self._wrapped(
            context, LevelFunction(self._broadcast, attempt.job_id, attempt.number, level, is_last=is_last)
        )

    def _wrapped(self, context: Any, function: Callable[..., Any]) -> Any:
        # Spark pools Python workers by environment: those that hold state are never lent to functions of DataFrames.
        context.environment["PENSTOCK_TASKS"] = "1"
        serializer = RowSerializer() if self.streaming else NoOpSerializer()
        try:
            return _wrap_function(context, function, serializer, serializer)
        finally:
            del context.environment["PENSTOCK_TASKS"]

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        attempt = self._attempt
        assert attempt is not None

        def is_wanted() -> bool:
            watch()
            return not self._cancelled.is_set()

        with self.spark.turns.shared(is_wanted) as has_turn:
            if not has_turn:
                raise EpochFailed("the epoch was cancelled while a DataFrame had the cluster")
            self._holds_tasks = False
            acks = _split(self._watched(self._work.submit(lambda: self._submit(commands)), watch))
            self._whereabouts.clear()
        failed = any(ack.failure is not None for ack in acks)
        self._holds_tasks = not failed
        if len(acks) != attempt.slots * attempt.levels and not failed:
            raise EpochFailed(f"epoch {commands[0].epoch}: {len(acks)} acks of {attempt.slots * attempt.levels}")
        return acks

    def _watched(self, epoch: Future[bytes], watch: Watch) -> bytes:
        """Its Spark job must be over before anything else happens in these slots, also when nobody waits for it."""
        try:
            while wait([epoch], WATCH_S).not_done:
                watch()
        except BaseException:
            self._kill(epoch)
            raise
        return epoch.result()

    def _kill(self, epoch: Future[bytes]) -> None:
        """Spark kills the Python workers of a cancelled job that do not answer."""
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
        """A task that has not come back for a while says where it is, or that it has been there too long."""
        ack = decode_ack(frame)
        if ack.where is not None:
            self._whereabouts[ack.slot, ack.level] = time.monotonic(), ack.where
        elif ack.failure is not None:
            self._failed = ack

    def _on_gone(self, hello: Hello) -> None:
        """It has said what it had to say."""

    def whereabouts(self) -> dict[tuple[int, int], Whereabouts]:
        oldest = time.monotonic() - WHEREABOUTS_S
        return {task: where for task, (at, where) in list(self._whereabouts.items()) if at > oldest}

    def _check_placement(self) -> None:
        """Fail at once for an executor that is known to be gone; Spark would wait for its return first."""
        alive = {executor.id for executor in self._cluster.executors()}
        lost = [number for number, slot in enumerate(self._placement) if slot.executor.id not in alive]
        if lost:
            executor = self._placement[lost[0]].executor
            slots = f"slot{'s' if len(lost) > 1 else ''} {', '.join(map(str, lost))}"
            gone = f"executor {executor.id} on {executor.host} is gone, and {slots} with it"
            raise epoch_lost(gone, self._killed(executor.host))

    def _killed(self, host: str) -> MemoryKill | None:
        """What the system has killed there a moment ago; a TaskManager that has gone with it tells nothing."""
        registry, deadline = self._cluster.registry, time.monotonic() + KILLED_S
        while (kill := registry.killed_on(host)) is None and registry.is_at(host) and time.monotonic() < deadline:
            time.sleep(HEARD_S)
        return kill

    def _submit(self, commands: list[EpochCommand]) -> bytes:
        """Run the Spark job of all levels with these commands as its input; returns the rows of the last level.

        Raises:
            EpochFailed: Spark lost it.
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
            self._held.update(slot.executor.location for slot in self._placement)
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
            told = lost[0] if lost else self._in_words(error)
            raise EpochFailed(told.message, remedy=told.remedy or "the job fails over by itself") from error
        finally:
            ended.set()
            watch.join()

    def _in_words(self, error: Exception) -> EpochFailed:
        """What Spark says, and what has been killed meanwhile: it may have seen before the watch that an executor is gone."""
        hosts = {slot.executor.host for slot in self._placement}
        kill = next(filter(None, map(self._cluster.registry.killed_on, sorted(hosts))), None)
        return epoch_lost(_cause(error), kill)

    def _crash(self, attempt: Attempt, group: str, patience_s: float, closing: bool) -> Exception | None:
        """What a Python worker died of. Spark ends the job with the first task that it hears of, and that may be one that
        lost its connection to the worker that died; what that one died of is there when its own task has ended."""
        deadline = time.monotonic() + patience_s
        have_ended = False
        while attempt.graph is not None and not self._cancelled.is_set():
            ends = self._cluster.failures(group)
            found = crash_of(ends, attempt.graph, closing=closing, killed=self._killed)
            if found is not None or have_ended or time.monotonic() > deadline:
                return found
            have_ended = not self._cluster.running_tasks(group)
            time.sleep(HEARD_S)
        return None

    def _watch(self, group: str, ended: threading.Event, lost: list[EpochFailed]) -> None:
        """End the Spark job when an executor is lost that it runs on.

        Spark would not count that as a failure of the task: it waits out the locality wait, for an executor that does not
        come back, and then starts the task where its state is not.
        """
        while not ended.wait(LOOK_S):
            try:
                self._check_placement()
                if self._failed is not None and self._failed.failure is not None:
                    raise EpochFailed(self._failed.failure.message)
            except EpochFailed as error:
                lost.append(error)
                self._cluster.cancel(group)
                return

    def end_attempt(self) -> None:
        """Tasks of this runner end with their epoch; what they hold stays in the workers until it is closed."""
        attempt, holds_tasks = self._attempt, self._holds_tasks
        self._holds_tasks = False
        if attempt is None or not holds_tasks or self._cancelled.is_set():
            return
        deadline = time.monotonic() + attempt.closing_s
        group = f"{attempt.job_id}-{attempt.number}-close"
        killer = threading.Timer(attempt.closing_s + CLOSING_GRACE_S, self._cluster.cancel, [group])
        with self.spark.turns.shared(lambda: time.monotonic() < deadline) as has_turn:
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
            except EpochFailed as error:  # the workers are gone, and what they held with them
                log.warning("functions of job %s are not closed: %s", attempt.job_id, error.message)
                return
            finally:
                killer.cancel()
        for ack in acks:
            if ack.failure is not None:
                raise JobFailed(ack.failure, ack.host)

    def take_news(self) -> list[SnapshotAck]:
        """Tasks of this runner speak at the end of an epoch only."""
        return []

    def request_barrier(self) -> None:
        """Sources look at the clock: an epoch ends by itself within its bound."""

    def cancel(self) -> None:
        """End the running epoch; `run_epoch` then raises EpochFailed. Spark kills Python workers that do not answer."""
        self._cancelled.set()
        with self._lock:
            group = self._group
        if group:
            self._cluster.cancel(group)

    def close(self) -> None:
        self._server.close()
        held, self._held = sorted(self._held), set()
        self._placement, self._task_managers = [], []
        try:
            if held and self._attempt is not None:
                self._cluster.release_workers(self._attempt.job_id, held)
        finally:
            self._cluster.slots.release(self)
            self._work.close()
            self._destroy_broadcast()

    def _destroy_broadcast(self) -> None:
        """The job's code is dropped everywhere, also what the driver keeps of it in memory and in its folder."""
        broadcast, self._broadcast = self._broadcast, None
        if broadcast is not None:
            broadcast.destroy()


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
    """The first line that tells what happened, out of a Java exception of a hundred."""
    text = str(getattr(error, "java_exception", None) or error)
    for line in text.splitlines():
        if "ExecutorLostFailure" in line or "Job aborted" in line or "cancelled" in line:
            return line.strip()[:500]
    return text.strip().splitlines()[0][:500] if text.strip() else type(error).__name__
