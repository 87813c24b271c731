"""Operations on two streams: connect, broadcast, join, co-group and interval join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import Row, Time, Types
from penstock.common.errors import InvalidJob, KeyedStateNotAvailable
from penstock.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    ProcessJoinFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.functions import FlatJoinFunction, JoinFunction
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.program import upstream_first
from penstock.graph.transformation import Exchange
from penstock.state.key_groups import key_group, subtask_for_key_group
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing.operator_run import OperatorRun
from tests.unit.datastream.streams import operator_of, start, transformation

TENS = TumblingEventTimeWindows.of(Time.seconds(10))
RULES = MapStateDescriptor("rules", str, int)


@pytest.fixture
def left(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1)])


@pytest.fixture
def right(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", "x")])


class ToText(CoMapFunction):
    def map1(self, value: tuple[str, int]) -> str:
        return f"left {value[1]}"

    def map2(self, value: tuple[str, str]) -> str:
        return f"right {value[1]}"


class Last(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))

    def process_element1(self, value: tuple[str, int], ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield value, self.last.value()

    def process_element2(self, value: tuple[str, str], ctx: KeyedCoProcessFunction.Context) -> None:
        self.last.update(value[1])


class TestConnect:
    def test_connected_streams_have_two_inputs(self, left: DataStream, right: DataStream) -> None:
        stream = left.connect(right).map(ToText())
        assert [edge.index for edge in transformation(stream).inputs] == [0, 1]
        assert stream.get_type() == Types.STRING()
        assert start(stream).push(("a", 1)).push(("a", "x"), to=1).values == ["left 1", "right x"]

    def test_a_pair_of_functions_is_accepted(self, left: DataStream, right: DataStream) -> None:
        stream = left.connect(right).flat_map((lambda v: [v] * v[1], lambda v: []))
        assert start(stream).push(("a", 2)).push(("a", "x"), to=1).values == [("a", 2)] * 2

    def test_by_key_shares_the_state_of_the_key(self, left: DataStream, right: DataStream) -> None:
        stream = left.connect(right).key_by(0, lambda v: v[0]).process(Last())
        run = start(stream).push(("a", 1)).push(("a", "x"), to=1).push(("a", 2), ("b", 3))
        assert run.values == [(("a", 1), None), (("a", 2), "x"), (("b", 3), None)]
        assert {edge.partitioning.exchange for edge in transformation(stream).inputs} == {Exchange.KEY_GROUP}

    def test_connected_keyed_streams_are_keyed(self, left: DataStream, right: DataStream) -> None:
        stream = left.key_by(0).connect(right.key_by(0)).process(Last())
        assert transformation(stream).is_stateful

    def test_connected_streams_without_a_key_have_no_state(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(KeyedStateNotAvailable, match="have no key"):
            left.connect(right).process(Last())

    def test_a_key_on_only_one_stream_is_refused(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(InvalidJob, match="only the second of the two"):
            left.connect(right.key_by(0)).map(ToText())

    def test_keys_of_different_types_are_refused_by_connect(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(InvalidJob, match="of different types"):
            left.connect(right).key_by(1, 1).map(ToText())

    def test_row_results(self, left: DataStream, right: DataStream) -> None:
        class Both(CoFlatMapFunction):
            def flat_map1(self, value: Any) -> Iterator[Any]:
                yield value

            def flat_map2(self, value: Any) -> None:
                return None

        row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
        stream = left.connect(right).flat_map(Both(), row)
        assert start(stream).push(("a", 1)).push(("a", "x"), to=1).values == [Row(k="a", n=1)]


class Apply(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[int]:
        yield value[1] * (ctx.get_broadcast_state(RULES).get("factor") or 1)

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put("factor", value)


class KeyedApply(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("factor")

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(RULES).put("factor", value)


class TestBroadcast:
    def test_broadcast_records_reach_all_subtasks_and_the_state(
        self, env: StreamExecutionEnvironment, left: DataStream
    ) -> None:
        stream = left.connect(env.from_collection([3]).broadcast(RULES)).process(Apply())
        edges = transformation(stream).inputs
        assert [(e.index, e.partitioning.exchange) for e in edges] == [(0, Exchange.FORWARD), (1, Exchange.BROADCAST)]
        assert start(stream).push(("a", 2)).push(3, to=1).push(("a", 2)).values == [2, 6]
        assert stream.get_type() == Types.LONG()

    def test_broadcast_works_on_a_keyed_stream(self, env: StreamExecutionEnvironment, left: DataStream) -> None:
        stream = left.key_by(0).connect(env.from_collection([3]).broadcast(RULES)).process(KeyedApply())
        assert start(stream).push(3, to=1).push(("a", 2)).values == [("a", 3)]
        assert transformation(stream).inputs[0].partitioning.exchange is Exchange.KEY_GROUP

    def test_the_function_must_fit_the_stream(self, env: StreamExecutionEnvironment, left: DataStream) -> None:
        rules = env.from_collection([3]).broadcast(RULES)
        with pytest.raises(KeyedStateNotAvailable, match="has no key"):
            left.connect(rules).process(KeyedApply())
        with pytest.raises(InvalidJob, match="takes a KeyedBroadcastProcessFunction, got Apply"):
            left.key_by(0).connect(rules).process(Apply())

    def test_broadcast_needs_map_state_descriptors_of_different_names(self, left: DataStream) -> None:
        with pytest.raises(InvalidJob, match="takes MapStateDescriptors"):
            left.broadcast("rules")  # type: ignore[call-overload]
        with pytest.raises(InvalidJob, match="two descriptors with the same name"):
            left.broadcast(RULES, MapStateDescriptor("rules", str, str))


def pair(first: tuple[str, int], second: tuple[str, str]) -> tuple[int, str]:
    return first[1], second[1]


class TestWindowJoin:
    def window(self, stream: DataStream, left: list[Any], right: list[Any], at: int = 0) -> list[Any]:
        """Run the whole join without a job: tag, union and window."""
        sides = [edge.upstream for edge in transformation(stream).inputs]
        run = start(stream)
        for side, values in zip(sides, (left, right), strict=True):
            run.push(*OperatorRun(create_operator(side.operation)).push(*values).values, at=at)
        return run.end().values

    def test_joins_pairs_of_one_key_and_window(self, left: DataStream, right: DataStream) -> None:
        stream = left.join(right).where(0).equal_to(lambda v: v[0]).window(TENS).apply(pair)
        assert stream.get_type() == Types.TUPLE([Types.LONG(), Types.STRING()])
        result = self.window(stream, [("a", 1), ("a", 2), ("b", 3)], [("a", "x"), ("a", "y"), ("c", "z")])
        assert result == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]

    def test_values_of_different_windows_do_not_meet(self, left: DataStream, right: DataStream) -> None:
        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(pair)
        run = start(stream).push((0, ("a", 1), None), at=9_999).push((1, None, ("a", "x")), at=10_000)
        assert run.end().values == []

    def test_function_objects_are_opened_and_closed(self, left: DataStream, right: DataStream) -> None:
        class Count(JoinFunction):
            def open(self, runtime_context: RuntimeContext) -> None:
                self.task = runtime_context.get_task_name()

            def join(self, first: Any, second: Any) -> str:
                return self.task

        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(Count())
        assert self.window(stream, [("a", 1)], [("a", "x")]) == ["operator under test"]

    def test_flat_join_returns_any_number_of_results(self, left: DataStream, right: DataStream) -> None:
        class Repeat(FlatJoinFunction):
            def join(self, first: Any, second: Any) -> Iterator[str]:
                yield from [second[1]] * first[1]

        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(Repeat())
        assert stream.get_type() == Types.STRING()
        assert self.window(stream, [("a", 3)], [("a", "x")]) == ["x"] * 3

    def test_co_group_receives_values_without_a_partner(self, left: DataStream, right: DataStream) -> None:
        def outer(first: list[Any], second: list[Any]) -> Iterable[tuple[int, int]]:
            yield len(first), len(second)

        stream = left.co_group(right).where(0).equal_to(0).window(TENS).apply(outer)
        assert sorted(self.window(stream, [("a", 1), ("b", 2)], [("a", "x"), ("c", "y")])) == [(0, 1), (1, 0), (1, 1)]
        assert stream.get_type() == Types.TUPLE([Types.LONG(), Types.LONG()])

    def test_the_window_has_the_types_of_both_sides(self, left: DataStream, right: DataStream) -> None:
        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(pair)
        operation: Any = transformation(stream).operation
        assert operation.function.state_type.python_type == tuple[int, tuple[str, int], tuple[str, str]]

    def test_uid_and_name_belong_to_the_window(self, left: DataStream, right: DataStream) -> None:
        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(pair).uid("join")
        assert (transformation(stream).name, transformation(stream).uid) == ("Window Join", "join")
        assert len(upstream_first([transformation(stream)])) == 5

    def test_keys_of_different_types_are_refused(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(InvalidJob, match=r"where\(\) selects keys of type"):
            left.join(right).where(1).equal_to(1)

    def test_row_results(self, left: DataStream, right: DataStream) -> None:
        row = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
        stream = left.join(right).where(0).equal_to(0).window(TENS).apply(pair, row)
        assert self.window(stream, [("a", 1)], [("a", "x")]) == [Row(n=1, text="x")]


class Times(ProcessJoinFunction):
    def process_element(
        self, left: Any, right: Any, ctx: ProcessJoinFunction.Context
    ) -> Iterator[tuple[int, str, int, int]]:
        yield left[1], right[1], ctx.get_left_timestamp(), ctx.get_right_timestamp()


class TestIntervalJoin:
    def join(self, left: DataStream, right: DataStream, lower: Any, upper: Any) -> Any:
        return left.key_by(0).interval_join(right.key_by(0)).between(lower, upper)

    def test_values_within_the_bounds_are_joined(self, left: DataStream, right: DataStream) -> None:
        stream = self.join(left, right, timedelta(seconds=-1), timedelta(seconds=2)).process(Times())
        run = start(stream).push(("a", 1), at=5000)
        run.push(("a", "early"), ("a", "first"), ("a", "last"), ("a", "late"), at=[3999, 4000, 7000, 7001], to=1)
        assert run.results == [((1, "first", 5000, 4000), 5000), ((1, "last", 5000, 7000), 7000)]
        run.push(("a", 2), at=5001)
        assert [value[:2] for value in run.values[2:]] == [(2, "last"), (2, "late")]

    def test_bounds_may_be_exclusive(self, left: DataStream, right: DataStream) -> None:
        joined = self.join(left, right, -1000, 1000).lower_bound_exclusive().upper_bound_exclusive()
        run = start(joined.process(Times())).push(("a", 1), at=5000)
        run.push(*[("a", str(t)) for t in (4000, 4001, 5999, 6000)], at=[4000, 4001, 5999, 6000], to=1)
        assert [value[1] for value in run.values] == ["4001", "5999"]

    def test_different_keys_are_not_joined(self, left: DataStream, right: DataStream) -> None:
        run = start(self.join(left, right, 0, 0).process(Times())).push(("a", 1), at=5).push(("b", "x"), at=5, to=1)
        assert run.values == []

    @pytest.mark.parametrize(("lower", "upper"), [(-1000, 2000), (500, 2000), (-2000, -500), (0, 0)])
    def test_state_is_removed_when_no_partner_can_follow(
        self, left: DataStream, right: DataStream, lower: int, upper: int
    ) -> None:
        run = start(self.join(left, right, lower, upper).process(Times()))
        for time in range(0, 5000, 500):
            run.push(("a", time), at=time).push(("a", str(time)), at=time, to=1)
        expected = sum(lower <= b - a <= upper for a in range(0, 5000, 500) for b in range(0, 5000, 500))
        assert len(run.values) == expected
        run.watermark(5000 + max(upper, -lower, 0))
        assert run.backend.entry_count() == 0

    def test_values_are_kept_as_long_as_partners_can_follow(self, left: DataStream, right: DataStream) -> None:
        run = start(self.join(left, right, 0, 1000).process(Times())).push(("a", 1), at=5000).watermark(5999)
        assert run.push(("a", "x"), at=6000, to=1).values == [(1, "x", 5000, 6000)]

    def test_late_values_go_to_their_side_output(self, left: DataStream, right: DataStream) -> None:
        late_left, late_right = OutputTag("late-left"), OutputTag("late-right")
        joined = self.join(left, right, -1000, 1000)
        joined.side_output_left_late_data(late_left).side_output_right_late_data(late_right)
        stream = joined.process(Times())
        run = start(stream).watermark(5000).push(("a", 1), at=4999).push(("a", "x"), at=4000, to=1)
        assert (run.values, run.side("late-left"), run.side("late-right")) == ([], [("a", 1)], [("a", "x")])
        assert stream.get_side_output(late_right).get_type() == Types.TUPLE([Types.STRING(), Types.STRING()])

    def test_late_values_are_dropped_and_counted(self, left: DataStream, right: DataStream) -> None:
        run = start(self.join(left, right, 0, 0).process(Times())).watermark(5000).push(("a", 1), at=1)
        assert run.metrics.counters["numLateRecordsDropped"].count == 1
        again = run.restart().push(("a", 1), at=4999)
        assert again.metrics.counters["numLateRecordsDropped"].count == 1

    def test_pairs_survive_a_restart(self, left: DataStream, right: DataStream) -> None:
        run = start(self.join(left, right, 0, 1000).process(Times())).push(("a", 1), at=5000)
        again = run.restart().push(("a", "x"), at=5500, to=1)
        assert again.results == [((1, "x", 5000, 5500), 5500)]

    @pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
    def test_pairs_survive_rescaling(self, left: DataStream, right: DataStream, backend: str) -> None:
        keys = [f"k{n}" for n in range(20)]
        operator = operator_of(self.join(left, right, 0, 1000).process(Times()))
        one = OperatorRun(operator, backend=backend).push(*[(key, 1) for key in keys], at=5000).watermark(5100)
        runs = OperatorRun.rescale([one], 3)
        for key in keys:
            runs[subtask_for_key_group(key_group(key, 128), 3, 128)].push((key, "x"), at=5500, to=1)
        assert sum(len(run.values) for run in runs) == len(keys)
        for run in runs:
            assert run.watermark(6500).backend.entry_count() == 0

    def test_records_without_event_time_are_refused(self, left: DataStream, right: DataStream) -> None:
        run = start(self.join(left, right, 0, 0).process(Times()))
        with pytest.raises(InvalidJob, match="have no event time"):
            run.push(("a", 1))

    def test_an_error_names_the_record(self, left: DataStream, right: DataStream) -> None:
        from penstock.common.errors import UserFunctionError

        stream = self.join(left, right, 0, 0).process(lambda left, right, ctx: [1 / 0])
        run = start(stream).push(("a", 1), at=5)
        with pytest.raises(UserFunctionError, match=r"record 1 of a batch of 2: \('a', 'x'\)"):
            run.push(("b", "y"), ("a", "x"), at=5, to=1)

    def test_bounds_in_the_wrong_order_are_refused(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(InvalidJob, match="above the upper"):
            self.join(left, right, 1, 0)

    def test_interval_join_needs_keyed_streams(self, left: DataStream, right: DataStream) -> None:
        with pytest.raises(InvalidJob, match="takes a keyed stream"):
            left.key_by(0).interval_join(right)  # type: ignore[arg-type]
