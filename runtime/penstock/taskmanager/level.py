"""The task of one slot on one level, for one epoch after the other: the heart of the runtime.

`BatchTask` (the batched runner) and `stream_task.StreamTask` (the pipelined one) move rows in and out; what is done with
them is here. Rows in: the command of this slot, the buffers of the exchanges, acks of the levels above. Rows out: (slot,
row): buffers for the next level, the command and the acks for this slot's next level.

The order inside an epoch: the command (attempt check, restore, notifications, overdue processing-time timers) -> input
(level 0: the sources read until the bound; deeper: buffers) -> processing-time timers -> snapshot, when the command asks
for one: no record is in flight then, the end of the epoch is an aligned barrier -> flush -> ack.

State is used only if it is the state after epoch n-1 of this attempt; otherwise the task answers `StateNotLocal` and the
job fails over. An exception never leaves the task: it becomes a `TaskFailure` in the ack, with the user's frames, and the
input is still read to its end, because a Python worker that leaves input unread is thrown away by Spark together with
the state of all other subtasks in it.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any

from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import StateNotLocal
from penstock.graph.job_graph import JobGraph
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.exchange.rows import ACK, COMMAND, DATA, LATENCY, decode_buffer, exchange_of
from penstock.taskmanager.failure import failure_of
from penstock.taskmanager.hardware import this_machine
from penstock.taskmanager.look_up import LookUp, LookUpAnswer, answer
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    RestoreCommand,
    SnapshotAck,
    TaskFailure,
    decode_command,
    encode_ack,
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
    """Subtasks of one slot on one level; lives as long as its attempt. Driven from one thread.

    Args:
        graph: this slot's own copy of the job graph.
        level: 0 for the sources.
        slot: index of the slot; runs subtask `slot` of every stage of the level whose parallelism is above it.
        environment: what the process provides.
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
        self._passes = {e.id for e in graph.exchanges if e.level > level}
        self._epoch = -1
        self._attempt = -1
        self._pending: list[Future[SnapshotAck]] = []
        self._stores = Stores(environment.object_store_options)
        self._uploads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="penstock-upload")
        self._results: dict[str, list[bytes]] = {}
        self._lines: list[str] = []
        self.next_latency_at = math.inf
        self.has_read = False
        """A source has read a record since this was set to False."""
        """When (s, monotonic) a source sends a latency marker."""

    @property
    def subtasks(self) -> tuple[Subtask, ...]:
        return tuple(self._subtasks)

    @property
    def is_last(self) -> bool:
        return self.level == self.graph.levels - 1

    # --- begin and end of an epoch ----------------------------------------------------------------------------

    def begin(self, command: EpochCommand) -> None:
        """Carry out what the command says of the epoch's start; builds and restores the subtasks at the first."""
        self._guard(self._begin, command)

    def end(self, command: EpochCommand) -> None:
        """The last record of the epoch is processed: timers, end of input, snapshot, flush."""
        self._guard(self._end, command)

    def _begin(self, command: EpochCommand) -> None:
        # First of all: an ack without it says nothing to anybody, least of all that this start has failed.
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
                f"slot {self.slot}, level {self.level}: state after epoch {command.epoch - 1} is wanted, "
                f"this worker holds that after epoch {self._epoch}"
            )
        self._epoch = command.epoch
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            subtask.notify(command.completed, command.aborted, command.committed)
            if command.tells:
                continue
            for uid, source in subtask.sources.items():
                source.assign(command.assignments.get(uid, []), no_more_splits=uid in command.finished_discovery)
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
        if command.tells:
            return
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            subtask.advance_processing_time(now)
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
        """One iterator per source of the level; each step reads one batch and yields its size.

        Args:
            due: only of sources that have something, or were last asked some time ago.
        """
        return [
            (subtask, source.read(deadline_ms))
            for subtask in self._subtasks
            for source in subtask.sources.values()
            if not due or source.is_due
        ]

    def read_step(self, subtask: Subtask, reader: Iterator[int]) -> bool:
        """One batch; False when there is nothing (else) to read now, or the task has failed."""
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
    def wants_epoch(self) -> bool:
        """A source has read what the epoch allows, or all that there is."""
        return any(source.wants_epoch for subtask in self._subtasks for source in subtask.sources.values())

    def blocked(self, seconds: float) -> None:
        """A row of this level's output was taken after so long."""
        for subtask in self._subtasks:
            subtask.metrics.blocked_ms += seconds * 1e3

    def next_read_at(self) -> int | None:
        """When (ms) it is worth to read again, if nothing could be read now; 0: nobody knows, None: not before a command."""
        return self._earliest(
            source.next_read_at
            for subtask in self._subtasks
            if not subtask.is_full  # what it waits for wakes the task
            for source in subtask.sources.values()
        )

    def next_wake(self) -> int | None:
        """When (ms) `advance_processing_time` next has something to do; None: not without input."""
        return self._earliest(subtask.next_wake for subtask in self._subtasks)

    @property
    def holds_back(self) -> bool:
        """Whether records or a watermark wait for a flush, or rows to be taken."""
        return bool(self._out) or any(subtask.holds_back for subtask in self._subtasks)

    def _earliest(self, questions: Iterable[Callable[[], int | None]]) -> int | None:
        """Readers, writers and generators of the user's may fail to answer."""
        if self.failure is not None:
            return None
        try:
            return min((at for question in questions if (at := question()) is not None), default=None)
        except BaseException as error:
            self._fail(error)
            return 0

    def passes(self, exchange: int) -> bool:
        """Buffers of this exchange are (also) for a deeper level."""
        return exchange in self._passes

    def takes(self, exchange: int) -> bool:
        """Buffers of this exchange are for a subtask of this level."""
        return exchange in self._by_exchange

    def keep(self, row: bytes) -> None:
        """Put a buffer into the gates of the subtasks it is for; `drain` processes them in watermark order."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            assert subtask.gate is not None
            subtask.gate.put(decode_buffer(row))

    def drain(self) -> Iterator[None]:
        """Process what was kept; yields after every buffer so that output can go on its way."""
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
        """Process one buffer at once, as it arrived; yields after every part of it."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            yield from self._timed(subtask, subtask.process_parts(decode_buffer(row)))

    def mark_latency(self, now: float) -> None:
        """Sources send a latency marker, if it is time for one (s, monotonic)."""
        if now >= self.next_latency_at:
            for subtask in self._subtasks:
                self._guard(subtask.latency.make, subtask.index, now)
            self._set_latency_time()

    def _set_latency_time(self) -> None:
        self.next_latency_at = min((subtask.latency.next_at for subtask in self._subtasks), default=math.inf)

    def pass_latency(self, row: bytes) -> None:
        """A latency marker has come."""
        for subtask in self._by_exchange.get(exchange_of(row), ()):
            self._guard(subtask.pass_latency, row)

    @property
    def works_off(self) -> bool:
        """Input has ended, and not all is done that is to be done then."""
        return self.failure is None and any(subtask.works_off for subtask in self._subtasks)

    def work_off(self) -> Iterator[None]:
        """Do it; yields after every part, so that output can go on its way. Who stops there may begin again."""
        for subtask in self._subtasks:
            if subtask.works_off:
                yield from self._timed(subtask, subtask.work_off())

    def advance_processing_time(self) -> None:
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            self._guard(subtask.advance_processing_time, now)

    def take_finished(self) -> None:
        """The task was woken: operators have something to emit."""
        for subtask in self._subtasks:
            self._guard(subtask.take_finished)

    # --- output -----------------------------------------------------------------------------------------------

    def take_out(self) -> list[Row]:
        """Rows for the next level that were made since the last call."""
        out, self._out = self._out, []
        return out

    def flush(self) -> None:
        """Cut the buffers that are partly filled."""
        for subtask in self._subtasks:
            self._guard(subtask.flush)

    def ack(self, command: EpochCommand) -> LevelAck:
        full = self._new_ack()
        self._guard(self._fill, full, command)
        return full if self.failure is None else self._new_ack()

    def _fill(self, ack: LevelAck, command: EpochCommand) -> None:
        """Gauges are functions of the user's, too, and uploads may end with anything."""
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
        ack.works_off = self.works_off
        ack.holds_records = any(subtask.holds_records for subtask in self._subtasks)
        ack.snapshots = self.take_uploaded()

    def brief_ack(self) -> LevelAck:
        """Says only who it is and what went wrong, if anything; sent before the epoch has ended."""
        ack = self._new_ack()
        ack.is_brief = True
        return ack

    @property
    def uploads(self) -> bool:
        """Whether answers of uploads are still to come, or to be taken."""
        return bool(self._pending)

    @property
    def has_uploaded(self) -> bool:
        return any(future.done() for future in self._pending)

    def answer_uploads(self, ack: LevelAck) -> None:
        """Put the answers of uploads that have ended into an ack; what one of them ended with is the task's failure."""
        self._guard(self._put_uploads, ack)

    def _put_uploads(self, ack: LevelAck) -> None:
        ack.snapshots = self.take_uploaded()

    def take_uploaded(self) -> list[SnapshotAck]:
        """Answers to snapshots whose files are written."""
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
        """`OperatorContext.results`: values for the program, with the next ack."""
        self._results.setdefault(uid, []).extend(values)

    def print_line(self, line: str) -> None:
        self._lines.append(line)

    def answer_look_up(self, asked: LookUp) -> LookUpAnswer:
        """Between two batches."""
        if self.failure is not None:
            return LookUpAnswer(asked.id, self._attempt, refusal="the task has failed", is_later=True)
        return answer(asked, self._attempt, self._subtasks)

    # --- failures ---------------------------------------------------------------------------------------------

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        if self.failure is None:
            self._watchdog.since = time.perf_counter()
            try:
                step(*arguments)
            except BaseException as error:  # `sys.exit` in a function, too, is an error of that function
                self._fail(error)
            finally:
                self._watchdog.since = 0.0

    def _fail(self, error: BaseException) -> None:
        self._out = []
        self.failure = failure_of(error)

    def terminate(self, command: EpochCommand) -> None:
        """The attempt is over with this command, which does nothing else: its ack has what could not be closed."""
        self._epoch = command.epoch
        self.close()

    def close(self) -> None:
        """Close every function, once. What one raises is the task's failure, if it had none before."""
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
                    logger.warning("slot %d, level %d is not closed properly", self.slot, self.level, exc_info=error)
        self.environment.waker.close()


