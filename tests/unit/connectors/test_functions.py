from __future__ import annotations

import copy
import json
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.function import FunctionSink, FunctionSource
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split, SplitReader
from penstock.datastream.functions import KeyedProcessFunction, ParallelSourceFunction, SinkFunction, SourceFunction
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.records.batch import MIN_TIMESTAMP
from tests.in_process import InProcess
from tests.unit.connectors.support import read_all, splits_of, writer_context

BOUNDS = ReadBounds()


def open_function_split(source: FunctionSource, position: Any = None, split: Split | None = None) -> SplitReader:
    """Open a split as in another process, with a copy of the function."""
    copied = copy.deepcopy(source)
    found = split or splits_of(source)[0]
    return copied.create_reader(ReaderContext(0, 1, "source")).open_split(found, json.loads(json.dumps(position)))


class CountSource(SourceFunction):
    def __init__(self, until: int) -> None:
        self.until = until
        self.running = True

    def run(self, ctx: Any) -> None:
        for n in range(self.until):
            if not self.running:
                return
            ctx.collect(n)

    def cancel(self) -> None:
        self.running = False


class ResettableCountSource(SourceFunction):
    def __init__(self, until: int) -> None:
        self.until = until
        self.count = -1
        self.running = True

    def run(self, ctx: Any) -> None:
        while self.running and self.count + 1 < self.until:
            with ctx.get_checkpoint_lock():
                self.count += 1
                with ctx.get_checkpoint_lock():
                    ctx.collect(self.count)

    def cancel(self) -> None:
        self.running = False

    def snapshot_state(self) -> int:
        return self.count

    def initialize_state(self, state: Any) -> None:
        if state is not None:
            self.count = state


def test_a_bounded_function_is_read_to_its_end() -> None:
    source = FunctionSource(CountSource(25_000), bounded=True)
    assert len(splits_of(source)) == 1
    assert read_all(open_function_split(source)) == list(range(25_000))


def test_a_resettable_function_loses_and_repeats_no_record() -> None:
    source = FunctionSource(ResettableCountSource(30_000), bounded=True)
    values: list[int] = []
    position: Any = None
    reader = open_function_split(source)
    for _ in range(1000):
        batch = reader.read(BOUNDS)
        if batch is not None:
            values += batch.rows().values
            position = reader.position
            assert position == values[-1], "the state is that after the last record"
            if len(values) % 3 == 0:
                reader.close()
                reader = open_function_split(source, position)
        if reader.finished:
            break
    assert values == list(range(30_000))


def test_a_resettable_function_that_blocks_in_the_lock_does_not_deadlock() -> None:
    class Burst(ResettableCountSource):
        def run(self, ctx: Any) -> None:
            with ctx.get_checkpoint_lock():
                for _ in range(50_000):
                    self.count += 1
                    ctx.collect(self.count)

    reader = open_function_split(FunctionSource(Burst(0), bounded=True))
    assert read_all(reader) == list(range(50_000))
    assert reader.position == 49_999


def test_the_queue_is_bounded() -> None:
    class Endless(CountSource):
        def run(self, ctx: Any) -> None:
            self.made = 0
            while self.running:
                ctx.collect(self.made)
                self.made += 1

    function = Endless(0)
    source = FunctionSource(function)
    reader = source.create_reader(ReaderContext(0, 1, "source")).open_split(splits_of(source)[0], None)
    time.sleep(0.2)
    assert function.made <= 10_001
    reader.close()
    assert not any(thread.name.startswith("source-function") and thread.is_alive() for thread in threading.enumerate())


def test_timestamps_watermarks_and_idleness_are_emitted() -> None:
    class Timed(CountSource):
        def run(self, ctx: Any) -> None:
            ctx.collect_with_timestamp("a", 10)
            ctx.emit_watermark(9)
            ctx.collect_with_timestamp("b", 20)
            ctx.emit_watermark(SimpleNamespace(timestamp=19))
            ctx.mark_as_temporarily_idle()

    reader = open_function_split(FunctionSource(Timed(0), bounded=True))
    deadline = time.monotonic() + 5
    values: list[Any] = []
    times: list[Any] = []
    while time.monotonic() < deadline and not reader.finished:
        batch = reader.read(BOUNDS)
        if batch is not None:
            values += batch.rows().values
            times += batch.rows().timestamps or []
    assert (values, times) == (["a", "b"], [10, 20])
    assert reader.watermark() == 19
    assert reader.is_idle()


