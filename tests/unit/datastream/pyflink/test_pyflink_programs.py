# No `from __future__ import annotations`: programs for PyFlink evaluate their annotations when they are defined.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-any-generics, no-check-untyped-defs
"""Programs as users of PyFlink write them, with `pyflink` replaced by `penstock`. They run without a cluster."""

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


@pytest.fixture(params=[1, 3], ids=["alone", "three subtasks"])
def env(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterable[StreamExecutionEnvironment]:
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
    session = Session(InProcess())
    with executing_on(session):
        env = StreamExecutionEnvironment.get_execution_environment()
        yield env.set_parallelism(request.param)
    session.stop()


def collect(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted(results, key=repr)


class FirstIsSeconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(FirstIsSeconds())


def test_word_count_in_batch_mode(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)

    def split(line: str) -> Any:
        yield from line.split()

    ds = (
        env.from_collection(["to be or not to be", "that is to be"])
        .flat_map(split)
        .map(lambda i: (i, 1), output_type=PAIR)
        .key_by(lambda i: i[0])
        .reduce(lambda i, j: (i[0], i[1] + j[1]))
    )
    assert collect(ds) == [("be", 3), ("is", 1), ("not", 1), ("or", 1), ("that", 1), ("to", 3)]


def test_running_word_count(env: StreamExecutionEnvironment) -> None:
    ds = env.from_collection([("a", 1), ("b", 2), ("a", 3)], type_info=PAIR).key_by(lambda v: v[0]).sum(1)
    assert collect(ds) == [("a", 1), ("a", 4), ("b", 2)]


class Sum(KeyedProcessFunction):
    """A function that stores a sum for each key, with a time to live."""

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("sum", Types.FLOAT())
        descriptor.enable_time_to_live(
            StateTtlConfig.new_builder(Time.seconds(60))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .disable_cleanup_in_background()
            .build()
        )
        self.sum = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield value[0], total


def test_keyed_state_with_time_to_live(env: StreamExecutionEnvironment) -> None:
    ds = env.from_collection(
        [("a", 1.0), ("b", 5.0), ("a", 2.5)], type_info=Types.TUPLE([Types.STRING(), Types.FLOAT()])
    )
    assert collect(ds.key_by(lambda v: v[0]).process(Sum())) == [("a", 1.0), ("a", 3.5), ("b", 5.0)]


class CountWithTimeout(KeyedProcessFunction):
    """A function that emits the count of a key one minute after its last record."""

    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_reducing_state(
            ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())
        )
        self.last = runtime_context.get_map_state(MapStateDescriptor("last", Types.STRING(), Types.LONG()))

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        self.count.add(1)
        self.last["at"] = ctx.timestamp()
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        if timestamp == self.last["at"] + 60_000:  # type: ignore[operator]
            yield ctx.get_current_key(), self.count.get(), ctx.time_domain().name


def test_event_time_timers(env: StreamExecutionEnvironment) -> None:
    ds = (
        env.from_collection([("a", 1), ("a", 50), ("b", 60), ("a", 300)], type_info=PAIR)
        .assign_timestamps_and_watermarks(IN_ORDER)
        .key_by(lambda v: v[0], key_type=Types.STRING())
        .process(CountWithTimeout(), output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()]))
    )
    # The watermark follows the batch. So the last record of each key is known when timers fire.
    assert collect(ds) == [("a", 3, "EVENT_TIME"), ("b", 1, "EVENT_TIME")]


class CountWindowProcessFunction(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple]
    ) -> Iterable[tuple]:
        return [(key, context.window().start, context.window().end, len(list(elements)))]


@pytest.mark.parametrize(
    ("assigner", "expected"),
    [
        (TumblingEventTimeWindows.of(Time.seconds(10)), [("hi", 0, 10_000, 3), ("hi", 10_000, 20_000, 1)]),
        (
            SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(5)),
            [
                ("hi", -5000, 5000, 2),
                ("hi", 0, 10_000, 3),
                ("hi", 10_000, 20_000, 1),
                ("hi", 15_000, 25_000, 1),
                ("hi", 5000, 15_000, 1),
            ],
        ),
        (EventTimeSessionWindows.with_gap(Time.seconds(5)), [("hi", 1000, 13_000, 3), ("hi", 19_000, 24_000, 1)]),
    ],
)
def test_windows(env: StreamExecutionEnvironment, assigner: Any, expected: Any) -> None:
    ds = (
        env.from_collection([("hi", 1), ("hi", 4), ("hi", 8), ("hi", 19)], type_info=PAIR)
        .assign_timestamps_and_watermarks(IN_ORDER)
        .key_by(lambda x: x[0], key_type=Types.STRING())
        .window(assigner)
        .process(CountWindowProcessFunction(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.INT()]))
    )
    assert collect(ds) == expected


