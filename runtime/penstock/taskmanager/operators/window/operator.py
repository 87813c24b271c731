"""The window operator: assigner + trigger + evictor + function on a keyed stream, or on a whole one (T25).

Three implementations share it. `panes` is the general one: every record asks the trigger of its pane. Where nothing of
the user's decides about a single pane (default trigger, no evictor), `grouped` and `grouped_lists` fire and clean up tumbling
and sliding time windows window by window, and `sessions` keeps the sessions of a key together; a record costs a look-up.

Results carry the window's `max_timestamp()`, and go out before the watermark that caused them (T6, T10).

The operator's clock is part of its snapshot: after a restore, what was late stays late, and a window that has fired and
waits for late records does not fire again as a whole. All subtasks are at the same watermark when a checkpoint is taken;
should they differ, the smallest counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.common.time import TimeLike, as_millis
from penstock.functions.operator_context import OperatorContext
from penstock.functions.runtime_context import close_function, open_function
from penstock.functions.state.checkpointed import FunctionCheckpoints
from penstock.graph.operations import constant_key
from penstock.graph.operator import Operator, OperatorSnapshot, Output
from penstock.records.batch import MIN_TIMESTAMP, Batch, ColumnBatch
from penstock.records.fields import field_of, shortened
from penstock.taskmanager.operators.results import Results
from penstock.taskmanager.operators.user_code import position, raise_user_error, refuse_keys, select_keys
from penstock.taskmanager.operators.window.contents import contents_descriptor
from penstock.taskmanager.operators.window.grouped import GroupedWindows, can_group
from penstock.taskmanager.operators.window.grouped_lists import GroupedLists
from penstock.taskmanager.operators.window.panes import PaneWindows
from penstock.taskmanager.operators.window.sessions import SessionWindows, are_plain_sessions
from penstock.windowing.assigner import WindowAssigner, check_merging

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.output_tag import OutputTag
    from penstock.windowing.evictor import Evictor
    from penstock.windowing.trigger import Trigger
    from penstock.windowing.window_function import WindowFunctionSpec

LATE_RECORDS_METRIC = "numLateRecordsDropped"
WATERMARK_STATE = "window-watermark"


class WindowOperator(Operator):
    """Windows of a keyed stream; without a key selector, of the whole stream in one subtask.

    Args:
        trigger: replaces the assigner's default trigger (T40).
        allowed_lateness: how long (ms as int, or a length of time) an event-time window is kept for late records after
            its end; each of them fires it again (T55).
        late_tag: side output of records that came too late; without it they are dropped and counted (T53, T54).
        grouping: "auto" groups windows where that gives the same results; "never" goes pane by pane.

    Raises:
        InvalidJob: the windows merge and the trigger cannot, or the lateness is negative.
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
        self.late_tag = late_tag
        self.has_key = key_selector is not None
        self.key_selectors = (key_selector or constant_key,)
        self.watermark = MIN_TIMESTAMP
        self._grouping = grouping
        if self.allowed_lateness < 0:
            raise InvalidJob(f"allowed lateness must not be negative, got {self.allowed_lateness} ms")
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
        self._saved_watermark = context.operator_state.get_union_list_state(WATERMARK_STATE, int)
        self.watermark = max(timers.current_watermark, min(self._saved_watermark, default=MIN_TIMESTAMP))
        self._dropped = None if context.metrics is None else context.metrics.counter(LATE_RECORDS_METRIC)
        self._windows = self._way()(self, backend, timers)
        self._key_field = field_of(self.key_selectors[0])

    def _way(self) -> type[GroupedWindows] | type[SessionWindows] | type[PaneWindows]:
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
        self._saved_watermark[:] = [self.watermark]
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
            self._windows.process(values, iterator, keys, rows.timestamps)
        except Exception as error:
            refuse_keys(self.context, error, keys, values)
            index = max(0, position(values, iterator))
            raise_user_error(self.context, error, f"the window of record {index}: {shortened(values[index])}")
        self.results.flush()

    def late(self, value: Any, timestamp: int | None) -> None:
        """A record for which all its windows are gone."""
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

    def current_watermark(self) -> int:
        return self.watermark
