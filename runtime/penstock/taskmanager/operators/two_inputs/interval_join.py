"""The interval join of two keyed streams (`penstock.datastream.streams.interval_join`), as in Flink.

Each side keeps its values by event time (`interval_buffers`). The operator searches the partners of a value among the
values of the other side. It drops a value when the watermark passes the latest time that a partner can have. So the
order of arrival of two values that are not late does not matter.

Flink drops a value as soon as the watermark reaches this time. In Flink, a partner with exactly the time of the
watermark may therefore miss the value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import ListTypeInfo
from penstock.functions.join_functions import ProcessJoinFunction
from penstock.graph.operator import OperatorSnapshot
from penstock.records.batch import MIN_TIMESTAMP
from penstock.state.descriptors import MapStateDescriptor
from penstock.taskmanager.operators.event_time.saved_clock import SavedClock
from penstock.taskmanager.operators.results import Results
from penstock.taskmanager.operators.two_inputs.interval_buffers import Buffers, Side
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext
    from penstock.functions.output_tag import OutputTag
    from penstock.graph.operator import Output
    from penstock.records.batch import Batch

SIDES = ("left", "right")
WATERMARK_STATE = "interval-join-watermark"
LATE_RECORDS_METRIC = "numLateRecordsDropped"


class JoinContext(ProcessJoinFunction.Context):
    """The context of `process_element`. An operator uses the same object for all pairs."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self.timestamps = (MIN_TIMESTAMP, MIN_TIMESTAMP)

    def get_left_timestamp(self) -> int:
        return self.timestamps[0]

    def get_right_timestamp(self) -> int:
        return self.timestamps[1]

    def get_timestamp(self) -> int:
        return max(self.timestamps)

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self._results.side(output_tag, value, self.get_timestamp())


class IntervalJoinOperator(FunctionOperator):
    """The operator that joins the pairs with `left time + lower_ms <= right time <= left time + upper_ms`.

    Args:
        key_selectors: the key selectors of the left input (0) and the right input (1).
        element_types: the types of the values of both inputs in state. None allows any builtin type.
        late_tags: side outputs of values behind the watermark. Without a tag, late values are dropped and counted.
    """

    method = "process_element"
    results: Results

    def __init__(
        self,
        fn: Any,
        key_selectors: tuple[Callable[[Any], Any], Callable[[Any], Any]],
        *,
        lower_ms: int,
        upper_ms: int,
        element_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None),
        late_tags: tuple[OutputTag | None, OutputTag | None] = (None, None),
    ) -> None:
        super().__init__(fn)
        self.is_keyed = True
        self.key_selectors = key_selectors
        # The time range of the partners of a value, relative to each side.
        self._bounds = ((lower_ms, upper_ms), (-upper_ms, -lower_ms))
        self._kept_ms = (max(0, upper_ms), max(0, -lower_ms))
        self._element_types = element_types
        self._late_tags = late_tags
        self.watermark = MIN_TIMESTAMP

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.results = Results(output)

    def open(self) -> None:
        super().open()
        context = self.context
        assert context.keyed_state is not None
        assert context.timers is not None
        backend = context.keyed_state
        states: list[Any] = [backend.get_state(descriptor) for descriptor in self._descriptors()]
        self._at = backend.key_context
        self._buffers = Buffers(states, self._kept_ms, self._at, context.timers, is_empty=not context.is_restored)
        self._ctx = JoinContext(self.results)
        self._dropped = None if context.metrics is None else context.metrics.counter(LATE_RECORDS_METRIC)
        self._clock = SavedClock(context, WATERMARK_STATE)
        self.watermark = self._clock.restored
        former = context.restored_meaning
        if former.get("kind") == "interval join" and (former["lower_ms"], former["upper_ms"]) != self._bounds[0]:
            names = [descriptor.name for descriptor in self._descriptors()]
            self._buffers.move_timers(lambda side: backend.keys(names[side]), self.watermark)

    def declare_states(self, context: OperatorContext) -> None:
        assert context.keyed_state is not None
        for descriptor in self._descriptors():
            context.keyed_state.get_state(descriptor)

    def _descriptors(self) -> list[MapStateDescriptor]:
        return list(map(_buffer, SIDES, self._element_types))

    def write_state(self) -> None:
        self._buffers.write(self.watermark)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self.write_state()
        self._clock.save(self.watermark)
        return super().snapshot(checkpoint_id)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        if not values:
            return
        if timestamps is None:
            raise InvalidJob(
                f"the {SIDES[input_index]} records of the interval join have no event time",
                remedy="call assign_timestamps_and_watermarks on the stream, or pass a WatermarkStrategy to from_source",
                operator=self.context.name,
                location=self.context.user_location,
            )
        selector = self.key_selectors[input_index]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        iterator = iter(values)
        try:
            self._join_all(iterator, keys, timestamps, input_index)
        except Exception as error:
            self.fail(error, values, iterator, input_index)
        self._buffers.count_records(len(values), self.watermark)
        self.results.flush()

    def _join_all(self, values: Iterator[Any], keys: list[Any], timestamps: list[int], side: int) -> None:
        watermark, buffers = self.watermark, self._buffers
        known, other, join = buffers.in_memory.get, 1 - side, self._join
        lower, upper = self._bounds[side]
        kept, gone = self._kept_ms[side], watermark - self._kept_ms[other] - 1
        for value, key, timestamp in zip(values, keys, timestamps, strict=True):
            if timestamp < watermark:
                self._late(value, timestamp, side)
                continue
            buffer = known(key) or buffers.of(key, timestamp + kept)
            same_side = buffer.sides[side]
            if not same_side.times or same_side.times[-1] <= timestamp:
                same_side.times.append(timestamp)
                same_side.values.append(value)
            else:
                place = bisect_right(same_side.times, timestamp)
                same_side.times.insert(place, timestamp)
                same_side.values.insert(place, value)
            partners = buffer.sides[other]
            first = timestamp + lower
            if partners.times and partners.times[-1] >= first:
                first = bisect_left(partners.times, first if first > gone else gone + 1)
                behind = bisect_right(partners.times, timestamp + upper, first)
                if first < behind:
                    self._at.key, self._at.namespace = key, None
                    join(value, timestamp, side, partners, range(first, behind))

    def _join(self, value: Any, timestamp: int, side: int, partners: Side, places: Iterable[int]) -> None:
        call, ctx, collect = self._call, self._ctx, self.results.collect
        for place in places:
            time, partner = partners.times[place], partners.values[place]
            ctx.timestamps = (time, timestamp) if side else (timestamp, time)
            results = call(partner, value, ctx) if side else call(value, partner, ctx)
            if results is not None:
                collect(results, time if time > timestamp else timestamp)

    def _late(self, value: Any, timestamp: int, side: int) -> None:
        tag = self._late_tags[side]
        if tag is not None:
            self.results.side(tag, value, timestamp)
        elif self._dropped is not None:
            self._dropped.inc()

    def process_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark:
            self.watermark = timestamp
            self._buffers.advance(timestamp)
            super().process_watermark(timestamp)
        else:
            self.output.emit_watermark(timestamp)

    def rewind(self) -> None:
        super().rewind()
        self.watermark = MIN_TIMESTAMP

    def current_watermark(self) -> int:
        return self.watermark


def _buffer(side: str, element_type: TypeInformation | None) -> MapStateDescriptor:
    return MapStateDescriptor(f"{side}-buffer", int, None if element_type is None else ListTypeInfo(element_type))
