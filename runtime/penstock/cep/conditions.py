"""Conditions of patterns: functions of an event, or of an event and the events that the match has so far."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.common.program.user_location import refusal
from penstock.functions.function import Function, name_of

Filter = Callable[[Any, Any], Any]
"""A function of the event and the context of the condition. Its result is used as a boolean."""


class IterativeCondition(ABC):
    """A condition on an event that can read the events that the partial match has accepted.

    >>> class Rising(IterativeCondition):
    ...     def filter(self, value, ctx):
    ...         return all(value > earlier for earlier in ctx.get_events_for_pattern("rise"))
    """

    class Context(ABC):
        """The partial match to which the event could be added, and the time."""

        @abstractmethod
        def get_events_for_pattern(self, name: str) -> list[Any]:
            """Return the events that the partial match has accepted for a pattern, oldest first. The current event is not among them."""

        @abstractmethod
        def timestamp(self) -> int:
            """Return the event time of the current event, or in processing time the time of its arrival (ms)."""

        @abstractmethod
        def current_processing_time(self) -> int: ...

    @abstractmethod
    def filter(self, value: Any, ctx: IterativeCondition.Context, /) -> bool:
        """Return whether the event fulfils the condition."""


class RichIterativeCondition(IterativeCondition, Function):
    """An iterative condition that can open and close resources. Every subtask calls `open` before the first event."""


class SimpleCondition(ABC):
    """A condition on an event alone.

    >>> SimpleCondition.of(lambda value: value > 3).filter(5)
    True
    """

    @abstractmethod
    def filter(self, value: Any, /) -> bool:
        """Return whether the event fulfils the condition."""

    @staticmethod
    def of(wrapped_filter: Callable[[Any], bool]) -> SimpleCondition:
        """Return a condition that calls a function with the event."""
        return _FunctionCondition(wrapped_filter)


class _FunctionCondition(SimpleCondition):
    def __init__(self, function: Callable[[Any], bool]) -> None:
        self._function = function

    def filter(self, value: Any, /) -> bool:
        return self._function(value)


class Condition:
    """A condition as the matcher calls it.

    Args:
        needs_match: whether the function reads the partial match. If not, one call is valid for all partial matches.
        parts: function objects to open and close.
    """

    __slots__ = ("function", "needs_match", "parts")

    def __init__(self, function: Filter, *, needs_match: bool, parts: tuple[Function, ...] = ()) -> None:
        self.function = function
        self.needs_match = needs_match
        self.parts = parts

    def both(self, other: Condition) -> Condition:
        """Return the condition that both conditions hold."""
        return self._joined(other, lambda first, second: lambda value, ctx: first(value, ctx) and second(value, ctx))

    def either(self, other: Condition) -> Condition:
        """Return the condition that at least one of the conditions holds."""
        return self._joined(other, lambda first, second: lambda value, ctx: first(value, ctx) or second(value, ctx))

    def _joined(self, other: Condition, join: Callable[[Filter, Filter], Filter]) -> Condition:
        return Condition(
            join(self.function, other.function),
            needs_match=self.needs_match or other.needs_match,
            parts=self.parts + other.parts,
        )


ALWAYS = Condition(lambda value, ctx: True, needs_match=False)
"""The condition of a pattern without `where`."""


def condition_of(given: Any, method: str) -> Condition:
    """Return the condition that a program gave to a method of `Pattern`.

    Raises:
        InvalidJob: the argument is not a condition, or a function that takes neither one nor two arguments.
    """
    if isinstance(given, SimpleCondition):
        return _of_one(given.filter, given)
    if isinstance(given, IterativeCondition):
        return _of_two(given.filter, given)
    if isinstance(given, type) and issubclass(given, SimpleCondition | IterativeCondition):
        raise refusal(f"{method} got the class {given.__name__}", f"pass an instance: {given.__name__}(…)")
    if not callable(given):
        raise refusal(
            f"{method} takes a condition, got {given!r} of type {type(given).__name__}",
            "pass a function of the event, or a function of the event and the context",
        )
    if inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        raise refusal(
            f"{method} got {name_of(given)}, which does not return a bool when it is called", "use a plain function"
        )
    return _of_two(given, given) if _arguments(given, method) == 2 else _of_one(given, given)


def _of_one(function: Callable[[Any], Any], owner: Any) -> Condition:
    return Condition(lambda value, ctx: function(value), needs_match=False, parts=_parts(owner))


def _of_two(function: Filter, owner: Any) -> Condition:
    return Condition(function, needs_match=True, parts=_parts(owner))


def _parts(owner: Any) -> tuple[Function, ...]:
    return (owner,) if isinstance(owner, Function) else ()


def subtype_condition(subtype: Any) -> Condition:
    """Return the condition that the event is an instance of a class.

    Raises:
        InvalidJob: the argument is not a class.
    """
    if not isinstance(subtype, type):
        raise refusal(f"subtype takes a class, got {subtype!r}", "pass the class of the events")
    return Condition(lambda value, ctx: isinstance(value, subtype), needs_match=False)


def _arguments(function: Callable[..., Any], method: str) -> int:
    """Return how many positional arguments the matcher passes: 2 if the function takes two, else 1."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 1
    for count in (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count
    raise refusal(
        f"{method} got {name_of(function)}{signature}, which takes neither one nor two arguments",
        "pass a function of the event, or of the event and the context",
    )
