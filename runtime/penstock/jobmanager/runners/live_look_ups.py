"""The JobManager's part of live queryable state: it finds the task that owns a key, sends a request, and waits for the response.

Limits protect the tasks from too many requests. At most `MAX_PENDING` lookups of one task and `MAX_PENDING_OF_JOB` of one job may be
pending. Further lookups are refused at once. A lookup whose caller has timed out counts until its task responds or is lost. So a task that
hangs has at most `MAX_PENDING` requests to process when it continues. A response is valid only if it comes from the requested attempt, and
if this attempt still runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from penstock.common.errors import NotNow
from penstock.graph.job_graph import JobGraph
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import key_group, subtask_for_key_group
from penstock.state.peek.stored import NotPeekable, Peeked
from penstock.taskmanager.look_up import LookUp, LookUpAnswer, decode_look_up_answer, encode_look_up

MAX_PENDING = 16
"""Maximum number of pending lookups of one task. So a task that hangs does not use the capacity of other tasks."""
MAX_PENDING_OF_JOB = 8 * MAX_PENDING
PATIENCE_S = 2.0
"""Timeout in seconds. A task responds between two batches. If it does not respond in time, it runs a slow function or hangs."""
_AGAIN = "retry in a moment, or ask with consistency=checkpoint"


class Place(NamedTuple):
    slot: int
    level: int


class _Pending(NamedTuple):
    place: Place
    answer: Future[LookUpAnswer]


class LiveLookUps:
    """Lookups of one runner, for one attempt after the other. Thread-safe.

    Args:
        send: function that sends a frame to the task of (attempt, slot, level). It returns False if the task is lost.
    """

    def __init__(self, send: Callable[[int, int, int, bytes], bool]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._attempt: int | None = None
        self._graph: JobGraph | None = None
        self._count = 0
        self._pending: dict[int, _Pending] = {}

    def begin(self, attempt: int, graph: JobGraph) -> None:
        with self._lock:
            self._attempt, self._graph = attempt, graph

    def end(self) -> None:
        """End the attempt. Later messages of its tasks are ignored."""
        with self._lock:
            self._attempt = self._graph = None
            given_up, self._pending = list(self._pending.values()), {}
        for one in given_up:
            one.answer.set_exception(_gone("the job restarts"))

    def look_up(self, uid: str, state: str, key: Any, patience_s: float = PATIENCE_S) -> Peeked:
        """Return the current value of the key.

        Raises:
            NotNow: the lookup is impossible at the moment.
            NotPeekable: tasks do not support this lookup.
            StateTypeError: no key can have that type.
        """
        encoded = UNTYPED_KEYS.encode(key)
        with self._lock:
            attempt, graph = self._attempt, self._graph
            if attempt is None or graph is None:
                raise _gone("the job is not running")
            place = place_of(graph, uid, key)
            self._check_capacity(place)
            self._count += 1
            request = LookUp(self._count, attempt, uid, state, encoded)
            under_way = self._pending[request.id] = _Pending(place, Future())
        if not self._send(attempt, place.slot, place.level, encode_look_up(request)):
            with self._lock:
                self._pending.pop(request.id, None)
            raise _gone("the task that has the key is not connected")
        try:
            answer = under_way.answer.result(patience_s)
        except TimeoutError:
            raise NotNow(
                f"the task that has the key (slot {place.slot}) has not answered within {patience_s:g} s: a function takes long",
                remedy=_AGAIN,
            ) from None
        if answer.found is None:
            error = NotNow if answer.is_later else NotPeekable
            raise error(answer.refusal, remedy=_AGAIN if answer.is_later else "ask with consistency=checkpoint")
        return answer.found

    def _check_capacity(self, place: Place) -> None:
        if sum(one.place == place for one in self._pending.values()) >= MAX_PENDING:
            raise NotNow(
                f"{MAX_PENDING} lookups already wait for the task that has the key (slot {place.slot})", remedy=_AGAIN
            )
        if len(self._pending) >= MAX_PENDING_OF_JOB:
            raise NotNow(f"{MAX_PENDING_OF_JOB} lookups of this job already wait for their answers", remedy=_AGAIN)

    def take(self, frame: bytes) -> None:
        """Handle a response."""
        answer = decode_look_up_answer(frame)
        with self._lock:
            is_of_now = answer.attempt == self._attempt
            under_way = self._pending.pop(answer.id, None) if is_of_now else None
        if under_way is not None:
            under_way.answer.set_result(answer)

    def on_disconnected(self, attempt: int, place: Place) -> None:
        """Handle the end of a task's connection."""
        with self._lock:
            if attempt != self._attempt:
                return
            lost = [id for id, one in self._pending.items() if one.place == place]
            given_up = [self._pending.pop(id) for id in lost]
        for one in given_up:
            one.answer.set_exception(_gone("the task that has the key has ended"))


def place_of(graph: JobGraph, uid: str, key: Any) -> Place:
    """Return the task that owns the key group of the key.

    Raises:
        NotPeekable: the job runs in batch mode, in which a task stores its input and not its results.
        StateTypeError: no key can have that type.
    """
    if graph.is_batch:
        raise NotPeekable("the job runs in batch mode", remedy="ask with consistency=checkpoint")
    node = graph.node(uid)
    stage = graph.stage_of(node.index)
    group = key_group(key, node.max_parallelism)
    return Place(subtask_for_key_group(group, stage.parallelism, node.max_parallelism), stage.level)


def _gone(reason: str) -> NotNow:
    return NotNow(f"no task can answer now: {reason}", remedy=_AGAIN)
