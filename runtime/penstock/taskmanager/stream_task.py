"""The pipelined form of a level's task: many epochs in one Spark job, with barriers in the stream.

The Spark job of an attempt runs until the attempt ends. All levels run at the same time in separate Python workers.
Rows flow through the pipelined shuffle as they are made. The JobManager ends an epoch: it sends the epoch's command to
the tasks of level 0 over the control channel. A source task then finishes its batch and carries out the command
(snapshot, notifications, new splits). The task sends a *marker* behind its last row to every slot of the next level.

A task of a deeper level aligns. It holds back the rows of senders whose marker has arrived until all markers have
arrived. At this point the task has processed all records of the epoch. The task carries out the same command, and
passes the marker on (Chandy-Lamport, as Flink implements it). Acks return over the control channel. No record waits for
Spark to schedule a task.

Markers of at-least-once checkpoints are *open*. A task processes the rows behind an open marker as they arrive, and
carries out the command when all markers have arrived. So a snapshot contains all records before the markers and some
records behind them. After a failure, the sources read the records behind the markers again. Rows that a task sent
before its snapshot arrive before its marker, so no row is lost.

If rows come from other processes, their reader has aligned them (`jvm/AlignedRows.java`). Rows behind a
marker remain in the network's buffers, and their sender waits when its share of the buffers is full.

A task without work sleeps until a row or a command arrives, or until a timer, a buffer or a source's
next record is due. On deeper levels, a *tick* among the rows shows that only time has passed
(`exchange/row_stream.py`). A sleeping task does not poll, so an idle job costs almost nothing.

Between two batches, a task handles commands, timers, output, and look-ups of state (`look_up`). This work waits at most
for one batch, because sources and buffers are processed in parts of bounded time (`taskmanager.pace`).
"""

from __future__ import annotations

import math
import struct
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator

from penstock.taskmanager.control.channel import ControlConnection
from penstock.taskmanager.control.sealed_channel import NotAuthentic
from penstock.taskmanager.exchange.row_stream import SENT, ArrivingRows
from penstock.taskmanager.exchange.rows import DATA, LATENCY, MARKER, OPEN_MARKER, TICK, exchange_of, sender_of
from penstock.taskmanager.level import LevelTask, Row
from penstock.taskmanager.look_up import decode_look_up, encode_look_up, is_look_up
from penstock.taskmanager.protocol import EpochCommand, decode_command, encode_ack, encode_command

TICK_S = 0.02
"""Minimum seconds between two checks of processing-time timers. Running uploads are checked as often."""
_IDLE_S = 0.001
_LONGEST_IDLE_S = 0.01
"""Maximum pause in seconds between polls of a source that has no records and does not know when the next record is due.

Pauses start at 1 ms and double.
"""
_AGAIN_S = 0.02
"""Seconds between polls of a source without records, if other sources always have records."""
_LONGEST_SLEEP_S = 0.03
"""Maximum seconds that due records of a source wait because a buffer may not leave yet.

The limit bounds the number of waiting records.
"""
_MIN_PAUSE_SHARE = 0.25
"""Minimum time between two flushes, as a share of the buffer timeout. After a late flush, the next flush is on time if
this minimum allows it.
"""
_LONGEST_WAIT_S = 3600.0
"""Maximum wait in seconds, because the machine's clock may be changed."""
_LOOK_UPS_S = 0.005
"""Seconds after which the task starts no further look-up before the next batch. `state.peek.stored` limits a single look-up."""
_MARK = struct.Struct("<BHI")
_FAR = 1 << 62


