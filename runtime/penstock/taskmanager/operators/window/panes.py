"""Windows by pane: the general implementation, for every assigner, trigger, evictor and function.

A *pane* is one key and one window. Every record goes through the assigner and, for each of its windows, through the
trigger. Each pane has the timers of its trigger, and a timer for its clean-up. The rules are those of Flink:

* A record is late if all its windows have been cleaned up. It goes to the late output, or is counted and dropped.
* A window is cleaned up when its clock reaches its end plus, in event time, the allowed lateness.
* FIRE calls the window function. PURGE drops the contents and calls the function's `clear`, but keeps the trigger
  state.
* When windows merge, the merged window gets their trigger state, timers and contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.taskmanager.operators.user_code import raise_user_error
from penstock.taskmanager.operators.window.contents import (
    CONTENTS,
    Contents,
    EvictedContents,
    FoldedContents,
    ListContents,
)
from penstock.taskmanager.operators.window.contexts import (
    AssignerContext,
    EvictionContext,
    TriggerContext,
    WindowContext,
)
from penstock.taskmanager.operators.window.function import clearer, invoker
from penstock.taskmanager.operators.window.merging import MergingWindows
from penstock.windowing.assigner import NO_TIMESTAMP, MergingWindowAssigner
from penstock.windowing.trigger import EventTimeTrigger, TriggerResult
from penstock.windowing.windows import MAX_LONG, Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.state.backend import KeyedStateBackend
    from penstock.state.timers.internal_timer_service import InternalTimerService
    from penstock.taskmanager.operators.window.host import WindowHost


class PaneWindows:
    """The windows of one operator, processed pane by pane."""

    def __init__(self, operator: WindowHost, backend: KeyedStateBackend, timers: InternalTimerService) -> None:
        context, clock = operator.context, operator.current_watermark
        self._operator = operator
        self._backend = backend
        self._timers = timers
        self._at = backend.key_context
        self._assigner = assigner = operator.assigner
        self._trigger = operator.trigger
        self._evictor = operator.evictor
        self._event_time = assigner.is_event_time()
        serializer = assigner.get_window_serializer()
        self._to_namespace = serializer.to_namespace
        self._from_namespace = serializer.from_namespace
        self._merging: MergingWindows | None = None
        if isinstance(assigner, MergingWindowAssigner):
            self._merging = MergingWindows(assigner, backend)
        self._contents = self._create_contents()
        self._assigner_ctx = AssignerContext(context, clock, assigner)
        self._trigger_ctx = TriggerContext(context, clock)
        self._eviction_ctx = EvictionContext(context, clock)
        self._window_ctx = WindowContext(context, clock, operator.results, is_merging=self._merging is not None)
        self._invoke = invoker(operator.function, is_keyed=operator.has_key)
        self._clear = clearer(operator.function)
        timers.set_callbacks(self._on_event_time, self._on_processing_time)
        if context.is_restored:
            self._adopt_panes()

    def _create_contents(self) -> Contents:
        spec, backend = self._operator.function, self._backend
        if self._evictor is not None:
            return EvictedContents(backend, spec)
        return FoldedContents(backend, spec) if spec.is_incremental else ListContents(backend, spec)

    def _adopt_panes(self) -> None:
        """Give restored panes the timers that they need.

        Panes of a run with fewer timers (`GroupedWindows`, `SessionWindows`) have no timers. Panes of a run with
        another allowed lateness have a timer for another time. A pane that a shorter lateness removes immediately has
        already fired.
        """
        at, timers, watermark = self._at, self._timers, self._operator.watermark
        may_lack_timers = isinstance(self._contents, FoldedContents | ListContents)
        with_timers = {(key, namespace) for _, key, namespace in timers.event_time_timers()}
        fires_at_end = may_lack_timers and (self._event_time or isinstance(self._trigger, EventTimeTrigger))
        for key, namespace in list(self._restored_panes()):
            window = self._from_namespace(namespace)
            end, cleanup = window.max_timestamp(), self._cleanup_time(window)
            at.key, at.namespace = key, namespace
            if self._event_time and cleanup <= watermark:
                contents_at = namespace if self._merging is None else self._merging.state_window(namespace)
                if contents_at is not None:
                    self._clean_up(window, namespace, contents_at)
                continue
            if fires_at_end and end > watermark and (key, namespace) not in with_timers:
                timers.register_event_time_timer(end)
            self._register_cleanup(cleanup)

    def _restored_panes(self) -> Iterator[tuple[Any, Namespace]]:
        """Yield keys and windows."""
        if self._merging is not None:
            yield from self._merging.panes()
            return
        for namespace in list(self._backend.namespaces(CONTENTS)):
            for key in list(self._backend.keys(CONTENTS, namespace)):
                yield key, namespace

    # --- records ----------------------------------------------------------------------------------------------

    def process(
        self, values: list[Any], iterator: Iterator[Any], keys: list[Any], timestamps: list[int] | None
    ) -> None:
        """Process every record of a batch. `iterator` runs over `values`."""
        at, assign, assigner_ctx = self._at, self._assigner.assign_windows, self._assigner_ctx
        operator = self._operator
        gone = operator.removed_until
        contents_at: Namespace = ()
        stamps = [NO_TIMESTAMP] * len(values) if timestamps is None else timestamps
        for value, key, timestamp in zip(iterator, keys, stamps, strict=True):
            at.key = key
            at.namespace = None
            skipped = True
            for window in assign(value, timestamp, assigner_ctx):
                if self._merging is not None:
                    window, contents_at = self._merging.add(window, self._on_merge)
                cleanup = self._cleanup_time(window)
                namespace = self._to_namespace(window)
                if self._event_time and window.max_timestamp() <= gone:
                    if self._merging is not None:
                        self._merging.retire(namespace)
                    continue
                if self._merging is None:
                    contents_at = namespace
                skipped = False
                self._add(value, timestamp, window, namespace, contents_at)
                at.namespace = namespace
                self._register_cleanup(cleanup)
            if skipped and self._is_late_record(timestamp):
                operator.late(value, None if timestamps is None else timestamp)

    def _add(self, value: Any, timestamp: int, window: Any, namespace: Namespace, contents_at: Namespace) -> None:
        at = self._at
        at.namespace = contents_at
        self._contents.add(value, timestamp)
        at.namespace = namespace
        result = self._trigger.on_element(value, timestamp, window, self._trigger_ctx)
        if result is not TriggerResult.CONTINUE:
            self._apply(result, window, namespace, contents_at)

    def _on_merge(self, merged: Any, gone: list[Any], state: Namespace, moved: list[Namespace]) -> None:
        at, ctx = self._at, self._trigger_ctx
        at.namespace = self._to_namespace(merged)
        ctx.merged = tuple(map(self._to_namespace, gone))
        self._trigger.on_merge(merged, ctx)
        ctx.merged = ()
        for window in gone:
            at.namespace = self._to_namespace(window)
            self._trigger.clear(window, ctx)
            self._delete_cleanup(window)
        if moved:
            self._contents.merge(state, moved)

    # --- timers -----------------------------------------------------------------------------------------------

    def _on_event_time(self, timestamp: int, key: Any, namespace: Namespace) -> None:
        self._on_timer(timestamp, key, namespace, self._trigger.on_event_time, is_own_clock=self._event_time)

    def _on_processing_time(self, timestamp: int, key: Any, namespace: Namespace) -> None:
        self._on_timer(timestamp, key, namespace, self._trigger.on_processing_time, is_own_clock=not self._event_time)

    def _on_timer(
        self, timestamp: int, key: Any, namespace: Namespace, call_trigger: Any, *, is_own_clock: bool
    ) -> None:
        window = self._from_namespace(namespace)
        contents_at: Namespace | None = namespace
        if self._merging is not None:
            contents_at = self._merging.state_window(namespace)
            if contents_at is None:
                return  # the timer of a window that has merged or was cleaned up
        assert contents_at is not None
        try:
            self._at.namespace = namespace
            result = call_trigger(timestamp, window, self._trigger_ctx)
            is_cleanup = is_own_clock and timestamp == self._cleanup_time(window)
            if result is not TriggerResult.CONTINUE:
                self._apply(result, window, namespace, contents_at, is_cleanup=is_cleanup)
            if is_cleanup:
                self._clean_up(window, namespace, contents_at)
        except Exception as error:
            raise_user_error(self._operator.context, error, f"{window!r} of the key {key!r}")

    def on_watermark(self, timestamp: int) -> None:
        self._timers.advance_watermark(timestamp)

    def on_processing_time(self, now: int) -> None:
        self._timers.advance_processing_time(now)

    def next_processing_time(self) -> int | None:
        return self._timers.next_processing_time()

    # --- panes ------------------------------------------------------------------------------------------------

    def _apply(
        self,
        result: TriggerResult,
        window: Any,
        namespace: Namespace,
        contents_at: Namespace,
        *,
        is_cleanup: bool = False,
    ) -> None:
        if result.is_fire():
            self._at.namespace = contents_at
            elements = self._contents.elements()
            if elements is not None:
                self._emit(elements, window, namespace, contents_at)
        if result.is_purge() and not is_cleanup:
            self._at.namespace = contents_at
            self._contents.clear()
            self._call_clear(window, namespace)

    def _emit(self, elements: list[Any], window: Any, namespace: Namespace, contents_at: Namespace) -> None:
        contents, evictor = self._contents, self._evictor
        timestamped = elements
        if evictor is not None:
            assert isinstance(contents, EvictedContents)
            elements = contents.evict(evictor, timestamped, window, self._eviction_ctx)
        results = self._operator.results
        if self._invoke is None:
            for element in elements:
                results.add(element, window.max_timestamp())
        else:
            self._at.namespace = None
            self._window_ctx.current, self._window_ctx.namespace = window, namespace
            returned = self._invoke(self._at.as_restored(self._at.key), self._window_ctx, elements)
            if returned is not None:
                results.collect(returned, window.max_timestamp())
        if evictor is not None:
            assert isinstance(contents, EvictedContents)
            self._at.namespace = contents_at
            contents.keep(evictor, timestamped, window, self._eviction_ctx)

    def _clean_up(self, window: Any, namespace: Namespace, contents_at: Namespace) -> None:
        at = self._at
        at.namespace = contents_at
        self._contents.clear()
        at.namespace = namespace
        self._trigger.clear(window, self._trigger_ctx)
        self._call_clear(window, namespace)
        if self._merging is not None:
            self._merging.retire(namespace)

    def _call_clear(self, window: Any, namespace: Namespace) -> None:
        if self._clear is not None:
            self._at.namespace = None
            self._window_ctx.current, self._window_ctx.namespace = window, namespace
            self._clear(self._window_ctx)

    # --- lateness ---------------------------------------------------------------------------------------------

    def _cleanup_time(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(end + self._operator.allowed_lateness, MAX_LONG) if self._event_time else end

    def _is_late_record(self, timestamp: int) -> bool:
        return self._event_time and timestamp <= self._operator.removed_until

    def _register_cleanup(self, time: int) -> None:
        if time == MAX_LONG:
            return
        if self._event_time:
            self._timers.register_event_time_timer(time)
        else:
            self._timers.register_processing_time_timer(time)

    def _delete_cleanup(self, window: Any) -> None:
        time = self._cleanup_time(window)
        if time == MAX_LONG:
            return
        if self._event_time:
            self._timers.delete_event_time_timer(time)
        else:
            self._timers.delete_processing_time_timer(time)
