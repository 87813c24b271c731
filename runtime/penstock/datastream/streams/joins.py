"""Joins and co-groups over windows, and joins without windows.

The form of a window join is `a.join(b).where(k1).equal_to(k2).window(assigner).apply(function)`.

Window joins consist of other operations. Each record is tagged with its side, the two streams are united, and the result is
windowed by key. The window function then separates the sides. A join is inner: it emits nothing for a record that has no partner
in its window. A co-group calls its function once for each key and window, and one side may be empty. Two records that are close
in time but in different windows are not joined. To join such records, use `interval_join`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, result_type, to_type_info
from penstock.common.typeinfo import PickledBytesTypeInfo, TupleTypeInfo, Types
from penstock.datastream import functions as f
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.arguments.key_selectors import SelectedKey, selected_key
from penstock.datastream.streams.arguments.row_results import with_row_results
from penstock.datastream.streams.windowed_stream import WindowedStream
from penstock.functions.function import name_of
from penstock.functions.runtime_context import FunctionWrapper
from penstock.functions.state.state_joins import AsOf, EveryPair
from penstock.graph import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.datastream.window import Evictor, Trigger, WindowAssigner

LEFT, RIGHT = 0, 1
Tagged = tuple[int, Any, Any]
"""A record and its side: (side, left value, right value). The value of the other side is None."""


def tag_left(value: Any) -> Tagged:
    return (LEFT, value, None)


def tag_right(value: Any) -> Tagged:
    return (RIGHT, None, value)


class TaggedKey:
    """Key selector of tagged records, which applies the selector of the record's side."""

    def __init__(self, left: Callable[[Any], Any], right: Callable[[Any], Any]) -> None:
        self._left = left
        self._right = right

    def __call__(self, value: Tagged) -> Any:
        return self._left(value[1]) if value[0] == LEFT else self._right(value[2])


class _GroupFunction(FunctionWrapper, f.WindowFunction[Tagged, Any]):
    """Window function that calls the user's function, and opens and closes it."""


class JoinPairs(_GroupFunction):
    """Join of a window: calls the function with every pair of a left and a right value, in the order of arrival."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterator[Any]:
        tagged = list(inputs)
        right = [value for side, _, value in tagged if side == RIGHT]
        if not right:
            return
        join: Callable[..., Any] = getattr(self._function, "join", self._function)
        if wants_window(self._function):
            join = functools.partial(join, window=window)
        flat = isinstance(self._function, f.FlatJoinFunction)
        for side, left, _ in tagged:
            if side == LEFT:
                for partner in right:
                    result = join(left, partner)
                    if not flat:
                        yield result
                    elif result is not None:
                        yield from result


def wants_window(function: Any) -> bool:
    """Return whether the join function has a parameter `window`, which receives the window of the pair."""
    try:
        return "window" in inspect.signature(getattr(function, "join", function)).parameters
    except (TypeError, ValueError):
        return False


class CoGroup(_GroupFunction):
    """Co-group of a window: calls the function with the lists of the left and the right values."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Any:
        tagged = list(inputs)
        co_group: Callable[[list[Any], list[Any]], Any] = getattr(self._function, "co_group", self._function)
        left = [value for side, value, _ in tagged if side == LEFT]
        return co_group(left, [value for side, _, value in tagged if side == RIGHT])


class _Sides(NamedTuple):
    operation: str
    left: DataStream
    right: DataStream


class _TwoStreams:
    _operation: str

    def __init__(self, left: DataStream, right: DataStream) -> None:
        self._sides = _Sides(self._operation, left, right)

    def where(self, key_selector: Any, key_type: Any = None) -> Where:
        """Set the key selector of the first stream. The method accepts the same selectors as `key_by`."""
        key = selected_key(key_selector, self._sides.left.get_type(), "where")
        return Where(self._sides, key, to_type_info(key_type) or key.key_type)


