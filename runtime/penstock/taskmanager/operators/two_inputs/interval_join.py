"""The interval join of two keyed streams (`penstock.datastream.streams.interval_join`), as Flink's operator does it.

Each side keeps its values by event time in a map state. A value looks for partners among the other side's, and is
dropped by an event-time timer when the watermark has passed the last time a partner could have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import ListTypeInfo
from penstock.functions.join_functions import ProcessJoinFunction
from penstock.graph.operator import OperatorSnapshot
from penstock.records.batch import MIN_TIMESTAMP
from penstock.state.descriptors import MapStateDescriptor
from penstock.taskmanager.operators.results import Results
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext
    from penstock.functions.output_tag import OutputTag
    from penstock.graph.operator import Output
    from penstock.records.batch import Batch
    from penstock.state.descriptors import MapState

SIDES = ("left", "right")
WATERMARK_STATE = "interval-join-watermark"
LATE_RECORDS_METRIC = "numLateRecordsDropped"


class JoinContext(ProcessJoinFunction.Context):
    """What `process_element` gets: one object per operator, moved from pair to pair."""

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
    """Pairs with `left time + lower_ms <= right time <= left time + upper_ms`.

    Args:
        key_selectors: of the left input (0) and the right one (1).
        element_types: of their values, for the state; any builtin type if None.
        late_tags: side outputs of values behind the watermark; without one they are dropped and counted.
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
        # Seen from either side: where the partners of a value lie.
        self._bounds = ((lower_ms, upper_ms), (-upper_ms, -lower_ms))
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
        self._key_context = context.keyed_state.key_context
        self._buffers: list[MapState[int, list[Any]]] = [
            context.keyed_state.get_state(descriptor)  # type: ignore[misc]
            for descriptor in self._descriptors()
        ]
        self._ctx = JoinContext(self.results)
        self._dropped = None if context.metrics is None else context.metrics.counter(LATE_RECORDS_METRIC)
        context.timers.set_callbacks(self._clean, self._clean)
        self._saved_watermark = context.operator_state.get_union_list_state(WATERMARK_STATE, int)
        self.watermark = max(context.timers.current_watermark, min(self._saved_watermark, default=MIN_TIMESTAMP))

    def declare_states(self, context: OperatorContext) -> None:
        assert context.keyed_state is not None
        for descriptor in self._descriptors():
            context.keyed_state.get_state(descriptor)

    def _descriptors(self) -> list[MapStateDescriptor]:
        return list(map(_buffer, SIDES, self._element_types))

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        # After a restore, what was late stays late.
        self._saved_watermark[:] = [self.watermark]
        return super().snapshot(checkpoint_id)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        values, timestamps = rows.values, rows.timestamps
        if not values:
            return
        if timestamps is None:
            raise InvalidJob(
                f"the {SIDES[input_index]} records of the interval join have no event time",
                remedy="call assign_timestamps_and_watermarks on the stream, or give from_source a WatermarkStrategy",
                operator=self.context.name,
                location=self.context.user_location,
            )
        selector = self.key_selectors[input_index]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        iterator = iter(values)
        watermark = self.watermark
        key_context = self._key_context
        key_context.namespace = None
        try:
            for value, key, timestamp in zip(iterator, keys, timestamps, strict=True):
                if timestamp < watermark:
                    self._late(value, timestamp, input_index)
                    continue
                key_context.key = key
                self._keep(value, timestamp, input_index)
                self._join(value, timestamp, input_index)
        except Exception as error:
            self.fail(error, values, iterator, input_index)
        self.results.flush()

    def _keep(self, value: Any, timestamp: int, side: int) -> None:
        buffer = self._buffers[side]
        buffer.put(timestamp, [*(buffer.get(timestamp) or ()), value])
        timers = self.context.timers
        assert timers is not None
        self._key_context.namespace = (side,)
        timers.register_event_time_timer(timestamp + max(0, self._bounds[side][1]))
        self._key_context.namespace = None

    def _join(self, value: Any, timestamp: int, side: int) -> None:
        lower, upper = self._bounds[side]
        first, last = timestamp + lower, timestamp + upper
        call, ctx, collect = self._call, self._ctx, self.results.collect
        others = self._buffers[1 - side]
        if others.is_empty():
            return
        for time, partners in list(others.items()):
            if first <= time <= last:
                ctx.timestamps = (time, timestamp) if side else (timestamp, time)
                for partner in partners:
                    results = call(partner, value, ctx) if side else call(value, partner, ctx)
                    if results is not None:
                        collect(results, max(time, timestamp))

    def _late(self, value: Any, timestamp: int, side: int) -> None:
        tag = self._late_tags[side]
        if tag is not None:
            self.results.side(tag, value, timestamp)
        elif self._dropped is not None:
            self._dropped.inc()

    def _clean(self, timestamp: int, key: Any, namespace: Any) -> None:
        side = namespace[0]
        self._key_context.namespace = None
        self._buffers[side].remove(timestamp - max(0, self._bounds[side][1]))

    def process_watermark(self, timestamp: int) -> None:
        self.watermark = timestamp
        super().process_watermark(timestamp)

    def current_watermark(self) -> int:
        return self.watermark


def _buffer(side: str, element_type: TypeInformation | None) -> MapStateDescriptor:
    return MapStateDescriptor(f"{side}-buffer", int, None if element_type is None else ListTypeInfo(element_type))
