"""The batched form of a level's task: one epoch per call."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain

from penstock.taskmanager.exchange.rows import ACK, COMMAND, DATA, LATENCY, exchange_of
from penstock.taskmanager.level import LevelTask, Row
from penstock.taskmanager.protocol import (
    EpochCommand,
    decode_command,
    encode_ack,
)

_ACK_PREFIX = bytes((ACK,))


class BatchTask:
    """A task that runs one epoch per call.

    Its input has all rows of the epoch. The next level starts after the task has ended.
    """

    def __init__(self, task: LevelTask) -> None:
        self._task = task

    def run(self, rows: Iterable[bytes]) -> Iterator[Row]:
        """Run one epoch. Consume `rows` to the end, even after a failure."""
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
        yield from task.take_output()
        if task.level == 0:
            for _ in iterator:
                pass
            yield from self._read(command)
        else:
            yield from self._receive(chain(early, iterator))
            yield from self._process_remaining(command)
        task.mark_latency(time.monotonic())
        task.end(command)
        yield from task.take_output()
        yield task.slot, _ACK_PREFIX + encode_ack(task.ack(command))

    def _read(self, command: EpochCommand) -> Iterator[Row]:
        """Read the sources of the level one after the other, one batch at a time, until the epoch's bound."""
        if command.drain or command.finish or command.max_ms == 0:
            return
        deadline_ms = self._task.environment.clock.monotonic_ms() + command.max_ms
        readers = self._task.readers(deadline_ms)
        while readers:
            readers = [entry for entry in readers if self._task.read_step(*entry)]
            yield from self._task.take_output()

    def _process_remaining(self, command: EpochCommand) -> Iterator[Row]:
        """Process remaining work for at most the time in which sources may read. The next epoch continues this work.

        If the job finishes, process all remaining work now.
        """
        clock = self._task.environment.clock
        until = None if command.finish else clock.monotonic_ms() + command.max_ms
        if until is None or command.max_ms:
            for _ in self._task.process_remaining():
                yield from self._task.take_output()
                if until is not None and clock.monotonic_ms() >= until:
                    return

    def _receive(self, rows: Iterable[bytes]) -> Iterator[Row]:
        task = self._task
        markers = []
        for row in rows:
            if row[0] == LATENCY:
                if task.passes_through(exchange_of(row)):
                    yield task.slot, row
                markers.append(row)
                continue
            if row[0] != DATA:
                yield task.slot, row
                continue
            if task.passes_through(exchange_of(row)):
                yield task.slot, row
            task.keep(row)
        for _ in task.drain():
            yield from task.take_output()
        for row in markers:
            task.pass_latency(row)
