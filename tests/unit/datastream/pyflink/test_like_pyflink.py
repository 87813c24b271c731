"""The behaviour of PyFlink programs in whole jobs: texts, order, fields of Rows, keys, aggregates of plain values."""

from __future__ import annotations

import re
import socket
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from penstock.common import (
    Configuration,
    Encoder,
    ExecutionConfig,
    Instant,
    RestartStrategies,
    Row,
    Time,
    Types,
    WatermarkStrategy,
)
from penstock.common.errors import InvalidJob, RecordFormatError, UserFunctionError
from penstock.common.program import one_time_warning
from penstock.common.program.one_time_warning import NoEffectWarning
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    EmbeddedRocksDBStateBackend,
    JoinFunction,
    MapFunction,
    MemorySize,
    RuntimeExecutionMode,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TimeWindow,
)
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink, StreamingFileSink
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.graph.executor import executing_on
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.process.session.session import Session
from tests.in_process import InProcess


def _collected(stream: DataStream) -> list[Any]:
    with executing_on(Session(InProcess())):
        return list(stream.execute_and_collect())


def _printed(env: StreamExecutionEnvironment) -> list[str]:
    session, lines = Session(InProcess()), list[str]()
    session.on_line = lines.append
    with executing_on(session):
        env.execute()
    return lines


PAIR = Types.TUPLE([Types.STRING(), Types.BOOLEAN()])


class TestText:
    def test_print_writes_a_declared_type_as_flink_does(self, env: StreamExecutionEnvironment) -> None:
        env.from_collection([("a", True)], PAIR).print()
        assert _printed(env) == ["(a,true)"]

    def test_print_writes_fields_of_a_row_as_pyflink_does(self, env: StreamExecutionEnvironment) -> None:
        row = Types.ROW([Types.SQL_TIMESTAMP(), Types.BOOLEAN(), Types.STRING()])
        env.from_collection([Row(datetime(2024, 1, 1, 0, 0, 1), True, None)], row).print()
        assert _printed(env) == ["+I[2024-01-01 00:00:01,True,None]"]

    def test_print_writes_python_without_a_declared_type(self, env: StreamExecutionEnvironment) -> None:
        def pair(value: int) -> tuple[str, bool]:
            return "a", value > 0

        env.from_collection([("a", True)]).print()
        env.from_collection([1]).map(pair).print("mapped")
        assert sorted(_printed(env)) == ["('a', True)", "mapped> ('a', True)"]

    def test_print_uses_its_identifier(self, env: StreamExecutionEnvironment) -> None:
        env.from_collection([("a", True)], PAIR).print(text=repr)
        assert _printed(env) == ["('a', True)"]

    def test_text_files_contain_a_declared_type_as_flink_writes_it(
        self, env: StreamExecutionEnvironment, tmp_path: Path
    ) -> None:
        sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        env.from_collection([("a", True)], PAIR).sink_to(
            sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
        )
        with executing_on(Session(InProcess())):
            env.execute()
        assert [path.read_text() for path in tmp_path.glob("part-*")] == ["(a,true)\n"]

    def test_an_older_program_writes_files_with_a_streaming_file_sink(
        self, env: StreamExecutionEnvironment, tmp_path: Path
    ) -> None:
        sink = StreamingFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        env.from_collection([1], Types.INT()).add_sink(sink.build())
        with executing_on(Session(InProcess())):
            env.execute()
        assert [path.read_text() for path in tmp_path.rglob("part-*")] == ["1\n"]

    def test_files_are_in_a_folder_for_each_hour(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        env.from_collection([1]).sink_to(FileSink.for_row_format(str(tmp_path), str).build())
        with executing_on(Session(InProcess())):
            env.execute()
        [part] = tmp_path.rglob("part-*")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", str(part.parent.relative_to(tmp_path)))


class TestOrder:
    def test_values_of_one_source_are_collected_in_order(self, env: StreamExecutionEnvironment) -> None:
        assert _collected(env.set_parallelism(2).from_collection(range(10))) == list(range(10))

    def test_values_of_one_source_are_printed_in_order(self, env: StreamExecutionEnvironment) -> None:
        env.set_parallelism(2).from_collection(range(10)).print()
        assert _printed(env) == list(map(str, range(10)))


class TestRows:
    def test_fields_of_a_declared_row_are_named_by_position(self, env: StreamExecutionEnvironment) -> None:
        [row] = _collected(env.from_collection([(1, "a")], Types.ROW([Types.INT(), Types.STRING()])))
        assert (row.f1, row["f1"], row.as_dict()) == ("a", "a", {"f0": 1, "f1": "a"})
        assert row == Row(f0=1, f1="a")

    @pytest.mark.parametrize("error", [KeyError, ValueError])
    def test_a_missing_name_raises_the_errors_of_pyflink_and_python(self, error: type[Exception]) -> None:
        with pytest.raises(error, match="no field 'b': the row has the fields a"):
            _ = Row(a=1)["b"]

    def test_a_function_may_return_rows_named_by_position(self, env: StreamExecutionEnvironment) -> None:
        row_type = Types.ROW([Types.INT(), Types.STRING()])
        assert _collected(env.from_collection([1]).map(lambda v: Row(v, "a"), row_type)) == [Row(f0=1, f1="a")]

    def test_types_are_written_as_pyflink_writes_them(self) -> None:
        assert repr(Instant(1, 5)) == "Instant<1, 5>"
        assert str(Types.ROW([Types.STRING(), Types.INT()])) == "RowTypeInfo(f0: String, f1: Integer)"
        assert str(Types.TUPLE([Types.STRING(), Types.INT()])) == "TupleTypeInfo(String, Integer)"

    @pytest.mark.parametrize("mode", RuntimeExecutionMode)
    def test_results_of_a_reduce_function_have_the_names_of_the_stream(
        self, env: StreamExecutionEnvironment, mode: RuntimeExecutionMode
    ) -> None:
        env.set_runtime_mode(mode)
        pairs = env.from_collection([("a", 1), ("a", 2)], Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()]))
        assert _collected(pairs.key_by(lambda r: r.name).reduce(added))[-1] == Row(name="a", n=3)

    def test_window_results_of_a_reduce_function_have_the_names_of_the_stream(
        self, env: StreamExecutionEnvironment
    ) -> None:
        pairs = env.from_collection([("a", 1), ("a", 2)], Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()]))
        assert _collected(pairs.key_by(lambda r: r.name).count_window(2).reduce(added)) == [Row(name="a", n=3)]

    def test_results_without_a_declared_type_are_unchanged(self, env: StreamExecutionEnvironment) -> None:
        pairs = env.from_collection([Row(name="a", n=1), Row(name="a", n=2)])
        assert _collected(pairs.key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1])))[-1] == ("a", 3)  # type: ignore[arg-type, return-value]


