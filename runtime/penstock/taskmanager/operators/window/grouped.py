"""Grouped windows: tumbling and sliding time windows with their default trigger, and the global window of batch mode.

The global window fires when the input ends and gives batch mode's final results. The windows of this module have a
reduce or an aggregate. `grouped_lists` has the windows whose function gets all records.

Grouped windows need no trigger call per record and no timer per key and window. All keys of a window fire together,
when the clock passes the window's end, and are cleaned up together. So the state is grouped by window first (the
namespace) and then by key, and the clock is compared with the few open windows.

The results and the state (`window-contents`) are the same as those of `panes`. So this module can restore snapshots of
`panes`, and `panes` can restore snapshots of this module.

Time is divided into *slices* of gcd(size, slide). All records of a slice belong to the same windows. A batch spans few
slices, so windows are looked up once per slice and batch. The loop per record only accesses a dictionary and calls the
user's function.
"""

from __future__ import annotations

from itertools import chain, repeat
from math import gcd
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, ColumnBatch
from penstock.taskmanager.operators.aggregate.stat_columns import NotColumnar
from penstock.taskmanager.operators.current_key import iterate_keys
from penstock.taskmanager.operators.tables import Table
from penstock.taskmanager.operators.user_code import raise_user_error
from penstock.taskmanager.operators.window.columns import group_columns
from penstock.taskmanager.operators.window.contents import CONTENTS, contents_descriptor
from penstock.taskmanager.operators.window.contexts import WindowContext
from penstock.taskmanager.operators.window.function import Fold, clearer, invoker
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.count_windows import GlobalWindows
from penstock.windowing.time_windows import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.windowing.trigger import EventTimeTrigger, ProcessingTimeTrigger
from penstock.windowing.windows import GlobalWindow, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.records.fields import Field
    from penstock.state.backend import KeyedStateBackend
    from penstock.state.timers.internal_timer_service import InternalTimerService
    from penstock.taskmanager.operators.window.host import WindowHost
    from penstock.windowing.window_function import WindowFunctionSpec
    from penstock.windowing.windows import Namespace, Window

_MAX_MEMBERS = 1 << 20
"""Maximum number of pairs of record and window in columns. It limits the memory of the columns."""


def can_group(operator: WindowHost) -> bool:
    """Return whether the operator's windows may be grouped: no user code decides about a single pane."""
    assigner, trigger = type(operator.assigner), type(operator.trigger)
    if operator.evictor is not None:
        return False
    if trigger is EventTimeTrigger:
        return assigner in (TumblingEventTimeWindows, SlidingEventTimeWindows, GlobalWindows)
    return trigger is ProcessingTimeTrigger and assigner in (
        TumblingProcessingTimeWindows,
        SlidingProcessingTimeWindows,
    )


class Opened:
    """A window during a batch: its table, and lists of the keys that changed."""

    __slots__ = ("changed", "has_fired", "space", "table")

    def __init__(self, space: Namespace, table: dict[Any, Any], *, has_fired: bool) -> None:
        self.space = space
        self.table = table
        self.has_fired = has_fired
        self.changed: list[list[Any]] = []


class Slice:
    """The windows that contain a slice of time, and the keys that occur in the slice.

    If the slice is plain, its records only change tables.
    """

    __slots__ = ("changed", "is_plain", "tables", "windows")

    def __init__(self, windows: list[Opened]) -> None:
        self.windows = windows
        self.tables = [window.table for window in windows]
        self.is_plain = bool(windows) and not any(window.has_fired for window in windows)
        self.changed: list[Any] = []
        for window in windows:
            window.changed.append(self.changed)


