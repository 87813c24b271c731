"""Joins without windows: every pair, and the newest partner by event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.common import WatermarkStrategy
from penstock.common.errors import InvalidJob, StateTypeError
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import FlatJoinFunction, JoinFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.functions.state.state_joins import AsOf
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.taskmanager.operators.two_inputs.co import CoProcessOperator
from penstock.testing.operator_run import OperatorRun
from tests.in_process import InProcess


@dataclass
class Quote:
    symbol: str
    at: int
    price: float


TRADES = [("KO", 5), ("KO", 15), ("KO", 25), ("PG", 12), ("KO", 90)]
QUOTES = [Quote("KO", 10, 1.0), Quote("KO", 15, 2.0), Quote("KO", 40, 3.0), Quote("PG", 13, 9.0)]


class Opened(JoinFunction):
    def open(self, runtime_context: Any) -> None:
        self.unit = "USD"

    def join(self, first: Any, second: Any) -> Any:
        return first[1], None if second is None else f"{second.price} {self.unit}"


class Twice(FlatJoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        if second is not None:
            yield from (second.price, second.price)


def timed(stream: DataStream, time_of: Any) -> DataStream:
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda value, _: time_of(value)))


def both(env: StreamExecutionEnvironment) -> Any:
    trades = timed(env.from_collection(sorted(TRADES, key=lambda t: t[1])), lambda trade: trade[1])
    quotes = timed(env.from_collection(sorted(QUOTES, key=lambda q: q.at)), lambda quote: quote.at)
    return trades.join(quotes).where(lambda trade: trade[0]).equal_to(lambda quote: quote.symbol)


def results(stream: DataStream) -> list[Any]:
    with executing_on(Session(InProcess())):
        return sorted(stream.execute_and_collect(), key=str)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_pair_with_equal_keys_is_emitted_once(env: StreamExecutionEnvironment, parallelism: int) -> None:
    env.set_parallelism(parallelism)
    pairs = both(env).apply(lambda trade, quote: (trade[0], trade[1], quote.at))
    assert results(pairs) == sorted(((s, at, q.at) for s, at in TRADES for q in QUOTES if q.symbol == s), key=str)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_each_value_is_joined_with_the_newest_partner_that_is_not_later(
    env: StreamExecutionEnvironment, mode: RuntimeExecutionMode
) -> None:
    env.set_runtime_mode(mode)
    found = results(both(env).as_of(Opened()))
    assert found == [(12, None), (15, "2.0 USD"), (25, "2.0 USD"), (5, None), (90, "3.0 USD")]


def test_a_value_older_than_the_tolerance_is_no_partner(env: StreamExecutionEnvironment) -> None:
    found = results(both(env).as_of(lambda trade, quote: (trade[1], quote and quote.price), tolerance=10))
    assert found == [(12, None), (15, 2.0), (25, 2.0), (5, None), (90, None)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_pairs_do_not_depend_on_watermarks_and_snapshots(backend: str) -> None:
    chance = Random(1)
    quotes = [(at, f"q{at}") for at in chance.sample(range(300), 60)]
    trades = [(chance.randrange(300), f"t{n}") for n in range(200)]
    for tolerance in (None, 7):
        join = AsOf(lambda trade, quote: (trade, quote), (None, None), tolerance)
        run = OperatorRun(CoProcessOperator(join, lambda _: 1, lambda _: 1), backend=backend)
        found: list[Any] = []
        for begin in range(0, 300, 50):
            for side, records in ((0, trades), (1, quotes)):
                part = [record for record in records if begin <= record[0] < begin + 50]
                run.push(*[value for _, value in part], at=[at for at, _ in part], to=side)
            run.watermark(begin + 24)
            run.push("late", at=begin, to=0)
            found += run.values
            run = run.restart()
            run.watermark(begin + 49)
        found += run.values
        run.close()
        kept = 300 if tolerance is None else tolerance
        near = [(trade, [quote for quote in quotes if at - kept <= quote[0] <= at]) for at, trade in trades]
        assert sorted(found, key=str) == sorted(
            ((trade, max(known)[1] if known else None) for trade, known in near), key=str
        )


class Counted(dict[Any, Any]):
    """A state that counts its accesses."""

    touched = 0

    def put(self, key: Any, value: Any) -> None:
        Counted.touched += len(value) if isinstance(value, list) else 1
        self[key] = value

    def contains(self, key: Any) -> bool:
        return key in self

    def remove(self, key: Any) -> None:
        self.pop(key, None)

    def keys(self) -> Any:
        Counted.touched += len(self)
        return super().keys()

    def value(self) -> Any:
        return self.get("value")

    def update(self, value: Any) -> None:  # type: ignore[override]
        self.put("value", value)


@pytest.mark.parametrize("trades_at", [lambda n: 5, lambda n: n], ids=["of one time", "of many times"])
def test_the_work_of_an_as_of_join_grows_only_with_its_values(trades_at: Any) -> None:
    made = SimpleNamespace(get_map_state=lambda _: Counted(), get_state=lambda _: Counted())
    join, timers, many = AsOf(lambda trade, quote: quote, (None, None), None), set[int](), 1000
    join.open(cast("Any", made))
    service = SimpleNamespace(current_watermark=lambda: -1, register_event_time_timer=timers.add)
    Counted.touched = 0
    for n in range(many):
        for process, at in ((join.process_element1, trades_at(n)), (join.process_element2, n)):
            ctx = SimpleNamespace(timestamp=lambda at=at: at, timer_service=lambda: service)
            process(n, cast("Any", ctx))
    results = [result for at in sorted(timers) for result in join.on_timer(at, cast("Any", None))]
    assert results == [trades_at(n) for n in range(many)]
    assert Counted.touched < 5 * many


def test_a_flat_function_returns_any_number_of_results(env: StreamExecutionEnvironment) -> None:
    assert results(both(env).as_of(Twice())) == [2.0, 2.0, 2.0, 2.0, 3.0, 3.0]


@dataclass
class Named:
    name: str


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name


HOLDING: dict[str, Any] = {
    "window": lambda stream, joined: joined.window(TumblingEventTimeWindows.of(timedelta(seconds=1))).apply(
        lambda a, b: a.name
    ),
    "apply": lambda stream, joined: joined.apply(lambda a, b: a.name),
    "as_of": lambda stream, joined: joined.as_of(lambda a, b: a.name),
    "gather": lambda stream, joined: stream.gather(2, 10).map(len),
}


@pytest.mark.parametrize("operator", HOLDING.values(), ids=HOLDING)
def test_values_of_an_unknown_class_are_refused_with_the_place_of_the_declaration(
    env: StreamExecutionEnvironment, operator: Any
) -> None:
    def run(made: DataStream) -> list[Any]:
        stream = timed(made, lambda value: 1)
        return results(operator(stream, stream.join(stream).where(lambda v: v.name).equal_to(lambda v: v.name)))

    with pytest.raises(StateTypeError) as caught:
        run(env.from_collection(["a"]).map(lambda name: Plain(name)))
    remedy = caught.value.remedy or ""
    assert remedy.startswith("declare the type. For the state of windows, joins and gather, declare it at the operator")
    assert "map(..., output_type=Plain)" in remedy
    assert "dataclass" in remedy
    quotes = env.from_collection(["a"]).map(lambda name: Named(name), output_type=Named)
    assert len(run(quotes)) == 1


def test_invalid_joins_are_refused(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2])
    joined = numbers.join(numbers).where(abs).equal_to(abs)
    with pytest.raises(InvalidJob, match="must not be negative"):
        joined.as_of(max, tolerance=-1)
    with pytest.raises(InvalidJob, match="co_group needs windows"):
        numbers.co_group(numbers).where(abs).equal_to(abs).apply(lambda first, second: [])
    with pytest.raises(InvalidJob, match="joins by event time, but a value has no timestamp"):
        results(joined.as_of(lambda first, second: first))
