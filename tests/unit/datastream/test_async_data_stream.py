"""Async I/O: order, capacity, timeout, retries, errors."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import Row, Types
from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.datastream import AsyncDataStream, AsyncFunction, DataStream, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.functions import AsyncRetryStrategy
from tests.unit.datastream.streams import start

SOON = timedelta(seconds=10)


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1])


class Slow(AsyncFunction):
    """A function that answers the greater values first."""

    running = 0
    most = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.loop = asyncio.get_running_loop()

    async def async_invoke(self, value: int) -> list[int]:
        assert asyncio.get_running_loop() is self.loop
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02 * (5 - value))
        self.running -= 1
        return [value, -value]


def test_ordered_results_have_the_order_of_their_inputs(numbers: DataStream) -> None:
    run = start(AsyncDataStream.ordered_wait(numbers, Slow(), SOON)).push(1, 4, 2, at=[10, 40, 20]).settle()
    assert run.results == [(1, 10), (-1, 10), (4, 40), (-4, 40), (2, 20), (-2, 20)]


def test_unordered_results_are_emitted_as_they_are_answered(numbers: DataStream) -> None:
    run = start(AsyncDataStream.unordered_wait(numbers, Slow(), SOON)).push(1, 4, 2, at=[10, 40, 20]).settle()
    assert run.results == [(4, 40), (-4, 40), (2, 20), (-2, 20), (1, 10), (-1, 10)]
    assert run.watermark(50).events[-1] == ("watermark", 50)


def test_the_number_of_pending_requests_does_not_exceed_the_capacity(numbers: DataStream) -> None:
    function = Slow()
    run = start(AsyncDataStream.unordered_wait(numbers, function, SOON, capacity=2)).push(4, 4, 4, 4).settle()
    assert (function.most, len(run.values)) == (2, 8)


class RoomOfSensor(AsyncFunction):
    """A look-up in a table of 80 sensors. No request is answered before as many are pending."""

    rooms = {f"sensor_{i}": f"room_{i % 10}" for i in range(1, 81)}

    def open(self, runtime_context: RuntimeContext) -> None:
        self.requests = 0
        self.all_requested = asyncio.Event()

    async def async_invoke(self, value: str) -> list[tuple[str, str]]:
        self.requests += 1
        if self.requests == len(self.rooms):
            self.all_requested.set()
        await self.all_requested.wait()
        await asyncio.sleep(0.001 * (int(value.removeprefix("sensor_")) % 7))
        return [(value, self.rooms.get(value, "UNKNOWN ROOM"))]


def test_locations_of_sensors_are_looked_up_in_parallel_and_returned_in_order(env: StreamExecutionEnvironment) -> None:
    """The timeout is 5 s, and the capacity is 100. The table has 79 of the requested sensors, and one is missing."""
    sensors = [*(f"sensor_{i}" for i in range(1, 80)), "sensor_99"]
    stream = AsyncDataStream.ordered_wait(env.from_collection(["sensor_1"]), RoomOfSensor(), timedelta(seconds=5), 100)
    run = start(stream).push(*sensors).settle()
    assert run.values[6] == ("sensor_7", "room_7")
    assert run.values[9] == ("sensor_10", "room_0")
    assert run.values[-1] == ("sensor_99", "UNKNOWN ROOM")
    assert [sensor for sensor, _ in run.values] == sensors


def test_a_plain_coroutine_function_is_accepted(numbers: DataStream) -> None:
    async def double(value: int) -> list[int]:
        return [2 * value]

    stream = AsyncDataStream.ordered_wait(numbers, double, SOON)
    assert stream.get_type() == Types.LONG()
    assert start(stream).push(1, 2).settle().values == [2, 4]


def test_a_late_request_calls_timeout(numbers: DataStream) -> None:
    class Never(AsyncFunction):
        async def async_invoke(self, value: int) -> list[Any]:
            await asyncio.sleep(3600)
            return []

        def timeout(self, value: int) -> list[str]:
            return [f"{value} timed out"]

    stream = AsyncDataStream.ordered_wait(numbers, Never(), timedelta(milliseconds=10))
    assert start(stream).push(1).settle().values == ["1 timed out"]


def test_a_late_request_fails_the_job_without_a_timeout_method(numbers: DataStream) -> None:
    async def never(value: int) -> list[int]:
        await asyncio.sleep(3600)
        return []

    with pytest.raises(
        UserFunctionError, match=r"on 7 raised TimeoutError: the request was not answered within 0\.01 s"
    ):
        start(AsyncDataStream.ordered_wait(numbers, never, 10)).push(7).settle()


class Flaky(AsyncFunction):
    """A function that fails twice for each value, then answers."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}

    async def async_invoke(self, value: int) -> list[int]:
        self.attempts[value] = self.attempts.get(value, 0) + 1
        if self.attempts[value] < 3:
            raise ConnectionError("away")
        return [value]


