"""`Matcher`: finds the matches of a pattern in the events of one key, which it gets in order of time.

The matcher has no clock, no state backend and no streams. `feed` adds an event, and `advance` moves the time. Both change the memory of
the key and return the matches.

Partial matches share their events. `Memory.events` has each event once. `Memory.paths` has the paths of accepted events as a tree: an
entry of an event is `[stage, number of the previous event, slot of its entry, references]`. A partial match and the entries behind an
entry refer to it. An entry without references is removed, and so is an event without entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.cep.automaton import FINAL, IGNORE, STOP, TAKE, Automaton, Edge, Literal
from penstock.cep.conditions import IterativeCondition

Run = tuple[int, int, int, int, int, int]
"""A partial match: state, number and slot of its last event, time of its first and of its last event, number of its first event."""
STATE, EVENT, SLOT, START, LAST, FIRST = range(6)
Match = dict[str, list[Any]]
"""The events of a match by the name of their pattern."""
TimedOut = tuple[Match, int]
"""The events of a partial match that timed out, and the time at which it did (ms)."""
Entry = list[int]
START_RUN: Run = (0, -1, -1, 0, 0, -1)
"""The partial match without events, from which all others start."""


class Table(Protocol):
    """The part of a dict that the matcher uses. `MapState` has it, too."""

    def __getitem__(self, key: int, /) -> Any: ...

    def __setitem__(self, key: int, value: Any, /) -> None: ...

    def __delitem__(self, key: int, /) -> None: ...


@dataclass
class Memory:
    """The partial matches of one key, with their events."""

    runs: list[Run] = field(default_factory=list)
    """Partial matches, in the order of their first events."""
    complete: list[Run] = field(default_factory=list)
    """Matches that wait for an earlier partial match, because that one could skip them."""
    next_event: int = 0
    events: Table = field(default_factory=dict[int, Any])
    paths: Table = field(default_factory=dict[int, Any])
    """The entries of each event by their slot."""


class Matcher:
    """The matcher of a pattern.

    >>> from penstock.cep.compiler import compile_pattern
    >>> from penstock.cep.pattern import Pattern
    >>> a = Pattern.begin("a").where(lambda event: event == "a")
    >>> matcher, memory = Matcher(compile_pattern(a.followed_by("b").where(lambda event: event == "b"))), Memory()
    >>> [match for time, event in enumerate("acb") for match in matcher.feed(memory, event, time)]
    [{'a': ['a'], 'b': ['b']}]
    >>> memory.runs, memory.events
    ([], {})
    """

    def __init__(self, automaton: Automaton, *, keep_timed_out: bool = False) -> None:
        self.automaton = automaton
        self._keep_timed_out = keep_timed_out

    def feed(
        self, memory: Memory, event: Any, timestamp: int, now: int = 0, deadlines: set[int] | None = None
    ) -> list[Match]:
        """Add the next event of the key, and return the matches that it completes.

        Call `advance` before it with the same time if the pattern has time limits.

        Args:
            now: current processing time (ms), for conditions.
            deadlines: gets the times at which `advance` must be called.
        """
        step = _Step(self, memory, event, timestamp, now)
        runs: list[Run] = []
        complete: list[Run] = []
        for run in memory.runs:
            step.move(run, runs, complete)
        step.move(START_RUN, runs, complete)
        if not step.changed:
            return []
        step.store()
        if deadlines is not None:
            self._add_deadlines(runs, step.number, timestamp, deadlines)
        return self._settle(memory, runs, complete)

    def advance(self, memory: Memory, timestamp: int) -> tuple[list[Match], list[TimedOut]]:
        """Move the time. Return the matches that the time completes, and the partial matches that time out."""
        runs: list[Run] = []
        complete: list[Run] = []
        timed_out: list[TimedOut] = []
        removed: list[Run] = []
        for run in memory.runs:
            deadline = self._deadline(run)
            if deadline is None or timestamp < deadline:
                runs.append(run)
            elif self.automaton.states[run[STATE]].completed_by_time:
                complete.append(run)
            else:
                if self._keep_timed_out:
                    timed_out.append((self.events_of(memory, run), deadline))
                removed.append(run)
        if len(runs) == len(memory.runs):
            return [], []
        for run in removed:
            _release(memory, run)
        return self._settle(memory, runs, complete), timed_out

    def _deadline(self, run: Run) -> int | None:
        within, gap = self.automaton.within_ms, self.automaton.states[run[STATE]].gap_ms
        if within and gap:
            return min(run[START] + within, run[LAST] + gap)
        return run[START] + within if within else run[LAST] + gap if gap else None

    def _add_deadlines(self, runs: list[Run], number: int, timestamp: int, deadlines: set[int]) -> None:
        """Add the deadlines of the partial matches that this event changed."""
        states, within = self.automaton.states, self.automaton.within_ms
        for run in runs:
            if within and run[FIRST] == number:
                deadlines.add(timestamp + within)
            gap = states[run[STATE]].gap_ms
            if gap:
                deadlines.add(run[LAST] + gap)

    def _settle(self, memory: Memory, runs: list[Run], complete: list[Run]) -> list[Match]:
        """Store the partial matches, and return the complete ones that no earlier partial match can skip."""
        skip = self.automaton.skip
        waiting = memory.complete
        if complete:
            waiting = sorted(waiting + complete, key=_first)
        found: list[Match] = []
        while waiting and not (skip.is_skip_strategy and runs and runs[0][FIRST] < waiting[0][FIRST]):
            run, *waiting = waiting
            found.append(self.events_of(memory, run))
            if skip.is_skip_strategy:
                keep = skip.first_start_to_keep(run[FIRST], run[EVENT], lambda run=run: self._numbers_of(memory, run))  # type: ignore[misc]
                runs, waiting = _kept(memory, runs, keep), _kept(memory, waiting, keep)
            _release(memory, run)
        memory.runs, memory.complete = runs, waiting
        return found

    def events_of(self, memory: Memory, run: Run) -> Match:
        """Return the events of a partial match by the name of their pattern."""
        events = memory.events
        return {name: [events[number] for number in numbers] for name, numbers in self._numbers_of(memory, run).items()}

    def _numbers_of(self, memory: Memory, run: Run) -> dict[str, list[int]]:
        """Return the numbers of the events of a partial match, by the name of their pattern."""
        path = []
        number, slot = run[EVENT], run[SLOT]
        while number >= 0:
            stage, previous, previous_slot, _ = memory.paths[number][slot]
            path.append((stage, number))
            number, slot = previous, previous_slot
        stages = self.automaton.stages
        found: dict[str, list[int]] = {}
        for stage, number in reversed(path):
            found.setdefault(stages[stage], []).append(number)
        return found


def _first(run: Run) -> int:
    return run[FIRST]


def _kept(memory: Memory, runs: list[Run], keep: int) -> list[Run]:
    """Return the partial matches whose first event has at least this number, and release the others."""
    kept = []
    for run in runs:
        if run[FIRST] >= keep:
            kept.append(run)
        else:
            _release(memory, run)
    return kept


def _release(memory: Memory, run: Run) -> None:
    _refer(memory, run[EVENT], run[SLOT], -1)


def _refer(memory: Memory, number: int, slot: int, change: int) -> None:
    """Change the references of an entry. Remove entries and events without references."""
    while number >= 0:
        entries: dict[int, Entry] = memory.paths[number]
        entry = entries[slot]
        entry[3] += change
        if entry[3] > 0:
            memory.paths[number] = entries
            return
        del entries[slot]
        if entries:
            memory.paths[number] = entries
        else:
            del memory.paths[number]
            del memory.events[number]
        _, number, slot, _ = entry
        change = -1


class _Step(IterativeCondition.Context):
    """The moves of all partial matches with one event. It is the context of the conditions, too."""

    __slots__ = (
        "_conditions",
        "_earlier",
        "_event",
        "_held",
        "_matcher",
        "_memory",
        "_now",
        "_plain_values",
        "_run",
        "_states",
        "_timestamp",
        "_values",
        "changed",
        "entries",
        "number",
    )

    def __init__(self, matcher: Matcher, memory: Memory, event: Any, timestamp: int, now: int) -> None:
        self._matcher = matcher
        self._memory = memory
        self._event = event
        self._timestamp = timestamp
        self._now = now
        self._states = matcher.automaton.states
        self._conditions = matcher.automaton.conditions
        self._plain_values: dict[int, bool] = {}
        self._values: dict[int, bool] = {}
        self._run = START_RUN
        self._earlier: Match | None = None
        self._held: dict[tuple[int, int], int] = {}
        """The change of the references of earlier entries."""
        self.changed = False
        self.number = memory.next_event
        self.entries: dict[int, Entry] = {}
        """The new entries of this event by slot."""

    def move(self, run: Run, runs: list[Run], complete: list[Run]) -> None:
        """Append the partial matches and the matches that follow from this partial match."""
        self._run = run
        edges = self._edges(run)
        if len(edges) == 1 and edges[0].action == IGNORE and edges[0].target == run[STATE]:
            runs.append(run)
            return
        is_start = run is START_RUN
        if is_start and not edges:
            return
        self.changed = True
        is_stopped = any(edge.action == STOP for edge in edges)
        for edge in edges:
            if edge.action == IGNORE:
                followers = complete if edge.target == FINAL else runs
                if followers is complete or not is_stopped:
                    followers.append((edge.target, *run[1:]))
                    self._hold(run, 1)
            elif edge.action == TAKE:
                self._take(run, edge, None if is_stopped else runs, complete)
        if not is_start:
            self._hold(run, -1)

    def _edges(self, run: Run) -> list[Edge]:
        """Return the edges that the partial match takes with the event."""
        state = self._states[run[STATE]]
        is_start = run is START_RUN
        elapsed = self._timestamp - run[LAST]
        if self._values:
            self._values.clear()
        self._earlier = None
        found = []
        for edge in state.edges:
            if is_start:
                if edge.action != TAKE:
                    continue
            elif edge.gap_ms and elapsed >= edge.gap_ms:
                continue
            for literal in edge.formula:
                if not self._is_true(literal):
                    break
            else:
                found.append(edge)
        if state.is_ambiguous:
            return list({(edge.action, edge.stage, edge.target): edge for edge in reversed(found)}.values())[::-1]
        return found

    def _is_true(self, literal: Literal) -> bool:
        if isinstance(literal, tuple):
            return not all(self._is_true(part) for part in literal)
        number = literal if literal >= 0 else ~literal
        condition = self._conditions[number]
        values = self._values if condition.needs_match else self._plain_values
        value = values.get(number)
        if value is None:
            value = values[number] = bool(condition.function(self._event, self))
        return value is (literal >= 0)

    def _take(self, run: Run, edge: Edge, runs: list[Run] | None, complete: list[Run]) -> None:
        """Accept the event with this edge. `runs` is None if another edge stops the partial match."""
        is_complete = edge.target == FINAL or any(
            all(map(self._is_true, formula)) for formula in self._states[edge.target].completed_by
        )
        goes_on = edge.target != FINAL and runs is not None
        if not is_complete and not goes_on:
            return
        slot = len(self.entries)
        self.entries[slot] = [edge.stage, run[EVENT], run[SLOT], is_complete + goes_on]
        first, start = (self.number, self._timestamp) if run is START_RUN else (run[FIRST], run[START])
        follower = (edge.target, self.number, slot, start, self._timestamp, first)
        if goes_on:
            assert runs is not None
            runs.append(follower)
        if is_complete:
            complete.append(follower)
        self._hold(run, 1)

    def _hold(self, run: Run, change: int) -> None:
        if run is not START_RUN:
            at = run[EVENT], run[SLOT]
            self._held[at] = self._held.get(at, 0) + change

    def store(self) -> None:
        """Store the event and its entries, and the changed references of earlier entries."""
        memory = self._memory
        if self.entries:
            memory.events[self.number] = self._event
            memory.paths[self.number] = self.entries
            memory.next_event = self.number + 1
        for (number, slot), change in self._held.items():
            if change:
                _refer(memory, number, slot, change)

    # --- the context of conditions ----------------------------------------------------------------------------

    def get_events_for_pattern(self, name: str) -> list[Any]:
        if self._earlier is None:
            self._earlier = self._matcher.events_of(self._memory, self._run)
        return list(self._earlier.get(name, ()))

    def timestamp(self) -> int:
        return self._timestamp

    def current_processing_time(self) -> int:
        return self._now
