"""Look-ups in progress: sent to the task that owns the key in the running attempt, and limited in number."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.common.errors import NotNow
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.runners import live_look_ups
from penstock.jobmanager.runners.live_look_ups import MAX_PENDING, MAX_PENDING_OF_JOB, LiveLookUps, Place, place_of
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.key_groups import key_group, key_group_range
from penstock.state.peek.stored import NotPeekable, Peeked
from penstock.state.snapshot_format.segment import StateInfo
from penstock.taskmanager.look_up import LookUp, LookUpAnswer, decode_look_up, encode_look_up

SLOTS, MAX_PARALLELISM = 3, 16
FOUND = Peeked(StateInfo("value", "value", {"type": "int"}), {"type": "any"}, [b"\x07"])


def graph(mode: str = "STREAMING") -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda v: v).reduce(lambda a, b: a + b).uid("sums").print()
    return JobGraphBuilder(
        env.get_program().transformations, name="sums", parallelism=SLOTS, max_parallelism=MAX_PARALLELISM, mode=mode
    ).build()


class Tasks:
    """Tasks that record the look-ups and answer on request."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, int, LookUp]] = []
        self.answers = True
        self.are_there = True
        self.arrived = threading.Semaphore(0)
        self.look_ups = LiveLookUps(self.send)
        self.look_ups.begin(4, graph())

    def send(self, attempt: int, slot: int, level: int, frame: bytes) -> bool:
        request = decode_look_up(frame)
        self.requests.append((attempt, slot, level, request))
        self.arrived.release()
        if self.answers and self.are_there:
            self.say(LookUpAnswer(request.id, attempt, FOUND))
        return self.are_there

    def say(self, answer: LookUpAnswer) -> None:
        self.look_ups.take(encode_look_up(answer))


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.mark.parametrize("key", [0, 1, 2, "ada", ("a", 1), None])
def test_the_task_that_owns_the_key_receives_the_look_up(tasks: Tasks, key: Any) -> None:
    assert tasks.look_ups.look_up("sums", "sum", key) == FOUND
    ((attempt, slot, level, request),) = tasks.requests
    assert (attempt, level, request.attempt, request.uid, request.state) == (4, 1, 4, "sums", "sum")
    assert key_group(key, MAX_PARALLELISM) in key_group_range(slot, SLOTS, MAX_PARALLELISM)
    assert UNTYPED_KEYS.decode(request.key) == key
    assert place_of(graph(), "sums", key) == (slot, level)


def test_a_job_in_batch_mode_receives_no_look_up() -> None:
    with pytest.raises(NotPeekable, match="batch mode"):
        place_of(graph("BATCH"), "sums", 1)


def waiting(tasks: Tasks, pool: ThreadPoolExecutor, patience_s: float = 20.0) -> Any:
    """Send a look-up that is not answered."""
    tasks.answers = False
    answer = pool.submit(tasks.look_ups.look_up, "sums", "sum", 1, patience_s)
    assert tasks.arrived.acquire(timeout=5)
    return answer


@pytest.fixture
def pool() -> Any:
    with ThreadPoolExecutor(MAX_PENDING + 2) as made:
        yield made


def test_an_answer_of_an_earlier_attempt_is_ignored(tasks: Tasks, pool: ThreadPoolExecutor) -> None:
    answer = waiting(tasks, pool)
    id = tasks.requests[0][3].id
    tasks.say(LookUpAnswer(id, 3, FOUND))
    assert not answer.done()
    tasks.say(LookUpAnswer(id, 4, FOUND))
    assert answer.result(5) == FOUND


def test_waiting_look_ups_fail_with_a_request_to_retry_when_the_attempt_ends(
    tasks: Tasks, pool: ThreadPoolExecutor
) -> None:
    answer = waiting(tasks, pool)
    tasks.look_ups.end()
    with pytest.raises(NotNow, match="the job restarts"):
        answer.result(5)
    with pytest.raises(NotNow, match="is not running"):
        tasks.look_ups.look_up("sums", "sum", 1)
    tasks.answers = True
    tasks.look_ups.begin(5, graph())
    tasks.say(LookUpAnswer(tasks.requests[0][3].id, 4, FOUND))  # late, and of the attempt before
    assert tasks.look_ups.look_up("sums", "sum", 1) == FOUND


def test_a_lost_task_fails_only_its_own_look_ups(tasks: Tasks, pool: ThreadPoolExecutor) -> None:
    answer = waiting(tasks, pool)
    _, slot, level, _ = tasks.requests[0]
    tasks.look_ups.on_disconnected(4, Place((slot + 1) % SLOTS, level))
    tasks.look_ups.on_disconnected(3, Place(slot, level))
    assert not answer.done()
    tasks.look_ups.on_disconnected(4, Place(slot, level))
    with pytest.raises(NotNow, match="has ended"):
        answer.result(5)


def test_a_look_up_does_not_wait_for_a_lost_task(tasks: Tasks) -> None:
    tasks.are_there = False
    for _ in range(2 * MAX_PENDING):
        with pytest.raises(NotNow, match="not connected"):
            tasks.look_ups.look_up("sums", "sum", 1)


def test_a_hung_task_has_a_limited_number_of_look_ups(tasks: Tasks) -> None:
    """A look-up counts until its answer arrives, even if its client has given up."""
    tasks.answers = False
    for _ in range(MAX_PENDING):
        with pytest.raises(NotNow, match="has not answered within"):
            tasks.look_ups.look_up("sums", "sum", 1, patience_s=0.001)
    with pytest.raises(NotNow, match=f"{MAX_PENDING} lookups already wait for the task that has the key"):
        tasks.look_ups.look_up("sums", "sum", 1)
    assert len(tasks.requests) == MAX_PENDING
    tasks.say(LookUpAnswer(tasks.requests[0][3].id, 4, FOUND))
    tasks.answers = True
    assert tasks.look_ups.look_up("sums", "sum", 1) == FOUND


def test_a_hung_task_does_not_block_the_answers_of_others(tasks: Tasks) -> None:
    of_another = next(n for n in range(9) if place_of(graph(), "sums", n) != place_of(graph(), "sums", 1))
    tasks.answers = False
    for _ in range(MAX_PENDING):
        with pytest.raises(NotNow, match="has not answered within"):
            tasks.look_ups.look_up("sums", "sum", 1, patience_s=0.001)
    tasks.answers = True
    assert tasks.look_ups.look_up("sums", "sum", of_another) == FOUND


def test_a_job_whose_tasks_all_hang_has_a_limited_number_of_look_ups(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = iter(range(MAX_PENDING_OF_JOB + 1))
    monkeypatch.setattr(live_look_ups, "place_of", lambda *_: Place(next(slots), 1))
    tasks.answers = False
    for _ in range(MAX_PENDING_OF_JOB):
        with pytest.raises(NotNow, match="has not answered within"):
            tasks.look_ups.look_up("sums", "sum", 1, patience_s=0.0)
    with pytest.raises(NotNow, match=f"{MAX_PENDING_OF_JOB} lookups of this job already wait"):
        tasks.look_ups.look_up("sums", "sum", 1)


@pytest.mark.parametrize(("later", "error"), [(True, NotNow), (False, NotPeekable)])
def test_a_refusal_reports_whether_a_retry_helps(
    tasks: Tasks, pool: ThreadPoolExecutor, later: bool, error: Any
) -> None:
    answer = waiting(tasks, pool)
    tasks.say(LookUpAnswer(tasks.requests[0][3].id, 4, refusal="the task is so", is_later=later))
    with pytest.raises(error, match="the task is so"):
        answer.result(5)