class TestWatermarksAmongRecords:
    """Event time of a record downstream of a source function. It comes from the last watermark before the record."""

    class Ticking(ResettableCountSource):
        def run(self, ctx: Any) -> None:
            while self.running and self.count + 1 < self.until:
                with ctx.get_checkpoint_lock():
                    self.count += 1
                    ctx.collect_with_timestamp(self.count, self.count * 10)
                    ctx.emit_watermark(self.count * 10 - 1)
                    ctx.emit_watermark(self.count * 10)

    class TickingWithoutState(CountSource):
        def run(self, ctx: Any) -> None:
            for n in range(self.until):
                ctx.collect_with_timestamp(n, n * 10)
                ctx.emit_watermark(n * 10)

    class EventTime(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value, ctx.timer_service().current_watermark()

    @pytest.mark.parametrize("function", [Ticking(3_000), TickingWithoutState(3_000)], ids=["with-state", "without"])
    @pytest.mark.parametrize("strategy", [WatermarkStrategy.no_watermarks(), None], ids=["strategy", "none"])
    def test_each_record_sees_the_one_before_it(self, function: Any, strategy: Any) -> None:
        env = environment()
        numbers = env.from_source(FunctionSource(function, bounded=True), strategy, "ticks")
        seen = collected(numbers.key_by(lambda n: 0).process(self.EventTime()))
        assert seen == [(n, (n - 1) * 10 if n else MIN_TIMESTAMP) for n in range(3_000)]

    def test_the_last_watermark_is_emitted_before_idleness(self) -> None:
        class Early(CountSource):
            def run(self, ctx: Any) -> None:
                ctx.collect_with_timestamp("early", 5)
                ctx.emit_watermark(9)
                ctx.mark_as_temporarily_idle()
                time.sleep(0.3)

        class Timer(KeyedProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> None:
                ctx.timer_service().register_event_time_timer(9)

            def on_timer(self, timestamp: int, ctx: Any) -> Any:
                yield ctx.timer_service().current_watermark()

        numbers = environment().from_source(FunctionSource(Early(0), bounded=True), None, "early")
        assert collected(numbers.key_by(lambda n: 0).process(Timer())) == [9]


def environment() -> StreamExecutionEnvironment:
    conf = Configuration()
    conf.set_string("rest.port", "-1")
    conf.set_string("penstock.epoch.target", "20 ms")
    return StreamExecutionEnvironment.get_execution_environment(conf).set_parallelism(1)


def collected(stream: Any) -> list[Any]:
    """Return all elements of the stream, in a job in this process."""
    with executing_on(Session(InProcess())):
        return list(stream.execute_and_collect())


def test_each_subtask_runs_a_copy_of_a_parallel_function() -> None:
    class Mine(ParallelSourceFunction):
        def run(self, ctx: Any) -> None:
            ctx.collect((ctx.instance, ctx.instances))

        def cancel(self) -> None: ...

    source = FunctionSource(Mine(), bounded=True)
    enumerator = source.create_enumerator()
    enumerator.parallelism = 3
    splits = enumerator.discover()
    assert [read_all(open_function_split(source, split=split)) for split in splits] == [[(n, 3)] for n in range(3)]


def test_a_read_does_not_wait_for_an_idle_function() -> None:
    class Quiet(CountSource):
        def run(self, ctx: Any) -> None:
            self.stop = threading.Event()
            self.stop.wait(10)

        def cancel(self) -> None:
            self.stop.set()

    reader = open_function_split(FunctionSource(Quiet(0)))
    began = time.monotonic()
    assert reader.read(BOUNDS) is None
    assert time.monotonic() - began < 5
    assert not reader.finished
    reader.close()


def test_an_error_of_run_is_raised_after_its_records() -> None:
    class Failing(CountSource):
        def run(self, ctx: Any) -> None:
            ctx.collect(1)
            raise ValueError("no more")

    reader = open_function_split(FunctionSource(Failing(0)))
    with pytest.raises(UserFunctionError, match="run of Failing raised ValueError: no more"):
        read_all(reader)


def test_an_object_that_is_not_a_source_function_is_refused() -> None:
    class Half(CountSource):
        def snapshot_state(self) -> int:
            return 0

    for function in (5, Half(0)):
        with pytest.raises(InvalidJob):
            FunctionSource(function)


def test_a_callable_is_accepted_as_a_sink() -> None:
    taken: list[Any] = []
    writer = FunctionSink(taken.append).create_writer(writer_context(), [])
    writer.write([1, 2], None, 0)
    assert taken == [1, 2]


def test_the_context_has_timestamp_watermark_and_processing_time() -> None:
    taken: list[Any] = []

    class Writing(SinkFunction):
        def invoke(self, value: Any, context: Any) -> None:
            taken.append(
                (value, context.timestamp(), context.current_watermark(), context.current_processing_time() > 0)
            )

    writer = FunctionSink(Writing()).create_writer(writer_context(), [])
    writer.write(["a", "b"], [1, 2], 7)
    writer.write(["c"], None, 8)
    assert taken == [("a", 1, 7, True), ("b", 2, 7, True), ("c", None, 8, True)]


def test_a_function_with_a_default_second_parameter_receives_only_the_value() -> None:
    taken: list[Any] = []

    def write(value: Any, separator: str = ",") -> None:
        taken.append((value, separator))

    FunctionSink(write).create_writer(writer_context(), []).write([1], None, 0)
    assert taken == [(1, ",")]


def test_a_function_is_flushed_before_a_checkpoint() -> None:
    class Buffered:
        flushed = 0

        def invoke(self, value: Any) -> None: ...

        def flush(self) -> None:
            self.flushed += 1

    function = Buffered()
    assert FunctionSink(function).create_writer(writer_context(), []).prepare_commit(1) == []
    assert function.flushed == 1


def test_an_error_of_the_sink_function_names_the_record() -> None:
    writer = FunctionSink(lambda value: 1 // value).create_writer(writer_context(), [])
    with pytest.raises(UserFunctionError, match="ZeroDivisionError for 0"):
        writer.write([2, 1, 0, 5], None, 0)
    with pytest.raises(InvalidJob):
        FunctionSink(5)


def test_a_socket_sink_writes_lines_and_fails_without_a_listener() -> None:
    """The sink function connects at its first record."""

    class SocketSink(SinkFunction):
        def __init__(self, port: int) -> None:
            self.port = port

        def invoke(self, value: Any, context: Any) -> None:
            if not hasattr(self, "connection"):
                self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            self.connection.sendall(f"{value}\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        function = SocketSink(port)
        FunctionSink(function).create_writer(writer_context(), []).write([1, 2], None, 0)
        function.connection.close()
        accepted, _ = server.accept()
        with accepted:
            assert accepted.makefile().read() == "1\n2\n"
    with pytest.raises(UserFunctionError, match="ConnectionRefusedError"):
        FunctionSink(SocketSink(port)).create_writer(writer_context(), []).write([1], None, 0)