class SumWindowFunction(WindowFunction[tuple, tuple, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Iterable[tuple]) -> list[tuple]:
        return [(key, sum(value for _, value in inputs))]


def test_count_windows(env: StreamExecutionEnvironment) -> None:
    data = [("hi", 1), ("hi", 2), ("hi", 3), ("hi", 4), ("hi", 5), ("hello", 6)]
    ds = (
        env.from_collection(data, type_info=PAIR)
        .key_by(lambda x: x[0])
        .count_window(2)
        .apply(SumWindowFunction(), PAIR)
    )
    assert collect(ds) == [("hi", 3), ("hi", 7)]


class CountAll(ProcessAllWindowFunction[tuple, int, TimeWindow]):
    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[tuple]
    ) -> Iterable[int]:
        yield len(list(elements))


def test_windows_of_the_whole_stream(env: StreamExecutionEnvironment) -> None:
    ds = (
        env.from_collection([("a", 1), ("b", 2), ("c", 12)], type_info=PAIR)
        .assign_timestamps_and_watermarks(IN_ORDER)
        .window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
        .process(CountAll(), Types.INT())
    )
    assert collect(ds) == [1, 2]


def test_late_data(env: StreamExecutionEnvironment) -> None:
    late = OutputTag("late-data", PAIR)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(0))
    ds = (
        env.from_collection([("a", 1), ("a", 30), ("a", 2)], type_info=PAIR)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(FirstIsSeconds()))
        .key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .side_output_late_data(late)
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    main = ds.map(lambda v: ("main", *v))
    assert collect(main.union(ds.get_side_output(late).map(lambda v: ("late", *v)))) in (
        [("late", "a", 2), ("main", "a", 1), ("main", "a", 30)],
        # The watermark advances only between batches, so a record of the same batch is not late yet.
        [("main", "a", 3), ("main", "a", 30)],
    )


class Router(ProcessFunction):
    def __init__(self, tag: OutputTag):
        self.tag = tag

    def process_element(self, value: int, ctx: "ProcessFunction.Context"):
        yield value * 10
        yield self.tag, f"side {value}"


def test_side_outputs(env: StreamExecutionEnvironment) -> None:
    tag = OutputTag("side", Types.STRING())
    main = env.from_collection([1, 2], type_info=Types.INT()).process(Router(tag), output_type=Types.INT())
    both = main.map(str, Types.STRING()).union(main.get_side_output(tag))
    assert collect(both) == ["10", "20", "side 1", "side 2"]


class Describe(CoMapFunction):
    def map1(self, value):
        return f"number {value}"

    def map2(self, value):
        return f"text {value}"


class Enrich(KeyedCoProcessFunction):
    """A function that keeps orders until their customer arrives."""

    def open(self, runtime_context: RuntimeContext):
        self.customer = runtime_context.get_state(ValueStateDescriptor("customer", Types.STRING()))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.INT()))

    def process_element1(self, value, ctx: "KeyedCoProcessFunction.Context"):
        if self.customer.value() is None:
            self.waiting.add(value[1])
        else:
            yield self.customer.value(), value[1]

    def process_element2(self, value, ctx: "KeyedCoProcessFunction.Context"):
        self.customer.update(value[1])
        for order in self.waiting.get():
            yield value[1], order
        self.waiting.clear()


def test_connected_streams(env: StreamExecutionEnvironment) -> None:
    numbers, texts = env.from_collection([1, 2]), env.from_collection(["a"])
    assert collect(numbers.connect(texts).map(Describe(), Types.STRING())) == ["number 1", "number 2", "text a"]
    orders = env.from_collection([("c1", 10), ("c2", 20), ("c1", 11)], PAIR)
    customers = env.from_collection([("c1", "Ada"), ("c2", "Bob")])
    enriched = orders.connect(customers).key_by(lambda o: o[0], lambda c: c[0]).process(Enrich())
    assert collect(enriched) == [("Ada", 10), ("Ada", 11), ("Bob", 20)]


class Rules(BroadcastProcessFunction):
    def __init__(self, descriptor: MapStateDescriptor):
        self.descriptor = descriptor

    def process_broadcast_element(self, value, ctx: "BroadcastProcessFunction.Context"):
        ctx.get_broadcast_state(self.descriptor).put(value[0], value[1])

    def process_element(self, value, ctx: "BroadcastProcessFunction.ReadOnlyContext"):
        yield value, isinstance(dict(ctx.get_broadcast_state(self.descriptor).items()), dict)


