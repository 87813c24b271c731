"""`AfterMatchSkipStrategy`: which partial matches end when a match was found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.common.errors import UserFunctionError

NO_SKIP, SKIP_TO_NEXT, SKIP_PAST_LAST_EVENT, SKIP_TO_FIRST, SKIP_TO_LAST = (
    "no_skip",
    "skip_to_next",
    "skip_past_last_event",
    "skip_to_first",
    "skip_to_last",
)

EventIds = dict[str, list[int]]
"""The numbers of the events of a match, by the name of their pattern. Later events have higher numbers."""


@dataclass(frozen=True)
class AfterMatchSkipStrategy:
    """A rule for the partial matches that overlap a match. Use the static methods to create one.

    >>> AfterMatchSkipStrategy.skip_to_first("middle").throw_exception_on_miss()
    AfterMatchSkipStrategy(kind='skip_to_first', pattern_name='middle', throws_on_miss=True)
    """

    kind: str = NO_SKIP
    pattern_name: str | None = None
    throws_on_miss: bool = False

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Return every possible match. This is the default."""
        return AfterMatchSkipStrategy()

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Discard partial matches that started with the same event as the match."""
        return AfterMatchSkipStrategy(SKIP_TO_NEXT)

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Discard partial matches that started before the match ended."""
        return AfterMatchSkipStrategy(SKIP_PAST_LAST_EVENT)

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard partial matches that started before the first event of this pattern in the match."""
        return AfterMatchSkipStrategy(SKIP_TO_FIRST, pattern_name)

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Discard partial matches that started before the last event of this pattern in the match."""
        return AfterMatchSkipStrategy(SKIP_TO_LAST, pattern_name)

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Fail if the match has no event of the pattern, or if its first event is the one to skip to. Without this, nothing is skipped."""
        return replace(self, throws_on_miss=True)

    @property
    def is_skip_strategy(self) -> bool:
        return self.kind != NO_SKIP

    def first_start_to_keep(self, first: int, last: int, events: Callable[[], EventIds]) -> int:
        """Return the number of the first event with which a partial match may start after this match.

        Args:
            first: number of the first event of the match.
            last: number of its last event.
            events: function that returns the numbers of all its events.

        Raises:
            UserFunctionError: the strategy throws on a miss, and the match has no event to skip to.
        """
        if self.kind == NO_SKIP:
            return 0
        if self.kind == SKIP_TO_NEXT:
            return first + 1
        if self.kind == SKIP_PAST_LAST_EVENT:
            return last + 1
        assert self.pattern_name is not None
        found = events().get(self.pattern_name, ())
        if not found:
            if self.throws_on_miss:
                raise UserFunctionError(
                    f"the match has no event of the pattern {self.pattern_name!r} to skip to",
                    remedy="skip to a pattern that is not optional, or do not call throw_exception_on_miss()",
                )
            return 0
        target = found[0] if self.kind == SKIP_TO_FIRST else found[-1]
        if target == first and self.throws_on_miss:
            raise UserFunctionError(
                f"the event of the pattern {self.pattern_name!r} to skip to is the first event of the match",
                remedy="skip to a later pattern, or use skip_to_next()",
            )
        return target
