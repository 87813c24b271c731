"""Joins and co-groups over windows: `a.join(b).where(k1).equal_to(k2).window(assigner).apply(function)`; joins without windows.

Those over windows are built from what is there: the values of either stream are tagged with the side they come from, united, and
windowed by key; the window function tells the sides apart again. A join is inner: values without a partner in their
window do not show up. A co-group calls its function once for each key and window, and one side may be empty.
Two values that are a moment apart but in different windows do not meet; where that matters use `interval_join`.
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
from penstock.datastream.streams.checks import checked_function
from penstock.datastream.streams.key_selectors import SelectedKey, selected_key
from penstock.datastream.streams.row_results import with_row_results
from penstock.datastream.streams.windowed_stream import WindowedStream
from penstock.functions.function import has_life_cycle, name_of
from penstock.functions.runtime_context import close_function
from penstock.functions.state.state_joins import AsOf, EveryPair
from penstock.graph import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.datastream.window import Evictor, Trigger, WindowAssigner
    from penstock.functions.function import RuntimeContext

LEFT, RIGHT = 0, 1
Tagged = tuple[int, Any, Any]
"""(side, left value, right value); the value of the other side is None."""


def tag_left(value: Any) -> Tagged:
    return (LEFT, value, None)


def tag_right(value: Any) -> Tagged:
    return (RIGHT, None, value)


class TaggedKey:
    """The key of a tagged value: by the selector of its side."""

    def __init__(self, left: Callable[[Any], Any], right: Callable[[Any], Any]) -> None:
        self._left = left
        self._right = right

    def __call__(self, value: Tagged) -> Any:
        return self._left(value[1]) if value[0] == LEFT else self._right(value[2])


class _GroupFunction(f.WindowFunction[Tagged, Any]):
    """Calls the user's function with the values of a window; opens and closes it."""

    def __init__(self, function: Any) -> None:
        self._function = function

    @property
    def wrapped_function(self) -> Any:
        """The user's."""
        return self._function

    def open(self, runtime_context: RuntimeContext) -> None:
        if has_life_cycle(self._function):
            self._function.open(runtime_context)

    def close(self) -> None:
        close_function(self._function)


class JoinPairs(_GroupFunction):
    """Every pair of a left and a right value, in the order in which they came."""

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
    """Whether what joins has a parameter `window`, for the window of the pair."""
    try:
        return "window" in inspect.signature(getattr(function, "join", function)).parameters
    except (TypeError, ValueError):
        return False


class CoGroup(_GroupFunction):
    """The left and the right values."""

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
        """The key of the first stream's values; whatever `key_by` takes."""
        key = selected_key(key_selector, self._sides.left.get_type(), "where")
        return Where(self._sides, key, to_type_info(key_type) or key.key_type)


class JoinedStreams(_TwoStreams):
    """What `join` gives.

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
    """What `co_group` gives."""

    _operation = "co_group"


class Where:
    """The first stream has its key."""

    def __init__(self, sides: _Sides, left_key: SelectedKey, key_type: TypeInformation | None) -> None:
        self._sides = sides
        self._left_key = left_key
        self._key_type = key_type

    def equal_to(self, key_selector: Any, key_type: Any = None) -> EqualTo:
        """The key of the second stream's values; values with equal keys meet."""
        key = selected_key(key_selector, self._sides.right.get_type(), "equal_to")
        right_type = to_type_info(key_type) or key.key_type
        if None not in (self._key_type, right_type) and self._key_type != right_type:
            raise refusal(
                f"{self._sides.operation}: where() selects keys of type {self._key_type!r}, equal_to() of {right_type!r}",
                "select keys of one type: only equal keys meet",
            )
        return EqualTo(self._sides, self._left_key, key, self._key_type or right_type)


class EqualTo:
    """Both streams have their keys."""

    def __init__(
        self, sides: _Sides, left_key: SelectedKey, right_key: SelectedKey, key_type: TypeInformation | None
    ) -> None:
        self._sides = sides
        self._keys = (left_key, right_key)
        self._key_type = key_type

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WithWindow:
        """The windows in which values meet."""
        return WithWindow(self._sides.operation, self._tagged_windows(window_assigner), self._sides)

    def apply(self, function: Any, output_type: Any = None, *, ttl: TimeLike | None = None) -> DataStream:
        """Of a join: every pair of values with equal keys, whenever they come. Both sides are kept in state.

        Args:
            function: a `JoinFunction`, a `FlatJoinFunction` or a callable (first, second) -> result.
            ttl: how long (processing time) a value waits for partners; for ever if it is not given.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> orders, payments = env.from_collection([("o1", 5)]), env.from_collection([("o1", "cash")])
        >>> orders.join(payments).where(0).equal_to(0).apply(lambda order, payment: (*order, payment[1])).get_name()
        'Join'
        """
        return self._joined("Join", function, output_type, lambda types: EveryPair(function, types, ttl))

    def as_of(self, function: Any, output_type: Any = None, *, tolerance: TimeLike | None = None) -> DataStream:
        """Of a join: each value of the first stream with the newest of the second that has its event time or an earlier one.

        A result comes when the watermark of both streams has passed the value; values that come behind it are dropped. Of several with
        one time in the second stream the last to come counts.

        Args:
            function: as `apply` takes it; second is None where there is no such value.
            tolerance: how much older than first second may be; any if it is not given.

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
        self, name: str, function: Any, output_type: Any, made: Callable[[Any], f.KeyedCoProcessFunction]
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
        joined = made((left.get_type(), right.get_type()))
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
    """Joined or co-grouped streams in windows, waiting for their function."""

    def __init__(self, operation: str, windows: WindowedStream, sides: _Sides) -> None:
        self._operation = operation
        self._windows = windows
        self._sides = sides

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """When the windows fire. It sees tagged values: (side, left value, right value)."""
        self._windows.trigger(trigger)
        return self

    def evictor(self, evictor: Evictor[Any]) -> Self:
        """Drops values when the windows fire. It sees tagged values: (side, left value, right value)."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self, time_ms: TimeLike) -> Self:
        """How long after its end a window still takes late values, firing again for each."""
        self._windows.allowed_lateness(time_ms)
        return self

    def apply(self, function: Any, output_type: Any = None) -> DataStream:
        """The stream of results.

        Args:
            function: for a join a `JoinFunction`, a `FlatJoinFunction` or a callable (first, second) -> result; for a
                co-group a `CoGroupFunction` or a callable (list of first, list of second) -> iterable of results.
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
