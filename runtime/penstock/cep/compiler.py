"""The compiler from a pattern to its automaton. It builds the states from the last pattern to the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cep.automaton import (
    IGNORE,
    PROCEED,
    TAKE,
    TRUE,
    Automaton,
    Draft,
    Formula,
    both,
    negated,
    proceeding,
    states_of,
)
from penstock.cep.conditions import ALWAYS, Condition
from penstock.cep.pattern import Contiguity, GroupPattern, Pattern, WithinType
from penstock.common.program.user_location import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def compile_pattern(pattern: Pattern) -> Automaton:
    """Return the automaton of a sequence of patterns.

    Args:
        pattern: the last pattern of the sequence.

    Raises:
        InvalidJob: two patterns have the same name, the skip strategy names none of them, or the sequence ends with `not_followed_by`
            without `within`.
    """
    _check(pattern)
    within_ms = min(filter(None, (p.within_ms(WithinType.FIRST_AND_LAST) for p in pattern.all_patterns())), default=0)
    if pattern.contiguity is Contiguity.NOT_FOLLOW and not (
        within_ms or pattern.within_ms(WithinType.PREVIOUS_AND_CURRENT)
    ):
        raise refusal(
            f"the pattern ends with not_followed_by({pattern.get_name()!r}) and has no time limit, so no match would ever be complete",
            "add within()",
        )
    compiler = _Compiler()
    start = compiler.sequence(pattern.sequence(), Draft("final"), None)
    skip = pattern.get_after_match_skip_strategy()
    return Automaton(states_of(start), tuple(compiler.stages), tuple(compiler.conditions), within_ms, skip)


def _check(pattern: Pattern) -> None:
    names = [found.get_name() for found in pattern.all_patterns() if not isinstance(found, GroupPattern)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise refusal(f"two patterns have the name {repeated[0]!r}", "give each pattern of the sequence its own name")
    target = pattern.get_after_match_skip_strategy().pattern_name
    if target is not None and target not in names:
        raise refusal(
            f"the skip strategy skips to the pattern {target!r}, but the patterns are {', '.join(map(repr, names))}",
            "name one of these patterns",
        )


@dataclass
class _Place:
    """A pattern in its sequence.

    Args:
        group: the group that contains the sequence.
        first_of_loop: whether the states of this group are built for its first repetition.
        can_be_left_out: whether the repetition of this group can be left out.
    """

    sequence: Sequence[Pattern]
    index: int
    group: _Place | None
    first_of_loop: bool = True
    can_be_left_out: bool = False

    @property
    def pattern(self) -> Pattern:
        return self.sequence[self.index]

    @property
    def head_of(self) -> _Place | None:
        """Return the group whose first pattern this is."""
        return self.group if self.index == 0 else None

    @property
    def contiguity(self) -> Contiguity:
        """Return the contiguity to the event before the pattern. The first pattern of a group has that of the group."""
        group = self.head_of
        if group is None:
            return self.pattern.contiguity
        return group.contiguity if group.first_of_loop else group.pattern.quantifier.inner

    @property
    def gap_ms(self) -> int:
        """Return the time after the event before the pattern, or 0 without a limit."""
        group = self.head_of
        if group is None:
            return self.pattern.within_ms(WithinType.PREVIOUS_AND_CURRENT)
        return group.gap_ms if group.first_of_loop else group.pattern.quantifier.gap_ms

    @property
    def starts_optional_part(self) -> bool:
        group = self.head_of
        return group is not None and (group.can_be_left_out or (group.first_of_loop and group.starts_optional_part))


class _Compiler:
    def __init__(self) -> None:
        self.stages: list[str] = []
        self.conditions: list[Condition] = []
        self._numbers: dict[int, int] = {}
        self._stop_states: dict[str, Draft] = {}
        self._before_greedy: dict[Draft, Draft] = {}
        """The state before a greedy loop changed its edges, by the changed state."""

    def sequence(self, patterns: Sequence[Pattern], sink: Draft, group: _Place | None) -> Draft:
        """Build the states of a sequence that goes on with `sink`, and return the first one."""
        for index in reversed(range(len(patterns))):
            place = _Place(patterns, index, group)
            if place.pattern.contiguity is Contiguity.NOT_FOLLOW:
                if sink.kind == "final":
                    sink = self._pending(place)
            elif place.pattern.contiguity is Contiguity.NOT_NEXT:
                sink = self._not_next(place, sink)
            else:
                sink = self._pattern(place, sink)
        return sink

    # --- conditions -------------------------------------------------------------------------------------------

    def _literal(self, condition: Condition) -> Formula:
        """Return the formula that the condition is true. Equal conditions have the same number."""
        if condition is ALWAYS:
            return TRUE
        number = self._numbers.setdefault(id(condition), len(self.conditions))
        if number == len(self.conditions):
            self.conditions.append(condition)
        return (number,)

    def _group_goes_on(self, place: _Place) -> Formula:
        """Return the formula that no `until` of the group ends it."""
        until = None if place.group is None else place.group.pattern.until_condition
        return TRUE if until is None else negated(self._literal(until))

    def _take(self, place: _Place) -> Formula | None:
        return both(self._group_goes_on(place), self._literal(place.pattern.condition))

    def _ignore(self, place: _Place, contiguity: Contiguity) -> Formula | None:
        """Return the formula for an event that may be left out, or None if no event may."""
        if contiguity is Contiguity.STRICT:
            return None
        condition = self._literal(place.pattern.condition)
        if contiguity is Contiguity.SKIP_TILL_ANY or isinstance(place.pattern, GroupPattern):
            return self._group_goes_on(place)
        return None if condition == TRUE else both(self._group_goes_on(place), negated(condition))

    def _loop_goes_on(self, place: _Place, formula: Formula | None) -> Formula | None:
        until = place.pattern.until_condition
        return formula if until is None or formula is None else both(negated(self._literal(until)), formula)

    # --- patterns that must not occur -------------------------------------------------------------------------

    def _stop(self, place: _Place) -> tuple[Draft, Formula | None]:
        """Return the stop state of a pattern that must not occur, and the formula that leads there."""
        stop = self._stop_states.setdefault(place.pattern.get_name(), Draft("stop"))
        return stop, self._take(place)

    def _pending(self, place: _Place) -> Draft:
        pending = Draft("pending", -1, place.gap_ms)
        stop, formula = self._stop(place)
        if formula is not None:
            pending.add(PROCEED, stop, formula)
            if formula != TRUE:
                pending.add(IGNORE, pending, negated(formula))
        return pending

    def _not_next(self, place: _Place, sink: Draft) -> Draft:
        state = Draft("guard")
        stop, formula = self._stop(place)
        if formula != TRUE:
            state.add(PROCEED, sink, TRUE if formula is None else negated(formula))
        if formula is not None:
            state.add(PROCEED, stop, formula)
        return state

    def _nots_before(self, place: _Place) -> list[_Place]:
        """Return the `not_followed_by` patterns that are in force while the matcher waits for this pattern."""
        found = []
        for index in reversed(range(place.index)):
            before = _Place(place.sequence, index, place.group)
            if before.pattern.contiguity is Contiguity.NOT_FOLLOW:
                found.append(before)
            elif not before.pattern.quantifier.is_optional:
                return found
        group = place.group
        return found if group is None or not group.first_of_loop else found + self._nots_before(group)

    def _add_stops(self, place: _Place, state: Draft) -> None:
        for before in self._nots_before(place):
            self._add_stop(before, state)

    def _add_stop(self, forbidden: _Place, state: Draft) -> None:
        stop, formula = self._stop(forbidden)
        if formula is not None:
            state.add(PROCEED, stop, formula)

    def _add_stop_of_following(self, place: _Place, state: Draft) -> None:
        """End the partial match in the loop by an event that must not follow the loop."""
        if place.index + 1 < len(place.sequence):
            following = _Place(place.sequence, place.index + 1, place.group)
            if following.pattern.contiguity is Contiguity.NOT_FOLLOW:
                self._add_stop(following, state)

    def _without_nots(self, place: _Place, sink: Draft) -> Draft:
        """Return the state after an accepted event: patterns that must not occur before the event are not in force any more."""
        lifted = {self._stop_states.get(before.pattern.get_name()) for before in self._all_nots_before(place)}
        if not any(found.state in lifted for found in proceeding(sink)):
            return sink
        copies: dict[Draft, Draft] = {}

        def copied(state: Draft) -> Draft:
            if state.kind in ("final", "stop"):
                return state
            if state in copies:
                return copies[state]
            found = copies[state] = Draft(state.kind, state.stage, state.gap_ms)
            for action, target, formula in state.edges:
                if action == TAKE:
                    found.add(TAKE, found if target is state else target, formula)
                elif target not in lifted:
                    found.add(action, copied(target), formula)
            return found

        return copied(sink)

    def _all_nots_before(self, place: _Place) -> Iterator[_Place]:
        """Yield all `not_followed_by` patterns before this pattern, also before the groups around it."""
        at: _Place | None = place
        while at is not None:
            for index in range(at.index):
                if at.sequence[index].contiguity is Contiguity.NOT_FOLLOW:
                    yield _Place(at.sequence, index, at.group)
            at = at.group

    # --- patterns that accept events --------------------------------------------------------------------------

    def _pattern(self, place: _Place, sink: Draft) -> Draft:
        quantifier = place.pattern.quantifier
        if quantifier.most is None:
            place.first_of_loop = False
            first = self._times(place, self._looping(place, self._without_nots(place, sink)), sink, quantifier.least)
        elif quantifier.is_loop:
            first = self._times(place, sink, sink, quantifier.most)
        else:
            first = self._one(
                place,
                sink,
                sink,
                self._take(place),
                self._ignore(place, place.contiguity),
                is_optional=quantifier.is_optional,
            )
        self._add_stops(place, first)
        return first

    def _times(self, place: _Place, sink: Draft, behind: Draft, most: int) -> Draft:
        """Build the states of a limited number of repetitions.

        Args:
            sink: state after the last repetition.
            behind: state after the loop, if it ends before the last repetition.
        """
        quantifier = place.pattern.quantifier
        take = self._loop_goes_on(place, self._take(place))
        inner = self._loop_goes_on(place, self._ignore(place, quantifier.inner))
        if quantifier.is_greedy and most > quantifier.least:
            self._make_greedy(sink, take)
        place.first_of_loop = False
        state = sink
        for count in range(most - 1):
            is_optional = count < most - quantifier.least
            state = self._one(place, state, behind, take, inner, is_optional=is_optional, is_repeated=True)
            self._add_stop_of_following(place, state)
        place.first_of_loop = True
        ignore = self._ignore(place, place.contiguity)
        return self._one(place, state, behind, take, ignore, is_optional=quantifier.is_optional)

    def _one(
        self,
        place: _Place,
        sink: Draft,
        behind: Draft,
        take: Formula | None,
        ignore: Formula | None,
        *,
        is_optional: bool,
        is_repeated: bool = False,
    ) -> Draft:
        """Build the states of one repetition. An optional one can be left out, and goes on with `behind`."""
        if isinstance(place.pattern, GroupPattern):
            return self._group(place.pattern, place, sink, behind, is_optional=is_optional)
        gap_ms = place.pattern.quantifier.gap_ms if is_repeated else place.gap_ms
        state = self._state(place, gap_ms)
        target = self._without_nots(place, sink)
        self._accept(state, target, take)
        if is_optional:
            self._leave_loop(place, state, behind)
        if ignore is not None:
            waiting = state
            if is_optional or place.starts_optional_part:
                waiting = self._state(place, gap_ms)
                self._accept(waiting, target, take)
                waiting.add(IGNORE, waiting, ignore)
                if not is_repeated:
                    self._add_stops(place, waiting)
            state.add(IGNORE, waiting, ignore)
        return state

    def _looping(self, place: _Place, sink: Draft) -> Draft:
        """Build the states of any number of repetitions after the first ones."""
        pattern = place.pattern
        if isinstance(pattern, GroupPattern):
            return self._looping_group(pattern, place, sink)
        take = self._loop_goes_on(place, self._take(place))
        ignore = self._loop_goes_on(place, self._ignore(place, pattern.quantifier.inner))
        state = self._state(place, pattern.quantifier.gap_ms)
        if pattern.quantifier.is_greedy:
            if pattern.until_condition is not None:
                self._before_greedy[sink] = sink.copy()
            self._leave_loop(place, state, sink)
            self._make_greedy(sink, self._take(place))
        else:
            state.add(PROCEED, sink, self._group_goes_on(place))
        self._accept(state, state, take)
        self._add_stop_of_following(place, state)
        if ignore is not None:
            waiting = self._state(place, pattern.quantifier.gap_ms)
            self._accept(waiting, state, take)
            waiting.add(IGNORE, waiting, ignore)
            state.add(IGNORE, waiting, ignore)
            self._add_stop_of_following(place, waiting)
        return state

    def _leave_loop(self, place: _Place, state: Draft, sink: Draft) -> None:
        """Add the edges with which a partial match leaves out the rest of a pattern. An `until` event also ends a greedy loop."""
        goes_on = self._group_goes_on(place)
        until = place.pattern.until_condition
        if not place.pattern.quantifier.is_greedy or until is None:
            state.add(PROCEED, sink, goes_on)
            return
        ends = self._literal(until)
        for target, formula in ((self._before_greedy.get(sink, sink), ends), (sink, negated(ends))):
            found = both(goes_on, formula)
            if found is not None:
                state.add(PROCEED, target, found)

    def _make_greedy(self, sink: Draft, take: Formula | None) -> None:
        """Let the state after a greedy loop use no event that the loop accepts."""
        if take is None:
            return
        not_taken = None if take == TRUE else negated(take)
        edges: list[tuple[int, Draft, Formula]] = []
        for action, target, formula in sink.edges:
            found = None if not_taken is None else both(formula, not_taken)
            if found is not None:
                edges.append((action, target, found))
        sink.edges[:] = edges

    def _group(self, group: GroupPattern, place: _Place, sink: Draft, behind: Draft, *, is_optional: bool) -> Draft:
        place.can_be_left_out = is_optional
        first = self.sequence(group.raw_pattern.sequence(), sink, place)
        if is_optional:
            first.add(PROCEED, behind, self._group_goes_on(place))
        return first

    def _looping_group(self, group: GroupPattern, place: _Place, sink: Draft) -> Draft:
        again = Draft()
        place.can_be_left_out = True
        first = self.sequence(group.raw_pattern.sequence(), again, place)
        first.add(PROCEED, sink, self._group_goes_on(place))
        again.add(PROCEED, first, self._group_goes_on(place))
        return first

    def _state(self, place: _Place, gap_ms: int) -> Draft:
        name = place.pattern.get_name()
        if name not in self.stages:
            self.stages.append(name)
        return Draft("normal", self.stages.index(name), gap_ms)

    @staticmethod
    def _accept(state: Draft, target: Draft, take: Formula | None) -> None:
        if take is not None:
            state.add(TAKE, target, take)