def test_broadcast_state(env: StreamExecutionEnvironment) -> None:
    descriptor = MapStateDescriptor("rules", Types.STRING(), Types.INT())
    rules = env.from_collection([("limit", 3)], PAIR).broadcast(descriptor)
    ds = env.from_collection([1, 2]).connect(rules).process(Rules(descriptor))
    assert collect(ds) == [(1, True), (2, True)]


class AsyncSquare(AsyncFunction[int, int]):
    async def async_invoke(self, value: int) -> list[int]:
        return [value * value]


def test_async_io(env: StreamExecutionEnvironment) -> None:
    ds = env.from_collection([1, 2, 3]).rebalance()
    squares = AsyncDataStream.unordered_wait(ds, AsyncSquare(), Time.seconds(5), 100, Types.INT())
    assert collect(squares) == [1, 4, 9]


def test_rows_keep_their_names_on_exchanges(env: StreamExecutionEnvironment) -> None:
    row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    ds = (
        env.from_collection([("a", 1), ("b", 2)], type_info=row)
        .map(lambda r: Row(r.name.upper(), r["n"] + 1), output_type=row)
        .key_by(lambda r: r.name)
        .map(lambda r: r.as_dict())
    )
    assert collect(ds) == [{"name": "A", "n": 2}, {"name": "B", "n": 3}]


class Threshold(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.threshold = float(runtime_context.get_job_parameter("threshold", "0"))
        self.counter = runtime_context.get_metrics_group().add_group("mine").counter("seen")

    def map(self, value):
        self.counter.inc()
        return value > self.threshold


def test_job_parameters_and_metrics(env: StreamExecutionEnvironment) -> None:
    env.get_config().set_global_job_parameters({"threshold": "1.5"})
    env.configure(Configuration().set_string("pipeline.name", "thresholds"))
    assert collect(env.from_collection([1.0, 2.0]).map(Threshold(), Types.BOOLEAN())) == [False, True]


@pytest.mark.parametrize("partition", ["rebalance", "shuffle", "rescale", "global_", "forward"])
def test_partitioning_neither_loses_nor_repeats_records(env: StreamExecutionEnvironment, partition: str) -> None:
    source = env.from_collection(list(range(20))).rebalance().map(lambda v: v)
    assert collect(getattr(source, partition)().map(lambda v: v)) == sorted(range(20), key=repr)


def test_custom_partitioning_and_broadcast(env: StreamExecutionEnvironment) -> None:
    source = env.from_collection(list(range(6)))
    assert collect(source.partition_custom(lambda key, n: key % n, lambda v: v).map(lambda v: v)) == list(range(6))
    copies = source.broadcast().map(lambda v: v)
    assert len(collect(copies)) == 6 * env.get_parallelism()


class TestJoins:
    def test_window_join(self, env: StreamExecutionEnvironment) -> None:
        orders = env.from_collection([("a", 1), ("a", 12), ("b", 2)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        paid = env.from_collection([("a", 3), ("b", 15)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        joined = orders.join(paid).where(0).equal_to(lambda p: p[0])
        ds = joined.window(TumblingEventTimeWindows.of(Time.seconds(10))).apply(lambda o, p: (o, p))
        assert collect(ds) == [(("a", 1), ("a", 3))]

    def test_co_group(self, env: StreamExecutionEnvironment) -> None:
        orders = env.from_collection([("a", 1), ("b", 2)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        paid = env.from_collection([("a", 3)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        grouped = orders.co_group(paid).where(0).equal_to(0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
        ds = grouped.apply(lambda o, p: [(o[0][0], len(o), len(p))])
        assert collect(ds) == [("a", 1, 1), ("b", 1, 0)]

    def test_interval_join(self, env: StreamExecutionEnvironment) -> None:
        class Between(ProcessJoinFunction):
            def process_element(self, left, right, ctx: ProcessJoinFunction.Context):
                yield left, right, ctx.get_timestamp()

        clicks = env.from_collection([("a", 10), ("b", 20)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        views = env.from_collection([("a", 8), ("a", 11), ("b", 10)], PAIR).assign_timestamps_and_watermarks(IN_ORDER)
        joined = clicks.key_by(0).interval_join(views.key_by(0)).between(Time.seconds(-5), Time.seconds(0))
        assert collect(joined.process(Between())) == [(("a", 10), ("a", 8), 10_000)]
