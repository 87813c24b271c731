"""The programs, and which hooks each has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.streams.data_stream import DataStream
from tests.hooks import functions as f
from tests.hooks.act import Act
from tests.hooks.endpoints import Nowhere, Numbers

RATE = 1000.0
COUNT = 20

Program = Callable[[StreamExecutionEnvironment, Act, bool, bool], None]
"""Builds (environment, act, bounded, deeper)."""


def stream(env: StreamExecutionEnvironment, act: Act, bounded: bool, *, timed: bool = False) -> DataStream:
    source = DataGeneratorSource(f.Generates(act), COUNT if bounded else None, RATE, type_info=int)
    strategy = WatermarkStrategy.for_generator(_Factory(act)).with_timestamp_assigner(f.AssignsTime(act))
    return env.from_source(source, strategy if timed else None, "numbers").uid("numbers")


class _Factory:
    def __init__(self, act: Act) -> None:
        self.act = act

    def __call__(self) -> f.MarksTime:
        return f.MarksTime(self.act)


def _simple(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded)
    numbers = numbers.rebalance() if deeper else numbers
    numbers = numbers.map(f.Maps(act)).name("maps").uid("maps").flat_map(f.FlatMaps(act)).name("flat maps").uid("flat")
    numbers = numbers.filter(f.Filters(act)).name("filters").uid("filters")
    numbers.partition_custom(f.Partitions(act), f.SelectsKey(act)).map(str).uid("texts").sink_to(Nowhere(act)).uid(
        "end"
    )


def _keyed(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded, timed=True)
    numbers = numbers.rebalance() if deeper else numbers
    processed = numbers.key_by(f.SelectsKey(act)).process(f.Processes(act)).name("processes").uid("processes")
    processed.key_by(lambda v: v % 2).reduce(f.Reduces(act)).name("reduces").uid("reduces").sink_to(Nowhere(act)).uid(
        "end"
    )


def _windows(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded, timed=True)
    numbers = numbers.rebalance() if deeper else numbers
    windows = numbers.key_by(lambda v: v % 2).window(f.Assigns(act)).trigger(f.Triggers(act)).evictor(f.Evicts(act))
    windows.process(f.ProcessesWindow(act)).name("windows").uid("windows").sink_to(Nowhere(act)).uid("end")


def _aggregated(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded, timed=True)
    numbers = numbers.rebalance() if deeper else numbers
    windows = numbers.key_by(lambda v: v % 2).window(f.Assigns(act))
    windows.aggregate(f.Aggregates(act)).name("aggregates").uid("aggregates").sink_to(Nowhere(act)).uid("end")


def _two(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded)
    numbers = numbers.rebalance() if deeper else numbers
    other = env.from_collection(list(range(20)))
    both = numbers.connect(other).map(f.CoMaps(act)).name("co-maps").uid("co-maps")
    rules: MapStateDescriptor = MapStateDescriptor("rules", str, int)
    broadcast = env.from_collection(list(range(20))).broadcast(rules)
    both.key_by(lambda v: v % 8).connect(broadcast).process(f.Broadcasts(act)).name("broadcasts").uid(
        "broadcasts"
    ).sink_to(Nowhere(act)).uid("end")


def _async_io(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = stream(env, act, bounded)
    numbers = numbers.rebalance() if deeper else numbers
    answers = AsyncDataStream.unordered_wait(numbers, f.Asks(act), timedelta(seconds=900), 4)
    answers.name("asks").uid("asks").sink_to(Nowhere(act)).uid("end")


def _ends(env: StreamExecutionEnvironment, act: Act, bounded: bool, deeper: bool) -> None:
    numbers = env.from_source(Numbers(act, COUNT if bounded else 0), None, "own source").uid("numbers")
    numbers = numbers.rebalance() if deeper else numbers
    numbers.sink_to(Nowhere(act)).name("own sink").uid("end")


@dataclass(frozen=True)
class Hook:
    """
    `bounded`: only the end of the job gets there. `side`: who calls it, a task, the JobManager or the program that builds
    the job. `start`: only the start of an attempt gets there. `operator`: named in the failure. `ways`: in which the hook
    fails the job by an exception: a gauge that raises has no reading, no more.
    """

    name: str
    program: Program
    operator: str = ""
    bounded: bool = False
    side: str = "task"
    start: bool = False
    ways: tuple[str, ...] = ("raise", "exit")


HOOKS: dict[str, Hook] = {
    hook.name: hook
    for hook in [
        Hook("pickle", _simple, "maps", side="client", start=True),
        Hook("unpickle", _simple, start=True),
        Hook("open", _simple, "maps", start=True),
        Hook("gauge", _simple, ways=("exit",)),
        Hook("generator", _simple, "numbers"),
        Hook("map", _simple, "maps"),
        Hook("flat_map", _simple, "flat maps"),
        Hook("filter", _simple, "filters"),
        Hook("partitioner", _simple),
        Hook("key_selector", _keyed),
        Hook("close", _simple, "maps", bounded=True),
        Hook("timestamp_assigner", _keyed, "numbers"),
        Hook("watermark_generator", _keyed, "numbers"),
        Hook("periodic_watermark", _keyed, "numbers"),
        Hook("process_element", _keyed, "processes"),
        Hook("event_timer", _keyed, "processes"),
        Hook("processing_timer", _keyed, "processes"),
        Hook("reduce", _keyed, "reduces"),
        Hook("window_assigner", _windows, "windows"),
        Hook("trigger_element", _windows, "windows"),
        Hook("trigger_timer", _windows, "windows"),
        Hook("trigger_clear", _windows, "windows"),
        Hook("evict_before", _windows, "windows"),
        Hook("evict_after", _windows, "windows"),
        Hook("window_function", _windows, "windows"),
        Hook("create_accumulator", _aggregated, "aggregates"),
        Hook("add", _aggregated, "aggregates"),
        Hook("get_result", _aggregated, "aggregates"),
        Hook("map1", _two, "co-maps"),
        Hook("map2", _two, "co-maps", start=True),
        Hook("broadcast_element", _two, "broadcasts"),
        Hook("broadcast", _two, "broadcasts", start=True),
        Hook("async_invoke", _async_io, "asks"),
        Hook("create_reader", _ends, "own source", start=True),
        Hook("open_split", _ends, "own source", start=True),
        Hook("read", _ends, "own source"),
        Hook("position", _ends, "own source"),
        Hook("split_close", _ends, "own source", bounded=True),
        Hook("create_writer", _ends, "own sink", start=True),
        Hook("write", _ends, "own sink"),
        Hook("flush", _ends, "own sink"),
        Hook("prepare_commit", _ends, "own sink"),
        Hook("writer_snapshot", _ends, "own sink"),
        Hook("notify_complete", _ends, "own sink"),
        Hook("finish", _ends, "own sink", bounded=True),
        Hook("writer_close", _ends, "own sink", bounded=True),
        Hook("create_enumerator", _ends, "own source", side="jobmanager", start=True),
        Hook("discover", _ends, "own source", side="jobmanager"),
        Hook("enumerator_snapshot", _ends, "own source", side="jobmanager"),
        Hook("on_split_finished", _ends, "own source", bounded=True, side="jobmanager"),
        Hook("create_committer", _ends, "own sink", side="jobmanager", start=True),
        Hook("commit", _ends, "own sink", side="jobmanager"),
        Hook("discard", _ends, "own sink", side="jobmanager", start=True),
    ]
}


def build(env: StreamExecutionEnvironment, act: Act, *, deeper: bool = False) -> Any:
    """Build the program with the hook in this environment, and return the environment."""
    hook = HOOKS[act.hook]
    hook.program(env, act, hook.bounded, deeper)
    return env
