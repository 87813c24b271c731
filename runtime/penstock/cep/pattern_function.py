"""`PatternFunction`: the matcher of a pattern in keyed state, with the order of events and the timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from typing import TYPE_CHECKING, Any

from penstock.cep.functions import PatternProcessFunction, TimedOutPartialMatchHandler
from penstock.cep.matcher import Match, Matcher, Memory, TimedOut
from penstock.common.errors import InvalidJob, RestoreRefused
from penstock.common.typeinfo import Types
from penstock.datastream.functions import KeyedProcessFunction
from penstock.functions.function import Function, RuntimeContext
from penstock.functions.output_tag import OutputTag
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from penstock.cep.automaton import Automaton
    from penstock.common.typeinfo import TypeInformation

Comparator = Callable[[Any, Any], int]
"""A function of two events. The result is negative if the first event comes first, positive if the second does, and else 0."""
LATE_RECORDS = "numLateRecordsDropped"


class _Context(PatternProcessFunction.Context):
    """The context of the user's functions. A task uses the same object for all matches."""

    def __init__(self) -> None:
        self.time = 0
        self.ctx: Any = None

    def timestamp(self) -> int:
        return self.time

    def current_processing_time(self) -> int:
        found: int = self.ctx.timer_service().current_processing_time()
        return found

    def output(self, output_tag: OutputTag, value: Any) -> None:
        self.ctx.output(output_tag, value)


class PatternFunction(KeyedProcessFunction):
    """A process function that finds a pattern in the events of each key.

    In event time, the state of a key has its events until the watermark reaches them. Then the matcher gets them in the order of their
    timestamps. Events of the same timestamp keep the order of their arrival, or the comparator's.

    Args:
        event_type: type of the events, or None for builtin values.
        time: function from an event to its time (ms). Default: the timestamp of the record.
        late: side output of late events. Without it, they are counted and dropped.
    """

    def __init__(
        self,
        automaton: Automaton,
        function: PatternProcessFunction,
        *,
        event_type: TypeInformation | None = None,
        in_processing_time: bool = False,
        comparator: Comparator | None = None,
        time: Callable[[Any], int] | None = None,
        late: OutputTag | None = None,
    ) -> None:
        self._automaton = automaton
        self._function = function
        self._event_type = event_type
        self._in_processing_time = in_processing_time
        self._comparator = comparator
        self._time = time
        self._late = late

    @property
    def wrapped_function(self) -> Any:
        """Return the user's function."""
        return self._function

    def open(self, runtime_context: RuntimeContext) -> None:
        several = None if self._event_type is None else Types.LIST(self._event_type)
        self._queue = runtime_context.get_map_state(MapStateDescriptor("event-queue", int, several))
        self._runs = runtime_context.get_state(ValueStateDescriptor("partial-matches"))
        self._events = runtime_context.get_map_state(MapStateDescriptor("matched-events", int, self._event_type))
        self._paths = runtime_context.get_map_state(MapStateDescriptor("paths", int))
        self._dropped = runtime_context.get_metrics_group().counter(LATE_RECORDS)
        self._order = None if self._comparator is None else cmp_to_key(self._comparator)
        handler = self._function if isinstance(self._function, TimedOutPartialMatchHandler) else None
        self._handler = handler
        self._matcher = Matcher(self._automaton, keep_timed_out=handler is not None)
        self._context = _Context()
        for part in self._opened_parts():
            part.open(runtime_context)
        self._function.open(runtime_context)

    def close(self) -> None:
        for part in self._opened_parts():
            part.close()
        self._function.close()

    def _opened_parts(self) -> Iterable[Function]:
        """Return the function objects of the conditions. Several conditions can have the same object."""
        return {id(part): part for condition in self._automaton.conditions for part in condition.parts}.values()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        timers = ctx.timer_service()
        if self._in_processing_time:
            now = timers.current_processing_time()
            if self._order is None:
                return self._move(ctx, now, [value])
            self._enqueue(now, value)
            timers.register_processing_time_timer(now + 1)
            return None
        timestamp: int | None = ctx.timestamp() if self._time is None else self._time(value)
        if timestamp is None:
            raise InvalidJob(
                "a pattern in event time got an event without a timestamp",
                remedy="call assign_timestamps_and_watermarks() on the stream, or in_processing_time() on the PatternStream",
            )
        if timestamp > timers.current_watermark():
            self._enqueue(timestamp, value)
            timers.register_event_time_timer(timestamp)
            return None
        if self._late is not None:
            return [(self._late, value)]
        self._dropped.inc()
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if not self._in_processing_time:
            return self._move(ctx, timestamp, self._dequeue(timestamp))
        events = [event for time in sorted(self._queue.keys()) if time < timestamp for event in self._dequeue(time)]
        return self._move(ctx, timestamp, events)

    def _enqueue(self, timestamp: int, value: Any) -> None:
        waiting = self._queue.get(timestamp) or []
        waiting.append(value)
        self._queue.put(timestamp, waiting)

    def _dequeue(self, timestamp: int) -> list[Any]:
        found = self._queue.get(timestamp)
        if found is None:
            return []
        self._queue.remove(timestamp)
        return found if self._order is None else sorted(found, key=self._order)

    def _move(self, ctx: Any, timestamp: int, events: list[Any]) -> Iterator[Any]:
        """Move the time of the key, add the events of this time, and return the results."""
        memory = self._load()
        before = memory.runs, memory.complete
        timers = ctx.timer_service()
        completed, timed_out = self._matcher.advance(memory, timestamp)
        matches: list[Match] = []
        deadlines: set[int] = set()
        for event in events:
            matches += self._matcher.feed(memory, event, timestamp, timers.current_processing_time(), deadlines)
        for deadline in deadlines:
            if self._in_processing_time:
                timers.register_processing_time_timer(deadline)
            else:
                timers.register_event_time_timer(deadline)
        if memory.runs is not before[0] or memory.complete is not before[1]:
            self._save(memory)
        self._context.ctx = ctx
        return self._results(completed, timed_out, matches, timestamp)

    def _results(
        self, completed: list[Match], timed_out: list[TimedOut], matches: list[Match], timestamp: int
    ) -> Iterator[Any]:
        context, process_match = self._context, self._function.process_match
        context.time = timestamp
        for match in completed:
            yield from process_match(match, context) or ()
        for match, context.time in timed_out:
            assert self._handler is not None
            for result in self._handler.process_timed_out_match(match, context) or ():
                if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], OutputTag)):
                    raise InvalidJob(
                        f"process_timed_out_match returned {result!r}, which has no side output",
                        remedy="yield a pair of an OutputTag and the value",
                    )
                yield result
        context.time = timestamp
        for match in matches:
            yield from process_match(match, context) or ()

    def _load(self) -> Memory:
        found = self._runs.value()
        if found is None:
            return Memory(events=self._events, paths=self._paths)
        signature, next_event, runs, complete = found
        if signature != self._automaton.signature:
            raise RestoreRefused(
                "the pattern has other states than the pattern of the checkpoint, so its partial matches cannot go on",
                remedy="restore the program with the former pattern, or give the operator another uid to drop the partial matches",
            )
        return Memory(runs, complete, next_event, self._events, self._paths)

    def _save(self, memory: Memory) -> None:
        if memory.runs or memory.complete:
            self._runs.update((self._automaton.signature, memory.next_event, memory.runs, memory.complete))
        else:
            self._runs.clear()
