"""The records of streams: one transformation for each operation, with its edges, its type and the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.errors import InvalidJob, KeyedStateNotAvailable
from penstock.common.type_info.type_inference import to_type_info
from penstock.common.typeinfo import TypeInformation
from penstock.datastream import (
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from penstock.graph.transformation import Exchange
from tests.unit.common.readings import DictReading, NamedReading, Reading
from tests.unit.datastream.streams import start, transformation


def run(stream: DataStream, *values: Any, at: int | None = None) -> list[Any]:
    """Return the results of the stream's operator for the values."""
    return start(stream).push(*values, at=at).values


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3])


class TestOperations:
    def test_each_operation_adds_one_operator_after_its_input(self, numbers: DataStream) -> None:
        mapped = numbers.map(lambda v: v + 1)
        filtered = mapped.filter(lambda v: v > 2)
        edge = transformation(filtered).inputs[0]
        assert (edge.upstream, edge.partitioning.exchange, edge.index) == (transformation(mapped), Exchange.FORWARD, 0)

    def test_records_the_line_of_the_user(self, numbers: DataStream) -> None:
        frame = inspect.currentframe()
        mapped = numbers.map(str)
        assert frame is not None
        assert transformation(mapped).user_location == f"{__file__}:{frame.f_lineno - 2}"

    def test_map_flat_map_filter_run(self, numbers: DataStream) -> None:
        assert run(numbers.map(lambda v: v * 2), 1, 2) == [2, 4]
        assert run(numbers.flat_map(range), 2, 0, 1) == [0, 1, 0]
        assert run(numbers.filter(lambda v: v % 2), 1, 2, 3) == [1, 3]

    def test_process_accepts_a_function_or_an_object(self, numbers: DataStream) -> None:
        class Twice(ProcessFunction):
            def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[int]:
                yield from (value, value)

        assert run(numbers.process(Twice()), 1, 2) == [1, 1, 2, 2]
        assert run(numbers.process(lambda value, ctx: [ctx.timestamp()]), 1, at=7) == [7]

    def test_project_keeps_fields_and_their_types(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([("a", 1, 2.0)]).project(2, 0)
        assert run(stream, ("a", 1, 2.0)) == [(2.0, "a")]
        assert stream.get_type() == Types.TUPLE([Types.DOUBLE(), Types.STRING()])

    def test_map_batches_works_on_columns(self, env: StreamExecutionEnvironment) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        def double(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch({"v": pc.multiply(batch.column("v"), 2)})

        stream = env.from_collection([{"v": 1}]).map_batches(double)
        assert run(stream, {"v": 1}, {"v": 5}) == [{"v": 2}, {"v": 10}]

    def test_filter_accepts_an_expression_over_columns(self, env: StreamExecutionEnvironment) -> None:
        import pyarrow.compute as pc

        stream = env.from_collection([{"v": 1}]).filter(pc.field("v") > 1)
        assert run(stream, {"v": 1}, {"v": 5}) == [{"v": 5}]

    def test_assign_timestamps_sets_event_time(self, numbers: DataStream) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v: v * 1000)
        started = start(numbers.assign_timestamps_and_watermarks(strategy))
        assert [(v, t) for v, t in started.push(1, 2).results] == [(1, 1000), (2, 2000)]


class TestTypes:
    @pytest.mark.parametrize(
        ("annotation", "expected"),
        [
            (str, Types.STRING()),
            (tuple[str, int], Types.TUPLE([Types.STRING(), Types.LONG()])),
            (list[float], Types.LIST(Types.DOUBLE())),
            (Reading, to_type_info(Reading)),
            (NamedReading, to_type_info(NamedReading)),
            (DictReading, to_type_info(DictReading)),
            (Any, None),
            (Row, None),
        ],
    )
    def test_map_uses_the_annotation(self, numbers: DataStream, annotation: Any, expected: TypeInformation) -> None:
        def function(value: Any) -> Any:
            return value

        function.__annotations__["return"] = annotation
        assert numbers.map(function).get_type() == expected

    def test_annotations_of_function_objects_are_used(self, numbers: DataStream) -> None:
        class ToText(MapFunction):
            def map(self, value: int) -> str:
                return str(value)

        class Words(FlatMapFunction):
            def flat_map(self, value: str) -> Iterator[str]:
                yield from value.split()

        assert numbers.map(ToText()).get_type() == Types.STRING()
        assert numbers.flat_map(Words()).get_type() == Types.STRING()
        assert numbers.map(str).get_type() == Types.STRING()

    def test_a_declared_type_takes_precedence(self, numbers: DataStream) -> None:
        def to_text(value: int) -> str:
            return str(value)

        assert numbers.map(to_text, Types.LONG()).get_type() == Types.LONG()
        assert numbers.map(lambda v: v, output_type=float).get_type() == Types.DOUBLE()

    def test_side_outputs_are_not_part_of_the_result_type(self, numbers: DataStream) -> None:
        class Split(ProcessFunction):
            def process_element(
                self, value: int, ctx: ProcessFunction.Context
            ) -> Iterator[int | tuple[OutputTag, str]]:
                yield value

        assert numbers.process(Split()).get_type() == Types.LONG()

    def test_filter_and_partitioning_keep_the_type(self, numbers: DataStream) -> None:
        assert numbers.filter(bool).rebalance().key_by(lambda v: v).get_type() == Types.LONG()

    def test_a_lambda_has_no_type(self, numbers: DataStream) -> None:
        assert numbers.map(lambda v: v).get_type() is None

    def test_results_become_rows_if_the_type_declares_rows(self, numbers: DataStream) -> None:
        named = Types.ROW_NAMED(["n", "square"], [Types.LONG(), Types.LONG()])
        assert run(numbers.map(lambda v: (v, v * v), output_type=named), 3) == [Row(n=3, square=9)]
        assert run(numbers.map(lambda v: Row(v, v * v), output_type=named), 3) == [Row(n=3, square=9)]
        assert run(numbers.flat_map(lambda v: [(v, v)], output_type=named), 3) == [Row(n=3, square=3)]

        class Split(ProcessFunction):
            def open(self, runtime_context: Any) -> None:
                self.names = ["n"]

            def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
                yield OutputTag("side"), self.names
                yield value, value

        done = start(numbers.process(Split(), named)).push(3)
        assert (done.values, done.side("side")) == ([Row(n=3, square=3)], [["n"]])

    def test_a_result_that_does_not_fit_its_row_type_is_named(self, numbers: DataStream) -> None:
        from penstock.common.errors import RecordFormatError

        stream = numbers.map(lambda v: (v, v, v), output_type=Types.ROW([Types.LONG()]))
        with pytest.raises(RecordFormatError, match=r"\(1, 1, 1\) is not a value of the declared type"):
            run(stream, 1)


class TestPartitioning:
    @pytest.mark.parametrize(
        ("operation", "exchange"),
        [
            ("shuffle", Exchange.SHUFFLE),
            ("rebalance", Exchange.REBALANCE),
            ("rescale", Exchange.RESCALE),
            ("forward", Exchange.FORWARD),
            ("broadcast", Exchange.BROADCAST),
            ("global_", Exchange.GLOBAL),
        ],
    )
    def test_partitioning_changes_only_the_edge(self, numbers: DataStream, operation: str, exchange: Exchange) -> None:
        mapped = getattr(numbers, operation)().map(str)
        edge = transformation(mapped).inputs[0]
        assert (edge.upstream, edge.partitioning.exchange) == (transformation(numbers), exchange)

    def test_custom_partitioning_has_key_and_partitioner(self, numbers: DataStream) -> None:
        partitioned = numbers.partition_custom(lambda key, count: key % count, lambda v: v * 10).map(str)
        partitioning = transformation(partitioned).inputs[0].partitioning
        assert partitioning.exchange is Exchange.CUSTOM
        assert partitioning.partitioner is not None
        assert partitioning.key_selector is not None
        assert partitioning.partitioner(partitioning.key_selector(3), 4) == 2

    def test_operators_after_one_key_by_share_its_partitioning(self, numbers: DataStream) -> None:
        keyed = numbers.key_by(lambda v: v)
        first, second = keyed.reduce(max), keyed.reduce(min)
        shared = {id(transformation(stream).inputs[0].partitioning) for stream in (first, second)}
        assert len(shared) == 1

    def test_a_view_has_no_separate_settings(self, numbers: DataStream) -> None:
        for view in (numbers.rebalance(), numbers.union(numbers), numbers.key_by(lambda v: v)):
            with pytest.raises(InvalidJob, match=r"uid\(\) sets an option of an operator"):
                view.uid("x")
        with pytest.raises(InvalidJob, match="key_by is not an operator"):
            numbers.key_by(lambda v: v).set_parallelism(2)


class TestKeySelectors:
    @pytest.mark.parametrize(
        ("value", "selector", "key", "field"),
        [
            (("a", 1), lambda v: v[1], 1, None),
            (("a", 1), 0, "a", 0),
            (("a", 1), [1, 0], (1, "a"), None),
            (Row(name="a", age=1), "age", 1, "age"),
            (Row(name="a", age=1), 0, "a", 0),
            (Reading("KJFK", 1.5), "station", "KJFK", "station"),
            (Reading("KJFK", 1.5), 1, 1.5, 1),
            (Reading("KJFK", 1.5), ["celsius", "station"], (1.5, "KJFK"), None),
            (NamedReading("KJFK", 1.5), "celsius", 1.5, "celsius"),
            ({"station": "KJFK", "celsius": 1}, "station", "KJFK", "station"),
            ({"station": {"name": "KJFK"}}, "station.name", "KJFK", None),
        ],
    )
    @pytest.mark.parametrize("typed", [True, False])
    def test_selects(
        self, env: StreamExecutionEnvironment, value: Any, selector: Any, key: Any, field: Any, typed: bool
    ) -> None:
        import pickle

        from pyspark import cloudpickle

        stream = env.from_collection([value])
        keyed = (stream if typed else stream.map(lambda v: v)).key_by(selector)
        partitioning = keyed._inputs[0].partitioning
        assert (partitioning.exchange, partitioning.key_field) == (Exchange.KEY_GROUP, field)
        assert pickle.loads(cloudpickle.dumps(keyed.key_selector))(value) == key

    def test_fields_of_tuples_have_generated_names(self, env: StreamExecutionEnvironment) -> None:
        keyed = env.from_collection([("a", 1)]).key_by(["f1"])
        assert (keyed.key_selector(("a", 1)), keyed._inputs[0].partitioning.key_field) == (1, "f1")

    def test_key_selector_objects(self, env: StreamExecutionEnvironment) -> None:
        class First(KeySelector):
            def get_key(self, value: Any) -> str:
                return str(value[0])

        keyed = env.from_collection([("a", 1)]).key_by(First())
        assert keyed.key_selector(("a", 1)) == "a"
        assert keyed.get_key_type() == Types.STRING()

    def test_a_field_that_the_type_does_not_have_is_refused(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([Reading("KJFK", 1.5)])
        with pytest.raises(InvalidJob, match=r"names the field 'city', but .* the fields station, celsius") as caught:
            stream.key_by("city")
        assert caught.value.location.startswith(__file__)
        with pytest.raises(InvalidJob, match="names the field 2"):
            env.from_collection([("a", 1)]).key_by(2)

    def test_a_path_has_the_type_of_its_last_field(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([(Reading("KJFK", 1.5), 1)], type_info=tuple[Reading, int])
        assert stream.key_by("f0.station").get_key_type() == Types.STRING()
        with pytest.raises(InvalidJob, match=r"names the field 'city', but .* the fields station, celsius"):
            stream.key_by("f0.city")

    def test_an_object_that_must_be_opened_is_refused(self, numbers: DataStream) -> None:
        class Opened(KeySelector):
            def open(self, runtime_context: Any) -> None:
                self.factor = 2

            def get_key(self, value: int) -> int:
                return value * self.factor

        with pytest.raises(InvalidJob, match=r"has an open\(\)"):
            numbers.key_by(Opened())

    @pytest.mark.parametrize("selector", [None, True, 1.5, [], ["a", None]])
    def test_an_invalid_selector_is_refused(self, numbers: DataStream, selector: Any) -> None:
        with pytest.raises(InvalidJob, match="key_by"):
            numbers.key_by(selector)


class TestUnion:
    def test_a_union_is_one_input_of_several_edges(self, env: StreamExecutionEnvironment) -> None:
        a, b, c = (env.from_collection([n]) for n in (1, 2, 3))
        mapped = a.union(b, c.rebalance()).map(str)
        edges = transformation(mapped).inputs
        assert [edge.upstream for edge in edges] == [transformation(s) for s in (a, b)] + [transformation(c)]
        assert {edge.index for edge in edges} == {0}
        assert edges[2].partitioning.exchange is Exchange.REBALANCE

    def test_a_union_of_different_types_is_refused(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(InvalidJob, match="one type"):
            env.from_collection([1]).union(env.from_collection(["a"]))  # type: ignore[list-item]

    def test_a_union_of_different_environments_is_refused(self, numbers: DataStream) -> None:
        other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
        with pytest.raises(InvalidJob, match="another environment"):
            numbers.union(other)


class TestSettings:
    def test_settings_change_the_operator(self, numbers: DataStream) -> None:
        stream = (
            numbers.map(str)
            .name("text")
            .uid("to-text")
            .set_max_parallelism(64)
            .set_parallelism(3)
            .set_description("numbers as text")
            .start_new_chain()
            .slot_sharing_group(SlotSharingGroup.builder("heavy").build())
        )
        t = transformation(stream)
        assert (t.name, t.uid, t.parallelism, t.max_parallelism) == ("text", "to-text", 3, 64)
        assert (t.description, t.chaining, t.slot_sharing_group) == ("numbers as text", "head", "heavy")
        assert transformation(stream.disable_chaining()).chaining == "never"
        assert transformation(stream.force_non_parallel()).parallelism == 1

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda s: s.set_parallelism(0), "parallelism must be from 1"),
            (lambda s: s.set_parallelism("2"), "parallelism must be from 1"),
            (lambda s: s.set_max_parallelism(40_000), "max parallelism must be from 1"),
            (lambda s: s.set_max_parallelism(2).set_parallelism(3), "above the max parallelism 2"),
            (lambda s: s.set_parallelism(3).set_max_parallelism(2), "below the parallelism 3"),
            (lambda s: s.force_non_parallel().set_parallelism(2), "only run with parallelism 1"),
            (lambda s: s.uid(""), "a uid must be"),
            (lambda s: s.set_uid_hash("xyz"), "32 hexadecimal digits"),
        ],
    )
    def test_invalid_settings_are_refused(self, numbers: DataStream, call: Any, message: str) -> None:
        with pytest.raises(InvalidJob, match=message) as caught:
            call(numbers.map(str))
        assert caught.value.location.startswith(__file__)


class TestSideOutputs:
    def test_side_outputs_are_edges_of_the_operator(self, numbers: DataStream) -> None:
        tag = OutputTag("negative", int)
        main = numbers.process(lambda value, ctx: [value])
        side = main.get_side_output(tag)
        assert side.get_type() == Types.LONG()
        edge = transformation(side.map(str)).inputs[0]
        assert (edge.upstream, edge.side_tag) == (transformation(main), "negative")
        assert transformation(main).side_types == {"negative": Types.LONG()}

    def test_side_outputs_of_one_id_have_one_type(self, numbers: DataStream) -> None:
        main = numbers.process(lambda value, ctx: [value])
        main.get_side_output(OutputTag("x", int))
        with pytest.raises(InvalidJob, match="side output 'x'"):
            main.get_side_output(OutputTag("x", str))


class TestRefusals:
    @pytest.mark.parametrize(
        ("call", "message", "remedy"),
        [
            (lambda s: s.map(3), "map takes a MapFunction or a callable, got 3", ""),
            (lambda s: s.map(lambda: 1), "map calls <lambda> with 1 argument", "parameters"),
            (lambda s: s.map(_Words), "got the class _Words", "pass an instance"),
            (lambda s: s.map(_Words()), "map takes a MapFunction or a callable, got _Words", "it belongs to flat_map"),
            (lambda s: s.filter(_coroutine), "coroutine function _coroutine", "AsyncDataStream"),
            (lambda s: s.map(_generator), "generator function _generator", "flat_map"),
            (lambda s: s.map(_Yields()), "generator function _Yields", "flat_map"),
            (lambda s: s.process(lambda v: [v]), "process calls <lambda> with 2 arguments", "parameters"),
            (lambda s: s.project(), "project takes the positions", ""),
            (lambda s: s.sink_to(print), "sink_to takes a Sink", r"add_sink\(\)"),
            (lambda s: s.union(3), "union takes streams", ""),
            (lambda s: s.connect(3), "connect takes a stream", ""),
            (lambda s: s.get_side_output("late"), "takes an OutputTag", ""),
            (lambda s: s.assign_timestamps_and_watermarks(3), "a WatermarkStrategy is needed", "for_bounded"),
            (lambda s: s.window_all(timedelta(seconds=1)), "takes a window assigner", "TumblingEventTimeWindows"),
            (lambda s: s.map(lambda v: v, output_type=3), "3 of type int is not a type", "Types"),
            (lambda s: s.execute_and_collect(limit=0), "limit must be a positive number", ""),
        ],
    )
    def test_refusals_name_the_call_the_line_and_the_remedy(
        self, numbers: DataStream, call: Any, message: str, remedy: str
    ) -> None:
        import re

        with pytest.raises(InvalidJob) as caught:
            call(numbers)
        error = caught.value
        assert message in error.message
        assert re.search(remedy, error.remedy)

    def test_keyed_functions_need_a_key(self, numbers: DataStream) -> None:
        class Keyed(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None: ...

        with pytest.raises(KeyedStateNotAvailable) as caught:
            numbers.process(Keyed())  # type: ignore[arg-type]
        assert "key_by" in caught.value.remedy
        assert caught.value.location.startswith(__file__)


class _Words(FlatMapFunction):
    def flat_map(self, value: str) -> list[str]:
        return value.split()


def _generator(value: Any) -> Any:
    yield value


class _Yields(MapFunction):
    def map(self, value: Any) -> Any:
        yield value


async def _coroutine(value: Any) -> bool:
    return bool(value)
