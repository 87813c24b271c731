"""Checks of functions before a job runs: the class of a function and the number of its arguments."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from penstock.common.program.user_location import refusal
from penstock.datastream import functions as f
from penstock.functions.function import Function, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.records.fields import Field

_METHOD_OF: dict[type, str] = {
    f.MapFunction: "map",
    f.FlatMapFunction: "flat_map",
    f.FilterFunction: "filter",
    f.ReduceFunction: "reduce",
    f.AggregateFunction: "window(…).aggregate",
    f.KeySelector: "key_by",
    f.Partitioner: "partition_custom",
    f.CoMapFunction: "connect(…).map",
    f.CoFlatMapFunction: "connect(…).flat_map",
    f.CoProcessFunction: "connect(…).process",
    f.KeyedCoProcessFunction: "connect(…).process on keyed streams",
    f.ProcessFunction: "process",
    f.KeyedProcessFunction: "key_by(…).process",
    f.BroadcastProcessFunction: "connect(broadcast stream).process",
    f.KeyedBroadcastProcessFunction: "connect(broadcast stream).process on a keyed stream",
    f.WindowFunction: "key_by(…).window(…).apply",
    f.AllWindowFunction: "window_all(…).apply",
    f.ProcessWindowFunction: "key_by(…).window(…).process",
    f.ProcessAllWindowFunction: "window_all(…).process",
    f.JoinFunction: "join(…).where(…).equal_to(…).window(…).apply",
    f.FlatJoinFunction: "join(…).where(…).equal_to(…).window(…).apply",
    f.CoGroupFunction: "co_group(…).where(…).equal_to(…).window(…).apply",
    f.ProcessJoinFunction: "interval_join(…).between(…).process",
    f.AsyncFunction: "AsyncDataStream",
    f.SinkFunction: "add_sink",
    f.SourceFunction: "add_source",
}


_ONE_RESULT = {"map", "filter", "reduce", "map_with_state"}
"""Operations that use the return value of a call as one result, so that a generator is an error."""


def checked_function(
    function: Any, *classes: type, operation: str, arguments: int | None, methods: tuple[str, ...] = ()
) -> Any:
    """Return the function if the operation accepts it.

    Args:
        classes: function classes that the operation accepts.
        operation: name of the method that the user called, for the message.
        arguments: number of positional arguments that a plain callable must accept. None means that plain callables are not accepted.
        methods: names of methods. An object that has all of them is accepted too.

    Raises:
        InvalidJob: the operation does not accept the function. The error names the operation, the function and the remedy.
    """
    _refuse_generators(function, operation)
    if isinstance(function, classes):
        return function
    wanted = " or ".join(f"{'an' if c.__name__[0] in 'AEIOU' else 'a'} {c.__name__}" for c in classes)
    if arguments is not None:
        wanted = f"{wanted} or a callable" if wanted else "a callable"
    if isinstance(function, type) and issubclass(function, Function):
        raise refusal(f"{operation} got the class {function.__name__}", f"pass an instance: {function.__name__}(…)")
    place = next((place for cls, place in _METHOD_OF.items() if isinstance(function, cls)), None)
    if place is not None:
        raise refusal(f"{operation} takes {wanted}, got {type(function).__name__}", f"it belongs to {place}")
    if methods and all(callable(getattr(function, method, None)) for method in methods):
        return function
    if arguments is None or not callable(function):
        raise refusal(f"{operation} takes {wanted}, got {function!r} of type {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise refusal(
            f"{operation} got the coroutine function {name_of(function)}",
            "use AsyncDataStream.ordered_wait or unordered_wait with an AsyncFunction",
        )
    check_arguments(function, arguments, operation)
    return function


def _refuse_generators(function: Any, operation: str) -> None:
    """Refuse a generator function if the operation needs one result. A call of such a function returns a generator instead of the result."""
    if operation in _ONE_RESULT and inspect.isgeneratorfunction(getattr(function, operation, function)):
        raise refusal(
            f"{operation} got the generator function {name_of(function)}, but needs a function with one result for each call",
            "return the result. Only functions of flat_map and process can yield several results",
        )


def check_arguments(function: Callable[..., Any], count: int, operation: str) -> None:
    """Refuse a callable that cannot be called with `count` positional arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        raise refusal(
            f"{operation} calls {name_of(function)} with {count} argument{'s' if count != 1 else ''}, "
            f"but its parameters are {signature}",
            "change the function's parameters",
        ) from None


def checked_field(operation: str, field: Any) -> Field:
    """Return the field if it is a name or a position."""
    if isinstance(field, bool) or not isinstance(field, str | int) or field == "":
        raise refusal(f"{operation} takes the name or position of a field, got {field!r}")
    return field
