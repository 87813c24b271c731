"""`WindowedStream` and `AllWindowedStream`: streams that are grouped into windows, to which a function is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, overload

from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, result_type, to_type_info
from penstock.datastream import functions as f
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.streams.arguments.aggregates import KeyAndAggregates, OnlyAggregates, aggregated_type, all_of
from penstock.datastream.streams.arguments.checks import checked_field, checked_function
from penstock.datastream.streams.arguments.row_results import with_row_results, with_row_sums
from penstock.functions.type_variables import K, T
from penstock.graph import operations
from penstock.graph.transformation import Exchange, Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.streams.arguments.key_selectors import Field
    from penstock.datastream.streams.data_stream import DataStream
    from penstock.datastream.streams.keyed_stream import KeyedStream
    from penstock.datastream.window import Evictor, Trigger, WindowAssigner
    from penstock.functions.field_reduce import AggregateKind
    from penstock.windowing.aggregates import FieldAggregate
    from penstock.windowing.window_function import WindowFunctionSpec


class _Windows(Generic[T]):
    """Base class of the two windowed streams."""

    _stream: DataStream
    _key_selector: Callable[[Any], Any] | None = None
    _window_functions: tuple[type, type]
    """Function classes for `apply` and for `process`."""
    _name: str

    def __init__(self, stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        from penstock.datastream.window import WindowAssigner

        if not isinstance(window_assigner, WindowAssigner):
            raise refusal(
                f"window takes a window assigner, got {window_assigner!r}",
                "for example TumblingEventTimeWindows.of(timedelta(minutes=5))",
            )
        self._stream = stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any] | None = None
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation | None:
        return self._stream.get_type()

    # --- settings of the windows ------------------------------------------------------------------------------

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set the trigger, which determines when a window fires. It replaces the default trigger of the assigner."""
        from penstock.datastream.window import MergingWindowAssigner, Trigger

        if not isinstance(trigger, Trigger):
            raise refusal(f"trigger takes a Trigger, got {trigger!r}")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise refusal(
                f"{type(trigger).__name__} cannot merge, and the windows of {type(self._assigner).__name__} merge",
                "use a trigger whose can_merge() is true",
            )
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any]) -> Self:
        """Set the evictor, which removes records when a window fires. State then keeps all records of a window until the window is deleted."""
        from penstock.datastream.window import Evictor

        if not isinstance(evictor, Evictor):
            raise refusal(f"evictor takes an Evictor, got {evictor!r}")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: TimeLike) -> Self:
        """Set the time for which a window accepts late records after its end. The window fires again for each late record."""
        lateness = as_millis(time_ms, "allowed lateness")
        if lateness < 0:
            raise refusal(f"allowed lateness must not be negative, got {time_ms!r}")
        if lateness and not self._assigner.is_event_time():
            raise refusal(
                f"the windows of {type(self._assigner).__name__} end by processing time, in which no record is late",
                "remove allowed_lateness, or use event-time windows",
            )
        self._allowed_lateness_ms = lateness
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send records that are too late to this side output of the result stream. By default, such records are dropped."""
        if not isinstance(output_tag, OutputTag):
            raise refusal(f"side_output_late_data takes an OutputTag, got {output_tag!r}")
        self._late_tag = output_tag
        return self

    # --- functions of the windows -----------------------------------------------------------------------------

    @overload
    def reduce(self, reduce_function: f.ReduceFunction[T] | Callable[[T, T], T]) -> DataStream[T]: ...
    @overload
    def reduce(self, reduce_function: Any, window_function: Any, output_type: Any = None) -> DataStream: ...
    def reduce(self, reduce_function: Any, window_function: Any = None, output_type: Any = None) -> DataStream:
        """Combine each record with the current value of its window when the record arrives. State keeps one value for each window.

        Args:
            window_function: function that receives the value, the key and the window when the window fires.
            output_type: type of the window function's results.
        """
        from penstock.windowing.window_function import WindowFunctionSpec

        checked_function(reduce_function, f.ReduceFunction, operation="reduce", arguments=2, methods=("reduce",))
        known = self.get_input_type()
        declared = to_type_info(output_type)
        function = self._checked_window_function(window_function, declared)
        spec = WindowFunctionSpec.reduce(with_row_sums(reduce_function, known), function, known)
        result = known if window_function is None else declared or self._window_result(window_function)
        return self._windowed("Reduce", spec, result, reduce_function)

    def aggregate(
        self,
        aggregate_function: Any,
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream:
        """Aggregate the records of a window incrementally. State keeps one accumulator for each window.

        Args:
            window_function: function that receives the result, the key and the window when the window fires.
            accumulator_type: type of the accumulator. Default: the annotation of `create_accumulator`.
            output_type: type of the results.
        """
        from penstock.windowing.window_function import WindowFunctionSpec

        checked_function(
            aggregate_function,
            f.AggregateFunction,
            operation="aggregate",
            arguments=None,
            methods=("create_accumulator", "add", "get_result"),
        )
        self._refuse_without_merge(aggregate_function)
        declared = to_type_info(output_type)
        accumulator = to_type_info(accumulator_type) or result_type(aggregate_function, "create_accumulator")
        function = self._checked_window_function(window_function, declared)
        if window_function is None:
            aggregate_function = with_row_results(aggregate_function, declared, "get_result")
        spec = WindowFunctionSpec.aggregate(aggregate_function, function, accumulator)
        inferred = (
            result_type(aggregate_function, "get_result")
            if window_function is None
            else self._window_result(window_function)
        )
        return self._windowed("Aggregate", spec, declared or inferred, aggregate_function)

    def agg(self, *aggregates: FieldAggregate) -> DataStream[tuple[Any, ...]]:
        """Emit aggregates of fields for each window: `(key, *aggregates)`. See `penstock.datastream.columns`.

        Windows of the whole stream have no key. Their results are `(*aggregates,)`.
        """
        aggregate = all_of(aggregates)
        if self._key_selector is None:
            return self.aggregate(aggregate, OnlyAggregates(several=len(aggregate.parts) > 1))
        known = aggregated_type(self._get_key_type(), self.get_input_type(), aggregate)
        return self.aggregate(aggregate, KeyAndAggregates(several=len(aggregate.parts) > 1), output_type=known)

    def _get_key_type(self) -> TypeInformation | None:
        return None

    def _refuse_without_merge(self, function: Any) -> None:
        """Refuse a function without `merge` if the windows merge. The program then fails at once, and not at the first merge of windows."""
        from penstock.datastream.window import MergingWindowAssigner

        merges = getattr(type(function), "merge", f.AggregateFunction.merge) is not f.AggregateFunction.merge
        if isinstance(self._assigner, MergingWindowAssigner) and not merges:
            raise refusal(
                f"{type(function).__name__} has no merge, and the windows of {type(self._assigner).__name__} merge",
                "add merge(acc_a, acc_b), which merges two accumulators into one",
            )

    def apply(self, window_function: Any, output_type: Any = None) -> DataStream:
        """Apply a function to all records of a window when it fires."""
        return self._full("apply", self._window_functions[0], window_function, output_type)

    def process(self, process_window_function: Any, output_type: Any = None) -> DataStream:
        """Apply a function to all records of a window when it fires. Its context has the window, the time, state and side outputs."""
        return self._full("process", self._window_functions[1], process_window_function, output_type)

    def _full(self, method: str, cls: type, function: Any, output_type: Any) -> DataStream:
        from penstock.windowing.window_function import WindowFunctionSpec

        keyed = self._key_selector is not None
        checked_function(function, cls, operation=method, arguments=3 if keyed else 2, methods=(method,))
        declared = to_type_info(output_type)
        make = WindowFunctionSpec.apply if method == "apply" else WindowFunctionSpec.process
        spec = make(with_row_results(function, declared, method), self.get_input_type())
        return self._windowed(method.title(), spec, declared or element_type(function, method), function)

    def sum(self, position_to_sum: Field = 0) -> DataStream[T]:
        """Emit the sum of a field over the window. The other fields are those of the first record of the window."""
        return self._aggregate_field("sum", position_to_sum)

    def min(self, position_to_min: Field = 0) -> DataStream[T]:
        """Emit the smallest value of a field in the window. The other fields are those of the first record of the window."""
        return self._aggregate_field("min", position_to_min)

    def max(self, position_to_max: Field = 0) -> DataStream[T]:
        """Emit the greatest value of a field in the window. The other fields are those of the first record of the window."""
        return self._aggregate_field("max", position_to_max)

    def min_by(self, position_to_min_by: Field = 0) -> DataStream[T]:
        """Emit the record of the window with the smallest value of a field. If several records have this value, emit the first of them."""
        return self._aggregate_field("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: Field = 0) -> DataStream[T]:
        """Emit the record of the window with the greatest value of a field. If several records have this value, emit the first of them."""
        return self._aggregate_field("max_by", position_to_max_by)

    def _aggregate_field(self, kind: AggregateKind, field: Field) -> DataStream:
        from penstock.windowing.window_function import WindowFunctionSpec

        known = self.get_input_type()
        spec = WindowFunctionSpec.field(kind, checked_field(kind, field), known)
        return self._windowed(kind.replace("_", " ").title(), spec, known)

    def _checked_window_function(self, function: Any, declared: TypeInformation | None) -> Any:
        """Return the window function that follows a reduce or an aggregate, after a check of its class and arguments."""
        if function is None:
            return None
        arguments = 2 if self._key_selector is None else 3
        checked_function(function, *self._window_functions, operation="the window function", arguments=arguments)
        method = "apply" if hasattr(function, "apply") else "process"
        return with_row_results(function, declared, method)

    @staticmethod
    def _window_result(function: Any) -> TypeInformation | None:
        return element_type(function, "apply" if hasattr(function, "apply") else "process")

    def _windowed(
        self, name: str, spec: WindowFunctionSpec, output_type: TypeInformation | None, about: Any = None
    ) -> DataStream:
        from penstock.windowing.assigner import check_merging

        trigger = self._assigner.get_default_trigger(None) if self._trigger is None else self._trigger
        check_merging(self._assigner, trigger)
        operation = operations.Window(
            self._assigner,
            spec,
            key_selector=self._key_selector,
            trigger=trigger,
            evictor=self._evictor,
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=self._late_tag,
        )
        result = self._stream._transform(
            f"{self._name} {name}", operation, output_type, non_parallel=self._key_selector is None, about=about
        )
        if self._late_tag is not None:
            late_type = self._late_tag.type_info or self.get_input_type()
            result._own("window").side_types[self._late_tag.tag_id] = late_type
        return result


class WindowedStream(_Windows[T], Generic[T, K]):
    """Keyed stream that is grouped into windows. Without `trigger`, the default trigger of the assigner determines when a window fires.

    >>> from datetime import timedelta
    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> from penstock.datastream.window import TumblingEventTimeWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> windows = (
    ...     env.from_collection([("KJFK", 21.5)])
    ...     .key_by(0)
    ...     .window(TumblingEventTimeWindows.of(timedelta(hours=1)))
    ...     .allowed_lateness(timedelta(minutes=5))
    ... )
    >>> windows.reduce(lambda a, b: a if a[1] > b[1] else b).get_name()
    'Window Reduce'
    """

    _window_functions = (f.WindowFunction, f.ProcessWindowFunction)
    _name = "Window"

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, window_assigner)
        self._key_selector = keyed_stream._field_selector()
        self._key_type = keyed_stream.get_key_type()

    def _get_key_type(self) -> TypeInformation | None:
        return self._key_type


class AllWindowedStream(_Windows[T]):
    """Stream that is grouped into windows without keys. One subtask processes all records."""

    _window_functions = (f.AllWindowFunction, f.ProcessAllWindowFunction)
    _name = "Window All"

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        whole = Partitioning(Exchange.KEY_GROUP, operations.constant_key)
        super().__init__(data_stream._without_key()._partitioned(whole, "window_all"), window_assigner)


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """Return an assigner for windows of `size` records. A window starts every `slide` records, or `size` if `slide` is 0."""
    from penstock.datastream.window import CountSlidingWindowAssigner, CountTumblingWindowAssigner

    for name, number in (("size", size), ("slide", slide)):
        if isinstance(number, bool) or not isinstance(number, int) or number < (name == "size"):
            raise refusal(f"the {name} of a count window is a number of records, got {number!r}")
    if slide in (0, size):
        return CountTumblingWindowAssigner.of(size)
    return CountSlidingWindowAssigner.of(size, slide)
