"""The task of one slot on one level, for one epoch after the other: the heart of the runtime.

Both runners call `LevelTask.run` once per epoch with the rows addressed to the slot and send on what it yields:

    rows in:   the command of this slot, the buffers of the exchanges, acks of the levels above
    rows out:  (slot, row): buffers for the next level, the command and the acks for this slot's next level

The order inside an epoch: the command (attempt check, restore, notifications, overdue processing-time timers) -> input
(level 0: the sources read until the bound; deeper: buffers) -> processing-time timers -> snapshot, when the command asks
for one: no record is in flight then, the end of the epoch is an aligned barrier -> flush -> ack.

State is used only if it is the state after epoch n-1 of this attempt; otherwise the task answers `StateNotLocal` and the
job fails over. An exception never leaves the task: it becomes a `TaskFailure` in the ack, with the user's frames, and the
input is still read to its end, because a Python worker that leaves input unread is thrown away by Spark together with
the state of all other subtasks in it.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from penstock.checkpoint.retrying_store import Stores
from penstock.checkpoint.state_files import StateFileReader, StateFileWriter
from penstock.common.errors import PenstockError, RecoverableError, StateNotLocal
from penstock.graph.job_graph import JobGraph
from penstock.taskmanager.operators.source import SourceOperator
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    RestoreCommand,
    SnapshotAck,
    TaskFailure,
    decode_command,
    encode_ack,
)
from penstock.taskmanager.rows import ACK, COMMAND, DATA, decode_buffer, exchange_of
from penstock.taskmanager.subtask import Subtask, TaskEnvironment

Row = tuple[int, bytes]

UPLOAD_THREADS = 2
_ACK_PREFIX = bytes((ACK,))
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HOST = socket.gethostname()


class LevelTask:
    """Subtasks of one slot on one level; lives as long as its attempt.

    Args:
        graph: this slot's own copy of the job graph.
        level: 0 for the sources.
        slot: index of the slot; runs subtask `slot` of every stage of the level whose parallelism is above it.
        environment: what the process provides.
        streaming: rows arrive and must leave one by one (pipelined runner); else all are there at once.
    """

    def __init__(
        self, graph: JobGraph, level: int, slot: int, environment: TaskEnvironment, *, streaming: bool = False
    ) -> None:
        self.graph = graph
        self.level = level
        self.slot = slot
        self.environment = environment
        self._streaming = streaming
        self._is_last = level == graph.levels - 1
        self._out: list[Row] = []
        self._subtasks: list[Subtask] = []
        self._by_exchange: dict[int, list[Subtask]] = {}
        self._passes = {e.id for e in graph.exchanges if e.level > level}
        self._epoch = -1
        self._failure: TaskFailure | None = None
        self._pending: list[Future[SnapshotAck]] = []
        self._stores = Stores(environment.object_store_options)
        self._uploads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="penstock-upload")
        self._results: dict[str, list[bytes]] = {}
        self._lines: list[str] = []
        self._busy = 0.0

    # --- one epoch --------------------------------------------------------------------------------------------

    def run(self, rows: Iterable[bytes]) -> Iterator[Row]:
        """Run one epoch; see the module's head. Consumes `rows` to the end whatever happens."""
        iterator = iter(rows)
        early: list[bytes] = []
        command: EpochCommand | None = None
        for row in iterator:
            if row[0] == COMMAND:
                command = decode_command(row[1:])
                if not self._is_last:
                    yield self.slot, row
                break
            early.append(row)
        if command is None:
            return
        self._guard(self._begin, command)
        yield from self._take_out()
        if self.level == 0:
            yield from self._guarded(self._read_sources(command))
            for _ in iterator:
                pass
        else:
            yield from self._receive(early, iterator)
        self._guard(self._end, command)
        yield from self._take_out()
        yield self.slot, _ACK_PREFIX + encode_ack(self._ack(command))

    def _receive(self, early: list[bytes], rows: Iterator[bytes]) -> Iterator[Row]:
        for row in early:
            yield from self._accept(row)
        for row in rows:
            yield from self._accept(row)
            if self._streaming:
                self._guard(self._flush_all)
                yield from self._take_out()
        if not self._streaming:
            for subtask in self._subtasks:
                if subtask.gate is not None:
                    yield from self._guarded(self._drain(subtask))

    def _accept(self, row: bytes) -> Iterator[Row]:
        if row[0] != DATA:
            yield self.slot, row
            return
        exchange = exchange_of(row)
        if exchange in self._passes:
            yield self.slot, row
        for subtask in self._by_exchange.get(exchange, ()):
            if self._failure is not None:
                return
            buffer = decode_buffer(row)
            if self._streaming:
                self._guard(self._process, subtask, buffer)
                yield from self._take_out()
            else:
                assert subtask.gate is not None
                subtask.gate.put(buffer)

    def _process(self, subtask: Subtask, buffer: Any) -> None:
        started = time.perf_counter()
        subtask.process_buffer(buffer)
        subtask.metrics.busy_ms += (time.perf_counter() - started) * 1e3
        subtask.advance_processing_time(self.environment.clock.now_ms())

    def _drain(self, subtask: Subtask) -> Iterator[None]:
        started = time.perf_counter()
        for _ in subtask.drain_gate():
            subtask.metrics.busy_ms += (time.perf_counter() - started) * 1e3
            yield
            started = time.perf_counter()

    # --- begin and end ----------------------------------------------------------------------------------------

    def _begin(self, command: EpochCommand) -> None:
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
            subtask.notify(command.completed, command.aborted)
            for uid, source in subtask.sources.items():
                source.assign(
                    command.assignments.get(uid, []), no_more_splits=uid in command.finished_discovery
                )
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

    def _end(self, command: EpochCommand) -> None:
        now = self.environment.clock.now_ms()
        for subtask in self._subtasks:
            subtask.advance_processing_time(now)
            if command.drain or command.finish:
                for source in subtask.sources.values():
                    source.drain()
            if command.finish:
                subtask.finish()
            subtask.end_of_epoch()
        if command.snapshot is not None and self._failure is None:
            root = command.snapshot.root
            files = StateFileWriter(self._stores.for_url(root), root) if root else None
            for subtask in self._subtasks:
                self._pending.extend(subtask.snapshot(command.snapshot, files, self._uploads))
        self._flush_all()

    def _flush_all(self) -> None:
        for subtask in self._subtasks:
            subtask.flush()

    def _read_sources(self, command: EpochCommand) -> Iterator[None]:
        """All sources of the level take turns, batch by batch, until the epoch's bound."""
        if command.drain or command.finish:
            return
        deadline = int(time.time() * 1e3) + command.max_ms
        if command.max_ms == 0:
            deadline = -1
        readers: list[tuple[Subtask, SourceOperator, Iterator[int]]] = [
            (subtask, source, source.read(deadline, command.max_records))
            for subtask in self._subtasks
            for source in subtask.sources.values()
        ]
        self._more = {id(source): False for _, source, _ in readers}
        while readers:
            remaining = []
            for subtask, source, reader in readers:
                started = time.perf_counter()
                got = next(reader, None)
                subtask.metrics.busy_ms += (time.perf_counter() - started) * 1e3
                self._more[id(source)] = got is not None
                if got is not None:
                    remaining.append((subtask, source, reader))
                    if self._streaming:
                        self._flush_all()
                    yield
            readers = remaining

    def _ack(self, command: EpochCommand) -> LevelAck:
        if command.snapshot is not None and command.snapshot.synchronous:
            for future in self._pending:
                future.result()
        done = [future.result() for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        ack = LevelAck(
            slot=self.slot,
            level=self.level,
            attempt=command.attempt,
            epoch=command.epoch,
            snapshots=done,
            pending_uploads=len(self._pending),
            results=self._results,
            lines=self._lines,
            failure=self._failure,
            pid=os.getpid(),
            rss_bytes=_rss(),
            host=_HOST,
        )
        self._results = {}
        self._lines = []
        timers = []
        for subtask in self._subtasks:
            ack.vertices[subtask.stage.id] = subtask.take_metrics()
            for uid, source in subtask.sources.items():
                ack.sources[uid] = source.progress(more=False)
            timer = subtask.next_processing_time()
            if timer is not None:
                timers.append(timer)
        ack.next_processing_timer = min(timers, default=None)
        return ack

    # --- output and failures ----------------------------------------------------------------------------------

    def _emit(self, slot: int, row: bytes) -> None:
        self._out.append((slot, row))

    def _take_out(self) -> list[Row]:
        out, self._out = self._out, []
        return out

    def collect(self, uid: str, values: list[bytes]) -> None:
        self._results.setdefault(uid, []).extend(values)

    def print_line(self, line: str) -> None:
        self._lines.append(line)

    def _guard(self, step: Any, *arguments: Any) -> None:
        if self._failure is not None:
            return
        try:
            step(*arguments)
        except Exception as error:
            self._fail(error)

    def _guarded(self, steps: Iterator[None]) -> Iterator[Row]:
        if self._failure is not None:
            return
        try:
            for _ in steps:
                yield from self._take_out()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._out = []
        self._failure = TaskFailure(
            kind=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
            name=getattr(error, "operator", "") or "",
            location=getattr(error, "location", "") or "",
            code=error.code if isinstance(error, PenstockError) else "USER_CODE",
            recoverable=not isinstance(error, PenstockError) or isinstance(error, RecoverableError),
        )

    def close(self) -> None:
        self._uploads.shutdown(wait=False, cancel_futures=True)
        for subtask in self._subtasks:
            try:
                subtask.close()
            except Exception:  # an operator that cannot close must not keep the next attempt from starting
                traceback.print_exc()


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