class JoinedStreams(_TwoStreams):
    """Two streams to join, which `join` returns.

    >>> from datetime import timedelta
    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> from penstock.datastream.window import TumblingEventTimeWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> orders, payments = env.from_collection([("o1", 5)]), env.from_collection([("o1", "cash")])
    >>> def paid(order: tuple[str, int], payment: tuple[str, str]) -> tuple[str, int, str]:
    ...     return (*order, payment[1])
    >>> joined = orders.join(payments).where(0).equal_to(0)
    >>> joined.window(TumblingEventTimeWindows.of(timedelta(hours=1))).apply(paid).get_type()
    TupleTypeInfo([Types.STRING(), Types.LONG(), Types.STRING()])
    """

    _operation = "join"


class CoGroupedStreams(_TwoStreams):
    """Two streams to co-group, which `co_group` returns."""

    _operation = "co_group"


class Where:
    """Join or co-group with the key selector of the first stream."""

    def __init__(self, sides: _Sides, left_key: SelectedKey, key_type: TypeInformation | None) -> None:
        self._sides = sides
        self._left_key = left_key
        self._key_type = key_type

    def equal_to(self, key_selector: Any, key_type: Any = None) -> EqualTo:
        """Set the key selector of the second stream. Records with equal keys are joined."""
        key = selected_key(key_selector, self._sides.right.get_type(), "equal_to")
        right_type = to_type_info(key_type) or key.key_type
        if None not in (self._key_type, right_type) and self._key_type != right_type:
            raise refusal(
                f"{self._sides.operation}: where() selects keys of type {self._key_type!r}, equal_to() of {right_type!r}",
                "select keys of one type. Only values with equal keys are joined",
            )
        return EqualTo(self._sides, self._left_key, key, self._key_type or right_type)


