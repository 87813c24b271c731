"""Functions that receive matches and partial matches that timed out.

Results are yielded or returned as an iterable, and None means no results. A result `tag, value` with an `OutputTag` goes to the side output
of the tag. `ctx.output(tag, value)` does the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.functions.function import Function

if TYPE_CHECKING:
    from penstock.cep.matcher import Match
    from penstock.functions.output_tag import OutputTag


class PatternProcessFunction(Function):
    """A function of each match. A match is a dict from the name of a pattern to the list of its events, oldest first.

    A pattern without events, such as an optional one, has no entry in the dict.

    >>> class Alert(PatternProcessFunction):
    ...     def process_match(self, match, ctx):
    ...         yield match["start"][0], match["end"][0]
    """

    class Context(ABC):
        """The time of the match, and side outputs."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the event time of the event that completes the match (ms). In processing time, return the time of its arrival.

            For a partial match that timed out, return the time of the timeout.
            """

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def output(self, output_tag: OutputTag, value: Any) -> None:
            """Send a value to a side output."""

    @abstractmethod
    def process_match(self, match: Match, ctx: PatternProcessFunction.Context, /) -> Any:
        """Return or yield the results of a match."""


class TimedOutPartialMatchHandler(ABC):
    """A second base class of a `PatternProcessFunction` that also receives partial matches whose time has passed.

    It has side outputs only: `ctx.output(tag, value)`, or `yield tag, value`.
    """

    @abstractmethod
    def process_timed_out_match(self, match: Match, ctx: PatternProcessFunction.Context, /) -> Any:
        """Handle the events of a partial match that timed out."""


class PatternSelectFunction(Function):
    """A function that returns one result for each match."""

    @abstractmethod
    def select(self, pattern: Match, /) -> Any: ...


class PatternFlatSelectFunction(Function):
    """A function that yields any number of results for each match."""

    @abstractmethod
    def flat_select(self, pattern: Match, /) -> Any: ...


class PatternTimeoutFunction(Function):
    """A function that returns one result for each partial match that timed out."""

    @abstractmethod
    def timeout(self, pattern: Match, timeout_timestamp: int, /) -> Any: ...


class PatternFlatTimeoutFunction(Function):
    """A function that yields any number of results for each partial match that timed out."""

    @abstractmethod
    def timeout(self, pattern: Match, timeout_timestamp: int, /) -> Any: ...
