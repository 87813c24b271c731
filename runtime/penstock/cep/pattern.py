"""`Pattern`: the description of a sequence of events, with the methods of Flink CEP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from penstock.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from penstock.cep.conditions import ALWAYS, Condition, condition_of, subtype_condition
from penstock.common.program.user_location import refusal
from penstock.common.time import as_millis

if TYPE_CHECKING:
    from penstock.common.time import TimeLike


class Contiguity(Enum):
    """The events that may be between an event and the one before it in the match."""

    STRICT = "next"
    SKIP_TILL_NEXT = "followed_by"
    SKIP_TILL_ANY = "followed_by_any"
    NOT_NEXT = "not_next"
    NOT_FOLLOW = "not_followed_by"

    @property
    def is_not(self) -> bool:
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOW)


class WithinType(Enum):
    """The events between which `Pattern.within` limits the time."""

    FIRST_AND_LAST = "first_and_last"
    PREVIOUS_AND_CURRENT = "previous_and_current"


@dataclass
class Quantifier:
    """How many events a pattern accepts. Without a loop, `least` and `most` are 1. `most` is None if there is no limit."""

    least: int = 1
    most: int | None = 1
    is_loop: bool = False
    is_optional: bool = False
    is_greedy: bool = False
    inner: Contiguity = Contiguity.SKIP_TILL_NEXT
    gap_ms: int = 0
    """Time between two events of the loop, or 0 without a limit."""


class Pattern:
    """One pattern of a sequence, linked to the pattern before it. `Pattern.begin` starts a sequence.

    The methods change the pattern and return it, except for those that append a pattern.

    >>> start = Pattern.begin("start").where(lambda event: event == "a")
    >>> start.followed_by("end").where(lambda event: event == "b").one_or_more().within(10_000).get_name()
    'end'
    """

    def __init__(
        self, name: str, previous: Pattern | None, contiguity: Contiguity, skip: AfterMatchSkipStrategy
    ) -> None:
        self._name = name
        self._previous = previous
        self._contiguity = contiguity
        self._skip = skip
        self._condition: Condition | None = None
        self._until: Condition | None = None
        self._quantifier = Quantifier()
        self._within: dict[WithinType, int] = {}

    # --- a sequence -------------------------------------------------------------------------------------------

    @staticmethod
    def begin(name: str | Pattern, after_match_skip_strategy: AfterMatchSkipStrategy | None = None) -> Pattern:
        """Start a sequence with a pattern of this name, or with a group of patterns.

        Args:
            after_match_skip_strategy: default `AfterMatchSkipStrategy.no_skip()`.
        """
        skip = after_match_skip_strategy or AfterMatchSkipStrategy.no_skip()
        if not isinstance(skip, AfterMatchSkipStrategy):
            raise refusal(f"begin takes an AfterMatchSkipStrategy, got {skip!r}", "use one of its static methods")
        return _appended(name, None, Contiguity.STRICT, skip, "begin")

    def next(self, name: str | Pattern) -> Pattern:
        """Append a pattern whose event directly follows (strict contiguity)."""
        return _appended(name, self, Contiguity.STRICT, self._skip, "next")

    def followed_by(self, name: str | Pattern) -> Pattern:
        """Append a pattern whose event follows, after events that do not fulfil its condition (relaxed contiguity)."""
        return _appended(name, self, Contiguity.SKIP_TILL_NEXT, self._skip, "followed_by")

    def followed_by_any(self, name: str | Pattern) -> Pattern:
        """Append a pattern whose event follows, after any events (non-deterministic relaxed contiguity)."""
        return _appended(name, self, Contiguity.SKIP_TILL_ANY, self._skip, "followed_by_any")

    def not_next(self, name: str) -> Pattern:
        """Append a pattern that the directly following event must not fulfil."""
        return self._not(name, Contiguity.NOT_NEXT)

    def not_followed_by(self, name: str) -> Pattern:
        """Append a pattern that no event may fulfil before the event of the next pattern.

        If it is the last pattern of a sequence with `within`, no event may fulfil it until the time has passed. Then the match is complete.
        """
        return self._not(name, Contiguity.NOT_FOLLOW)

    def _not(self, name: str, contiguity: Contiguity) -> Pattern:
        if isinstance(name, Pattern):
            raise refusal(
                f"{contiguity.value} takes the name of a pattern, not a group", "give a name, and use where()"
            )
        if self._quantifier.is_optional:
            raise refusal(
                f"{contiguity.value}({name!r}) follows the optional pattern {self._name!r}",
                "write two patterns, one with and one without the optional part",
            )
        if contiguity is Contiguity.NOT_NEXT and self._contiguity is Contiguity.NOT_FOLLOW:
            raise refusal(
                f"not_next({name!r}) directly follows not_followed_by({self._name!r})",
                "write not_next before not_followed_by",
            )
        return _appended(name, self, contiguity, self._skip, contiguity.value)

    # --- conditions -------------------------------------------------------------------------------------------

    def where(self, condition: Any) -> Self:
        """Accept only events that fulfil the condition. Several calls are combined with AND.

        Args:
            condition: function of the event, function of the event and the context, `SimpleCondition` or `IterativeCondition`.
        """
        return self._add(condition_of(condition, "where"))

    def or_(self, condition: Any) -> Self:
        """Accept events that fulfil this condition, too. Without a call of `where` before it, it is the only condition."""
        self._no_group("or_")
        found = condition_of(condition, "or_")
        self._condition = found if self._condition is None else self._condition.either(found)
        return self

    def subtype(self, subtype_class: type) -> Self:
        """Accept only instances of this class."""
        return self._add(subtype_condition(subtype_class))

    def _add(self, condition: Condition) -> Self:
        self._no_group("where")
        self._condition = condition if self._condition is None else self._condition.both(condition)
        return self

    def until(self, condition: Any) -> Self:
        """End the loop at the first event that fulfils the condition. The loop does not contain this event."""
        if self._until is not None:
            raise refusal(f"the pattern {self._name!r} has two until() conditions", "combine them in one function")
        if self._quantifier.most is not None:
            raise refusal(
                f"until() on the pattern {self._name!r}, which has no loop without end",
                "call one_or_more() or times_or_more() before it",
            )
        self._until = condition_of(condition, "until")
        return self

    # --- quantifiers ------------------------------------------------------------------------------------------

    def optional(self) -> Self:
        """Allow matches without this pattern."""
        self._no_not("optional")
        if self._quantifier.is_optional:
            raise refusal(f"the pattern {self._name!r} is optional already", "call optional() once")
        self._quantifier.is_optional = True
        return self

    def one_or_more(self, window_time: TimeLike | None = None) -> Self:
        """Accept one or more events.

        Args:
            window_time: time between two events of the loop. The time must be shorter than this.
        """
        return self._loop("one_or_more", 1, None, window_time)

    def times_or_more(self, times: int, window_time: TimeLike | None = None) -> Self:
        """Accept at least this number of events."""
        return self._loop("times_or_more", times, None, window_time)

    def times(self, times: int, to: int | None = None, window_time: TimeLike | None = None) -> Self:
        """Accept exactly `times` events, or `times` to `to` events. From 0 means optional."""
        return self._loop("times", times, times if to is None else to, window_time)

    def _loop(self, method: str, least: int, most: int | None, window_time: TimeLike | None) -> Self:
        self._no_not(method)
        quantifier = self._quantifier
        if quantifier.is_loop:
            raise refusal(f"the pattern {self._name!r} has a quantifier already", f"remove {method}()")
        if any(isinstance(count, bool) or not isinstance(count, int) for count in (least, most or 1)):
            raise refusal(f"{method} takes whole numbers, got {least!r}, {most!r}")
        if least == 0 and most:
            quantifier.is_optional, least = True, 1
        if least < 1 or (most is not None and most < least):
            raise refusal(f"{method} takes at least 1, and at most as many as the second number, got {least}, {most}")
        if (most or least) > MAX_TIMES:
            raise refusal(
                f"{method} of {most or least} events exceeds {MAX_TIMES}", "use times_or_more() and a condition"
            )
        quantifier.least, quantifier.most, quantifier.is_loop = least, most, True
        if window_time is not None:
            quantifier.gap_ms = _positive(window_time, f"window_time of {method}")
        return self

    def greedy(self) -> Self:
        """Repeat the loop as often as possible: an event that the loop accepts is not left to the next pattern."""
        self._no_not("greedy")
        self._no_group("greedy")
        self._need_loop("greedy")
        if self._quantifier.inner is Contiguity.SKIP_TILL_ANY:
            raise refusal(f"the pattern {self._name!r} has allow_combinations() and greedy()", "use only one of them")
        self._quantifier.is_greedy = True
        return self

    def consecutive(self) -> Self:
        """Accept only events of the loop that directly follow each other."""
        return self._inner(Contiguity.STRICT)

    def allow_combinations(self) -> Self:
        """Let the loop leave out events that fulfil its condition."""
        if self._quantifier.is_greedy:
            raise refusal(f"the pattern {self._name!r} has greedy() and allow_combinations()", "use only one of them")
        return self._inner(Contiguity.SKIP_TILL_ANY)

    def _inner(self, contiguity: Contiguity) -> Self:
        name = "consecutive" if contiguity is Contiguity.STRICT else "allow_combinations"
        self._need_loop(name)
        if self._quantifier.inner is not Contiguity.SKIP_TILL_NEXT:
            raise refusal(
                f"the pattern {self._name!r} has consecutive() or allow_combinations() already", f"remove {name}()"
            )
        self._quantifier.inner = contiguity
        return self

    def within(self, window_time: TimeLike, within_type: WithinType = WithinType.FIRST_AND_LAST) -> Self:
        """Limit the time of a match. The time between the two events must be shorter than this.

        Args:
            within_type: FIRST_AND_LAST limits the whole sequence. If several patterns have it, the shortest time counts.
                PREVIOUS_AND_CURRENT limits the time between the event before this pattern and its first event.
        """
        if not isinstance(within_type, WithinType):
            raise refusal(f"within takes a WithinType, got {within_type!r}")
        if within_type is WithinType.PREVIOUS_AND_CURRENT and self._previous is None:
            raise refusal(
                f"within({window_time!r}, PREVIOUS_AND_CURRENT) on the first pattern {self._name!r}, which has no event before it",
                "call it on a later pattern",
            )
        self._within[within_type] = _positive(window_time, "window_time of within")
        return self

    # --- checks and properties --------------------------------------------------------------------------------

    def _no_not(self, method: str) -> None:
        if self._contiguity.is_not:
            raise refusal(f"{method}() on the pattern {self._name!r} of {self._contiguity.value}", f"remove {method}()")

    def _no_group(self, method: str) -> None:
        if isinstance(self, GroupPattern):
            raise refusal(f"{method}() on a group of patterns", f"call {method}() on a pattern of the group")

    def _need_loop(self, method: str) -> None:
        if not self._quantifier.is_loop:
            raise refusal(
                f"{method}() on the pattern {self._name!r}, which accepts one event",
                "call one_or_more(), times() or times_or_more() before it",
            )

    def get_name(self) -> str:
        return self._name

    def get_previous(self) -> Pattern | None:
        return self._previous

    def get_after_match_skip_strategy(self) -> AfterMatchSkipStrategy:
        return self._skip

    @property
    def contiguity(self) -> Contiguity:
        return self._contiguity

    @property
    def condition(self) -> Condition:
        return self._condition or ALWAYS

    @property
    def until_condition(self) -> Condition | None:
        return self._until

    @property
    def quantifier(self) -> Quantifier:
        return self._quantifier

    def within_ms(self, within_type: WithinType) -> int:
        """Return the time of `within`, or 0 without a limit."""
        return self._within.get(within_type, 0)

    def sequence(self) -> list[Pattern]:
        """Return the patterns from the first one to this one."""
        found: list[Pattern] = []
        pattern: Pattern | None = self
        while pattern is not None:
            found.append(pattern)
            pattern = pattern._previous
        return found[::-1]

    def all_patterns(self) -> Iterator[Pattern]:
        """Yield the patterns from the first one to this one, and after each group the patterns in it."""
        for pattern in self.sequence():
            yield pattern
            if isinstance(pattern, GroupPattern):
                yield from pattern.raw_pattern.all_patterns()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


class GroupPattern(Pattern):
    """A sequence of patterns at the place of one pattern. Quantifiers apply to the whole sequence."""

    def __init__(
        self, group: Pattern, previous: Pattern | None, contiguity: Contiguity, skip: AfterMatchSkipStrategy
    ) -> None:
        super().__init__(f"group of {group.get_name()}", previous, contiguity, skip)
        self.raw_pattern = group


MAX_TIMES = 10_000
"""Highest number of `times`. The matcher has a state for each repetition."""


def _positive(length: TimeLike, name: str) -> int:
    found = as_millis(length, name)
    if found <= 0:
        raise refusal(f"{name} must be at least 1 ms, got {length!r}")
    return found


def _appended(
    name: str | Pattern, previous: Pattern | None, contiguity: Contiguity, skip: AfterMatchSkipStrategy, method: str
) -> Pattern:
    if isinstance(name, Pattern):
        if name.contiguity is Contiguity.NOT_FOLLOW:
            raise refusal(
                f"the group ends with not_followed_by({name.get_name()!r})",
                "let the group end with an event, and append the condition after the group",
            )
        return GroupPattern(name, previous, contiguity, skip)
    if not isinstance(name, str) or not name:
        raise refusal(f"{method} takes the name of a pattern or a group of patterns, got {name!r}")
    return Pattern(name, previous, contiguity, skip)
