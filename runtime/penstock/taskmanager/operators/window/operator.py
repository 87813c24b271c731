"""The window operator: assigner, trigger, evictor and function on a keyed stream, or on a stream without keys.

The operator has three implementations:

* `panes` is the general one. Every record calls the trigger of its pane.
* `grouped` and `grouped_lists` fire and clean up tumbling and sliding time windows window by window.
* `sessions` keeps the sessions of a key together.

The implementations without panes need a default trigger and no evictor, so no user code decides about a single pane.
They cost one look-up per record.

Results have the window's `max_timestamp()` as their timestamp. The operator emits results before the watermark that
caused them.

The operator's clock is part of its snapshot. After a restore, late records are still late. A window that has fired and
waits for late records does not fire again as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.functions.field_reduce import FieldReduce
from penstock.functions.operator_context import OperatorContext
from penstock.functions.runtime_context import close_function, open_function
from penstock.functions.state.checkpointed import FunctionCheckpoints
from penstock.graph.operations import constant_key
from penstock.graph.operator import Operator, OperatorSnapshot, Output
from penstock.records.batch import MIN_TIMESTAMP, Batch, ColumnBatch
from penstock.records.fields import field_of, shortened
from penstock.state.descriptors import ValueStateDescriptor
from penstock.taskmanager.operators.event_time.saved_clock import SavedClock
from penstock.taskmanager.operators.migration import migrate_accumulators
from penstock.taskmanager.operators.results import Results
from penstock.taskmanager.operators.user_code import position, raise_user_error, refuse_keys, select_keys
from penstock.taskmanager.operators.window.contents import contents_descriptor
from penstock.taskmanager.operators.window.grouped import GroupedWindows, can_group
from penstock.taskmanager.operators.window.grouped_lists import GroupedLists
from penstock.taskmanager.operators.window.panes import PaneWindows
from penstock.taskmanager.operators.window.sessions import SessionWindows, are_plain_sessions
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.assigner import WindowAssigner, check_merging

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.output_tag import OutputTag
    from penstock.windowing.evictor import Evictor
    from penstock.windowing.trigger import Trigger
    from penstock.windowing.window_function import WindowFunctionSpec

LATE_RECORDS_METRIC = "numLateRecordsDropped"
WATERMARK_STATE = "window-watermark"
REMOVED_STATE = "window-removed-until"
"""Name of the state of `removed_until`.

