"""A second definition of matches: all subsequences of the events that keep the rules of a pattern, found by trying them out.

It has no states. A match is a list of pairs of a name and a position. Each rule looks only at positions:

- between an event and the one before it: the contiguity, `until` and the gap of time
- `not_next`, `not_followed_by` and greedy loops: the events that must not occur
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from penstock.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from penstock.cep.pattern import Pattern, WithinType

Taken = tuple[tuple[str, int], ...]


@dataclass
class Element:
    """One pattern of a sequence, or a group if `parts` is not empty."""

    name: str
    contiguity: str
    letters: str = ""
    rising: bool = False
    least: int = 1
    most: int | None = 1
    is_loop: bool = False
    optional: bool = False
    greedy: bool = False
    inner: str = "relaxed"
    until: str = ""
    gap: int = 0
    loop_gap: int = 0
    parts: list[Element] = field(default_factory=list)
    loop_before: Element | None = None
    """The loop directly before a pattern that must not occur."""

    def accepts(self, position: int, taken: Taken, events: list[str]) -> bool:
        if events[position][0] not in self.letters:
            return False
        if not self.rising:
            return True
        return all(events[position][1] >= events[at][1] for name, at in taken if name == self.name)

    @property
    def head(self) -> Element:
        return self.parts[0].head if self.parts else self


@dataclass
class Case:
    """A pattern with the events that are fed to it."""

    elements: list[Element]
    events: list[str]
    times: list[int]
    within: int = 0
    skip: AfterMatchSkipStrategy = field(default_factory=AfterMatchSkipStrategy)

    def pattern(self) -> Pattern:
        found = _built(self.elements, self.skip)
        return found.within(self.within) if self.within else found

    def found(self) -> Iterator[tuple[Taken, int]]:
        """Yield each match, with the number of events after which it is complete."""
        for state in _Search(self).sequence(self.elements, _State()):
            if state.taken and self._is_complete(state):
                yield state.taken, self._completed_at(state)

    @property
    def _ends_with_not(self) -> bool:
        return self.elements[-1].contiguity == "not_followed_by"

    def _is_complete(self, state: _State) -> bool:
        last, before = state.last, state.taken[:-1]
        if state.not_next:
            last, before = last + 1, state.taken
            if last == len(self.events) or self.events[last][0] in state.not_next:
                return False
        for element, _ in state.greedy:
            # A loop that could take the event that completes the match does not leave it to the end of the match.
            if element.accepts(last, before, self.events) and self.events[last][0] not in element.until:
                return False
        start = self.times[state.taken[0][1]]
        if self.within and self.times[last] - start >= self.within:
            return False
        waiting = range(len(self.events)) if self._ends_with_not else ()
        in_time = [at for at in waiting if self.times[at] - start < self.within]
        return not any(
            self.events[at][0] == letter for letter, first in state.forbidden for at in in_time if at >= first
        )

    def _completed_at(self, state: _State) -> int:
        if self._ends_with_not:
            start = self.times[state.taken[0][1]]
            return next((at for at, time in enumerate(self.times) if time - start >= self.within), len(self.times))
        return state.last + bool(state.not_next)


def _built(elements: list[Element], skip: AfterMatchSkipStrategy) -> Pattern:
    pattern: Pattern | None = None
    for element in elements:
        target = _built(element.parts, AfterMatchSkipStrategy.no_skip()) if element.parts else element.name
        pattern = Pattern.begin(target, skip) if pattern is None else getattr(pattern, element.contiguity)(target)
        _configure(pattern, element)
    assert pattern is not None
    return pattern


def _configure(pattern: Pattern, element: Element) -> None:
    if not element.parts:
        letters, name = element.letters, element.name
        if element.rising:
            pattern.where(
                lambda event, ctx: (
                    event[0] in letters and all(event[1] >= e[1] for e in ctx.get_events_for_pattern(name))
                )
            )
        else:
            pattern.where(lambda event: event[0] in letters)
    if element.is_loop:
        gap = element.loop_gap or None
        if element.most is None:
            pattern.times_or_more(element.least, gap) if element.least > 1 else pattern.one_or_more(gap)
        else:
            pattern.times(element.least, element.most, gap)
        if element.inner == "consecutive":
            pattern.consecutive()
        elif element.inner == "combinations":
            pattern.allow_combinations()
        if element.greedy:
            pattern.greedy()
        if element.until:
            until = element.until
            pattern.until(lambda event: event[0] in until)
    if element.optional:
        pattern.optional()
    if element.gap:
        pattern.within(element.gap, WithinType.PREVIOUS_AND_CURRENT)


@dataclass(frozen=True)
class _State:
    """A part of a match, and the rules for the events after it."""

    taken: Taken = ()
    forbidden: tuple[tuple[str, int], ...] = ()
    """Letters that must not occur from a position on until the next event of the match, that event included."""
    not_next: str = ""
    """Letter that the directly following event must not have."""
    greedy: tuple[tuple[Element, str], ...] = ()
    """Loops that do not leave the next event, or all events, to the following pattern."""
    until: str = ""
    """Letters that must not occur: the `until` of the groups around."""

    @property
    def last(self) -> int:
        return self.taken[-1][1] if self.taken else -1


class _Search:
    def __init__(self, case: Case) -> None:
        self._events = case.events
        self._times = case.times

    def sequence(self, elements: list[Element], state: _State) -> Iterator[_State]:
        if not elements:
            yield state
            return
        for after in self._element(elements, state):
            yield from self.sequence(elements[1:], after)

    def _element(self, elements: list[Element], state: _State) -> Iterator[_State]:
        element, following = elements[0], elements[1:]
        if element.contiguity == "not_next":
            if self._loop_goes_on_before(element, state):
                yield _with(state, not_next=element.letters)
            return
        if element.contiguity == "not_followed_by":
            if all(self._events[at][0] not in element.letters for at in self._guarded_in_loop(element, state)):
                bad = tuple((letter, state.last + 1) for letter in element.letters)
                yield _with(state, forbidden=state.forbidden + bad)
            return
        yield from self._repetitions(element, following, state, 0)

    def _loop_before(self, element: Element, state: _State) -> list[int]:
        """Return the positions of the events of the loop before this pattern."""
        before = element.loop_before
        return [at for name, at in state.taken if before is not None and name == before.name]

    def _guarded_in_loop(self, element: Element, state: _State) -> Iterator[int]:
        """Yield the positions in the loop before `not_followed_by` at which its event ends the loop.

        Flink has the same rule: each position after the first event of the loop. If the loop has a limit and could end, only the directly
        following event ends it.
        """
        loop = self._loop_before(element, state)
        for count, (at, following) in enumerate(pairwise(loop), start=1):
            assert element.loop_before is not None
            could_end = element.loop_before.most is not None and count >= element.loop_before.least
            yield from [at + 1] if could_end else range(at + 1, following + 1)

    def _loop_goes_on_before(self, element: Element, state: _State) -> bool:
        """Return whether `not_next` ends no loop too early. A loop that could end is ended by an event that must not be next."""
        loop = self._loop_before(element, state)
        least = element.loop_before.least if element.loop_before else 1
        return all(self._events[at + 1][0] not in element.letters for at in loop[least - 1 : -1])

    def _repetitions(self, element: Element, following: list[Element], state: _State, count: int) -> Iterator[_State]:
        enough = count >= element.least or (count == 0 and element.optional)
        if enough:
            yield self._left(element, following, state)
        if element.most is None or count < element.most:
            for after in self._once(element, state, count):
                yield from self._repetitions(element, following, after, count + 1)

    def _left(self, element: Element, following: list[Element], state: _State) -> _State:
        """Return the state after an element, with the rule of a greedy loop."""
        if not element.greedy or element.most == element.least or not following:
            return state
        reach = "next" if following[0].optional else "all"
        return _with(state, greedy=(*state.greedy, (element, reach)))

    def _once(self, element: Element, state: _State, count: int) -> Iterator[_State]:
        if element.parts:
            head = element.parts[0]
            saved = head.contiguity, head.gap
            head.contiguity = element.contiguity if count == 0 else _METHODS[element.inner]
            head.gap = element.gap if count == 0 else element.loop_gap
            found = list(self.sequence(element.parts, _with(state, until=state.until + element.until)))
            head.contiguity, head.gap = saved
            for after in found:
                yield _with(after, until=state.until)
            return
        contiguity = element.contiguity if count == 0 else _METHODS[element.inner]
        for position in range(state.last + 1, len(self._events)):
            if self._fits(element, contiguity, state, position, count):
                yield _State((*state.taken, (element.name, position)), until=state.until)

    def _fits(self, element: Element, contiguity: str, state: _State, position: int, count: int) -> bool:
        events, taken = self._events, state.taken
        if not element.accepts(position, taken, events):
            return False
        until = state.until + (element.until if count else "")
        if not taken:
            banned = state.until + element.until
            return events[position][0] not in banned and not self._greedy_forbids(state, position)
        if events[position][0] in element.until:
            return False
        gap = element.gap if count == 0 else element.loop_gap
        if gap and self._times[position] - self._times[state.last] >= gap:
            return False
        if contiguity == "next" and position != state.last + 1:
            return False
        between = range(state.last + 1, position)
        if contiguity == "followed_by" and any(element.accepts(at, taken, events) for at in between):
            return False
        if any(events[at][0] in until for at in range(state.last + 1, position + 1)):
            return False
        if state.not_next and events[state.last + 1][0] in state.not_next:
            return False
        return not self._greedy_forbids(state, position) and not self._forbidden(state, position)

    def _greedy_forbids(self, state: _State, position: int) -> bool:
        first = state.last + 1 if state.taken else position
        for element, reach in state.greedy:
            if self._events[first][0] in element.until:
                continue
            span = range(first, position + 1) if reach == "all" else [first]
            if any(element.accepts(at, state.taken, self._events) for at in span):
                return True
        return False

    def _forbidden(self, state: _State, position: int) -> bool:
        # The event that completes the match may be forbidden. The generator of cases avoids this.
        return any(
            self._events[at][0] == letter for letter, first in state.forbidden for at in range(first, position + 1)
        )


_METHODS = {"relaxed": "followed_by", "consecutive": "next", "combinations": "followed_by_any"}


def _with(state: _State, **changes: Any) -> _State:
    return _State(**{**state.__dict__, **changes})
