"""The pipelined runner: one Spark job per attempt, with epochs as barriers in the stream (see `taskmanager.stream_task`).

`run_epoch` *ends* the running epoch. It sends the commands to the source tasks and waits until the marker has passed every level and all
tasks have acknowledged. Records flow without the JobMaster between two calls.
"""

from __future__ import annotations

import logging
import queue
import threading
import time

from penstock.common.errors import EpochFailed, PenstockError
from penstock.jobmanager.cluster.slots import MAX_PIPELINED_LEVELS
from penstock.jobmanager.cluster.spark_access import SparkAccess
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.runners.live_look_ups import LiveLookUps, Place
from penstock.jobmanager.runners.runner import WATCH_S, Attempt, Watch, unwatched
from penstock.jobmanager.runners.spark_runner import CLOSING_GRACE_S, CRASH_S, KILLED_S, SparkRunner
from penstock.taskmanager.control.channel import Hello
from penstock.taskmanager.look_up import is_look_up
from penstock.taskmanager.protocol import (
    STEP_TIMEOUT,
    EpochCommand,
    LevelAck,
    SnapshotAck,
    TaskFailure,
    decode_ack,
    encode_command,
)

log = logging.getLogger(__name__)

END_PATIENCE_S = 3.0
"""Time in seconds for the tasks of an attempt to end by themselves before their Spark job is cancelled."""


