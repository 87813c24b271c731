"""Keyed streams, windows and rolling aggregates: their recorded operations, and the results of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from penstock.common import Time, Types
from penstock.common.errors import InvalidJob
from penstock.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowFunction,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    FieldAggregate,
    GlobalWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.graph.transformation import Exchange
from tests.unit.datastream.streams import start, transformation


class Day(NamedTuple):
    number: int


TENS = TumblingEventTimeWindows.of(Time.seconds(10))


@pytest.fixture
def pairs(env: StreamExecutionEnvironment) -> KeyedStream:
    return env.from_collection([("a", 1)]).key_by(0)


class TestKeyedOperations:
    def test_process_has_state_of_the_key(self, pairs: KeyedStream) -> None:
        class Count(KeyedProcessFunction):
            def open(self, runtime_context: RuntimeContext) -> None:
                self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0))

            def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
                self.count.update((self.count.value() or 0) + 1)
                yield ctx.get_current_key(), self.count.value()

        stream = pairs.process(Count())
        assert start(stream).push(("a", 1), ("b", 1), ("a", 1)).values == [("a", 1), ("b", 1), ("a", 2)]
        assert transformation(stream).is_stateful
        assert transformation(stream).inputs[0].partitioning.exchange is Exchange.KEY_GROUP

    def test_map_with_a_function_object_has_state_of_the_key(self, pairs: KeyedStream) -> None:
        class First(MapFunction):
            def open(self, runtime_context: RuntimeContext) -> None:
                self.seen = runtime_context.get_state(ValueStateDescriptor("seen", bool))

            def map(self, value: tuple[str, int]) -> bool:
                first = self.seen.value() is None
                self.seen.update(True)
                return first

        assert start(pairs.map(First())).push(("a", 1), ("a", 1), ("b", 1)).values == [True, False, True]

    def test_map_with_a_plain_function_needs_no_state(self, pairs: KeyedStream) -> None:
        stream = pairs.map(lambda v: v[1])
        assert not transformation(stream).is_stateful
        assert transformation(stream).inputs[0].partitioning.exchange is Exchange.KEY_GROUP

    def test_reduce_and_aggregates_return_every_step(self, pairs: KeyedStream) -> None:
        reduced = start(pairs.reduce(lambda a, b: (a[0], a[1] + b[1])))
        assert reduced.push(("a", 1), ("b", 5), ("a", 2)).values == [("a", 1), ("b", 5), ("a", 3)]
        for operation, expected in (("sum", 4), ("min", 1), ("max", 3), ("min_by", 1), ("max_by", 3)):
            stream = getattr(pairs, operation)(1)
            assert start(stream).push(("a", 3), ("a", 1)).values[-1] == ("a", expected)
            assert stream.get_type() == Types.TUPLE([Types.STRING(), Types.LONG()])

    def test_operators_have_the_type_of_keys_that_are_objects(self, env: StreamExecutionEnvironment) -> None:
        def day(value: tuple[str, int]) -> Day:
            return Day(value[1])

        stream = env.from_collection([("a", 1)])
        for keyed, expected in (
            (stream.key_by(day), Day),
            (stream.key_by(lambda v: (Day(v[1]), v[0]), key_type=tuple[Day, str]), tuple[Day, str]),
            (stream.key_by(0), None),
            (stream.key_by([0, 1]), None),
        ):
            for result in (keyed.reduce(max), keyed.window(TENS).reduce(max)):
                known = transformation(result).operation.key_type
                assert (known and known.python_type) == expected

    def test_a_key_ends_with_the_operation(self, pairs: KeyedStream) -> None:
        assert type(pairs.map(lambda v: v)) is DataStream
        assert pairs.union(pairs)._inputs[0].partitioning.exchange is Exchange.FORWARD

    def test_aggregates_of_fields_return_the_key_and_the_results(self, pairs: KeyedStream) -> None:
        stream = pairs.aggregate(FieldAggregate.of(FieldAggregate.count(), FieldAggregate.max(1)))
        assert start(stream).push(("a", 1), ("b", 5), ("a", 0)).values == [("a", 1, 1), ("b", 1, 5), ("a", 2, 1)]
        with pytest.raises(InvalidJob, match="takes a FieldAggregate"):
            pairs.aggregate(Mean())  # type: ignore[arg-type]

    def test_operators_that_read_columns_have_the_field_of_the_key(self, env: StreamExecutionEnvironment) -> None:
        from penstock.common import Row
        from penstock.records.fields import field_of

        for value, field in ((("a", 1), 0), ({"k": "a"}, "k"), (Row(k="a"), "k"), (Day(3), "number")):
            stream = env.from_collection([value]).key_by(field).window(TENS).reduce(max)  # type: ignore[arg-type]
            selector = transformation(stream).operation.key_selectors[0]
            assert field_of(selector) == field
            assert selector is not None
            assert selector(value) in ("a", 3)

    @pytest.mark.parametrize("field", [None, 1.5, True, ""])
    def test_an_aggregate_needs_a_field(self, pairs: KeyedStream, field: Any) -> None:
        with pytest.raises(InvalidJob, match="sum takes the name or position of a field"):
            pairs.sum(field)


class TestBatchMode:
    @pytest.fixture(params=[RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
    def batch(self, env: StreamExecutionEnvironment, request: pytest.FixtureRequest) -> KeyedStream:
        env.set_runtime_mode(request.param)
        return env.from_collection([("a", 1)]).key_by(0)

    def test_batch_mode_returns_the_final_result_of_each_key_at_the_end(self, batch: KeyedStream) -> None:
        for stream in (batch.reduce(lambda a, b: (a[0], a[1] + b[1])), batch.sum(1)):
            run = start(stream).push(("a", 1), ("b", 5), ("a", 2))
            assert run.values == []
            assert sorted(run.end().values) == [("a", 3), ("b", 5)]

    def test_batch_mode_returns_final_aggregates_of_fields(self, batch: KeyedStream) -> None:
        for aggregate, expected in (
            (FieldAggregate.sum(1), [("a", 3), ("b", 5)]),
            (FieldAggregate.of(FieldAggregate.count(), FieldAggregate.min(1)), [("a", 2, 1), ("b", 1, 5)]),
        ):
            run = start(batch.aggregate(aggregate)).push(("a", 1), ("b", 5), ("a", 2))
            assert sorted(run.end().values) == expected

    def test_batch_mode_refuses_an_unbounded_source(self, env: StreamExecutionEnvironment) -> None:
        from penstock.connectors.simple.datagen import DataGeneratorSource

        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        source = DataGeneratorSource(lambda n: n)
        env.from_source(source, None, "endless").print()
        with pytest.raises(InvalidJob, match="source 'endless' is unbounded"):
            env.get_program()

    def test_automatic_mode_with_an_unbounded_source_returns_every_step(self, env: StreamExecutionEnvironment) -> None:
        from penstock.connectors.simple.datagen import DataGeneratorSource

        env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
        source = DataGeneratorSource(lambda n: n)
        keyed = env.from_source(source, None, "endless").key_by(lambda v: 0)
        assert start(keyed.reduce(lambda a, b: a + b)).push(1, 2).values == [1, 3]


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[str, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]


class Describe(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterator[tuple[str, int, int]]:
        yield key, context.window().start, len(list(elements))


class DescribeAll(ProcessAllWindowFunction):
    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[Any]) -> Iterator[tuple[int, int]]:
        yield context.window().start, len(list(elements))


class Apply(WindowFunction):
    def apply(self, key: str, window: Any, inputs: Iterable[Any]) -> list[tuple[str, int]]:
        return [(key, window.end)]


class TestWindows:
    def run(self, stream: DataStream) -> list[Any]:
        return start(stream).push(("a", 1), ("b", 7), ("a", 2), at=[1000, 2000, 9000]).watermark(10_000).values

    def test_reduce_aggregate_process_apply(self, pairs: KeyedStream) -> None:
        windows = pairs.window(TENS)
        assert sorted(self.run(windows.reduce(lambda a, b: (a[0], a[1] + b[1])))) == [("a", 3), ("b", 7)]
        assert sorted(self.run(windows.aggregate(Mean()))) == [1.5, 7.0]
        assert sorted(self.run(windows.process(Describe()))) == [("a", 0, 2), ("b", 0, 1)]
        assert sorted(self.run(windows.apply(Apply()))) == [("a", 10_000), ("b", 10_000)]
        assert sorted(self.run(windows.sum(1))) == [("a", 3), ("b", 7)]

    def test_a_fold_may_be_followed_by_a_window_function(self, pairs: KeyedStream) -> None:
        windows = pairs.window(TENS)
        assert sorted(self.run(windows.reduce(max, Describe()))) == [("a", 0, 1), ("b", 0, 1)]
        assert sorted(self.run(windows.aggregate(Mean(), Describe()))) == [("a", 0, 1), ("b", 0, 1)]

    def test_types_are_inferred_from_the_functions(self, pairs: KeyedStream) -> None:
        windows = pairs.window(TENS)
        known = Types.TUPLE([Types.STRING(), Types.LONG()])
        assert windows.get_input_type() == known
        assert windows.reduce(max).get_type() == known
        assert windows.reduce(max, Describe()).get_type() == Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
        assert windows.aggregate(Mean()).get_type() == Types.DOUBLE()
        assert windows.process(Describe(), Types.STRING()).get_type() == Types.STRING()
        operation: Any = transformation(windows.aggregate(Mean())).operation
        assert operation.function.state_type == Types.TUPLE([Types.LONG(), Types.LONG()])

    def test_declared_rows_are_created(self, pairs: KeyedStream) -> None:
        from penstock.common import Row

        row = Types.ROW_NAMED(["key", "start", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])
        assert Row(key="a", start=0, n=2) in self.run(pairs.window(TENS).process(Describe(), row))
        mean = Types.ROW_NAMED(["sum", "count"], [Types.LONG(), Types.LONG()])

        class Both(Mean):
            def get_result(self, accumulator: tuple[int, int]) -> Any:
                return accumulator

        alone = Types.ROW_NAMED(["start", "n"], [Types.LONG(), Types.LONG()])
        whole = pairs.window_all(TENS)
        assert self.run(whole.process(DescribeAll(), alone)) == [Row(start=0, n=3)]
        assert self.run(whole.apply(lambda window, values: [(window.start, 0)], alone)) == [Row(start=0, n=0)]
        assert self.run(whole.reduce(max, lambda context, values: [(1, 2)], alone)) == [Row(start=1, n=2)]
        assert Row(sum=3, count=2) in self.run(pairs.window(TENS).aggregate(Both(), output_type=mean))

    def test_late_records_go_to_their_side_output(self, pairs: KeyedStream) -> None:
        late = OutputTag("late")
        stream = pairs.window(TENS).allowed_lateness(timedelta(seconds=5)).side_output_late_data(late).reduce(max)
        run = start(stream).push(("a", 1), at=0).watermark(12_000)
        run.push(("a", 2), at=1).watermark(20_000).push(("a", 3), at=2)
        assert (run.values, run.side("late")) == ([("a", 1), ("a", 2)], [("a", 3)])
        assert stream.get_side_output(late).get_type() == Types.TUPLE([Types.STRING(), Types.LONG()])

    def test_trigger_and_evictor(self, pairs: KeyedStream) -> None:
        last_two = pairs.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(1))
        stream = last_two.apply(lambda key, window, values: [list(values)])
        assert start(stream).push(("a", 1), ("a", 2), ("a", 3), ("a", 4)).values == [[("a", 2)], [("a", 4)]]

    def test_count_windows(self, pairs: KeyedStream) -> None:
        values = [("a", n) for n in range(1, 5)]
        tumbling = start(pairs.count_window(2).sum(1)).push(*values)
        assert tumbling.values == [("a", 3), ("a", 7)]
        sliding = start(pairs.count_window(2, 1).sum(1)).push(*values)
        assert [value for _, value in sliding.values] == [3, 5, 7] or [v for _, v in sliding.values] == [1, 3, 5, 7]

    def test_windows_of_the_whole_stream_run_in_one_subtask(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([("a", 1)]).window_all(TENS).process(DescribeAll())
        assert self.run(stream) == [(0, 3)]
        t = transformation(stream)
        assert (t.parallelism, t.non_parallel) == (1, True)
        with pytest.raises(InvalidJob, match="parallelism 1"):
            stream.set_parallelism(2)
        assert start(env.from_collection([1]).count_window_all(2).reduce(max)).push(3, 1).values == [3]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda k: k.window(3), "window takes a window assigner"),
            (lambda k: k.window(TENS).trigger(3), "takes a Trigger"),
            (lambda k: k.window(TENS).evictor(3), "takes an Evictor"),
            (lambda k: k.window(TENS).allowed_lateness(-1), "must not be negative"),
            (
                lambda k: k.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).allowed_lateness(1),
                "end by processing time",
            ),
            (lambda k: k.window(TENS).side_output_late_data("late"), "takes an OutputTag"),
            (lambda k: k.window(TENS).aggregate(max), "aggregate takes an AggregateFunction"),
            (lambda k: k.window(TENS).process(DescribeAll()), "process takes a ProcessWindowFunction"),
            (lambda k: k.window_all(TENS).process(Describe()), "process takes a ProcessAllWindowFunction"),
            (lambda k: k.window(TENS).apply(lambda a, b: []), "with 3 arguments"),
            (lambda k: k.count_window(0), "size of a count window"),
            (lambda k: k.count_window(2, -1), "slide of a count window"),
        ],
    )
    def test_invalid_windows_are_refused_at_the_users_line(self, pairs: KeyedStream, call: Any, message: str) -> None:
        with pytest.raises(InvalidJob, match=message) as caught:
            call(pairs)
        assert caught.value.location.startswith(__file__)

    def test_merging_windows_refuse_an_aggregate_that_cannot_merge(self, pairs: KeyedStream) -> None:
        class Counts(AggregateFunction):
            def create_accumulator(self) -> int:
                return 0

            def add(self, value: Any, accumulator: int) -> int:
                return accumulator + 1

            def get_result(self, accumulator: int) -> int:
                return accumulator

        pairs.window(TumblingEventTimeWindows.of(Time.seconds(1))).aggregate(Counts())
        with pytest.raises(InvalidJob, match="Counts has no merge") as caught:
            pairs.window(EventTimeSessionWindows.with_gap(Time.seconds(1))).aggregate(Counts())
        assert "acc_a, acc_b" in str(caught.value.remedy)
        assert caught.value.location.startswith(__file__)

    def test_merging_windows_refuse_a_trigger_that_cannot_merge(self, pairs: KeyedStream) -> None:
        from penstock.datastream.window import NeverTrigger, Trigger

        class Stubborn(NeverTrigger):
            def can_merge(self) -> bool:
                return False

        trigger: Trigger[Any, Any] = Stubborn()
        with pytest.raises(InvalidJob, match="Stubborn cannot merge"):
            pairs.window(EventTimeSessionWindows.with_gap(Time.seconds(1))).trigger(trigger)
