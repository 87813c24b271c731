"""Async I/O does not block its task: marks keep their position, and checkpoints contain the inputs that wait for an
answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.common.errors import RecordFormatError, StateTypeError, UserFunctionError
from penstock.common.type_info.type_inference import to_type_info
from penstock.datastream.functions import AsyncFunction, AsyncRetryStrategy, CheckpointedFunction
from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.records.batch import MAX_TIMESTAMP
from penstock.taskmanager.operators.async_io.answers import Answers, Mark, OrderedAnswers, Request, UnorderedAnswers
from penstock.taskmanager.operators.async_io.async_wait import AsyncWaitOperator
from penstock.taskmanager.operators.async_io.requests import RequestLoop
from penstock.testing import JobHarness
from penstock.testing.operator_run import OperatorRun

ORDERED, UNORDERED = AsyncFunctionDescriptor.OutputMode.ORDERED, AsyncFunctionDescriptor.OutputMode.UNORDERED
MODES = [ORDERED, UNORDERED]


class Held(AsyncFunction):
    """A function that answers a value when the test opens its gate, and values above 100 immediately."""

    gates: dict[int, threading.Event] = {}
    requests: list[int] = []

    async def async_invoke(self, value: int) -> list[int]:
        self.requests.append(value)
        while value <= 100 and not self.gates.setdefault(value, threading.Event()).is_set():
            await asyncio.sleep(0.001)
        return [value]


def answer(*values: int) -> None:
    for value in values:
        Held.gates.setdefault(value, threading.Event()).set()


@pytest.fixture(autouse=True)
def _gates() -> Iterator[None]:
    Held.gates, Held.requests = {}, []
    yield
    answer(*range(101))


def operator(
    mode: Any = ORDERED, capacity: int = 100, function: Any = None, element_type: Any = int
) -> AsyncWaitOperator:
    strategy = AsyncRetryStrategy.no_restart()
    descriptor = AsyncFunctionDescriptor(function or Held(), 60_000, capacity, strategy, mode)
    return AsyncWaitOperator(descriptor, None, to_type_info(element_type))


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- order -------------------------------------------------------------------------------------------------------


def taken(answers: Answers, *done: Request) -> list[Any]:
    return [item.value if isinstance(item, Request) else item.watermark for item in answers.take(iter(done))]


def test_ordered_answers_wait_for_earlier_ones() -> None:
    answers, (a, b, c) = OrderedAnswers(), [Request(name, None) for name in "abc"]
    for item in (a, b, Mark(7), c):
        answers.mark(item) if isinstance(item, Mark) else answers.put(item)
    assert taken(answers, b, c) == []
    assert taken(answers, a) == ["a", "b", 7, "c"]
    assert len(answers) == 0


def test_unordered_answers_pass_each_other_but_no_mark() -> None:
    answers, (a, b, c, d) = UnorderedAnswers(), [Request(name, None) for name in "abcd"]
    for item in (a, b, Mark(7), Mark(8), c, d):
        answers.mark(item) if isinstance(item, Mark) else answers.put(item)
    assert taken(answers, d) == []
    assert taken(answers, b) == ["b"]
    assert [request.value for request in answers.inputs()] == ["a", "c", "d"]
    assert taken(answers, a) == ["a", 7, 8, "d"]
    answers.mark(Mark(9))
    assert taken(answers, c) == ["c", 9]


@pytest.mark.parametrize("mode", MODES)
def test_results_and_watermarks_do_not_pass_each_other(mode: Any) -> None:
    run = OperatorRun(operator(mode))
    run.push(1, at=10).watermark(20).push(2, at=30)
    answer(2)
    until(lambda: 2 in Held.requests)
    assert run.at_time(1).events == []
    answer(1)
    assert run.settle().events == [(1, 10), ("watermark", 20), (2, 30)]
    assert run.watermark(40).events[-1] == ("watermark", 40)


# --- the task is not blocked ------------------------------------------------------------------------------------


def test_a_batch_does_not_wait_for_its_answers() -> None:
    run = OperatorRun(operator(capacity=2))
    run.push(1, 2, 3, 101)
    assert run.values == []
    until(lambda: len(Held.requests) == 2)
    assert run.operator.is_full
    answer(1, 2, 3)
    assert run.settle().values == [1, 2, 3, 101]
    assert not run.operator.is_full


def test_an_answer_wakes_the_task() -> None:
    woken = threading.Event()
    run = OperatorRun(operator())
    run.operator.context.wake = woken.set  # used by the next `open`
    run.operator.close()
    run.operator.open()
    run.push(1)
    assert not woken.is_set()
    answer(1)
    assert woken.wait(20)


def test_the_end_of_bounded_input_waits_for_all_answers() -> None:
    run = OperatorRun(operator())
    run.push(1, 2).watermark(MAX_TIMESTAMP)
    threading.Timer(0.05, answer, (1, 2)).start()
    run.operator.finish()
    assert run.events == [(1, None), (2, None), ("watermark", MAX_TIMESTAMP)]


def test_a_failure_is_reported_even_if_earlier_requests_are_pending() -> None:
    class Fails(Held):
        async def async_invoke(self, value: int) -> list[int]:
            if value == 101:
                raise ValueError("bad")
            return await super().async_invoke(value)

    run = OperatorRun(operator(function=Fails()))
    with pytest.raises(UserFunctionError, match="on 101 raised ValueError: bad"):
        run.push(1, 101).settle()


def test_a_failure_just_after_a_check_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Held):
        async def async_invoke(self, value: int) -> list[int]:
            await super().async_invoke(value)
            raise ValueError("bad")

    run = OperatorRun(operator(function=Fails()))
    run.push(1)
    take_done = RequestLoop.take_done

    def meddle(loop: RequestLoop) -> Iterator[Request]:
        yield from take_done(loop)
        answer(1)
        until(lambda: loop._done)

    monkeypatch.setattr(RequestLoop, "take_done", meddle)
    run.operator.take_finished()
    assert len(run.operator._answers) == 1, "a checkpoint at this time would not contain it"  # type: ignore[attr-defined]
    monkeypatch.undo()
    with pytest.raises(UserFunctionError, match="on 1 raised ValueError: bad"):
        run.operator.finish()


class Plain(AsyncFunction):
    def async_invoke(self, value: Any) -> Any:
        return [value]


@pytest.mark.parametrize("strategy", [AsyncRetryStrategy.no_restart(), AsyncRetryStrategy.fixed_delay(2, 1)])
def test_a_function_that_is_not_async_is_refused_with_a_remedy(strategy: Any) -> None:
    descriptor = AsyncFunctionDescriptor(Plain(), 60_000, 1, strategy, ORDERED)
    run = OperatorRun(AsyncWaitOperator(descriptor, None, to_type_info(int)))
    with pytest.raises(
        RecordFormatError, match=r"async_invoke returned \[1\], which cannot be awaited(.|\n)*async def"
    ):
        run.push(1).operator.finish()  # the request may already be answered at the end of the batch


def test_system_exit_in_a_request_is_an_error_of_the_function() -> None:
    async def leave(value: int) -> list[int]:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        OperatorRun(operator(function=leave)).push(1).settle()


class Meddling(threading.Event):
    """An event during whose `clear` an answer arrives."""

    meddle: Any = staticmethod(lambda: None)

    def clear(self) -> None:
        self.meddle()
        super().clear()


def test_an_answer_during_a_check_does_not_prevent_later_notifications() -> None:
    descriptor = AsyncFunctionDescriptor(Held(), 60_000, 10, AsyncRetryStrategy.no_restart(), ORDERED)
    loop = RequestLoop(descriptor, None, lambda: None)
    loop._answered = Meddling()
    loop.start(lambda: None)
    loop.submit([Request(1, None), Request(2, None)])

    def meddle() -> None:
        answer(1)
        until(lambda: loop._done)

    loop._answered.meddle = meddle
    assert [request.value for request in loop.take_done()] == [1]
    loop._answered.meddle = lambda: None
    answer(2)
    assert loop._answered.wait(20)
    loop.close(lambda: None)


class Slow(AsyncFunction):
    """A function that answers odd values immediately. Even values take one minute, and time out."""

    def __init__(self) -> None:
        self.given_up: list[int] = []

    async def async_invoke(self, value: int) -> list[int]:
        if value % 2 == 0:
            await asyncio.sleep(60)
        return [value]

    def timeout(self, value: int) -> list[int]:
        self.given_up.append(value)
        return [-value]


def slow_loop(function: Slow, capacity: int, timeout_ms: int) -> RequestLoop:
    strategy = AsyncRetryStrategy.no_restart()
    descriptor = AsyncFunctionDescriptor(function, timeout_ms, capacity, strategy, UNORDERED)
    loop = RequestLoop(descriptor, None, lambda: None)
    loop.start(lambda: None)
    return loop


def answers_of(loop: RequestLoop, count: int) -> list[Request]:
    found: list[Request] = []

    def have_arrived() -> bool:
        found.extend(loop.take_done())
        return len(found) >= count

    until(have_arrived)
    return found


def test_each_request_has_a_separate_timeout() -> None:
    function = Slow()
    loop = slow_loop(function, 100, 150)
    began = time.monotonic()
    loop.submit([Request(value, None) for value in range(1, 6)])
    time.sleep(0.1)
    loop.submit([Request(6, None)])
    found = {request.value: request.results for request in answers_of(loop, 5)}
    assert found == {1: [1], 3: [3], 5: [5], 2: [-2], 4: [-4]}
    [late] = answers_of(loop, 1)
    assert late.results == [-6]
    assert time.monotonic() - began >= 0.25
    loop.submit([Request(8, None)])  # no request was pending before
    [late] = answers_of(loop, 1)
    assert (late.results, function.given_up) == ([-8], [2, 4, 6, 8])
    loop.close(lambda: None)


def test_a_request_whose_timeout_ends_before_its_first_step_is_late_and_not_cancelled() -> None:
    function = Slow()
    loop = slow_loop(function, 10, 100)

    def one_round_of_a_delayed_loop() -> None:
        loop._accept([Request(2, None), Request(4, None)])
        time.sleep(0.15)
        loop._on_deadline()

    loop.call(one_round_of_a_delayed_loop)
    assert [(late.results, late.error) for late in answers_of(loop, 2)] == [([-2], None), ([-4], None)]
    assert function.given_up == [2, 4]
    loop.close(lambda: None)


def test_a_slow_request_does_not_keep_answered_ones_in_memory() -> None:
    loop = slow_loop(Slow(), 10, 60_000)
    loop.submit([Request(2, None)])
    for _ in range(50):
        loop.submit([Request(1, None)] * 10)
        answers_of(loop, 10)
    assert len(loop._deadlines) <= 50
    loop.close(lambda: None)


def test_a_function_that_failed_to_open_is_closed() -> None:
    closed = []

    class Unopened(Held):
        def open(self, runtime_context: Any) -> None:
            raise ValueError("not now")

        def close(self) -> None:
            closed.append(True)

    unopened = operator(function=Unopened())
    run = OperatorRun(operator())
    unopened.setup(run.context, run.output)
    with pytest.raises(Exception, match="not now"):
        unopened.open()
    unopened.close()
    assert closed == [True]


# --- checkpoints -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_inputs_without_results_are_in_the_checkpoint_and_requested_again(mode: Any) -> None:
    old = OperatorRun(operator(mode))
    old.push(1, 2, 3, at=[10, 20, 30])
    answer(1)
    until(lambda: old.at_time(1).values == [1])
    new = old.restart()
    until(lambda: Held.requests[3:] == [2, 3])
    answer(2, 3)
    assert new.settle().results == [(2, 20), (3, 30)]
    assert new.restart().settle().values == []


def test_inputs_without_results_are_distributed_by_a_rescale() -> None:
    old = OperatorRun(operator())
    old.push(1, 2, 3, at=[10, 20, 30])
    news = OperatorRun.rescale([old], 2)
    answer(1, 2, 3)
    assert sorted(result for run in news for result in run.settle().results) == [(1, 10), (2, 20), (3, 30)]


@dataclass
class Reading:
    room: str
    degrees: float


def test_inputs_of_user_classes_are_restored_unchanged() -> None:
    async def never(value: Reading) -> list[Reading]:
        if Held.requests:
            return [value]
        await asyncio.sleep(60)
        return []

    old = OperatorRun(operator(function=never, element_type=Reading))
    old.push(Reading("hall", 20.5))
    snapshot = old.snapshot()
    old.close()
    Held.requests = [1]
    new = OperatorRun(operator(function=never, element_type=Reading), restored_from=[snapshot])
    assert new.settle().values == [Reading("hall", 20.5)]


def test_an_input_that_a_checkpoint_cannot_store_is_refused_immediately() -> None:
    with pytest.raises(StateTypeError, match="async-in-flight"):
        OperatorRun(operator(element_type=None)).push(threading.Lock())


class Counting(Held, CheckpointedFunction):
    """A function that runs completely on its event loop, including its snapshots."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state("requests", int)
        self.loop = asyncio.get_running_loop()

    def snapshot_state(self, context: Any) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.state[:] = self.requests


def test_state_of_the_function_is_part_of_the_checkpoint() -> None:
    run = OperatorRun(operator(function=Counting()))
    run.push(101, 102).settle()
    again = run.restart()
    assert again.operator.fn.state == [101, 102]  # type: ignore[attr-defined]


# --- whole jobs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_continues_after_a_crash_without_lost_or_repeated_results(parallelism: int) -> None:
    from penstock.datastream import AsyncDataStream

    async def double(value: int) -> list[int]:
        await asyncio.sleep(0.001 * (value % 5))
        return [2 * value]

    with JobHarness(parallelism) as harness:
        numbers = harness.source("numbers")
        doubled = AsyncDataStream.unordered_wait(numbers.rebalance(), double, 10_000, capacity=4)
        harness.collect(doubled.key_by(lambda v: v % 3).sum(), "sums")
        harness.push("numbers", *range(20))
        harness.snapshot()
        harness.push("numbers", *range(20, 40))
        harness.run()
        harness.crash()
        harness.push("numbers", *range(40, 60))
        harness.close("numbers")
        sums = harness.outputs("sums")
    assert len(sums) == 60
    assert sorted(sums)[-1] == max(sum(2 * v for v in range(60) if 2 * v % 3 == r) for r in range(3))
