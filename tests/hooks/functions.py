"""Functions of a program; what they do to records does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from penstock.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessWindowFunction,
    ReduceFunction,
)
from penstock.datastream.window import TimeWindow, Trigger, TriggerResult, WindowAssigner
from penstock.windowing.evictor import Evictor
from tests.hooks.act import Act

WINDOW_MS = 20


class Acts:
    def __init__(self, act: Act) -> None:
        self.act = act


class Generates(Acts):
    def __call__(self, index: int) -> int:
        self.act("generator")
        return index


class Maps(Acts, MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.act("open")
        runtime_context.get_metrics_group().gauge("level", self.gauge)

    def gauge(self) -> int:
        self.act("gauge")
        return 1

    def map(self, value: Any) -> Any:
        self.act("map")
        return value

    def close(self) -> None:
        self.act("close")

    def __getstate__(self) -> dict[str, Any]:
        self.act("pickle")
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.act("unpickle")


class FlatMaps(Acts, FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        self.act("flat_map")
        yield value


class Filters(Acts, FilterFunction):
    def filter(self, value: Any) -> bool:
        self.act("filter")
        return True


class SelectsKey(Acts, KeySelector):
    def get_key(self, value: Any) -> int:
        self.act("key_selector")
        return int(value) % 8


class Partitions(Acts, Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        self.act("partitioner")
        return int(key) % num_partitions


class AssignsTime(Acts, TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        self.act("timestamp_assigner")
        return int(value)


class MarksTime(Acts, WatermarkGenerator):
    def on_event(self, value: Any, timestamp: int) -> int | None:
        self.act("watermark_generator")
        return timestamp - 1

    def on_periodic_emit(self) -> int | None:
        self.act("periodic_watermark")
        return None


class Processes(Acts, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.act("process_element")
        timers = ctx.timer_service()
        timers.register_event_time_timer(int(value) + 5)
        timers.register_processing_time_timer(timers.current_processing_time() + 1)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        self.act("event_timer" if timestamp < 1e9 else "processing_timer")
        return iter(())


class Reduces(Acts, ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        self.act("reduce")
        return value1 + value2


class Aggregates(Acts, AggregateFunction):
    def create_accumulator(self) -> int:
        self.act("create_accumulator")
        return 0

    def add(self, value: Any, accumulator: Any) -> int:
        self.act("add")
        return int(accumulator) + 1

    def get_result(self, accumulator: Any) -> int:
        self.act("get_result")
        return int(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> int:
        return int(acc_a + acc_b)


class Assigns(Acts, WindowAssigner[Any, TimeWindow]):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        self.act("window_assigner")
        begin = timestamp - timestamp % WINDOW_MS
        return [TimeWindow(begin, begin + WINDOW_MS)]

    def get_default_trigger(self, env: object = None) -> Trigger[Any, TimeWindow]:
        return Triggers(self.act)

    def is_event_time(self) -> bool:
        return True


class Triggers(Acts, Trigger[Any, TimeWindow]):
    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        self.act("trigger_element")
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        self.act("trigger_timer")
        return TriggerResult.FIRE_AND_PURGE

    def clear(self, window: TimeWindow, ctx: Any) -> None:
        self.act("trigger_clear")


class Evicts(Acts, Evictor[TimeWindow]):
    def evict_before(self, elements: list[Any], size: int, window: TimeWindow, ctx: Any) -> None:
        self.act("evict_before")

    def evict_after(self, elements: list[Any], size: int, window: TimeWindow, ctx: Any) -> None:
        self.act("evict_after")


class ProcessesWindow(Acts, ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> list[Any]:
        self.act("window_function")
        return [sum(1 for _ in elements)]


class CoMaps(Acts, CoMapFunction):
    def map1(self, value: Any) -> Any:
        self.act("map1")
        return value

    def map2(self, value: Any) -> Any:
        self.act("map2")
        return value


class Broadcasts(Acts, KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.act("broadcast_element")
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.act("broadcast")
        return iter(())


class Asks(Acts, AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        self.act("async_invoke")
        return [value]