def added(a: Any, b: Any) -> Row:
    return Row(a[0], a[1] + b[1])


class Price(msgspec.Struct, frozen=True):
    name: str
    price: int


class Named(NamedTuple):
    name: str
    price: int


class TestAggregates:
    @pytest.mark.parametrize(
        ("method", "rolling"),
        [("sum", [3, 4, 6]), ("min", [3, 1, 1]), ("max", [3, 3, 3]), ("min_by", [3, 1, 1]), ("max_by", [3, 3, 3])],
    )
    def test_plain_values_are_aggregated_directly(
        self, env: StreamExecutionEnvironment, method: str, rolling: list[int]
    ) -> None:
        def results() -> list[int]:
            return _collected(getattr(env.from_collection([3, 1, 2], Types.INT()).key_by(lambda _: 0), method)())

        assert results() == rolling
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        assert results() == rolling[-1:]

    def test_numpy_numbers_are_aggregated_directly(self, env: StreamExecutionEnvironment) -> None:
        numbers = env.from_collection([1, 2]).map(np.int64, Types.INT()).key_by(lambda _: 0)
        assert [(type(v), v) for v in _collected(numbers.sum())] == [(np.int64, 1), (np.int64, 3)]

    @pytest.mark.parametrize(
        ("values", "field", "message"),
        [
            ([("a", 1), ("a", None)], 1, r"sum of the field 1 raised TypeError(.|\n)*\('a', None\)"),
            (
                [("a", 1), ("a", 2)],
                5,
                r"sum of the field 5: no field 5 in the record \('a', 1\): it has the positions 0 to 1",
            ),
            (
                [{"k": 1}, {"k": 1}],
                "n",
                "sum of the field 'n': no field 'n' in the record {'k': 1}: it has the fields k",
            ),
        ],
    )
    def test_fields_that_cannot_be_aggregated_are_named(
        self, env: StreamExecutionEnvironment, values: list[Any], field: Any, message: str
    ) -> None:
        with pytest.raises(RecordFormatError, match=message):
            _collected(env.from_collection(values).key_by(lambda _: 0).sum(field))

    @pytest.mark.parametrize("cls", [Price, Named])
    def test_fields_of_records_that_cannot_change_are_summed(self, env: StreamExecutionEnvironment, cls: type) -> None:
        prices = env.from_collection([cls("a", 1), cls("a", 2)]).key_by("name")
        assert _collected(prices.sum("price")) == [cls("a", 1), cls("a", 3)]

    @pytest.mark.parametrize("record", [("a", 1), ["a", 1]])
    def test_fields_of_tuples_are_summed_by_their_names_in_flink(
        self, env: StreamExecutionEnvironment, record: Any
    ) -> None:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        for field in ("f1", "1", "_2") if type(record) is tuple else ("f1",):
            [total] = _collected(env.from_collection([record, record]).key_by(lambda r: r[0]).sum(field))
            assert list(total) == ["a", 2]