class BatchTask:
    """One epoch per call: all rows of the epoch are there, all output is taken at once."""

    def __init__(self, task: LevelTask) -> None:
        self._task = task

    def run(self, rows: Iterable[bytes]) -> Iterator[Row]:
        """Run one epoch. Consumes `rows` to the end whatever happens."""
        task = self._task
        iterator = iter(rows)
        early: list[bytes] = []
        command: EpochCommand | None = None
        for row in iterator:
            if row[0] == COMMAND:
                command = decode_command(row[1:])
                if not task.is_last:
                    yield task.slot, row
                break
            early.append(row)
        if command is None:
            return
        task.begin(command)
        yield from task.take_out()
        if task.level == 0:
            for _ in iterator:
                pass
            yield from self._read(command)
        else:
            yield from self._receive(chain(early, iterator))
            yield from self._work_off(command)
        task.mark_latency(time.monotonic())
        task.end(command)
        yield from task.take_out()
        yield task.slot, _ACK_PREFIX + encode_ack(task.ack(command))

    def _read(self, command: EpochCommand) -> Iterator[Row]:
        """All sources of the level take turns, batch by batch, until the epoch's bound."""
        if command.drain or command.finish or command.max_ms == 0:
            return
        deadline_ms = self._task.environment.clock.now_ms() + command.max_ms
        readers = self._task.readers(deadline_ms)
        while readers:
            readers = [entry for entry in readers if self._task.read_step(*entry)]
            yield from self._task.take_out()

    def _work_off(self, command: EpochCommand) -> Iterator[Row]:
        """As long as sources may read; the rest in the next epoch, unless there is none."""
        clock = self._task.environment.clock
        until = None if command.finish else clock.now_ms() + command.max_ms
        if until is None or command.max_ms:
            for _ in self._task.work_off():
                yield from self._task.take_out()
                if until is not None and clock.now_ms() >= until:
                    return

    def _receive(self, rows: Iterable[bytes]) -> Iterator[Row]:
        task = self._task
        markers = []
        for row in rows:
            if row[0] == LATENCY:
                if task.passes(exchange_of(row)):
                    yield task.slot, row
                markers.append(row)
                continue
            if row[0] != DATA:
                yield task.slot, row
                continue
            if task.passes(exchange_of(row)):
                yield task.slot, row
            task.keep(row)
        for _ in task.drain():
            yield from task.take_out()
        for row in markers:
            task.pass_latency(row)


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
