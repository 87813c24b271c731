"""A job that sends its records through every stage of the engine and back to the program."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from penstock.common.errors import StateTypeError
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction, RuntimeContext
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.state.encoding.serializers import codec_for
from tests.value_difference import difference

ASIDE = OutputTag("aside")

Stop = tuple[str, int, Any]
"""A tuple of the last stage, the number of the record, and the record."""


class Aside(ProcessFunction):
    def process_element(self, value: tuple[int, Any], ctx: Any) -> Iterator[Any]:
        yield ASIDE, ("side output", *value)
        yield ("main output", *value)


class Remembers(KeyedProcessFunction):
    """A function that emits a record again from each kind of state, and once more from a timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))
        self.items = runtime_context.get_list_state(ListStateDescriptor("list"))
        self.entries = runtime_context.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value: tuple[int, Any], ctx: Any) -> Iterator[Stop]:
        number, record = value
        self.value.update((record,))
        self.items.add(record)
        self.entries.put(number, record)
        ctx.timer_service().register_event_time_timer(1)
        yield "value state", number, self.value.value()[0]  # type: ignore[index]
        yield "list state", number, next(iter(self.items.get()))
        yield "map state", number, self.entries.get(number)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Stop]:
        yield "timer", ctx.get_current_key(), self.value.value()[0]  # type: ignore[index]


def kept(old: tuple[int, Any], new: tuple[int, Any]) -> tuple[int, Any]:
    return old


def is_storable(value: Any) -> bool:
    """Return whether state without a declared type accepts the value."""
    try:
        codec_for(None, state="any").encode(value)
    except StateTypeError:
        return False
    return True


def build(env: StreamExecutionEnvironment, values: list[Any]) -> DataStream:
    """Return a stream with one element for each record and each stage that it passed."""
    numbered = list(enumerate(values))
    records = env.from_collection(numbered)
    split = records.rebalance().map(lambda record: record).process(Aside())
    stops = split.union(split.get_side_output(ASIDE).shuffle())
    custom = records.partition_custom(lambda key, partitions: key % partitions, itemgetter(0)).map(
        lambda r: ("custom", *r)
    )
    spread = records.broadcast().filter(lambda record: True).map(lambda r: ("broadcast", *r)).global_()
    by_key = records.key_by(itemgetter(0)).map(lambda r: ("key group", *r))
    storable = env.from_collection([record for record in numbered if is_storable(record[1])]).key_by(itemgetter(0))
    remembered = storable.process(Remembers())
    reduced = storable.reduce(kept).map(lambda r: ("reduce", *r))
    return stops.union(custom, spread, by_key, remembered, reduced)


STOPS = {"main output", "side output", "custom", "broadcast", "key group"}
STOPS_IN_STATE = {"value state", "list state", "map state", "timer", "reduce"}


def run(env: StreamExecutionEnvironment, executor: Any, values: list[Any], parallelism: int) -> None:
    """Run the job and compare every record with the original after each stage."""
    env.set_parallelism(parallelism)
    with executing_on(executor), build(env, values).execute_and_collect() as results:
        stops = list(results)
    seen: dict[str, set[int]] = {}
    for where, number, record in stops:
        found = difference(values[number], record)
        assert found is None, f"{where}: {found}"
        seen.setdefault(where, set()).add(number)
    everything = set(range(len(values)))
    assert {where: seen.get(where) for where in STOPS} == dict.fromkeys(STOPS, everything)
    storable = {number for number, value in enumerate(values) if is_storable(value)}
    assert {where: seen.get(where) for where in STOPS_IN_STATE} == dict.fromkeys(STOPS_IN_STATE, storable)
    assert len(storable) > len(values) // 3
