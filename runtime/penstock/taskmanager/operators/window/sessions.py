"""Sessions with their default trigger and a reduce or an aggregate, the key's sessions as a whole instead of pane by pane.

It gives the same results as `panes`, from the same state (the windows of a key in `window-merging-set`, accumulators in
`window-contents` under the window that the session began as); either can be restored from a snapshot of the other.

Three things make it cheap. Within a batch the session that a key was in last is at hand: a record that falls into it is a
comparison and the user's function, and state is read and written once per key and batch. A session that grows keeps the
timer it has; when that fires too early, the timer for the real end is registered. And the trigger is not asked: without
allowed lateness the default one says nothing but "fire at the end".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import repeat
from typing import TYPE_CHECKING, Any

from penstock.state.descriptors import ValueStateDescriptor
from penstock.taskmanager.operators.user_code import raise_user_error
from penstock.taskmanager.operators.window.contents import contents_descriptor
from penstock.taskmanager.operators.window.contexts import WindowContext
from penstock.taskmanager.operators.window.function import Fold, clearer, invoker
from penstock.taskmanager.operators.window.merging import MERGING_WINDOWS, end_of, start_of
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.assigner import NO_TIMESTAMP, event_time_of
from penstock.windowing.sessions import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from penstock.windowing.trigger import EventTimeTrigger, ProcessingTimeTrigger
from penstock.windowing.windows import MAX_LONG, Namespace, TimeWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.backend import KeyedStateBackend
    from penstock.state.timers.internal_timer_service import InternalTimerService
    from penstock.taskmanager.operators.window.merging import Windows
    from penstock.taskmanager.operators.window.operator import WindowOperator


def are_plain_sessions(operator: WindowOperator) -> bool:
    """Whether nothing of the user's decides about a single session, and none is kept after it has fired."""
    assigner, trigger = type(operator.assigner), type(operator.trigger)
    if operator.evictor is not None or not operator.function.is_incremental:
        return False
    if trigger is EventTimeTrigger:
        of_event_time = assigner in (EventTimeSessionWindows, DynamicEventTimeSessionWindows)
        return of_event_time and not operator.allowed_lateness
    return trigger is ProcessingTimeTrigger and assigner in (
        ProcessingTimeSessionWindows,
        DynamicProcessingTimeSessionWindows,
    )


class _Session:
    """The session that a key was in last, while a batch is processed.

    Attributes:
        stored_end: as the key's windows have it; None: they do not have it yet.
        before: where the key's next session begins, or behind the end of time.
        place: of the session among the key's windows.
    """

    __slots__ = ("accumulator", "before", "end", "place", "start", "state", "stored_end")

    def __init__(self, start: int, end: int, state: Namespace, accumulator: Any, place: int, before: int) -> None:
        self.start = start
        self.end = end
        self.stored_end: int | None = end
        self.state = state
        self.accumulator = accumulator
        self.place = place
        self.before = before