class GroupedWindows:
    """The windows of one operator, processed window by window."""

    def __init__(self, operator: WindowHost, backend: KeyedStateBackend, timers: InternalTimerService) -> None:
        assigner: Any = operator.assigner
        spec = operator.function
        self._operator = operator
        self._timers = timers
        self._at = backend.key_context
        self._is_global = isinstance(assigner, GlobalWindows)
        self._event_time = assigner.is_event_time() or self._is_global
        if self._is_global:
            self._size = self._slide = 2**64
            self._offset = MIN_TIMESTAMP
        else:
            self._size, self._slide, self._offset = assigner.size_ms, assigner.slide_ms, assigner.offset_ms
        self._last = MAX_TIMESTAMP if self._is_global else MAX_TIMESTAMP - 1
        """The last timestamp of any window."""
        self._slice = gcd(self._size, self._slide)
        self.most_records = max(1, _MAX_MEMBERS // max(1, self._size // self._slide))
        """Maximum number of records of columns to process at the same time."""
        self._lateness = operator.allowed_lateness if assigner.is_event_time() else 0
        self._fields = spec.fold if isinstance(spec.fold, FieldAggregate) else None
        self._invoke = invoker(spec, is_keyed=operator.has_key)
        self._clear = clearer(spec)
        self._make_contents(backend, spec)
        self._window_ctx = WindowContext(
            operator.context, operator.current_watermark, operator.results, is_merging=False
        )
        self._due: dict[Namespace, int] = {}
        """The next time (ms) at which the clock fires or cleans up each window with contents.

        After a restore, these may be windows of a former program, into which no more records fall.
        """
        self._fired: set[Namespace] = set()
        """Windows that have fired and wait for late records."""
        self._next_due = MAX_TIMESTAMP
        timers.set_callbacks(_ignore_timer, _ignore_timer)
        if operator.context.is_restored:
            for namespace in backend.namespaces(CONTENTS):
                self._schedule(namespace)

    def _make_contents(self, backend: KeyedStateBackend, spec: WindowFunctionSpec) -> None:
        self._fold = Fold(spec)
        self._table = Table(backend, contents_descriptor(spec, evicts=False))

    # --- records ----------------------------------------------------------------------------------------------

    def process(
        self, values: list[Any], iterator: Iterator[Any], keys: list[Any], timestamps: list[int] | None
    ) -> None:
        """Process every record of a batch. `iterator` runs over `values`."""
        times = self._times(len(values), timestamps)
        call, create, is_reduce = self._fold.call, self._fold.create, self._fold.is_reduce
        inputs = values
        if self._fields is not None:
            call = self._fields.stepper()
            inputs = self._fields.prepare(values)
        length, offset = self._slice, self._offset
        batch_windows = BatchWindows(self, keys)
        low = high = MIN_TIMESTAMP
        part = Slice([])
        changed, tables, is_plain = part.changed, part.tables, part.is_plain
        current_keys = iterate_keys(self._at, keys) if self._fold.may_use_state else keys
        for original, value, key, time in zip(iterator, inputs, current_keys, times, strict=False):
            if not low <= time < high:
                low = time - (time - offset) % length
                high = low + length
                part = batch_windows.of_slice(low)
                changed, tables, is_plain = part.changed, part.tables, part.is_plain
            if not is_plain:
                self._fold_and_fire(part, original, value, key, time)
                continue
            changed.append(key)
            if is_reduce:
                for table in tables:
                    old = table.get(key)
                    table[key] = value if old is None else call(old, value)
            else:
                for table in tables:
                    old = table.get(key)
                    table[key] = call(value, create() if old is None else old)
        batch_windows.close()

    def _fold_and_fire(self, part: Slice, original: Any, value: Any, key: Any, time: int) -> None:
        """Process a record that is late for some or all of its windows."""
        if not part.windows:
            self._on_late(original, time)
            return
        part.changed.append(key)
        call, create = self._fold.call, self._fold.create
        if self._fields is not None:
            call = self._fields.stepper()
        for window in part.windows:
            table = window.table
            old = table.get(key)
            if self._fold.is_reduce:
                table[key] = value if old is None else call(old, value)
            else:
                table[key] = call(value, create() if old is None else old)
            if window.has_fired:
                self._fire_pane(window.space, key, table[key])

    def _times(self, count: int, timestamps: list[int] | None) -> Iterable[int]:
        if self._is_global:
            return repeat(0, count)
        if not self._event_time:
            return repeat(self._operator.context.clock.now_ms(), count)
        if timestamps is None:
            raise InvalidJob(
                "the records have no timestamps, but their windows are event-time windows",
                remedy="call assign_timestamps_and_watermarks before the window, or use processing-time windows",
            )
        return timestamps

    def process_columns(self, batch: ColumnBatch, key_field: Field) -> ColumnBatch | None:
        """Aggregate the records as columns. Return the records that must go through `process` as rows, or None."""
        has_times = self._event_time and not self._is_global
        if self._fields is None or (has_times and batch.timestamps is None):
            return batch
        now = self._operator.context.clock.now_ms()
        times = batch.timestamps if has_times else None
        columns = group_columns(batch, key_field, times, now, self._slice, self._offset, self._fields)
        if columns is None:
            return batch
        batch_windows = BatchWindows(self, columns.keys)
        parts = [batch_windows.of_slice(low) for low in columns.slices]
        windows = {window.space: window for part in parts if part.is_plain for window in part.windows}
        rest = [low for low, part in zip(columns.slices, parts, strict=True) if not part.is_plain]
        if rest and any(window.space in windows for part in parts if not part.is_plain for window in part.windows):
            return batch  # otherwise a window would get its records in another order
        index = {space: n for n, space in enumerate(windows)}
        opened = list(windows.values())
        windows_of = [[index[window.space] for window in part.windows] if part.is_plain else [] for part in parts]
        if opened:
            try:
                changes = columns.fold([window.table for window in opened], windows_of)
            except NotColumnar:
                return batch
            for n, keys in changes:
                opened[n].changed.append(keys)
        batch_windows.close()
        return columns.records_of(rest, batch) if rest else None

    def _on_late(self, value: Any, time: int) -> None:
        """Handle a record that belongs to no window, or only to windows that have been removed."""
        if self._event_time and time <= self._operator.removed_until:
            self._operator.late(value, time)

    def starts_of_slice(self, low: int) -> list[int]:
        """Return the starts of the windows that contain the slice at `low`, the latest first, without the removed
        windows."""
        last = low - (low - self._offset) % self._slide
        starts = range(last, low - self._size, -self._slide)
        if not self._event_time:
            return list(starts)
        gone = self._operator.removed_until - self._size + 1
        return [start for start in starts if start > gone]

    def open_window(self, start: int, keys: list[Any]) -> Opened:
        space = self._namespace(start)
        if space not in self._due:
            self._schedule(space)
        return Opened(space, self._borrow(space, keys), has_fired=space in self._fired)

    def _borrow(self, namespace: Namespace, keys: list[Any]) -> dict[Any, Any]:
        return self._table.borrow(keys, namespace)

    def close_window(self, window: Opened) -> None:
        changed = window.changed[0] if len(window.changed) == 1 else chain.from_iterable(window.changed)
        self._table.write_back(window.table, changed, window.space)

    def _namespace(self, start: int) -> Namespace:
        return (0,) if self._is_global else (start, min(start + self._size - 1, self._last) + 1)

    def _window(self, space: Namespace) -> Window:
        return GlobalWindow.get() if self._is_global else TimeWindow(*space)

    def _end(self, space: Namespace) -> int:
        """Return the last timestamp that belongs to the window."""
        return self._last if self._is_global else space[1] - 1

    # --- clocks -----------------------------------------------------------------------------------------------

    def on_watermark(self, timestamp: int) -> None:
        self._timers.advance_watermark(timestamp)
        if self._event_time:
            self._advance(timestamp)

    def on_processing_time(self, now: int) -> None:
        self._timers.advance_processing_time(now)
        if not self._event_time:
            self._advance(now)

    def next_processing_time(self) -> int | None:
        return None if self._event_time or not self._due else self._next_due

    def _schedule(self, space: Namespace) -> None:
        due = self._end(space)
        if self._event_time and due <= self._operator.watermark:
            self._fired.add(space)
            due += self._lateness
        self._due[space] = due
        self._next_due = min(self._next_due, due)

    def _advance(self, now: int) -> None:
        """Fire and clean up the windows that are due, in order of time."""
        while now >= self._next_due:
            for due, space in sorted((due, space) for space, due in self._due.items() if due <= now):
                if space in self._fired:
                    self._clean_up(space, self._pop(space))
                    self._fired.discard(space)
                elif self._lateness:
                    self._fire(space, self._items(space))
                    self._fired.add(space)
                    self._due[space] = due + self._lateness
                    continue
                else:
                    self._fire(space, self._pop(space), is_last=True)
                del self._due[space]
            self._next_due = min(self._due.values(), default=MAX_TIMESTAMP)
            if not self._due:
                return

    # --- firing -----------------------------------------------------------------------------------------------

    def _items(self, namespace: Namespace) -> Iterable[tuple[Any, Any]]:
        return self._table.items(namespace)

    def _pop(self, namespace: Namespace) -> Iterable[tuple[Any, Any]]:
        return self._table.pop(namespace)

    def _fire(self, space: Namespace, items: Iterable[tuple[Any, Any]], *, is_last: bool = False) -> None:
        """Evaluate the window for every key. If `is_last` is true, the window is cleaned up at the same time."""
        results = self._operator.results
        if self._invoke is None and not self._fold.may_use_state:
            fold = self._fold.result
            values = [accumulator if self._fold.is_reduce else fold(accumulator) for _, accumulator in items]
            results.values.extend(values)
            results.timestamps.extend(repeat(self._end(space), len(values)))
        else:
            for key, accumulator in items:
                self._fire_pane(space, key, accumulator)
                if is_last:
                    self._call_clear()
        results.flush()

    def _fire_pane(self, space: Namespace, key: Any, accumulator: Any) -> None:
        window = self._window(space)
        results = self._operator.results
        try:
            self._set_current(space, window, key)
            elements = self._elements(accumulator)
            if self._invoke is None:
                results.add(elements[0], window.max_timestamp())
                return
            returned = self._invoke(self._at.as_restored(key), self._window_ctx, elements)
            if returned is not None:
                results.collect(returned, window.max_timestamp())
        except Exception as error:
            raise_user_error(self._operator.context, error, f"{window!r} of the key {key!r}")

    def _elements(self, accumulator: Any) -> list[Any]:
        """Return the elements for the window function."""
        return [self._fold.result(accumulator)]

    def _clean_up(self, space: Namespace, items: Iterable[tuple[Any, Any]]) -> None:
        window = self._window(space)
        for key, _ in items:
            if self._clear is not None:
                self._set_current(space, window, key)
                self._call_clear()

    def _set_current(self, space: Namespace, window: Window, key: Any) -> None:
        self._at.key, self._at.namespace = key, None
        self._window_ctx.current, self._window_ctx.namespace = window, space

    def _call_clear(self) -> None:
        if self._clear is not None:
            try:
                self._clear(self._window_ctx)
            except Exception as error:
                raise_user_error(self._operator.context, error, f"clear of {self._window_ctx.current!r}")


class BatchWindows:
    """The windows of the records of one batch."""

    def __init__(self, windows: GroupedWindows, keys: list[Any]) -> None:
        self._windows = windows
        self._keys = keys
        self._slices: dict[int, Slice] = {}
        self._opened: dict[int, Opened] = {}

    def of_slice(self, low: int) -> Slice:
        """Return the slice that starts at `low` (ms)."""
        part = self._slices.get(low)
        if part is None:
            part = self._slices[low] = Slice([self._open(start) for start in self._windows.starts_of_slice(low)])
        return part

    def _open(self, start: int) -> Opened:
        window = self._opened.get(start)
        if window is None:
            window = self._opened[start] = self._windows.open_window(start, self._keys)
        return window

    def close(self) -> None:
        for window in self._opened.values():
            self._windows.close_window(window)


def _ignore_timer(timestamp: int, key: Any, namespace: Any) -> None:
    """Ignore a timer of a run without grouping. Grouped windows need no timers."""
