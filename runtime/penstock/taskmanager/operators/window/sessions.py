"""Sessions with their default trigger and a reduce or an aggregate, processed key by key instead of pane by pane.

The results and the state are the same as those of `panes`. `window-merging-set` holds the windows of a key.
`window-contents` holds the accumulators, under the first window of the session. So this module can restore snapshots of
`panes`, and `panes` can restore snapshots of this module.

State is written with a snapshot, or earlier if the sessions of too many keys are unwritten and would delay a barrier.
Until then a session is an object in memory, and a schedule holds the time of its end.

If gaps are short, most sessions start and end between two snapshots. Such a session causes no access to state and no
timer. Written sessions leave memory, so that no session is in memory twice. They are read again when a record of their
key arrives or their timer fires.

The trigger is not called: without allowed lateness, the default trigger only fires at the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.functions.output_tag import OutputTag
from penstock.state.descriptors import ValueStateDescriptor
from penstock.taskmanager.operators.current_key import iterate_keys
from penstock.taskmanager.operators.schedule import Schedule
from penstock.taskmanager.operators.user_code import raise_user_error
from penstock.taskmanager.operators.window.contents import contents_descriptor
from penstock.taskmanager.operators.window.contexts import WindowContext
from penstock.taskmanager.operators.window.function import Fold, clearer, invoker
from penstock.taskmanager.operators.window.merging import MERGING_WINDOWS
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
    from penstock.taskmanager.operators.window.host import WindowHost
    from penstock.taskmanager.operators.window.merging import Windows

MAX_KEYS = 1 << 14
"""Maximum number of keys with unwritten sessions. A barrier may wait about 50 ms for the write."""
MAX_STORED_KEYS = 1 << 12
"""The same limit for a backend that does not have the values in memory. Each write then takes four times as long."""


def are_plain_sessions(operator: WindowHost) -> bool:
    """Return whether no user code decides about a single session, and no session is kept after it has fired."""
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


class Session(msgspec.Struct, eq=False, gc=False):
    """A session in memory.

    Attributes:
        earlier: the previous session of the key. The list of sessions ends before a session that is over.
        state: the namespace of its accumulator in state, or None if it is not in state.
        has_timer: whether a timer exists for the session's end or an earlier time. A session without a timer is new or
            in the schedule.
        is_over: whether the session has fired or has become part of another session.
    """

    key: Any
    start: int
    end: int
    accumulator: Any = None
    earlier: Session | None = None
    state: Namespace | None = None
    has_timer: bool = False
    is_over: bool = False


start_of = attrgetter("start")
end_of = attrgetter("end")


class SessionWindows:
    """The sessions of one operator, processed key by key."""

    def __init__(self, operator: WindowHost, backend: KeyedStateBackend, timers: InternalTimerService) -> None:
        assigner: Any = operator.assigner
        spec = operator.function
        self._operator = operator
        self._timers = timers
        self._at = backend.key_context
        self._backend = backend
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
        self._latest: dict[Any, Session] = {}
        """The latest session of each key in memory. All sessions of such a key are in memory."""
        self._max_keys = MAX_STORED_KEYS if self._windows.mapping() is None else MAX_KEYS
        self._stored: set[Any] = set()
        """Keys in memory that also have sessions in state."""
        self._new: list[Session] = []
        """Sessions that started since the clock last advanced. Most of them may be over when it advances again."""
        self._schedule: Schedule[Session] = Schedule(_last_ms)
        self._due: list[Session] = []
        if operator.context.restored_meaning.get("allowed_lateness_ms"):
            self._remove_fired()

    # --- records ----------------------------------------------------------------------------------------------

    def process(
        self, values: list[Any], iterator: Iterator[Any], keys: list[Any], timestamps: list[int] | None
    ) -> None:
        """Process every record of a batch. `iterator` runs over `values`."""
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
        gap, gap_of, add_new = self._gap, self._gap_of, self._new.append
        latest, known, stored = self._latest, self._latest.get, self._windows.get
        over = self._operator.watermark + 1 if self._event_time else -MAX_LONG
        current_keys = iterate_keys(self._at, keys) if fold.may_use_state else keys
        for original, value, key, time in zip(iterator, inputs, current_keys, times, strict=False):
            end = time + (gap_of(original) if gap is None else gap)
            session = known(key)
            if session is not None and session.start <= time <= session.end and end <= MAX_LONG:
                if end > session.end:
                    session.end = end
            elif end <= MAX_LONG and (
                time > NO_TIMESTAMP and stored(key) is None if session is None else session.end < time
            ):
                if end <= over:
                    self._operator.late(original, time)
                    continue
                first = value if is_reduce else call(value, create())
                session = latest[key] = Session(key, time, end, first, session)
                add_new(session)
                continue
            else:
                session = self._session_of(key, time, min(end, MAX_LONG))
                if session is None:
                    self._operator.late(original, time)
                    continue
            accumulator = session.accumulator
            if is_reduce:
                session.accumulator = value if accumulator is None else call(accumulator, value)
            else:
                session.accumulator = call(value, create() if accumulator is None else accumulator)
        if len(latest) > self._max_keys:
            self.write_state()

    def _session_of(self, key: Any, time: int, end: int) -> Session | None:
        """Return the session that contains the time, after all necessary merges.

        Return None if this session is already over.
        """
        event_time_of(time)
        of_key = self._sessions(key)
        first = bisect_left(of_key, time, key=end_of)
        behind = bisect_right(of_key, end, first, key=start_of)
        if first == behind:
            if self._event_time and end - 1 <= self._operator.watermark:
                return None
            session = Session(key, time, end)
            of_key.insert(first, session)
            self._new.append(session)
        else:
            session = of_key[first]
            session.start = min(session.start, time)
            session.end = max(of_key[behind - 1].end, end)
            for other in of_key[first + 1 : behind]:
                session.accumulator = self._fold.merge(session.accumulator, other.accumulator)
                other.is_over = True
                if other.state is not None:
                    self._contents.remove(key, other.state)
            del of_key[first + 1 : behind]
        self._set_sessions(of_key)
        return session

    def _set_sessions(self, of_key: list[Session]) -> None:
        """Set the sessions of a key."""
        earlier = None
        for session in of_key:
            session.earlier = earlier
            earlier = session
        self._latest[of_key[-1].key] = of_key[-1]

    # --- state ------------------------------------------------------------------------------------------------

    def _sessions(self, key: Any) -> list[Session]:
        """Load all sessions of a key into memory, and return them in order of time."""
        session = self._latest.get(key)
        if session is not None:
            return _row(session)
        windows: Windows = self._windows.get(key) or ()
        get = self._contents.get
        of_key = [
            Session(key, start, end, get(key, state), state=state, has_timer=True) for (start, end), state in windows
        ]
        if of_key:
            self._set_sessions(of_key)
            self._stored.add(key)
        return of_key

    def write_state(self) -> None:
        """Write all sessions in memory, and forget them."""
        at, contents, register = self._at, self._contents, self._register
        for key, latest in self._latest.items():
            windows = []
            for session in _row(latest):
                window = session.start, session.end
                state = session.state or window
                windows.append((window, state))
                contents.put(key, session.accumulator, state)
                if not session.has_timer:
                    at.key, at.namespace = key, window
                    register(session.end - 1)
            self._windows.put(key, tuple(windows))
        self._latest.clear()
        self._stored.clear()
        self._new.clear()
        self._schedule.clear()

    def _remove_fired(self) -> None:
        """Remove the sessions that have fired and waited for late records, which this operator no longer allows."""
        for key in list(self._backend.keys(MERGING_WINDOWS)):
            fired = [session for session in self._sessions(key) if session.end - 1 <= self._operator.watermark]
            for session in fired:
                session.accumulator = None  # so that the session emits no result
            self._fire(fired)
            if len(self._latest) > self._max_keys:
                self.write_state()
        self.write_state()

    # --- clocks -----------------------------------------------------------------------------------------------

    def on_watermark(self, timestamp: int) -> None:
        self._timers.advance_watermark(timestamp)
        self._fire_until(timestamp)

    def on_processing_time(self, now: int) -> None:
        self._timers.advance_processing_time(now)
        if not self._event_time:
            self._fire_until(now)

    def next_processing_time(self) -> int | None:
        stored = self._timers.next_processing_time()
        if self._event_time:
            return stored
        self._schedule_new()
        first = self._schedule.first()
        return first if stored is None else stored if first is None else min(stored, first)

    def _schedule_new(self) -> None:
        for session in self._new:
            self._schedule.add(session.end - 1, session)
        self._new.clear()

    def _on_timer(self, timestamp: int, key: Any, namespace: Namespace) -> None:
        """Handle the timer of a written session.

        The session has ended, has become longer since the write, or no longer exists.
        """
        of_key = self._sessions(key)
        place = bisect_right(of_key, namespace[0], key=start_of) - 1
        if place < 0 or of_key[place].end < namespace[1]:
            return
        session = of_key[place]
        session.has_timer = False
        if session.end - 1 <= timestamp:
            self._due.append(session)
        else:
            self._schedule.add(session.end - 1, session)

    def _fire_until(self, until: int) -> None:
        """Fire all sessions that end by `until`, in order of their ends."""
        due, self._due = self._due, []
        behind = until + 1
        for sessions in (self._schedule.take(until), self._new):
            due += [session for session in sessions if session.end <= behind]
            for session in [session for session in sessions if session.end > behind]:
                self._schedule.add(session.end - 1, session)
        self._new.clear()
        if due:
            due.sort(key=end_of)
            self._fire(due)

    def _fire(self, due: list[Session]) -> None:
        at, ctx, results, latest = self._at, self._window_ctx, self._operator.results, self._latest
        result_of, invoke, clear = self._fold.result, self._invoke, self._clear
        append, stamp = results.values.append, results.timestamps.append
        stored = self._stored
        at.namespace = None
        for session in due:
            if session.is_over:
                continue
            session.is_over = True
            at.key = key = session.key
            last = session.end - 1
            ctx.current = window = TimeWindow(session.start, session.end)
            try:
                if session.accumulator is not None:
                    element = result_of(session.accumulator)
                    if invoke is None:
                        append(element)
                        stamp(last)
                    else:
                        for result in invoke(at.as_restored(key), ctx, [element]) or ():
                            if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                                results.side(result[0], result[1], last)
                            else:
                                append(result)
                                stamp(last)
                if clear is not None:
                    clear(ctx)
            except Exception as error:
                raise_user_error(self._operator.context, error, f"{window!r} of the key {key!r}")
            if session.earlier is not None:
                session.earlier = None
            if session.state is not None:
                self._contents.remove(key, session.state)
            if latest[key] is session:
                del latest[key]
                if stored and key in stored:
                    stored.discard(key)
                    self._windows.remove(key)


def _row(latest: Session) -> list[Session]:
    """Return a session and the previous sessions of its key, in order of time."""
    row = [latest]
    while (earlier := row[-1].earlier) is not None and not earlier.is_over:
        row.append(earlier)
    row.reverse()
    return row


def _last_ms(session: Session) -> int:
    return session.end - 1
