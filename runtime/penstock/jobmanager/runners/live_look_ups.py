"""The JobManager's part of live queryable state: finds the task that owns a key, asks it, and waits for its answer.

What a stranger could do with it is bounded: no more than `MOST` look-ups of one task, and `MOST_OF_JOB` of one job, are unanswered at a time,
and who comes beyond that is refused at once. A look-up that nobody waits for any more counts until its task has answered or is gone, so a task that hangs has
no more than that in front of it when it goes on. An answer counts only if it is of the attempt that was asked and that still runs.
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
from penstock.state.peek import NotPeekable, Peeked
from penstock.taskmanager.look_up import LookUp, LookUpAnswer, decode_look_up_answer, encode_look_up

MOST = 16
"""Of one task: one that hangs takes none of what the others could answer."""
MOST_OF_JOB = 8 * MOST
PATIENCE_S = 2.0
"""A task answers between two batches; who has not answered by then is in a function that takes long, or hangs."""
_AGAIN = "ask again in a moment, or with consistency=checkpoint"


class Place(NamedTuple):
    slot: int
    level: int


class _UnderWay(NamedTuple):
    place: Place
    answer: Future[LookUpAnswer]


class LiveLookUps:
    """Of one runner, for one attempt after the other. Thread-safe.

    Args:
        send: gives a frame to the task of (attempt, slot, level); False: it is gone.
    """

    def __init__(self, send: Callable[[int, int, int, bytes], bool]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._attempt: int | None = None
        self._graph: JobGraph | None = None
        self._count = 0
        self._under_way: dict[int, _UnderWay] = {}

    def begin(self, attempt: int, graph: JobGraph) -> None:
        with self._lock:
            self._attempt, self._graph = attempt, graph

    def end(self) -> None:
        """The attempt is over: nothing that its tasks say counts any more."""
        with self._lock:
            self._attempt = self._graph = None
            given_up, self._under_way = list(self._under_way.values()), {}
        for one in given_up:
            one.answer.set_exception(_gone("the job restarts"))

    def ask(self, uid: str, state: str, key: Any, patience_s: float = PATIENCE_S) -> Peeked:
        """What the key has now.

        Raises:
            NotNow: see there.
            NotPeekable: tasks do not answer this.
            StateTypeError: no key can be of that type.
        """
        encoded = UNTYPED_KEYS.encode(key)
        with self._lock:
            attempt, graph = self._attempt, self._graph
            if attempt is None or graph is None:
                raise _gone("the job does not run")
            place = place_of(graph, uid, key)
            self._check_room(place)
            self._count += 1
            asked = LookUp(self._count, attempt, uid, state, encoded)
            under_way = self._under_way[asked.id] = _UnderWay(place, Future())
        if not self._send(attempt, place.slot, place.level, encode_look_up(asked)):
            with self._lock:
                self._under_way.pop(asked.id, None)
            raise _gone("the task that has the key is not there")
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

    def _check_room(self, place: Place) -> None:
        if sum(one.place == place for one in self._under_way.values()) >= MOST:
            raise NotNow(
                f"{MOST} look-ups wait for the task that has the key (slot {place.slot}) already", remedy=_AGAIN
            )
        if len(self._under_way) >= MOST_OF_JOB:
            raise NotNow(f"{MOST_OF_JOB} look-ups of this job wait for their answers already", remedy=_AGAIN)

    def take(self, frame: bytes) -> None:
        """An answer has come."""
        answer = decode_look_up_answer(frame)
        with self._lock:
            is_of_now = answer.attempt == self._attempt
            under_way = self._under_way.pop(answer.id, None) if is_of_now else None
        if under_way is not None:
            under_way.answer.set_result(answer)

    def gone(self, attempt: int, place: Place) -> None:
        """The connection of a task has ended."""
        with self._lock:
            if attempt != self._attempt:
                return
            lost = [id for id, one in self._under_way.items() if one.place == place]
            given_up = [self._under_way.pop(id) for id in lost]
        for one in given_up:
            one.answer.set_exception(_gone("the task that has the key is gone"))


def place_of(graph: JobGraph, uid: str, key: Any) -> Place:
    """The task that owns the key group of the key.

    Raises:
        NotPeekable: in batch mode a task holds what it has to do, and not what it knows.
        StateTypeError: no key can be of that type.
    """
    if graph.is_batch:
        raise NotPeekable("the job runs in batch mode", remedy="ask with consistency=checkpoint")
    node = graph.node(uid)
    stage = graph.stage_of(node.index)
    group = key_group(key, node.max_parallelism)
    return Place(subtask_for_key_group(group, stage.parallelism, node.max_parallelism), stage.level)


def _gone(why: str) -> NotNow:
    return NotNow(f"no task can answer at the moment: {why}", remedy=_AGAIN)