class PipelinedRunner(SparkRunner):
    """Runner that places tasks like the batched runner. Rows then flow continuously.

    The Spark job's input contains the first epoch's command, so a task that cannot reach the JobManager fails the job in the usual way.
    """

    streaming = True

    def __init__(self, cluster: SparkAccess) -> None:
        self._frames: queue.SimpleQueue[LevelAck | Hello] = queue.SimpleQueue()
        super().__init__(cluster)
        self._job: threading.Thread | None = None
        self._job_error: Exception | None = None
        self._uploaded: list[SnapshotAck] = []
        self._epoch = -1
        self._acks: dict[tuple[int, int], LevelAck] = {}
        self._has_failed = False
        self._cause: TaskFailure | None = None
        """The failure that ended the last failed attempt."""
        self.look_ups = self._live = LiveLookUps(self._server.send)
        self.task_settings = {"control_address": self._server.address, "control_token": self._server.token}

    @property
    def name(self) -> str:
        return "pipelined"

    def start(self, attempt: Attempt) -> None:
        self.end_attempt()
        super().start(attempt)
        if attempt.graph is not None:
            self._live.begin(attempt.number, attempt.graph)
        self._has_failed = False
        self._uploaded = []
        self._epoch = -1
        while not self._frames.empty():
            self._log_dropped(self._frames.get(), "it came before the attempt began")

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        attempt = self._attempt
        assert attempt is not None
        self._epoch = commands[0].epoch
        self._has_failed = True
        if self._job is None:
            self._start_job(commands)
        else:
            for slot, command in enumerate(commands):
                if not self._server.send(attempt.number, slot, 0, encode_command(command)):
                    raise self._loss(f"the source task of slot {slot} has ended")
        acks = self._wait_for_acks(attempt, watch)
        self._has_failed = any(ack.failure is not None for ack in acks)
        self._whereabouts.clear()
        return acks

    def _start_job(self, commands: list[EpochCommand]) -> None:
        self._job_error = None

        def run() -> None:
            try:
                self._submit(commands)
            except Exception as error:
                self._job_error = error

        self._job = threading.Thread(target=run, name="penstock-stream", daemon=True)
        self._job.start()

    def _wait_for_acks(self, attempt: Attempt, watch: Watch) -> list[LevelAck]:
        acks = self._acks = {}
        wanted = attempt.slots * attempt.levels
        watched = time.monotonic()
        while len(acks) < wanted:
            if time.monotonic() - watched >= WATCH_S:
                watch()
                watched = time.monotonic()
            try:
                item = self._frames.get(timeout=WATCH_S)
            except queue.Empty:
                if self._server.failure is not None:
                    raise EpochFailed(f"the control channel has ended: {self._server.failure}") from None
                if self._job is None or not self._job.is_alive():
                    raise self._loss("the Spark job of the attempt has ended") from None
                continue
            if item.attempt != attempt.number:
                self._log_dropped(item, f"the running attempt is {attempt.number}")
                continue
            if isinstance(item, Hello):
                raise self._loss(f"the task of slot {item.slot}, level {item.level} has ended")
            if item.failure is not None:
                self._cause = item.failure
                return [item]
            if item.where is not None:
                self._whereabouts[item.slot, item.level] = time.monotonic(), item.where
            elif item.is_brief:
                self._uploaded += item.snapshots
            elif item.epoch == self._epoch:
                acks[item.slot, item.level] = item
            else:
                self._log_dropped(item, f"the expected epoch is {self._epoch}")
        complete = list(acks.values())
        complete[0].snapshots = [*self._uploaded, *complete[0].snapshots]
        self._uploaded = []
        return complete

    def _log_dropped(self, item: LevelAck | Hello, reason: str) -> None:
        """Log a task's message for which no caller waits, so that no message is lost silently.

        The console shows a failure if its cause is not the failure that ended the attempt.
        """
        task = f"slot {item.slot}, level {item.level} of attempt {item.attempt}"
        if isinstance(item, Hello):
            log.info("the connection of %s has ended: %s", task, reason)
        elif item.failure is not None:
            level = logging.INFO if self._cause is not None and _is_same(item.failure, self._cause) else logging.WARNING
            log.log(level, "ignored a failure of %s: %s\n%s", task, reason, item.failure.traceback)
        else:
            log.info("ignored an acknowledgement of %s for epoch %d: %s", task, item.epoch, reason)

    def unanswered(self) -> list[tuple[int, int]]:
        attempt = self._attempt
        assert attempt is not None
        every = ((slot, level) for slot in range(attempt.slots) for level in range(attempt.levels))
        return [task for task in every if task not in self._acks]

    def _loss(self, seen: str) -> Exception:
        """Return the error for a lost epoch. The error of the Spark job is more precise, so wait a moment for this error."""
        job = self._job
        if job is not None:
            job.join(CRASH_S + KILLED_S + 1.0)
        error = self._job_error
        if isinstance(error, JobFailed):
            return error
        detail = error.message if isinstance(error, PenstockError) else str(error or "")
        lost = EpochFailed(
            f"{seen}: {detail}" if detail else seen, remedy=error.remedy if isinstance(error, PenstockError) else ""
        )
        lost.__cause__ = error
        return lost

    def end_attempt(self) -> None:
        self._live.end()
        job, attempt = self._job, self._attempt
        if job is None or attempt is None:
            return
        failed = self._close_tasks(job, attempt) if job.is_alive() else None
        deadline = time.monotonic() + 30
        while job.is_alive() and time.monotonic() < deadline:
            self.cancel()
            job.join(1.0)
        self._job = None
        if failed is not None:
            raise failed

    def _close_tasks(self, job: threading.Thread, attempt: Attempt) -> JobFailed | None:
        """Make every task close its functions and end.

        The wait for a failed attempt is shorter than for a successful attempt. Exceptions of a failed attempt's
        functions are only logged.
        """
        command = encode_command(EpochCommand(attempt=attempt.number, epoch=self._epoch + 1, terminate=True))
        sent = [self._server.send(attempt.number, slot, 0, command) for slot in range(attempt.slots)]
        if not all(sent):
            return None
        deadline = time.monotonic() + (END_PATIENCE_S if self._has_failed else attempt.closing_s + CLOSING_GRACE_S)
        failed: JobFailed | None = None
        hangs = False
        while (job.is_alive() and not hangs and time.monotonic() < deadline) or not self._frames.empty():
            try:
                item = self._frames.get(timeout=0.02)
            except queue.Empty:
                continue
            if isinstance(item, LevelAck) and item.attempt == attempt.number and item.failure is not None:
                if self._has_failed:
                    self._log_dropped(item, "the attempt has failed before")
                else:
                    failed = failed or JobFailed(item.failure, item.host)
                    hangs = hangs or item.failure.kind == STEP_TIMEOUT
        if failed is None and not self._has_failed and isinstance(self._job_error, JobFailed):
            return self._job_error  # a worker that crashed in `close` cannot report the crash itself
        if failed is None and job.is_alive() and not self._has_failed:
            log.warning("not all functions of job %s were closed before the timeout", attempt.job_id)
        return failed

    def take_news(self) -> list[SnapshotAck]:
        """Return acknowledgements of snapshots between two epochs. Failures and lost connections are left for the next epoch."""
        attempt = self._attempt
        uploaded, self._uploaded = self._uploaded, []
        for item in self._waiting_frames():
            if attempt is not None and isinstance(item, LevelAck) and item.attempt == attempt.number and item.is_news:
                uploaded += item.snapshots
            else:
                self._frames.put(item)
        return uploaded

    def _waiting_frames(self) -> list[LevelAck | Hello]:
        found = []
        while not self._frames.empty():
            found.append(self._frames.get())
        return found

    def _on_frame(self, hello: Hello, frame: bytes) -> None:
        if is_look_up(frame):
            self._live.take(frame)
            return
        ack = decode_ack(frame)
        self._frames.put(ack)
        if self.on_wait is not None and (ack.waits or ack.failure is not None):
            self.on_wait()

    def _on_gone(self, hello: Hello) -> None:
        self._live.on_disconnected(hello.attempt, Place(hello.slot, hello.level))
        self._frames.put(hello)
        if self.on_wait is not None:
            self.on_wait()

    def close(self) -> None:
        self.end_attempt()
        super().close()


def _is_same(one: TaskFailure, other: TaskFailure) -> bool:
    """Return whether two failures have the same cause: the same error in the same operator. The records may differ."""
    return (one.kind, one.uid, one.location) == (other.kind, other.uid, other.location)


def create_runner(cluster: SparkAccess, *, pipelined: bool, levels: int) -> SparkRunner:
    """Return the runner that a job selects. A job with more levels than a slot has cores gets the batched runner."""
    if pipelined and levels <= MAX_PIPELINED_LEVELS:
        return PipelinedRunner(cluster)
    if pipelined:
        log.warning(
            "the job has %d levels, and the pipelined runner supports %d: the batched runner runs it",
            levels,
            MAX_PIPELINED_LEVELS,
        )
    return SparkRunner(cluster)
