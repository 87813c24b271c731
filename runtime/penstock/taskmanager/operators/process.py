"""Process functions: arbitrary code for each record, with timers, state and side outputs.

`process_element` and `on_timer` return or yield results. Plain values go to the main output. A pair `(tag, value)` with
an `OutputTag` goes to that side output, and so does `ctx.output(tag, value)`.

The results of a record have the timestamp of the record. The results of an event-time timer have the timestamp of the
timer. The results of a processing-time timer have no timestamp.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.common.errors import KeyedStateNotAvailable
from penstock.functions.output_tag import OutputTag
from penstock.functions.time_domain import TimeDomain
from penstock.functions.timer_service import TimerService
from penstock.records.batch import MIN_TIMESTAMP, Batch
from penstock.state.key_context import KeyContext
from penstock.taskmanager.operators.event_time.saved_clock import SavedClock
from penstock.taskmanager.operators.results import Results
from penstock.taskmanager.operators.user_code import FunctionOperator, raise_user_error, select_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.operator_context import OperatorContext
    from penstock.graph.operator import OperatorSnapshot, Output


_EVENT_TIME = TimeDomain.EVENT_TIME
WATERMARK_STATE = "process-watermark"


class UserTimers(TimerService):
    """The timer service of a process function: the clocks, and the timers of the current key."""

    def __init__(self, operator: TimerOperator) -> None:
        self._operator = operator
        self._timers = timers = operator.context.timers
        if timers is not None:
            # Many functions register a timer for every record, so this saves one call.
            self.register_event_time_timer = timers.register_event_time_timer  # type: ignore[method-assign]
            self.delete_event_time_timer = timers.delete_event_time_timer  # type: ignore[method-assign]

    def current_processing_time(self) -> int:
        return self._operator.context.clock.now_ms()

    def current_watermark(self) -> int:
        return self._operator.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        if self._timers is None:
            self._refuse()
        self._timers.register_processing_time_timer(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        if self._timers is None:
            self._refuse()
        self._timers.register_event_time_timer(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        if self._timers is None:
            self._refuse()
        self._timers.delete_processing_time_timer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        if self._timers is None:
            self._refuse()
        self._timers.delete_event_time_timer(timestamp)

    def _refuse(self) -> NoReturn:
        raise KeyedStateNotAvailable(
            "timers belong to a key, and this stream has none", remedy="call key_by before process"
        )


class ProcessContext:
    """The context of `process_element`. An operator uses the same object for all records."""

    def __init__(self, operator: TimerOperator) -> None:
        state = operator.context.keyed_state
        self._operator = operator
        self._key_context: KeyContext | None = None if state is None else state.key_context
        self._timer_service = UserTimers(operator)
        self.record_timestamp: int | None = None

    def timestamp(self) -> int | None:
        """Event time of the record, or time of the timer, in ms; None if the record has no event time."""
        return self.record_timestamp

    def timer_service(self) -> UserTimers:
        return self._timer_service

    def current_processing_time(self) -> int:
        return self._timer_service.current_processing_time()

    def current_watermark(self) -> int:
        return self._operator.watermark

    def get_current_key(self) -> Any:
        if self._key_context is None:
            raise KeyedStateNotAvailable("the stream has no key", remedy="call key_by before process")
        return self._key_context.as_restored(self._key_context.key)

    def output(self, tag: OutputTag, value: Any) -> None:
        """Send `value` to a side output with the timestamp of the record."""
        self._operator.results.side(tag, value, self._operator.result_timestamp(self.record_timestamp))


class OnTimerContext(ProcessContext):
    """The context of `on_timer`."""

    domain = TimeDomain.EVENT_TIME

    def time_domain(self) -> TimeDomain:
        return self.domain


class TimerOperator(FunctionOperator):
    """The base class of the operators around process functions: contexts, timers and results. The input may have no
    key."""

    results: Results
    watermark: int = MIN_TIMESTAMP
    """Event-time clock in ms."""
    _clock: SavedClock | None = None
    """The saved event-time clock. Only a keyed operator has one."""

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.results = Results(output)

    def open(self) -> None:
        super().open()
        self.ctx = self.make_context()
        self._timer_ctx = self.make_timer_context()
        self._on_timer = getattr(self.fn, "on_timer", None)
        timers = self.context.timers
        if timers is not None:
            timers.set_callbacks(self._fire, self._on_processing_time)
        if self.is_keyed:
            self._clock = SavedClock(self.context, WATERMARK_STATE)
            self.watermark = self._clock.restored

    def make_context(self) -> Any:
        return ProcessContext(self)

    def make_timer_context(self) -> OnTimerContext:
        return OnTimerContext(self)

    def result_timestamp(self, timestamp: int | None) -> int | None:
        """Return the timestamp of a result: None for a processing-time timer."""
        return None if self._timer_ctx.domain is TimeDomain.PROCESSING_TIME else timestamp

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        if self._clock is not None:
            self._clock.save(self.watermark)
        return super().snapshot(checkpoint_id)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark:
            self.watermark = timestamp
            timers = self.context.timers
            if timers is not None:
                timers.advance_watermark(timestamp)
                self.results.flush()
        self.output.emit_watermark(timestamp)

    def advance_processing_time(self, now: int) -> None:
        timers = self.context.timers
        if timers is not None:
            timers.advance_processing_time(now)
            self.results.flush()

    def rewind(self) -> None:
        super().rewind()
        self.watermark = MIN_TIMESTAMP

    def current_watermark(self) -> int:
        return self.watermark

    def _on_processing_time(self, timestamp: int, key: Any, namespace: Any) -> None:
        self._timer_ctx.domain = TimeDomain.PROCESSING_TIME
        self._fire(timestamp, key, namespace)
        self._timer_ctx.domain = TimeDomain.EVENT_TIME

    def _fire(self, timestamp: int, key: Any, namespace: Any) -> None:
        call = self._on_timer
        if call is None:
            return
        ctx = self._timer_ctx
        ctx.record_timestamp = timestamp
        try:
            results = call(timestamp, ctx)
            if results is not None:
                self.results.collect(results, timestamp if ctx.domain is _EVENT_TIME else None)
        except Exception as error:
            raise_user_error(self.context, error, f"on_timer at {timestamp} for the key {key!r}")

    def run(self, batch: Batch, call: Callable[[Any, Any], Any], ctx: Any, input_index: int = 0) -> None:
        """Call `call(value, ctx)` for every record and emit the results.

        If the input has keys, each record's key is the current key during its call.
        """
        rows = batch.rows()
        values = rows.values
        iterator = iter(values)
        timestamps = repeat(None) if rows.timestamps is None else rows.timestamps
        results = self.results
        append, stamp, side = results.values.append, results.timestamps.append, results.side
        key_context = KeyContext()
        keys: Any = repeat(None)
        key_selector = self.key_selectors[input_index] if self.is_keyed else None
        if key_selector is not None:
            assert self.context.keyed_state is not None
            key_context = self.context.keyed_state.key_context
            key_context.namespace = None
            keys = select_keys(self.context, key_selector, values)
        try:
            for value, key, timestamp in zip(iterator, keys, timestamps, strict=False):
                key_context.key = key
                ctx.record_timestamp = timestamp
                out = call(value, ctx)
                if out is not None:
                    for result in out:
                        if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                            side(result[0], result[1], timestamp)
                        else:
                            append(result)
                            stamp(timestamp)
        except Exception as error:
            self.fail(error, values, iterator, input_index)
        results.flush()


class ProcessOperator(TimerOperator):
    """`process` on a stream without keys: it has no state and no timers."""

    method = "process_element"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.run(batch, self._call, self.ctx)


class KeyedProcessOperator(TimerOperator):
    """`process` on a keyed stream: it has keyed state and timers per key."""

    method = "process_element"

    def __init__(self, fn: Any, key_selector: Callable[[Any], Any]) -> None:
        super().__init__(fn, key_selector)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.run(batch, self._call, self.ctx)