It is set after a restore with a longer allowed lateness, until the watermark has caught up.
"""


class WindowOperator(Operator):
    """The windows of a keyed stream. Without a key selector, they are the windows of the whole stream, in one subtask.

    Args:
        trigger: replaces the default trigger of the assigner.
        allowed_lateness: how long an event-time window is kept for late records after its end (ms as int, or a
        length of time). Each late record fires the window again.
        late_tag: side output of records that are too late. Without a tag, such records are dropped and counted.
        grouping: "auto" groups windows if the results are the same. "never" processes pane by pane.

    Raises:
        InvalidJob: the windows merge but the trigger cannot merge, or the lateness is negative.
    """

    is_keyed = True
    results: Results

    def __init__(
        self,
        assigner: WindowAssigner[Any, Any],
        function: WindowFunctionSpec,
        key_selector: Callable[[Any], Any] | None = None,
        trigger: Trigger[Any, Any] | None = None,
        evictor: Evictor[Any] | None = None,
        allowed_lateness: TimeLike = 0,
        late_tag: OutputTag | None = None,
        grouping: str = "auto",
    ) -> None:
        self.assigner = assigner
        self.function = function
        self.trigger: Trigger[Any, Any] = assigner.get_default_trigger(None) if trigger is None else trigger
        self.evictor = evictor
        self.allowed_lateness = as_millis(allowed_lateness, "allowed_lateness")
        self._kept_ms = self.allowed_lateness if assigner.is_event_time() else 0
        self._removed_until = MIN_TIMESTAMP
        self.late_tag = late_tag
        self.has_key = key_selector is not None
        self.key_selectors = (key_selector or constant_key,)
        self.watermark = MIN_TIMESTAMP
        self._grouping = grouping
        if self.allowed_lateness < 0:
            raise InvalidJob(f"the allowed lateness is {self.allowed_lateness} ms, but must not be negative")
        check_merging(assigner, self.trigger)

    # --- life cycle -------------------------------------------------------------------------------------------

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self.results = Results(output)

    def declare_states(self, context: OperatorContext) -> None:
        assert context.keyed_state is not None
        context.keyed_state.get_state(contents_descriptor(self.function, evicts=self.evictor is not None))

    def open(self) -> None:
        context = self.context
        backend, timers = context.keyed_state, context.timers
        assert backend is not None
        assert timers is not None
        self._checkpoints = FunctionCheckpoints(iter(self.function.functions()), context)
        self._checkpoints.initialize()
        for function in self.function.functions():
            open_function(function, context)
        self._clock = SavedClock(context, WATERMARK_STATE)
        self.watermark = self._clock.restored
        self._saved_removed = context.operator_state.get_union_list_state(REMOVED_STATE, int)
        self._removed_until = max(self._saved_removed, default=MIN_TIMESTAMP)
        former_lateness = context.restored_meaning.get("allowed_lateness_ms", self.allowed_lateness)
        if former_lateness < self.allowed_lateness:
            self._removed_until = max(self._removed_until, self.watermark - former_lateness)
        self._dropped = None if context.metrics is None else context.metrics.counter(LATE_RECORDS_METRIC)
        former = context.restored_meaning.get("contents", {}).get("aggregates")
        if former is not None and isinstance(self.function.fold, FieldAggregate) and self.evictor is None:
            contents = contents_descriptor(self.function, evicts=False)
            assert isinstance(contents, ValueStateDescriptor)
            migrate_accumulators(backend, contents, former, self.function.fold)
        self._windows = self._implementation()(self, backend, timers)
        self._key_field = field_of(self.key_selectors[0])

    def _implementation(self) -> type[GroupedWindows] | type[SessionWindows] | type[PaneWindows]:
        if self._grouping != "auto":
            return PaneWindows
        if can_group(self):
            return GroupedWindows if self.function.is_incremental else GroupedLists
        return SessionWindows if are_plain_sessions(self) else PaneWindows

    def write_state(self) -> None:
        if isinstance(self._windows, SessionWindows):
            self._windows.write_state()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self.write_state()
        self._clock.save(self.watermark)
        is_forgotten = self._removed_until <= self.watermark - self._kept_ms
        self._saved_removed[:] = [] if is_forgotten else [self._removed_until]
        self._checkpoints.snapshot(checkpoint_id)
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._checkpoints.completed(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._checkpoints.aborted(checkpoint_id)

    def close(self) -> None:
        for function in self.function.functions():
            close_function(function)

    # --- records and clocks -----------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if isinstance(batch, ColumnBatch) and self._key_field is not None and isinstance(self._windows, GroupedWindows):
            most = self._windows.most_records
            if len(batch) > most:
                for begin in range(0, len(batch), most):
                    self.process_batch(batch.slice(begin, min(begin + most, len(batch))))
                return
            rest = self._windows.process_columns(batch, self._key_field)
            if rest is None:
                return
            batch = rest
        rows = batch.rows()
        values = rows.values
        if not values:
            return
        selector = self.key_selectors[0]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        iterator = iter(values)
        try:
            if isinstance(self.function.fold, FieldReduce):
                self.function.fold.check_all(values)
            self._windows.process(values, iterator, keys, rows.timestamps)
        except Exception as error:
            refuse_keys(self.context, error, keys, values)
            index = max(0, position(values, iterator))
            raise_user_error(self.context, error, f"the window of record {index}: {shortened(values[index])}")
        self.results.flush()

    def late(self, value: Any, timestamp: int | None) -> None:
        """Handle a record whose windows have all been removed."""
        if self.late_tag is not None:
            self.results.side(self.late_tag, value, timestamp)
        elif self._dropped is not None:
            self._dropped.inc()

    def process_watermark(self, timestamp: int) -> None:
        if timestamp > self.watermark:
            self.watermark = timestamp
            self._windows.on_watermark(timestamp)
            self.results.flush()
        self.output.emit_watermark(timestamp)

    def advance_processing_time(self, now: int) -> None:
        self._windows.on_processing_time(now)
        self.results.flush()

    def next_processing_time(self) -> int | None:
        return self._windows.next_processing_time()

    def rewind(self) -> None:
        super().rewind()
        self.watermark = MIN_TIMESTAMP

    @property
    def removed_until(self) -> int:
        """The last timestamp (ms) of the latest event-time windows that have been removed. Records that belong only to
        such windows are late.

        Windows that a shorter lateness removed before an upgrade remain removed, because their records no longer exist.
        """
        return max(self.watermark - self._kept_ms, self._removed_until)

    def current_watermark(self) -> int:
        return self.watermark