class SessionWindows:
    """The sessions of one operator, key by key."""

    def __init__(self, operator: WindowOperator, backend: KeyedStateBackend, timers: InternalTimerService) -> None:
        assigner: Any = operator.assigner
        spec = operator.function
        self._operator = operator
        self._timers = timers
        self._at = backend.key_context
        self._event_time = assigner.is_event_time()
        is_fixed = isinstance(assigner, EventTimeSessionWindows | ProcessingTimeSessionWindows)
        self._gap = assigner.gap_ms(None) if is_fixed else None
        self._gap_of = assigner.gap_ms
        self._fold = Fold(spec)
        self._fields = spec.fold if isinstance(spec.fold, FieldAggregate) else None
        self._windows = backend.raw_table(ValueStateDescriptor(MERGING_WINDOWS))
        self._contents = backend.raw_table(contents_descriptor(spec, evicts=False))
        self._invoke = invoker(spec, is_keyed=operator.has_key)
        self._clear = clearer(spec)
        self._window_ctx = WindowContext(
            operator.context, operator.current_watermark, operator.results, is_merging=True
        )
        register = timers.register_event_time_timer if self._event_time else timers.register_processing_time_timer
        self._register = register
        timers.set_callbacks(self._on_timer, self._on_timer)

    # --- records ----------------------------------------------------------------------------------------------

    def process(
        self, values: list[Any], iterator: Iterator[Any], keys: list[Any], timestamps: list[int] | None
    ) -> None:
        """Every record of a batch; `iterator` runs over `values`."""
        times: Iterable[int]
        if not self._event_time:
            times = repeat(self._operator.context.clock.now_ms(), len(values))
        else:
            times = repeat(NO_TIMESTAMP) if timestamps is None else timestamps
        fold = self._fold
        call, create, is_reduce = fold.call, fold.create, fold.is_reduce
        inputs = values
        if self._fields is not None:
            call = self._fields.stepper()
            inputs = self._fields.prepare(values)
        gap, gap_of = self._gap, self._gap_of
        sessions: dict[Any, _Session] = {}
        known = sessions.get
        for original, value, key, time in zip(iterator, inputs, keys, times, strict=False):
            end = time + (gap_of(original) if gap is None else gap)
            session = known(key)
            if session is not None and session.start <= time <= session.end and end < session.before:
                if end > session.end:
                    session.end = end
            else:
                session = self._session_of(key, time, min(end, MAX_LONG), sessions)
                if session is None:
                    self._operator.late(original, time)
                    continue
            accumulator = session.accumulator
            if is_reduce:
                session.accumulator = value if accumulator is None else call(accumulator, value)
            else:
                session.accumulator = call(value, create() if accumulator is None else accumulator)
        for key, session in sessions.items():
            self._store(key, session)

    def _session_of(self, key: Any, time: int, end: int, sessions: dict[Any, _Session]) -> _Session | None:
        """The session that now holds the time, with those merged that it brings together; None: it is over already."""
        event_time_of(time)
        if key in sessions:
            self._store(key, sessions.pop(key))
        windows: Windows = self._windows.get(key) or ()
        first = behind = 0
        if windows:
            first = bisect_left(windows, time, key=end_of)
            behind = bisect_right(windows, end, first, key=start_of)
        before = windows[behind][0][0] if behind < len(windows) else MAX_LONG + 1
        if first == behind:
            if self._event_time and end - 1 <= self._operator.watermark:
                return None
            own = (time, end)
            self._set_timer(key, own)
            session = _Session(time, end, own, None, first, before)
            session.stored_end = None
        else:
            session = self._merged(key, (time, end), windows, first, behind, before)
        sessions[key] = session
        return session

    def _merged(self, key: Any, new: Namespace, windows: Windows, first: int, behind: int, before: int) -> _Session:
        touched = windows[first:behind]
        low, high = min(new[0], touched[0][0][0]), max(new[1], touched[-1][0][1])
        state = touched[0][1]
        contents, fold = self._contents, self._fold
        accumulator = contents.get(key, state)
        for _, other in touched[1:]:
            accumulator = fold.merge(accumulator, contents.get(key, other))
            contents.remove(key, other)
        last = touched[-1][0]
        if len(touched) > 1 or last != (low, high):
            self._windows.put(key, (*windows[:first], ((low, high), state), *windows[behind:]))
            if last[1] == high and last != (low, high):
                # its timer may be the one for this end, under a window that is gone now
                self._at.key, self._at.namespace = key, last
                self._delete(high - 1)
                self._set_timer(key, (low, high))
        return _Session(low, high, state, accumulator, first, before)

    def _store(self, key: Any, session: _Session) -> None:
        """Write what changed; the windows themselves only if the session is new or has grown since they were."""
        if session.end != session.stored_end:
            windows: Windows = self._windows.get(key) or ()
            place = session.place
            pair = ((session.start, session.end), session.state)
            behind = place if session.stored_end is None else place + 1
            self._windows.put(key, (*windows[:place], pair, *windows[behind:]) if windows else (pair,))
        self._contents.put(key, session.accumulator, session.state)

    # --- timers -----------------------------------------------------------------------------------------------

    def _set_timer(self, key: Any, window: Namespace) -> None:
        if window[1] - 1 < MAX_LONG:
            self._at.key, self._at.namespace = key, window
            self._register(window[1] - 1)

    def _delete(self, time: int) -> None:
        if self._event_time:
            self._timers.delete_event_time_timer(time)
        else:
            self._timers.delete_processing_time_timer(time)

    def on_watermark(self, timestamp: int) -> None:
        self._timers.advance_watermark(timestamp)

    def on_processing_time(self, now: int) -> None:
        self._timers.advance_processing_time(now)

    def next_processing_time(self) -> int | None:
        return self._timers.next_processing_time()

    def _on_timer(self, timestamp: int, key: Any, namespace: Namespace) -> None:
        """The session has ended, or has become a longer one since, or is gone."""
        windows: Windows | None = self._windows.get(key)
        if windows is None:
            return
        place = 0 if len(windows) == 1 else max(0, bisect_right(windows, namespace[0], key=start_of) - 1)
        start, end = windows[place][0]
        if start > namespace[0] or end < namespace[1]:
            return
        window, state = windows[place]
        if window != namespace:
            self._set_timer(key, window)
            return
        if timestamp != window[1] - 1:
            return
        try:
            self._fire(key, TimeWindow(*window), window, self._contents.get(key, state))
        except Exception as error:
            raise_user_error(self._operator.context, error, f"{TimeWindow(*window)!r} of the key {key!r}")
        self._contents.remove(key, state)
        if len(windows) > 1:
            self._windows.put(key, (*windows[:place], *windows[place + 1 :]))
        else:
            self._windows.remove(key)

    def _fire(self, key: Any, window: TimeWindow, namespace: Namespace, accumulator: Any) -> None:
        results = self._operator.results
        if accumulator is not None:
            element = self._fold.result(accumulator)
            if self._invoke is None:
                results.add(element, window.max_timestamp())
            else:
                self._stand_on(key, window, namespace)
                returned = self._invoke(key, window, self._window_ctx, [element])
                if returned is not None:
                    results.collect(returned, window.max_timestamp())
        if self._clear is not None:
            self._stand_on(key, window, namespace)
            self._clear(self._window_ctx)

    def _stand_on(self, key: Any, window: TimeWindow, namespace: Namespace) -> None:
        self._at.key, self._at.namespace = key, None
        self._window_ctx.current, self._window_ctx.namespace = window, namespace
