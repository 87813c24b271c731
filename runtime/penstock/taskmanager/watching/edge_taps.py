"""Taps that observe the records on an edge, only while a client asks for them.

A tap is one more consumer of an operator's output, in front of the other consumers. Without a request no tap exists, so
an edge costs nothing. The task's thread keeps references to the last records. The thread of the request converts them
to text.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, NamedTuple

from penstock.common.stacks.edge_records import LONGEST_WAIT_S, MAX_RECORDS, EdgeQuestion, EdgeRecord, newest
from penstock.records.batch import Batch
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.subtask import Subtask
from penstock.taskmanager.watching.record_texts import texts

_LOOK_S = 0.05
"""Seconds between two checks for newly started tasks."""
KeyOf = Callable[[Any], Any]


class _Seen(NamedTuple):
    """A record on the edge. `seen_at` and `timestamp` are in ms since the epoch."""

    seen_at: int
    subtask: int
    value: Any
    timestamp: int | None
    key_of: KeyOf | None


class _Tap:
    def __init__(
        self, subtask: Subtask, question: EdgeQuestion, output: ChainedOutput, enough: threading.Event
    ) -> None:
        self.subtask = subtask
        self._tag = question.side_tag
        self._most = max(1, min(question.count, MAX_RECORDS))
        self._output = output
        self._enough = enough
        self._kept: deque[tuple[int, Batch]] = deque()
        self._count = 0
        self._lock = threading.Lock()
        output.attach(self._tag, self)

    def __call__(self, batch: Batch) -> None:
        try:
            size = len(batch)
            last = batch.slice(max(0, size - self._most), size)
            with self._lock:
                self._kept.append((time.time_ns() // 1_000_000, last))
                self._count += len(last)
                while self._count - len(self._kept[0][1]) >= self._most:
                    self._count -= len(self._kept.popleft()[1])
                is_enough = self._count >= self._most
            if is_enough:
                self._enough.set()
        except Exception:  # a question must not make a job fail
            self._enough.set()

    def detach(self) -> None:
        self._output.detach(self._tag, self)

    def take(self, key_of: KeyOf | None) -> list[_Seen]:
        """Return the last records since the previous call."""
        with self._lock:
            kept, self._kept, self._count = self._kept, deque(), 0
        found = []
        for seen_at, batch in kept:
            rows = batch.rows()
            for position, value in enumerate(rows.values):
                timestamp = None if rows.timestamps is None else int(rows.timestamps[position])
                found.append(_Seen(seen_at, self.subtask.index, value, timestamp, key_of))
        return found[-self._most :]


def peek(question: EdgeQuestion, tasks: Callable[[], Iterable[LevelTask]]) -> Generator[list[EdgeRecord], None, None]:
    """Yield the next records on an edge several times a second, until there are enough or the time is over. Do not call this function in a
    task's thread. A list may be empty, and only the last records of an interval are in it.

    Args:
        tasks: returns the tasks that are in this process at the moment.
    """
    enough = threading.Event()
    taps: dict[int, _Tap] = {}
    deadline = time.monotonic() + min(question.seconds, LONGEST_WAIT_S)
    most = max(1, min(question.count, MAX_RECORDS))
    is_last = False
    try:
        while most > 0 and not is_last:
            for subtask in [subtask for task in tasks() for subtask in task.subtasks]:
                output = subtask.output_of(question.uid) if subtask.environment.job_id == question.job_id else None
                if output is not None and id(output) not in taps:
                    taps[id(output)] = _Tap(subtask, question, output, enough)
            is_last = enough.wait(max(0.0, min(deadline - time.monotonic(), _LOOK_S)))
            is_last = is_last or time.monotonic() >= deadline
            found = [record for tap in taps.values() for record in tap.take(_key_selector(tap.subtask, question))]
            most -= len(found)
            yield _as_text(newest(found, min(question.count, MAX_RECORDS)))
    finally:
        for tap in taps.values():
            tap.detach()


def _as_text(found: list[_Seen]) -> list[EdgeRecord]:
    keyed = [seen for seen in found if seen.key_of is not None]
    jobs = [partial(seen.key_of, seen.value) for seen in keyed if seen.key_of is not None]
    jobs += [partial(_itself, seen.value) for seen in found]
    shown = texts(jobs, [type(seen.value).__name__ for seen in (*keyed, *found)])
    keys = iter(shown[: len(keyed)])
    return [
        EdgeRecord(seen.seen_at, seen.subtask, text, seen.timestamp, None if seen.key_of is None else next(keys))
        for seen, text in zip(found, shown[len(keyed) :], strict=True)
    ]


def _itself(value: Any) -> Any:
    return value


def _key_selector(subtask: Subtask, question: EdgeQuestion) -> KeyOf | None:
    graph = subtask.graph
    for node in graph.operators:
        for edge in node.outputs if node.uid == question.uid else ():
            if edge.exchange is not None and edge.side_tag == question.side_tag:
                selector = graph.exchanges[edge.exchange].partitioning.key_selector
                if selector is not None:
                    return selector
    return None