class TestKeys:
    @pytest.mark.parametrize("operation", ["shuffle", "rebalance", "rescale", "forward", "global_", "broadcast"])
    def test_a_keyed_stream_keeps_its_partitioning(self, env: StreamExecutionEnvironment, operation: str) -> None:
        keyed = env.from_collection([1]).key_by(lambda v: v)
        with pytest.raises(InvalidJob, match="than the subtasks of their keys"):
            getattr(keyed, operation)()

    def test_a_keyed_stream_is_collected_with_its_keys(self, env: StreamExecutionEnvironment) -> None:
        pairs = [("b", 1), ("a", 2), ("b", 3)]
        env.set_parallelism(2)
        found = _collected(env.from_collection(pairs).key_by(lambda pair: pair[0]))
        assert found == [Row(f0=key, f1=(key, number)) for key, number in pairs]


class TestSettings:
    def test_settings_are_returned_in_their_original_form(self) -> None:
        configuration = Configuration().set_integer("a", 1).set_bytearray("b", bytearray(b"x"))
        given: dict[str, Any] = {}
        Configuration(configuration).add_all_to_dict(given)
        assert given == {"a": 1, "b": bytearray(b"x")}
        assert str(configuration) == "{a=1, b=x}"

    @pytest.mark.parametrize(("text", "items"), [(None, []), ("a;b", ["a", "b"]), ("[1, b]", [1, "b"])])
    def test_lists_are_parsed_as_in_pyflink(self, text: str | None, items: list[Any]) -> None:
        assert Configuration.parse_list_value(text) == items

    def test_the_former_key_of_the_buffer_timeout_is_accepted(self, env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.buffer-timeout", "1 min"))
        assert env.get_buffer_timeout() == 60_000

    def test_configurations_of_programs_are_equal_if_their_settings_are(self) -> None:
        assert ExecutionConfig(Configuration({"a": 1})) == ExecutionConfig(Configuration({"a": 1}))

    def test_a_slot_sharing_group_with_resources_needs_cpu_and_heap(self) -> None:
        builder = SlotSharingGroup.builder("g").set_cpu_cores(1.0)
        with pytest.raises(InvalidJob, match="not both"):
            builder.build()
        with pytest.raises(InvalidJob, match="positive"):
            builder.set_task_heap_memory(MemorySize(bytes_size=0)).build()

    def test_operators_are_in_the_slot_sharing_group_of_their_inputs(self, env: StreamExecutionEnvironment) -> None:
        numbers = env.from_collection([1]).name("numbers")
        grouped = numbers.map(str).name("a").slot_sharing_group("g").map(str).name("b")
        grouped.map(str).name("c").slot_sharing_group("default").map(str).name("d").print().name("print")
        graph = JobGraphBuilder(env.get_program().transformations, name="j", parallelism=1, max_parallelism=8).build()
        assert [stage.name for stage in graph.stages] == ["numbers", "a -> b", "c -> d -> print"]

    def test_resources_of_a_slot_sharing_group_cause_one_warning(self, env: StreamExecutionEnvironment) -> None:
        one_time_warning._given.clear()
        group = SlotSharingGroup.builder("g").set_cpu_cores(2.0).set_task_heap_memory_mb(512).build()
        mapped = env.from_collection([1]).map(str)
        with pytest.warns(NoEffectWarning, match="a resource of a SlotSharingGroup has no effect: slots are") as warned:
            mapped.slot_sharing_group(group)
        assert [warning.filename for warning in warned] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.register_slot_sharing_group(group)


class Inner(NamedTuple):
    x: int


class Nested(NamedTuple):
    inner: list[Inner]


class Pair(JoinFunction):
    def join(self, first: Any, second: Any, window: TimeWindow) -> Any:  # type: ignore[override]
        return first, second, window.start


class TestMistakes:
    @pytest.mark.parametrize("function", [lambda value: value, lambda value: 1.5])
    def test_a_returned_single_value_is_refused_with_the_remedy_to_yield_it(
        self, env: StreamExecutionEnvironment, function: Any
    ) -> None:
        with pytest.raises(UserFunctionError, match="returned one value") as caught:
            _collected(env.from_collection([1]).flat_map(function))
        assert "yield the value" in str(caught.value)

    def test_a_failed_import_in_a_function_ends_the_job_immediately(self, env: StreamExecutionEnvironment) -> None:
        def late(value: int) -> int:
            import no_such_module  # type: ignore[import-not-found]

            return int(no_such_module.change(value))

        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 60_000))
        with pytest.raises(UserFunctionError, match="No module named 'no_such_module'") as caught:
            _collected(env.from_collection([1]).map(late))
        assert "import no_such_module" in str(caught.value)

    def test_an_iteration_error_inside_a_function_is_reported_as_its_own(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(UserFunctionError, match="raised TypeError: 'int' object is not iterable"):
            _collected(env.from_collection([1]).flat_map(lambda value: [item for item in value]))  # type: ignore[attr-defined]  # noqa: C416

    @pytest.mark.parametrize("operation", ["window", "count_window", "reduce", "sum"])
    def test_an_operation_that_needs_a_key_is_refused_without_one(
        self, env: StreamExecutionEnvironment, operation: str
    ) -> None:
        with pytest.raises(AttributeError, match=rf"stream\.key_by\(…\)\.{operation}"):
            getattr(env.from_collection([1]), operation)

    def test_connected_streams_need_a_key_selector_each(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection([1])
        with pytest.raises(InvalidJob, match="each of the two streams"):
            stream.connect(stream).key_by(lambda value: value)

    def test_an_async_function_that_returns_no_list_is_refused(self, env: StreamExecutionEnvironment) -> None:
        class Nothing(AsyncFunction):
            async def async_invoke(self, value: Any) -> Any:
                return None

        stream = AsyncDataStream.ordered_wait(env.from_collection([1]), Nothing(), Time.seconds(1))
        with pytest.raises(RecordFormatError, match="returned None"):
            _collected(stream)

    def test_a_named_tuple_inside_of_json_lines_is_refused_at_their_declaration(self) -> None:
        with pytest.raises(InvalidJob, match=r"'inner' .* contains the NamedTuple Inner"):
            JsonLinesFormat(Nested)

    def test_a_join_function_may_request_its_window(self, env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value)
        stream = env.from_collection([1500]).assign_timestamps_and_watermarks(strategy)
        joined = stream.join(stream).where(lambda _: 0).equal_to(lambda _: 0)
        assert _collected(joined.window(TumblingEventTimeWindows.of(Time.seconds(1))).apply(Pair())) == [
            (1500, 1500, 1000)
        ]


class TestKeyForms:
    @pytest.mark.parametrize("key", [0, "f0", "0", "_1", ["f0", "_3"], "f2.1", lambda v: v[0]])
    @pytest.mark.parametrize("typed", [True, False])
    def test_a_field_of_a_tuple_is_a_key_in_all_spellings_of_flink(
        self, env: StreamExecutionEnvironment, key: Any, typed: bool
    ) -> None:
        values = [("a", 1, ("x", "y")), ("b", 2, ("x", "z")), ("a", 3, ("x", "y"))]
        stream = env.from_collection(values)
        keyed = (stream if typed else stream.map(lambda v: v)).key_by(key)
        assert [value[1] for value in _collected(keyed.sum(1))] == [1, 2, 4]

    @pytest.mark.parametrize("wildcard", ["*", "_"])
    def test_the_whole_value_is_a_key(self, env: StreamExecutionEnvironment, wildcard: str) -> None:
        keyed = env.from_collection([("a", 1), ("b", 1), ("a", 1)]).key_by(wildcard)
        assert _collected(keyed.sum(1)) == [("a", 1), ("b", 1), ("a", 2)]


class TestWithState:
    def test_a_function_of_value_and_state_returns_result_and_state(self, env: StreamExecutionEnvironment) -> None:
        def numbered(word: str, count: int | None) -> tuple[Any, int | None]:
            return (word, count), None if count == 1 else (count or 0) + 1

        words = env.from_collection(["a", "b", "a", "a"]).key_by(lambda word: word)
        assert _collected(words.map_with_state(numbered, int)) == [("a", None), ("b", None), ("a", 1), ("a", None)]

    def test_a_function_with_state_may_return_any_number_of_results(self, env: StreamExecutionEnvironment) -> None:
        def doubled(value: int, before: int | None) -> tuple[list[int], int]:
            return ([] if before is None else [before, value]), value

        values = env.from_collection([1, 2, 3]).key_by(lambda _: 0)
        assert _collected(values.flat_map_with_state(doubled)) == [1, 2, 2, 3]


class TestAttempts:
    def test_attempts_are_numbered_from_0(self, env: StreamExecutionEnvironment) -> None:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        assert _collected(env.from_collection([1]).map(FailsAtFirst())) == [(1, "Map (1/1)#1")]


class FailsAtFirst(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.at = runtime_context.get_attempt_number(), runtime_context.get_task_name_with_subtasks()

    def map(self, value: Any) -> Any:
        if self.at[0] == 0:
            raise ValueError("at first")
        return self.at


class TestSocket:
    @pytest.fixture
    def server(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield server

    def _serve(self, server: socket.socket, *texts: bytes) -> None:
        def answer() -> None:
            for text in texts:
                connection, _ = server.accept()
                with connection:
                    connection.sendall(text)

        threading.Thread(target=answer, daemon=True).start()

    def test_lines_of_a_socket_are_a_stream(self, env: StreamExecutionEnvironment, server: socket.socket) -> None:
        self._serve(server, b"a\r\nb b\nc")
        stream = env.socket_text_stream(*server.getsockname())
        with executing_on(Session(InProcess())):
            assert stream.execute_and_collect(limit=3) == ["a", "b b", "c"]

    def test_the_socket_source_reconnects_up_to_its_limit(
        self, env: StreamExecutionEnvironment, server: socket.socket
    ) -> None:
        self._serve(server, b"a;b;", b"c;")
        stream = env.socket_text_stream(*server.getsockname(), delimiter=";", max_retry=1)
        with executing_on(Session(InProcess())):
            assert stream.execute_and_collect(limit=3) == ["a", "b", "c"]

    def test_a_missing_server_is_reported(self, env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration({"restart-strategy.type": "none"}))
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
        with pytest.raises(UserFunctionError, match="ConnectionRefusedError"):
            _collected(env.socket_text_stream(*address))


def test_rocksdb_paths_may_only_be_urls_of_local_folders() -> None:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("file://var/db_storage_dir1/", "file:///db_storage_dir2", "/db_storage_dir3")
    assert backend.get_db_storage_paths() == ["/db_storage_dir1", "/db_storage_dir2", "/db_storage_dir3"]
    with pytest.raises(InvalidJob, match="on a local disk, but 's3://bucket/rocksdb' is not a local path"):
        backend.set_db_storage_paths("s3://bucket/rocksdb")
