"""The pipelined form of a level's task: many epochs in one Spark job, with barriers in the stream.

The Spark job of an attempt runs until the attempt ends. All levels run at once in Python workers of their own; rows flow
through the pipelined shuffle as they are made. An epoch ends when the JobManager says so: it sends the epoch's command to
the tasks of level 0 over the control channel. A source task finishes the batch at hand, carries out the command (snapshot,
notifications, new splits), and puts a *marker* behind its last row to every slot of the next level. A task of a deeper
level aligns: rows of senders whose marker has come are held back until the markers of all have come; then no record of the
epoch is in flight in front of it, it carries out the same command, and passes the marker on (Chandy-Lamport as Flink does
it, S23, S24). Acks go back over the control channel. No record waits for Spark to schedule anything.

With at-least-once checkpoints (S26) markers are *open*: the rows behind them are processed as they come, and the command is carried out
when the markers of all have come. So a snapshot has all that came before the markers, and some of what came behind: sources
read that again after a failure. What a task has sent before its snapshot is before its own marker, so nothing is lost.

Where rows come from other processes their reader has aligned them already (`jvm/AlignedRows.java`): what comes behind a
marker stays in the network's buffers, and its sender waits when its share of them is full.

A task that has nothing to do sleeps: until a row or a command comes, a timer is due, a buffer has waited long enough, the next
record of a source is due. For deeper levels a *tick* among the rows says that it was time that passed
(`exchange/row_stream.py`). Nothing looks around in between, so a job that does nothing costs next to nothing.

What a task looks at between two batches, commands, timers, output for others, look-ups of state (`look_up`), waits no longer
than a batch takes: sources read, and buffers are processed, in parts of bounded time (`taskmanager.pace`).
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
"""Processing-time timers are looked at no more often; and uploads, while there are some."""
_IDLE_S = 0.001
_LONGEST_IDLE_S = 0.01
"""A source that has nothing to read and cannot say until when is asked again after 1 ms, then ever more rarely."""
_AGAIN_S = 0.02
"""A source that had nothing is asked again beside others that always have something."""
_LONGEST_NAP_S = 0.03
"""What is due at a source waits at most so long for a buffer that may not go yet; else there would be much to read at once."""
_LEAST_PAUSE = 0.25
"""Of a buffer timeout, between two flushes: who is late with one of them does the next at its time, but not at once."""
_LONGEST_WAIT_S = 3600.0
"""The clock of the machine may be set."""
_LOOK_UPS_S = 0.005
"""For look-ups in a turn: none is begun after that. A single one takes what it takes (`state.peek` has its bounds)."""
_MARK = struct.Struct("<BHI")
_FAR = 1 << 62


class StreamTask:
    """Runs one `LevelTask` for all epochs of an attempt.

    Args:
        task: the level's task.
        control: connection to the JobManager.
        buffer_timeout_s: a partly filled buffer waits at most about that long (D21; a quarter more if the last went late): what is
            made meanwhile goes with it, and each buffer costs every process on its way some tenths of a millisecond.
        arriving: where the rows of a deeper level come from; None: ticks come with them (tests).
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
        self._least_pause_s = buffer_timeout_s * _LEAST_PAUSE
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
        """Behind the last barrier of a stop or a rescale the job stands still: what was read or worked off there would be so again."""
        self._idle_s = _IDLE_S
        self._leaves: Row = (self._slot, SENT)
        self._is_asked = arriving is not None and task.level > 0
        """Whether look-ups may come between two rows; at level 0 they come between two commands."""
        self._has_more = False
        """Look-ups may wait for which a turn had no time; they may have been received already, so that no file is readable."""
        self._direct = {e.id for e in task.graph.exchanges if task.graph.stages[e.source_stage].level == task.level - 1}
        """Exchanges whose buffers come straight from their sender; the others were passed on by this slot."""

    def run(self, rows: Iterator[bytes]) -> Iterator[Row]:
        clock = time.perf_counter
        try:
            for row in self._run_sources(rows) if self._task.level == 0 else self._run_deeper(rows):
                made = clock()
                yield row
                self._task.blocked(clock() - made)
        finally:
            self._control.close()

    # --- level 0 ----------------------------------------------------------------------------------------------

    def _run_sources(self, rows: Iterator[bytes]) -> Iterator[Row]:
        """The first command comes as the Spark job's input, the others over the control channel."""
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
        """Read what is there, look for a command after every batch; returns the command or None."""
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
            self._ask_for_epoch()
            frame = self._control.poll(0.0 if readers else self._pause(), self._waker.files())
            until = time.monotonic() + _LOOK_UPS_S
            while frame is not None and is_look_up(frame):
                self._answer(frame)
                frame = self._control.poll() if time.monotonic() < until else None
            if frame is not None or not readers:
                return frame

    def _ask_for_epoch(self) -> None:
        """Once an epoch: tell the JobManager when the sources may read no more in it."""
        if self._task.wants_epoch and not self._waits:
            self._waits = True
            self._send_waits()

    def _send_waits(self) -> None:
        ack = self._task.brief_ack()
        ack.waits = True
        self._control.send(encode_ack(ack))

    def _pause(self) -> float | None:
        """Nothing to read: seconds to wait for a command; None: until one comes.

        Until the next record, if it is known when that is due; but no shorter than until a buffer may go, for what is read
        before would only wait there.
        """
        patience = self._patience()
        at = self._task.next_read_at() if self._reads else None
        if at is None:
            return patience
        if at:
            idle = max(self._until(at), 0.0002)
        else:
            idle, self._idle_s = self._idle_s, min(2 * self._idle_s, _LONGEST_IDLE_S)
        idle = max(idle, min(self._flush_at - time.monotonic(), _LONGEST_NAP_S))
        return idle if patience is None else min(idle, patience)

    # --- deeper levels ----------------------------------------------------------------------------------------

    def _run_deeper(self, rows: Iterator[bytes]) -> Iterator[Row]:
        """Align markers; a row of a sender whose marker has come belongs to the next epoch and waits, unless the marker is open.

        Rows may come before the first command, which builds the subtasks: the watermark of a source without splits, what
        overdue timers gave. They wait for it.
        """
        arrived: set[int] = set()
        closed: set[int] = set()
        """Of those that have arrived the ones that hold back what comes behind."""
        held: deque[bytes] = deque()
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
                    yield from self._work_off_a_part()
                    continue
                sender = self._sender_slot(item)
                if sender in closed:
                    held.append(item)
                elif item[0] == LATENCY:
                    if early is None:
                        yield from self._pass_latency(item)
                elif item[0] == DATA:
                    if early is None:
                        yield from self._process(item)
                    else:
                        early.append(item)
                elif sender in arrived:  # the attempt is ended in the middle of an epoch
                    closed.add(sender)
                    held.append(item)
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
                        todo, held = held, deque()

    def _sender_slot(self, row: bytes) -> int:
        """The slot whose marker covers this row. Subtask i of any stage runs in slot i."""
        if row[0] in (MARKER, OPEN_MARKER):
            return int(_MARK.unpack_from(row)[1])
        return sender_of(row) if exchange_of(row) in self._direct else self._slot

    def _process(self, row: bytes) -> Iterator[Row]:
        if self._task.passes(exchange_of(row)):
            yield self._slot, row
            yield self._leaves
            if not self._task.takes(exchange_of(row)):
                yield from self._send_output()
                self._send_news()
        for _ in self._task.process(row):
            yield from self._send_output()
            self._send_news()

    def _pass_latency(self, row: bytes) -> Iterator[Row]:
        if self._task.passes(exchange_of(row)):
            yield self._slot, row
            yield self._leaves
        self._task.pass_latency(row)

    def _work_off_a_part(self) -> Iterator[Row]:
        """Between two rows, so that a barrier is not kept waiting; the JobManager is told of the end, because it waits for that."""
        task = self._task
        if task.works_off and self._reads:
            next(task.work_off(), None)
            yield from self._send_output()
            self._send_news()
            if not task.works_off:
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
                for _ in task.work_off():
                    yield from self._send_output()
                    self._send_news()
            task.end(command)
            yield from task.take_out()
        if not task.is_last:
            marker = _MARK.pack(MARKER if command.aligns else OPEN_MARKER, self._slot, command.epoch)
            for slot in range(self._slots):
                yield slot, marker + encode_command(command) if slot == self._slot else marker
            yield self._leaves
        self._control.send(encode_ack(task.ack(command)))
        self._reads = command.max_ms > 0

    def _patience(self) -> float | None:
        """Seconds until there is something to do without input; None: nothing."""
        task = self._task
        if self._has_more or (task.works_off and self._reads):
            return 0.0
        now = time.monotonic()
        times = []
        if task.uploads:
            times.append(TICK_S)
        if task.holds_back:
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
        """Full buffers at once, partly filled ones when it is time (`_next_flush`). Timers that are due come first: a task may
        sleep for long after this, and what they give must be on its way by then.

        Args:
            later: s; so long partly filled ones wait for what is read next: else the first split's records would go alone, and those
                of all others wait for the next time.
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
        rows = self._task.take_out()
        if is_due and rows:
            self._flush_at = self._next_flush(now)
        if rows:
            yield from rows
            yield self._leaves

    def _next_flush(self, now: float) -> float:
        """When (on the monotonic clock) buffers that are partly filled may go, after some that went now: at the next multiple of the
        buffer timeout on the machine's clock.

        So all senders of a job send at the same time, and who receives from several wakes up once for all of them. A task that
        wakes up takes ten times as long for a row as one that is at work already, because nothing it needs is in the
        processor's caches any more.
        """
        timeout = self._buffer_timeout_s
        if not 0.0 < timeout < math.inf:
            return now + timeout
        moment = time.time()
        return now + math.ceil((moment + self._least_pause_s) / timeout) * timeout - moment

    def _files(self) -> tuple[int, ...]:
        """What wakes a task that waits for rows."""
        return (*self._waker.files(), self._control.fileno()) if self._is_asked else self._waker.files()

    def _answer_look_ups(self) -> None:
        """Those that wait, as far as there is time. A JobManager that is gone ends this task by its sources."""
        self._has_more = False
        if not self._is_asked:
            return
        until = time.monotonic() + _LOOK_UPS_S
        try:
            while not self._has_more and (frame := self._control.poll()) is not None:
                if is_look_up(frame):
                    self._answer(frame)
                self._has_more = time.monotonic() >= until
        except (OSError, NotAuthentic):
            self._is_asked = False

    def _answer(self, frame: bytes) -> None:
        self._control.send(encode_look_up(self._task.answer_look_up(decode_look_up(frame))))

    def _send_news(self) -> None:
        """What the JobManager should know before the next barrier: finished uploads, a failure."""
        task = self._task
        if task.failure is not None and not self._reported:
            self._reported = True
            self._control.send(encode_ack(task.brief_ack()))
        elif task.has_uploaded:
            ack = task.brief_ack()
            task.answer_uploads(ack)
            if task.failure is None:
                self._control.send(encode_ack(ack))