class StreamTask:
    """A runner of one `LevelTask` for all epochs of an attempt.

    Args:
        task: the level's task.
        control: connection to the JobManager.
        buffer_timeout_s: approximate maximum time that a partly filled buffer waits, or 25% more after a late flush. Later rows
            join the buffer. Each buffer costs some tenths of a millisecond in every process on its way.
        arriving: source of a deeper level's rows; None means that the rows contain ticks (tests).
    """

    def __init__(
        self,
        task: LevelTask,
        control: ControlConnection,
        buffer_timeout_s: float = 0.0,
        arriving: ArrivingRows | None = None,
    ) -> None:
        self._task = task
        if arriving is not None and task.level > 0:
            arriving.patience = self._patience
            arriving.also = self._files
        self._buffer_timeout_s = buffer_timeout_s
        self._least_pause_s = buffer_timeout_s * _MIN_PAUSE_SHARE
        self._slot = task.slot
        self._slots = task.graph.slots
        self._control = control
        self._waker = task.environment.waker
        now = time.monotonic()
        self._flush_at = now + buffer_timeout_s
        self._ticked = now
        self._reported = False
        self._waits = False
        self._reads = True
        """False after the last barrier of a stop or a rescale: later work would be repeated after the restore."""
        self._idle_s = _IDLE_S
        self._leaves: Row = (self._slot, SENT)
        self._reads_look_ups = arriving is not None and task.level > 0
        """True if look-ups may arrive between two rows. On level 0 they arrive between two commands."""
        self._has_more = False
        """True if the last `_answer_look_ups` ran out of time.

        Waiting look-ups may already be in memory, and then no file descriptor is readable.
        """
        self._direct = {e.id for e in task.graph.exchanges if task.graph.stages[e.source_stage].level == task.level - 1}
        """Exchanges whose buffers come directly from their sender.

        Buffers of other exchanges come through this slot's previous level.
        """

    def run(self, rows: Iterator[bytes]) -> Iterator[Row]:
        clock = time.perf_counter
        try:
            for row in self._run_sources(rows) if self._task.level == 0 else self._run_deeper(rows):
                started = clock()
                yield row
                self._task.blocked(clock() - started)
        finally:
            self._control.close()

    # --- level 0 ----------------------------------------------------------------------------------------------

    def _run_sources(self, rows: Iterator[bytes]) -> Iterator[Row]:
        """Run level 0. The first command is the Spark job's input, and all later commands arrive over the control
        channel."""
        frame = next(rows)[1:]
        for _ in rows:
            pass
        while True:
            command = decode_command(frame)
            yield from self._end_epoch(command)
            if command.terminate:
                return
            received: bytes | None = None
            while received is None:
                received = yield from self._read_until_command()
            frame = received

    def _read_until_command(self) -> Generator[Row, None, bytes | None]:
        """Read the available records, and check for a command after every batch. Return the command or None."""
        task = self._task
        readers = task.readers(_FAR) if self._reads else []
        sources, again = len(readers), time.monotonic() + _AGAIN_S
        while True:
            readers = [entry for entry in readers if task.read_step(*entry)]
            if task.has_read:
                task.has_read = False
                self._idle_s = _IDLE_S
            if 0 < len(readers) < sources and time.monotonic() >= again:
                readers, again = task.readers(_FAR, due=True), time.monotonic() + _AGAIN_S
            yield from self._send_output(self._least_pause_s if readers else 0.0)
            self._send_news()
            self._request_epoch()
            waits_from = time.perf_counter()
            frame = self._control.poll(0.0 if readers else self._pause(), self._waker.files())
            if not readers:
                task.waited_for_epoch(time.perf_counter() - waits_from)
            until = time.monotonic() + _LOOK_UPS_S
            while frame is not None and is_look_up(frame):
                self._answer(frame)
                frame = self._control.poll() if time.monotonic() < until else None
            if frame is not None or not readers:
                return frame

    def _request_epoch(self) -> None:
        """Inform the JobManager, once per epoch, that the sources may read no more in this epoch."""
        if self._task.needs_epoch and not self._waits:
            self._waits = True
            self._send_waits()

    def _send_waits(self) -> None:
        ack = self._task.brief_ack()
        ack.waits = True
        self._control.send(encode_ack(ack))

    def _pause(self) -> float | None:
        """Return how many seconds to wait for a command if there is nothing to read. None means until a command arrives.

        The wait ends when the next record is due, if this time is known. The wait lasts at least until a buffer may
        leave, because records that are read earlier would only wait in the buffer.
        """
        patience = self._patience()
        at = self._task.next_read_at() if self._reads else None
        if at is None:
            return patience
        if at:
            idle = max(self._until(at), 0.0002)
        else:
            idle, self._idle_s = self._idle_s, min(2 * self._idle_s, _LONGEST_IDLE_S)
        idle = max(idle, min(self._flush_at - time.monotonic(), _LONGEST_SLEEP_S))
        return idle if patience is None else min(idle, patience)

    # --- deeper levels ----------------------------------------------------------------------------------------

    def _run_deeper(self, rows: Iterator[bytes]) -> Iterator[Row]:
        """Align markers. A row of a sender whose marker has arrived waits for the next epoch, unless the marker is open.

        Rows may arrive before the first command, which builds the subtasks. Examples are the watermark of a source without splits, and
        the results of overdue timers. These rows wait for the command.
        """
        arrived: set[int] = set()
        closed: set[int] = set()
        """Slots among `arrived` whose later rows are held back."""
        waiting: deque[bytes] = deque()
        early: list[bytes] | None = []
        command: EpochCommand | None = None
        for row in rows:
            todo: deque[bytes] = deque((row,))
            while todo:
                item = todo.popleft()
                if item[0] == TICK:
                    self._answer_look_ups()
                    yield from self._send_output()
                    self._send_news()
                    yield from self._process_remaining_part()
                    continue
                sender = self._sender_slot(item)
                if sender in closed:
                    waiting.append(item)
                elif item[0] == LATENCY:
                    if early is None:
                        yield from self._pass_latency(item)
                elif item[0] == DATA:
                    if early is None:
                        yield from self._process(item)
                    else:
                        early.append(item)
                elif sender in arrived:  # the attempt ends in the middle of an epoch
                    closed.add(sender)
                    waiting.append(item)
                else:
                    arrived.add(sender)
                    if item[0] == MARKER:
                        closed.add(sender)
                    if sender == self._slot:
                        command = decode_command(item[_MARK.size :])
                    if len(arrived) == self._slots:
                        assert command is not None
                        yield from self._end_epoch(command, early or ())
                        early = None
                        arrived, closed = set(), set()
                        todo, waiting = waiting, deque()

    def _sender_slot(self, row: bytes) -> int:
        """Return the slot whose marker covers this row. Subtask i of any stage runs in slot i."""
        if row[0] in (MARKER, OPEN_MARKER):
            return int(_MARK.unpack_from(row)[1])
        return sender_of(row) if exchange_of(row) in self._direct else self._slot

    def _process(self, row: bytes) -> Iterator[Row]:
        if self._task.passes_through(exchange_of(row)):
            yield self._slot, row
            yield self._leaves
            if not self._task.receives(exchange_of(row)):
                yield from self._send_output()
                self._send_news()
        for _ in self._task.process(row):
            yield from self._send_output()
            self._send_news()

    def _pass_latency(self, row: bytes) -> Iterator[Row]:
        if self._task.passes_through(exchange_of(row)):
            yield self._slot, row
            yield self._leaves
        self._task.pass_latency(row)

    def _process_remaining_part(self) -> Iterator[Row]:
        """Do a part of the remaining work between two rows, so that barriers do not wait. Inform the JobManager when all is done."""
        task = self._task
        if task.has_remaining_work and self._reads:
            next(task.process_remaining(), None)
            yield from self._send_output()
            self._send_news()
            if not task.has_remaining_work:
                self._send_waits()

    # --- common -----------------------------------------------------------------------------------------------

    def _end_epoch(self, command: EpochCommand, early: Iterable[bytes] = ()) -> Iterator[Row]:
        task = self._task
        self._waits = False
        if command.terminate:
            task.terminate(command)
        else:
            task.begin(command)
            for row in early:
                yield from self._process(row)
            if command.finish:
                for _ in task.process_remaining():
                    yield from self._send_output()
                    self._send_news()
            task.end(command)
            yield from task.take_output()
        if not task.is_last:
            marker = _MARK.pack(MARKER if command.aligns else OPEN_MARKER, self._slot, command.epoch)
            for slot in range(self._slots):
                yield slot, marker + encode_command(command) if slot == self._slot else marker
            yield self._leaves
        self._control.send(encode_ack(task.ack(command)))
        self._reads = command.max_ms > 0

    def _patience(self) -> float | None:
        """Return the seconds until the next work that needs no input, or None if only input brings work."""
        task = self._task
        if self._has_more or (task.has_remaining_work and self._reads):
            return 0.0
        now = time.monotonic()
        times = []
        if task.uploads:
            times.append(TICK_S)
        if task.has_unflushed:
            times.append(self._flush_at - now)
        if self._reads:
            times.append(task.next_latency_at - now)
        wake = task.next_wake()
        if wake is not None:
            times.append(max(self._until(wake), self._ticked + TICK_S - now))
        if task.failure is not None:
            return None if self._reported else 0.0
        patience = max(0.0, min(times, default=math.inf))
        return None if patience == math.inf else min(patience, _LONGEST_WAIT_S)

    def _until(self, moment_ms: int) -> float:
        return (moment_ms - self._task.environment.clock.now_ms()) / 1000

    def _send_output(self, later: float = 0.0) -> Iterator[Row]:
        """Send full buffers immediately, and partly filled buffers when they are due (`_next_flush`).

        Due timers run first. The task may sleep for a long time afterwards, and the output of the timers must leave
        before.

        Args:
            later: seconds that partly filled buffers wait for the next records. Without this time, the first split's
                records would be sent alone, and the records of all other splits would wait for the next flush.
        """
        now = time.monotonic()
        if self._waker.take():
            self._task.take_finished()
        if now - self._ticked >= TICK_S:
            self._ticked = now
            self._answer_look_ups()
            self._task.advance_processing_time()
        self._task.mark_latency(now)
        is_due = now >= self._flush_at + later
        if is_due:
            self._task.flush()
        rows = self._task.take_output()
        if is_due and rows:
            self._flush_at = self._next_flush(now)
        if rows:
            yield from rows
            yield self._leaves

    def _next_flush(self, now: float) -> float:
        """Return when (monotonic clock) partly filled buffers may leave next: at a multiple of the buffer timeout on the machine's clock.

        So all senders of a job send at the same time, and a receiver of several senders wakes up once for all of them.
        A task that wakes up takes ten times as long for a row as a busy task: the processor's caches no longer have
        its data.
        """
        timeout = self._buffer_timeout_s
        if not 0.0 < timeout < math.inf:
            return now + timeout
        moment = time.time()
        return now + math.ceil((moment + self._least_pause_s) / timeout) * timeout - moment

    def _files(self) -> tuple[int, ...]:
        """Return the file descriptors that wake a task that waits for rows."""
        return (*self._waker.files(), self._control.fileno()) if self._reads_look_ups else self._waker.files()

    def _answer_look_ups(self) -> None:
        """Answer waiting look-ups for a limited time. If the connection is lost, read no more look-ups."""
        self._has_more = False
        if not self._reads_look_ups:
            return
        until = time.monotonic() + _LOOK_UPS_S
        try:
            while not self._has_more and (frame := self._control.poll()) is not None:
                if is_look_up(frame):
                    self._answer(frame)
                self._has_more = time.monotonic() >= until
        except (OSError, NotAuthentic):
            self._reads_look_ups = False

    def _answer(self, frame: bytes) -> None:
        self._control.send(encode_look_up(self._task.answer_look_up(decode_look_up(frame))))

    def _send_news(self) -> None:
        """Send news to the JobManager before the next barrier: finished uploads or a failure."""
        task = self._task
        if task.failure is not None and not self._reported:
            self._reported = True
            self._control.send(encode_ack(task.brief_ack()))
        elif task.has_uploaded:
            ack = task.brief_ack()
            task.report_uploads(ack)
            if task.failure is None:
                self._control.send(encode_ack(ack))
