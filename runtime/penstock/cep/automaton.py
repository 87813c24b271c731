"""The automaton of a pattern: its states, and the edges that an event takes.

A partial match is in one state. The edges of the state decide what the next event does to it:

- TAKE: accept the event, and go to the target
- IGNORE: leave the event out, and go to the target
- STOP: the event is forbidden, so the partial match ends
- PROCEED: go to the target without using the event. The edges of the target then decide

`Automaton` has no PROCEED edges: the edges behind them are edges of the state itself. An edge has a formula over the conditions of the
pattern. A formula is a conjunction of literals. A literal is `n` (condition n is true), `~n` (condition n is false), or a tuple of
literals that are not all true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from zlib import crc32

from penstock.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from penstock.cep.conditions import Condition

TAKE, IGNORE, STOP, PROCEED = range(4)

Literal = int | tuple[int, ...]
Formula = tuple[Literal, ...]
TRUE: Formula = ()


def both(first: Formula, second: Formula) -> Formula | None:
    """Return the conjunction of two formulas, or None if it is never true.

    >>> both((0,), (0, ~1)), both((0,), (~0,))
    ((0, -2), None)
    """
    found = tuple(dict.fromkeys(first + second))
    return None if any(isinstance(literal, int) and ~literal in found for literal in found) else found


def negated(formula: Formula) -> Formula:
    """Return the negation of a formula of plain literals.

    >>> negated((0,)), negated((0, ~1))
    ((-1,), ((0, -2),))
    """
    plain = tuple(literal for literal in formula if isinstance(literal, int))
    assert plain == formula, "only conditions of a pattern are negated"
    return (~plain[0],) if len(plain) == 1 else (plain,)


@dataclass(eq=False)
class Draft:
    """A state while the automaton is built."""

    kind: str = "normal"
    """The kind of the state:

    - `normal`
    - `final`: the match is complete
    - `stop`: the partial match ends
    - `pending`: the match is complete if its time passes
    - `guard`: the next event decides whether the partial match goes on, also if the match could be complete without an event
    """
    stage: int = -1
    """Index of the pattern that accepts the events of the TAKE edges."""
    gap_ms: int = 0
    """Time after the last accepted event within which the next one must come, or 0."""
    edges: list[tuple[int, Draft, Formula]] = field(default_factory=list)

    def add(self, action: int, target: Draft, formula: Formula = TRUE) -> None:
        self.edges.append((action, target, formula))

    def copy(self) -> Draft:
        found = Draft(self.kind, self.stage, self.gap_ms)
        for action, target, formula in self.edges:
            found.add(action, found if target is self else target, formula)
        return found


@dataclass(frozen=True)
class Edge:
    """An edge of a state. A partial match takes it only within `gap_ms` after its last event. 0 means no limit."""

    formula: Formula
    action: int
    stage: int
    target: int
    gap_ms: int


@dataclass(frozen=True)
class State:
    """A state of the automaton.

    Args:
        edges: in the order in which their partial matches are stored.
        completed_by: formulas. If one of them is true for the event with which a partial match arrives here, the match is complete.
        completed_by_time: whether the match is complete if its time passes in this state.
        gap_ms: time after the last accepted event, after which no edge can be taken. 0 means no limit.
    """

    edges: tuple[Edge, ...]
    completed_by: tuple[Formula, ...]
    completed_by_time: bool
    gap_ms: int
    is_ambiguous: bool = False
    """Whether two edges have the same action, pattern and target. A partial match takes only one of them."""


FINAL = -1
"""The target of edges that complete the match."""


@dataclass(frozen=True)
class Automaton:
    """The automaton of a sequence of patterns.

    Args:
        states: state 0 is the start.
        stages: names of the patterns.
        within_ms: time between the first and the last event of a match, or 0 without a limit.
    """

    states: tuple[State, ...]
    stages: tuple[str, ...]
    conditions: tuple[Condition, ...]
    within_ms: int
    skip: AfterMatchSkipStrategy

    @cached_property
    def signature(self) -> int:
        """Return a number that differs between patterns whose partial matches do not fit each other. Times do not count."""
        edges = [[(e.formula, e.action, e.stage, e.target) for e in state.edges] for state in self.states]
        return crc32(repr((self.stages, edges)).encode())


def states_of(start: Draft) -> tuple[State, ...]:
    """Return the states that can be reached, without PROCEED edges. The first one is the start."""
    numbers: dict[Draft, int] = {start: 0}
    found: list[State] = []
    order = [start]
    for draft in order:
        edges = []
        for formula, action, source, target in _edges_behind(draft):
            if target.kind == "final":
                number = FINAL
            elif action == STOP:
                number = 0
            else:
                number = numbers.setdefault(target, len(numbers))
                if number == len(order):
                    order.append(target)
            edges.append(Edge(formula, action, source.stage, number, source.gap_ms))
        found.append(_state(draft, tuple(dict.fromkeys(edges))))
    return tuple(found)


def _state(draft: Draft, edges: tuple[Edge, ...]) -> State:
    reached = list(proceeding(draft))
    gaps = [edge.gap_ms for edge in edges if edge.action != STOP]
    gaps = gaps or [found.state.gap_ms for found in reached if found.state.kind == "pending"]
    complete = (found.formula for found in reached if found.state.kind == "final" and not found.is_guarded)
    return State(
        edges,
        tuple(dict.fromkeys(complete)),
        any(found.state.kind == "pending" for found in reached),
        max(gaps) if gaps and all(gaps) else 0,
        len({(edge.action, edge.stage, edge.target) for edge in edges}) < len(edges),
    )


def _edges_behind(draft: Draft) -> Iterator[tuple[Formula, int, Draft, Draft]]:
    """Yield the edges of a state and of the states behind its PROCEED edges: formula, action, source and target."""
    for found in proceeding(draft):
        state = found.state
        if state.kind == "stop":
            yield found.formula, STOP, state, state
        elif state.kind == "final" and found.is_guarded:
            yield found.formula, IGNORE, state, state
        for action, target, own in state.edges:
            formula = both(found.formula, own)
            if action != PROCEED and formula is not None:
                yield formula, action, state, target


class Reached(NamedTuple):
    """A state behind PROCEED edges, with the formula of these edges. `is_guarded`: whether they leave a guard."""

    state: Draft
    formula: Formula
    is_guarded: bool


def proceeding(draft: Draft) -> Iterator[Reached]:
    """Yield the state itself and the states behind its PROCEED edges. The last edge is followed first."""
    visited: set[Reached] = set()
    stack = [Reached(draft, TRUE, is_guarded=False)]
    while stack:
        found = stack.pop()
        if found in visited:
            continue
        visited.add(found)
        yield found
        is_guarded = found.is_guarded or found.state.kind == "guard"
        for action, target, own in found.state.edges:
            formula = both(found.formula, own) if action == PROCEED else None
            if formula is not None:
                stack.append(Reached(target, formula, is_guarded))