def is_connection_error(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


@pytest.mark.parametrize(
    "strategy",
    [
        AsyncRetryStrategy.fixed_delay(3, 1, None, is_connection_error),
        AsyncRetryStrategy.exponential_backoff(3, 1, 10, 2.0, None, is_connection_error),
    ],
)
@pytest.mark.parametrize("wait", ["ordered_wait_with_retry", "unordered_wait_with_retry"])
def test_failures_are_retried(numbers: DataStream, strategy: AsyncRetryStrategy, wait: str) -> None:
    stream = getattr(AsyncDataStream, wait)(numbers, Flaky(), SOON, strategy)
    assert sorted(start(stream).push(1, 2).settle().values) == [1, 2]


def test_the_number_of_attempts_is_limited(numbers: DataStream) -> None:
    strategy = AsyncRetryStrategy.fixed_delay(2, 1, None, is_connection_error)
    stream = AsyncDataStream.ordered_wait_with_retry(numbers, Flaky(), SOON, strategy)
    with pytest.raises(UserFunctionError, match="Flaky on 1 raised ConnectionError: away"):
        start(stream).push(1).settle()


def test_results_may_be_retried(numbers: DataStream) -> None:
    answers = [[], [], ["found"]]

    async def lookup(value: int) -> list[str]:
        return answers.pop(0)

    strategy = AsyncRetryStrategy.fixed_delay(5, 1, lambda results: not results, None)
    assert start(AsyncDataStream.ordered_wait_with_retry(numbers, lookup, SOON, strategy)).push(1).settle().values == [
        "found"
    ]


def test_the_first_failure_counts_without_retries(numbers: DataStream) -> None:
    with pytest.raises(UserFunctionError, match="ConnectionError"):
        start(AsyncDataStream.ordered_wait(numbers, Flaky(), SOON)).push(1).settle()


def test_a_result_that_is_not_a_list_is_refused(numbers: DataStream) -> None:
    async def text(value: int) -> Any:
        return "text"

    with pytest.raises(Exception, match="should be of list type: async_invoke returned 'text'"):
        start(AsyncDataStream.ordered_wait(numbers, text, SOON)).push(1).settle()


def test_declared_rows_are_created(numbers: DataStream) -> None:
    async def pair(value: int) -> list[tuple[int, int]]:
        return [(value, value)]

    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
    assert start(AsyncDataStream.ordered_wait(numbers, pair, SOON, output_type=row)).push(1).settle().values == [
        Row(a=1, b=1)
    ]


def test_close_ends_the_event_loop(numbers: DataStream) -> None:
    closed: list[bool] = []

    class Closed(Slow):
        def close(self) -> None:
            closed.append(asyncio.get_running_loop() is self.loop)

    run = start(AsyncDataStream.ordered_wait(numbers, Closed(), SOON)).push(4).settle()
    run.operator.close()
    run.operator.close()
    assert closed == [True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"async_function": len}, "takes an AsyncFunction, got <built-in"),
        ({"timeout": 0}, "timeout of ordered_wait must be positive"),
        ({"capacity": 0}, "capacity of ordered_wait"),
        ({"data_stream": 3}, "ordered_wait takes a stream"),
    ],
)
def test_invalid_arguments_are_refused(numbers: DataStream, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        AsyncDataStream.ordered_wait(**{"data_stream": numbers, "async_function": Slow(), "timeout": SOON, **arguments})