class EqualTo:
    """Join or co-group with the key selectors of both streams."""

    def __init__(
        self, sides: _Sides, left_key: SelectedKey, right_key: SelectedKey, key_type: TypeInformation | None
    ) -> None:
        self._sides = sides
        self._keys = (left_key, right_key)
        self._key_type = key_type

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WithWindow:
        """Set the windows in which records are joined."""
        return WithWindow(self._sides.operation, self._tagged_windows(window_assigner), self._sides)

    def apply(self, function: Any, output_type: Any = None, *, ttl: TimeLike | None = None) -> DataStream:
        """Join every pair of records with equal keys, without windows. State keeps the records of both sides. Co-groups do not support this.

        Args:
            function: a `JoinFunction`, a `FlatJoinFunction`, or a callable from (first, second) to a result.
            ttl: processing time for which a record waits for partners. Default: no limit.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> orders, payments = env.from_collection([("o1", 5)]), env.from_collection([("o1", "cash")])
        >>> orders.join(payments).where(0).equal_to(0).apply(lambda order, payment: (*order, payment[1])).get_name()
        'Join'
        """
        return self._joined("Join", function, output_type, lambda types: EveryPair(function, types, ttl))

    def as_of(self, function: Any, output_type: Any = None, *, tolerance: TimeLike | None = None) -> DataStream:
        """Join each record of the first stream with the newest record of the second stream that is not later. Co-groups do not support this.

        A result is emitted when the watermark of both streams passes the record. Late records are dropped. If several records of the
        second stream have the same time, the last one to arrive is used.

        Args:
            function: a function of the same kind as for `apply`. Its second argument is None if no record matches.
            tolerance: maximum age of the second record relative to the first. Default: no limit.

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> trades, quotes = env.from_collection([("KO", 10)]), env.from_collection([("KO", 61.2)])
        >>> def priced(trade: tuple[str, int], quote: tuple[str, float] | None) -> float:
        ...     return trade[1] * quote[1] if quote else 0.0
        >>> trades.join(quotes).where(0).equal_to(0).as_of(priced, tolerance=timedelta(minutes=1)).get_type()
        Types.DOUBLE()
        """
        limit = None if tolerance is None else as_millis(tolerance, "tolerance")
        if limit is not None and limit < 0:
            raise refusal(f"the tolerance of as_of must not be negative, got {tolerance!r}")
        return self._joined("As-Of Join", function, output_type, lambda types: AsOf(function, types, limit))

    def _joined(
        self, name: str, function: Any, output_type: Any, create_join: Callable[[Any], f.KeyedCoProcessFunction]
    ) -> DataStream:
        operation, left, right = self._sides
        if operation != "join":
            raise refusal(
                "co_group needs windows: it takes all values of a key together", "call window(…) before apply"
            )
        checked_function(function, f.JoinFunction, f.FlatJoinFunction, operation="join", arguments=2, methods=("join",))
        infer = element_type if isinstance(function, f.FlatJoinFunction) else result_type
        keyed = [
            stream._without_key()._keyed_stream(stream._without_key(), key, self._key_type)
            for stream, key in zip((left, right), self._keys, strict=True)
        ]
        joined = create_join((left.get_type(), right.get_type()))
        result = keyed[0].connect(keyed[1]).process(joined, to_type_info(output_type) or infer(function, "join"))
        return result.name(name).set_description(f"{name}: {name_of(function)}")

    def _tagged_windows(self, assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        operation, left, right = self._sides
        types = [left.get_type(), right.get_type()]
        known = [type_info or PickledBytesTypeInfo() for type_info in types]
        tagged_type = TupleTypeInfo([Types.LONG(), *known]) if any(types) else None
        name = operation.replace("_", "-").title()
        tagged = [
            stream._without_key()._transform(f"{name} {side}", operations.Map(tag), tagged_type)
            for stream, tag, side in ((left, tag_left, "Left"), (right, tag_right, "Right"))
        ]
        key = SelectedKey(TaggedKey(self._keys[0].selector, self._keys[1].selector), None, self._key_type)
        united = tagged[0].union(tagged[1])
        return WindowedStream(united._keyed_stream(united, key, self._key_type), assigner)


class WithWindow:
    """Windowed join or co-group. The method `apply` sets its function."""

    def __init__(self, operation: str, windows: WindowedStream, sides: _Sides) -> None:
        self._operation = operation
        self._windows = windows
        self._sides = sides

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set the trigger of the windows. It receives tagged records: (side, left value, right value)."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any]) -> Self:
        """Set the evictor, which removes records when a window fires. It receives tagged records: (side, left value, right value)."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: TimeLike) -> Self:
        """Set the time for which a window accepts late records after its end. The window fires again for each late record."""
        self._windows.allowed_lateness(time_ms)
        return self

    def apply(self, function: Any, output_type: Any = None) -> DataStream:
        """Apply a function to each pair or group and return the stream of its results.

        Args:
            function: function of the pairs or groups. For a join, it is a `JoinFunction`, a `FlatJoinFunction` or a callable
                (first, second) -> result. For a co-group, it is a `CoGroupFunction` or a callable
                (list of first, list of second) -> iterable of results.
        """
        declared = to_type_info(output_type)
        wrapped: _GroupFunction
        if self._operation == "join":
            checked_function(
                function,
                f.JoinFunction,
                f.FlatJoinFunction,
                operation="join",
                arguments=3 if wants_window(function) else 2,
                methods=("join",),
            )
            infer = element_type if isinstance(function, f.FlatJoinFunction) else result_type
            inferred, wrapped, name = infer(function, "join"), JoinPairs(function), "Window Join"
        else:
            checked_function(function, f.CoGroupFunction, operation="co_group", arguments=2, methods=("co_group",))
            inferred, wrapped, name = element_type(function, "co_group"), CoGroup(function), "Window Co-Group"
        result = self._windows.apply(with_row_results(wrapped, declared, "apply"), declared or inferred)
        return result.name(name).set_description(f"{name}: {name_of(function)}")
