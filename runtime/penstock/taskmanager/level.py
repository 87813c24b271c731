"""The task of one slot on one level, epoch after epoch: the core of the runtime.

`batch_task.BatchTask` (the batched runner) and `stream_task.StreamTask` (the pipelined runner) move rows in and out. This module
processes them. Input rows: the command of this slot, the buffers of the exchanges, acks of the levels above. Output rows have the
form (slot, row): buffers for the next level, and the command and the acks for this slot's next level.

The steps of an epoch, in order:

1. Command: attempt check, restore, notifications, overdue processing-time timers.
2. Input. On level 0 the sources read until the bound. Deeper levels process buffers.
3. Processing-time timers.
4. Snapshot, if the command requests one. No record is in flight then, because the end of the epoch is an aligned barrier.
5. Flush, then ack.

In epoch n, a task uses its state only if this is the state after epoch n-1 of the same attempt. Otherwise the task
answers `StateNotLocal` and the job fails over. An exception never leaves the task. It becomes a `TaskFailure` in the
ack, with the user's frames. The task still reads its input to the end: Spark discards a Python worker that leaves input
unread, and with it the state of all other subtasks in the worker.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import StateNotLocal
from penstock.graph.job_graph import JobGraph
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.exchange.rows import ACK, decode_buffer, exchange_of
from penstock.taskmanager.failure import failure_of
from penstock.taskmanager.hardware import this_machine
from penstock.taskmanager.look_up import LookUp, LookUpAnswer, answer
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    RestoreCommand,
    SnapshotAck,
    TaskFailure,
)
from penstock.taskmanager.subtask import Subtask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.uploads import SnapshotUploads

Row = tuple[int, bytes]

UPLOAD_THREADS = 2
_ACK_PREFIX = bytes((ACK,))
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HOST = socket.gethostname()
_END = object()

logger = logging.getLogger(__name__)


class LevelTask:
    """The subtasks of one slot on one level. The object lives as long as its attempt, and one thread uses it.

    Args:
        graph: this slot's copy of the job graph.
        level: 0 for the sources.
        slot: index of the slot. The slot runs subtask `slot` of every stage of the level whose parallelism is larger
            than `slot`.
        environment: services and settings of the process.
    """

    def __init__(self, graph: JobGraph, level: int, slot: int, environment: TaskEnvironment) -> None:
        self.graph = graph
        self.level = level
        self.slot = slot
        self.environment = environment
        self._watchdog = environment.watchdog
        self.failure: TaskFailure | None = None
        self._out: list[Row] = []
        self._subtasks: list[Subtask] = []
        self._by_exchange: dict[int, list[Subtask]] = {}
        self._passing = {e.id for e in graph.exchanges if e.level > level}
        self._epoch = -1
        self._attempt = -1
        self._pending: list[Future[SnapshotAck]] = []
        self._stores = Stores(environment.object_store_options)
        self._uploads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="penstock-upload")
        self._results: dict[str, list[bytes]] = {}
        self._lines: list[str] = []
        self.next_latency_at = math.inf
        """Time (s, monotonic) at which a source sends the next latency marker."""
        self.has_read = False
        """True if a source has read a record since the last reset to False."""

    @property
    def subtasks(self) -> tuple[Subtask, ...]:
        return tuple(self._subtasks)

    @property
    def is_last(self) -> bool:
        return self.level == self.graph.levels - 1

    # --- begin and end of an epoch ----------------------------------------------------------------------------

    def begin(self, command: EpochCommand) -> None:
        """Carry out the part of the command for the epoch's start. The first epoch builds and restores the subtasks."""
        self._guard(self._begin, command)

    def end(self, command: EpochCommand) -> None:
        """End the epoch after its last record: run timers, end the input, take the snapshot, flush."""
        self._guard(self._end, command)

    def _begin(self, command: EpochCommand) -> None:
        # Set the attempt first: the JobManager cannot use an ack without it, even if the ack reports a failed start.
        self._attempt = command.attempt
        if command.processing_time is not None:
            set_time = getattr(self.environment.clock, "set", None)
            if set_time is not None:
                set_time(command.processing_time)
        if command.is_first:
            if self._epoch != -1:
                raise StateNotLocal(f"slot {self.slot} already ran epoch {self._epoch} of attempt {command.attempt}")
            self._start(command.restore)
        elif command.epoch != self._epoch + 1:
            raise StateNotLocal(
                f"slot {self.slot}, level {self.level}: the task needs the state after epoch {command.epoch - 1}, "
                f"but this worker has the state after epoch {self._epoch}"
            )
        self._epoch = command.epoch
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            subtask.notify(command.completed, command.aborted, command.committed)
            if command.only_notifies:
                continue
            for uid, source in subtask.sources.items():
                source.assign(command.assignments.get(uid, []), ends=uid in command.ended)
                source.align(command.aligned.get(uid, MAX_TIMESTAMP))
                source.begin_epoch(command.max_records, command.max_bytes)
            subtask.advance_processing_time(now)

    def _start(self, restore: RestoreCommand | None) -> None:
        for stage in self.graph.stages_on(self.level):
            if self.slot < stage.parallelism:
                subtask = Subtask(self.graph, stage, self.slot, self.environment, self._emit)
                self._subtasks.append(subtask)
                for exchange in stage.inputs:
                    self._by_exchange.setdefault(exchange, []).append(subtask)
        for subtask in self._subtasks:
            if restore is not None and restore.root:
                subtask.restore(restore, StateFileReader(self._stores, restore.root))
            subtask.open()
        self._set_latency_time()

    def _end(self, command: EpochCommand) -> None:
        if command.only_notifies:
            return
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            subtask.advance_processing_time(now)
            if command.emits_watermarks:
                subtask.emit_periodic_watermarks()
            if command.drain or command.finish:
                for source in subtask.sources.values():
                    source.drain()
            if command.finish:
                subtask.finish()
            subtask.end_of_epoch()
        if command.snapshot is not None:
            root = command.snapshot.root
            files = StateFileWriter(self._stores.for_url(root), root) if root else None
            uploads = SnapshotUploads(self._uploads, files, self.environment.merged_file_bytes)
            try:
                for subtask in self._subtasks:
                    self._pending.extend(subtask.snapshot(command.snapshot, files, uploads))
            finally:
                uploads.seal()
        for subtask in self._subtasks:
            subtask.flush()

    # --- input ------------------------------------------------------------------------------------------------

    def readers(self, deadline_ms: int, *, due: bool = False) -> list[tuple[Subtask, Iterator[int]]]:
        """Return one iterator per source of the level. Each step reads one batch and yields its size.

        Args:
            due: include only sources that have records, or whose last poll was some time ago.
        """
        return [
            (subtask, source.read(deadline_ms))
            for subtask in self._subtasks
            for source in subtask.sources.values()
            if not due or source.is_due
        ]

    def read_step(self, subtask: Subtask, reader: Iterator[int]) -> bool:
        """Read one batch. Return False if no record is available now, or the task has failed."""
        if self.failure is not None:
            return False
        started = time.perf_counter()
        self._watchdog.since = started
        try:
            if subtask.is_full:
                subtask.take_finished()
            count = 0 if subtask.is_full else next(reader, 0)
            self.has_read = self.has_read or bool(count)
            return count > 0
        except BaseException as error:
            self._fail(error)
            return False
        finally:
            self._watchdog.since = 0.0
            subtask.metrics.busy_ms += (time.perf_counter() - started) * 1e3

    @property
    def needs_epoch(self) -> bool:
        """Return whether a source has read as much as the epoch allows, or has reached its end."""
        return any(source.needs_epoch for subtask in self._subtasks for source in subtask.sources.values())

    def blocked(self, seconds: float) -> None:
        """Add the time that the receiver took to accept an output row."""
        for subtask in self._subtasks:
            subtask.metrics.blocked_ms += seconds * 1e3

    def waited_for_epoch(self, seconds: float) -> None:
        """Add the time of a wait to the sources that have reached the limit of their epoch.

        These sources count as back-pressured. The next epoch begins when the downstream subtasks have processed the
        records of the current epoch.
        """
        for subtask in self._subtasks:
            if any(source.has_spent_budget for source in subtask.sources.values()):
                subtask.metrics.blocked_ms += seconds * 1e3

    def next_read_at(self) -> int | None:
        """Return when (ms) to read again after a read without records. 0 means unknown.

        None means after the next command.
        """
        return self._earliest(
            source.next_read_at
            for subtask in self._subtasks
            if not subtask.is_full  # a finished record wakes the task
            for source in subtask.sources.values()
        )

    def next_wake(self) -> int | None:
        """Return when (ms) `advance_processing_time` next has work, or None if only input brings work."""
        return self._earliest(subtask.next_wake for subtask in self._subtasks)

    @property
    def has_unflushed(self) -> bool:
        """Return whether records or a watermark wait for a flush, or rows wait in the output."""
        return bool(self._out) or any(subtask.has_unflushed for subtask in self._subtasks)

    def _earliest(self, questions: Iterable[Callable[[], int | None]]) -> int | None:
        """Return the earliest of the times. A failure of the user's readers, writers and generators becomes the task's failure."""
        if self.failure is not None:
            return None
        try:
            return min((at for question in questions if (at := question()) is not None), default=None)
        except BaseException as error:
            self._fail(error)
            return 0

    def passes_through(self, exchange: int) -> bool:
        """Return whether a deeper level needs the buffers of this exchange."""
        return exchange in self._passing

    def receives(self, exchange: int) -> bool:
        """Return whether a subtask of this level receives the buffers of this exchange."""
        return exchange in self._by_exchange

    def keep(self, row: bytes) -> None:
        """Put a buffer into the gates of its target subtasks. `drain` processes the buffers in watermark order."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            assert subtask.gate is not None
            subtask.gate.put(decode_buffer(row))

    def drain(self) -> Iterator[None]:
        """Process the kept buffers. Yield after every buffer, so that the caller can send output."""
        for subtask in self._subtasks:
            if subtask.gate is None:
                continue
            yield from self._timed(subtask, subtask.drain_gate())

    def _timed(self, subtask: Subtask, steps: Iterator[None]) -> Iterator[None]:
        while self.failure is None:
            started = time.perf_counter()
            self._watchdog.since = started
            try:
                if next(steps, _END) is _END:
                    break
            except BaseException as error:
                self._fail(error)
            finally:
                self._watchdog.since = 0.0
                subtask.metrics.busy_ms += (time.perf_counter() - started) * 1e3
            yield

    def process(self, row: bytes) -> Iterator[None]:
        """Process one buffer immediately. Yield after every part of the buffer."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            yield from self._timed(subtask, subtask.process_parts(decode_buffer(row)))

    def mark_latency(self, now: float) -> None:
        """Send a latency marker from each source if one is due. `now` is in seconds on the monotonic clock."""
        if now >= self.next_latency_at:
            for subtask in self._subtasks:
                self._guard(subtask.latency.make, subtask.index, now)
            self._set_latency_time()

    def _set_latency_time(self) -> None:
        self.next_latency_at = min((subtask.latency.next_at for subtask in self._subtasks), default=math.inf)

    def pass_latency(self, row: bytes) -> None:
        """Pass on a latency marker that has arrived."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            self._guard(subtask.pass_latency, row)

    @property
    def has_remaining_work(self) -> bool:
        """Return whether the input has ended, but work that follows its end remains."""
        return self.failure is None and any(subtask.has_remaining_work for subtask in self._subtasks)

    def process_remaining(self) -> Iterator[None]:
        """Do the work that remains after the end of the input. Yield after every part. A later call continues."""
        for subtask in self._subtasks:
            if subtask.has_remaining_work:
                yield from self._timed(subtask, subtask.process_remaining())

    def advance_processing_time(self) -> None:
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            self._guard(subtask.advance_processing_time, now)

    def take_finished(self) -> None:
        """Emit the finished results of operators after the task was woken."""
        for subtask in self._subtasks:
            self._guard(subtask.take_finished)

    # --- output -----------------------------------------------------------------------------------------------

    def take_output(self) -> list[Row]:
        """Return the rows for the next level that were made since the last call."""
        out, self._out = self._out, []
        return out

    def flush(self) -> None:
        """Cut the partly filled buffers."""
        for subtask in self._subtasks:
            self._guard(subtask.flush)

    def ack(self, command: EpochCommand) -> LevelAck:
        full = self._new_ack()
        self._guard(self._fill, full, command)
        return full if self.failure is None else self._new_ack()

    def _fill(self, ack: LevelAck, command: EpochCommand) -> None:
        """Fill the ack. The gauges are user functions, and uploads may fail with any exception."""
        if command.snapshot is not None and command.snapshot.synchronous:
            for future in self._pending:
                future.result()
        ack.results, self._results = self._results, {}
        ack.lines, self._lines = self._lines, []
        timers = []
        for subtask in self._subtasks:
            ack.vertices[subtask.stage.id] = subtask.take_metrics()
            for uid, source in subtask.sources.items():
                ack.sources[uid] = source.progress()
            timer = subtask.next_processing_time()
            if timer is not None:
                timers.append(timer)
        ack.next_processing_timer = min(timers, default=None)
        ack.has_remaining_work = self.has_remaining_work
        ack.holds_records = any(subtask.holds_records for subtask in self._subtasks)
        ack.snapshots = self.take_finished_uploads()

    def brief_ack(self) -> LevelAck:
        """Return an ack with only the task's identity and its failure, if any.

        It can be sent before the epoch has ended.
        """
        ack = self._new_ack()
        ack.is_brief = True
        return ack

    @property
    def uploads(self) -> bool:
        """Return whether uploads are running, or have results that no ack contains yet."""
        return bool(self._pending)

    @property
    def has_uploaded(self) -> bool:
        return any(future.done() for future in self._pending)

    def report_uploads(self, ack: LevelAck) -> None:
        """Put the results of finished uploads into an ack. An exception of an upload is the task's failure."""
        self._guard(self._add_upload_results, ack)

    def _add_upload_results(self, ack: LevelAck) -> None:
        ack.snapshots = self.take_finished_uploads()

    def take_finished_uploads(self) -> list[SnapshotAck]:
        """Return the answers to snapshots whose files are written."""
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if future not in done]
        return [future.result() for future in done]

    def _new_ack(self) -> LevelAck:
        return LevelAck(
            slot=self.slot,
            level=self.level,
            attempt=self._attempt,
            epoch=self._epoch,
            failure=self.failure,
            pid=os.getpid(),
            rss_bytes=_rss(),
            cpu_seconds=time.process_time(),
            host=_HOST,
            hardware=this_machine().hardware(),
        )

    def _emit(self, slot: int, row: bytes) -> None:
        self._out.append((slot, row))

    def collect(self, uid: str, values: list[bytes]) -> None:
        """Collect values for the program. They travel with the next ack (`OperatorContext.results`)."""
        self._results.setdefault(uid, []).extend(values)

    def print_line(self, line: str) -> None:
        self._lines.append(line)

    def answer_look_up(self, request: LookUp) -> LookUpAnswer:
        """Answer a look-up of state between two batches."""
        if self.failure is not None:
            return LookUpAnswer(request.id, self._attempt, refusal="the task has failed", is_later=True)
        return answer(request, self._attempt, self._subtasks)

    # --- failures ---------------------------------------------------------------------------------------------

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        if self.failure is None:
            self._watchdog.since = time.perf_counter()
            try:
                step(*arguments)
            except BaseException as error:  # `sys.exit` in a function is an error of the function too
                self._fail(error)
            finally:
                self._watchdog.since = 0.0

    def _fail(self, error: BaseException) -> None:
        self._out = []
        self.failure = failure_of(error)

    def terminate(self, command: EpochCommand) -> None:
        """End the attempt.

        The command has no other effect. If a function cannot be closed, the ack reports the failure.
        """
        self._epoch = command.epoch
        self.close()

    def close(self) -> None:
        """Close every function, once. The first exception is the task's failure if the task had not failed before."""
        self._uploads.shutdown(wait=False, cancel_futures=True)
        self._pending = [future for future in self._pending if not future.cancelled()]
        subtasks, self._subtasks = self._subtasks, []
        for subtask in subtasks:
            try:
                subtask.close()
            except BaseException as error:
                if self.failure is None:
                    self._fail(error)
                else:
                    logger.warning("slot %d, level %d was not closed properly", self.slot, self.level, exc_info=error)
        self.environment.waker.close()


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
