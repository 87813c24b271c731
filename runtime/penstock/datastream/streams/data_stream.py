"""`DataStream`: a stream of values without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import refusal, user_location
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, inferred, result_type, to_type_info
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from penstock.datastream import functions as f
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.streams.checks import checked_function
from penstock.datastream.streams.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from penstock.datastream.streams.joins import CoGroupedStreams, JoinedStreams
from penstock.datastream.streams.key_selectors import selected_key
from penstock.datastream.streams.row_results import with_row_results
from penstock.datastream.streams.stream_ends import StreamEnds
from penstock.datastream.streams.stream_routing import StreamRouting
from penstock.datastream.streams.windowed_stream import AllWindowedStream, count_windows
from penstock.functions.inspect import Inspect
from penstock.functions.type_variables import K, T, U
from penstock.graph import operations
from penstock.graph.transformation import FORWARD, Exchange, Input, Partitioning, Transformation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.common.execution_config import ExecutionConfig
    from penstock.common.typeinfo import TypeInformation
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.datastream.columns import Expression
    from penstock.datastream.state import MapStateDescriptor
    from penstock.datastream.streams.iterative_stream import IterativeStream
    from penstock.datastream.streams.keyed_stream import KeyedStream
    from penstock.datastream.window import WindowAssigner


class DataStream(StreamRouting[T], StreamEnds, Generic[T]):
    """A stream of values. Made by an environment's sources and by the operations of other streams.

    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> def fahrenheit(celsius: float) -> float:
    ...     return celsius * 9 / 5 + 32
    >>> stream = env.from_collection([21.5, 30.0]).map(fahrenheit).name("to fahrenheit").uid("to-fahrenheit")
    >>> stream.get_name(), stream.get_type()
    ('to fahrenheit', Types.DOUBLE())

    For type checkers it is `DataStream[float]`: of what functions give, as far as they say it.
    """

    is_keyed = False
    """It is what `key_by` gives."""
    _keyed_stream: ClassVar[type[KeyedStream]]
    """A keyed stream is a stream, so its module stands above this one, and says here what `key_by` makes."""
    _iterative_stream: ClassVar[type[IterativeStream]]
    """As `_keyed_stream`: what `iterate` makes."""

    # --- what it is -------------------------------------------------------------------------------------------

    def get_name(self) -> str:
        return self._own("get_name").name

    def get_execution_config(self) -> ExecutionConfig:
        return self._env.get_config()

    def force_non_parallel(self) -> DataStream[T]:
        """The operator runs in one subtask, whatever the parallelism of the job."""
        transformation = self._own("force_non_parallel")
        transformation.parallelism = 1
        transformation.non_parallel = True
        return self

    def start_new_chain(self) -> DataStream[T]:
        """Do not fuse the operator with the one before it."""
        self._own("start_new_chain").chaining = "head"
        return self

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> DataStream[T]:
        warn_no_effect("DataStream.set_buffer_timeout", "the environment's counts for the whole job")
        return self

    # --- one value at a time ----------------------------------------------------------------------------------

    @overload
    def map(self, func: f.MapFunction[T, U] | Callable[[T], U]) -> DataStream[U]: ...
    @overload
    def map(self, func: f.MapFunction[T, Any] | Callable[[T], Any], output_type: Any) -> DataStream: ...
    def map(self, func: f.MapFunction | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """One value out for each value in.

        Args:
            output_type: type information or a Python type; the function's annotation if it is not given.
        """
        checked_function(func, f.MapFunction, operation="map", arguments=1, methods=("map",))
        declared = to_type_info(output_type)
        operation = operations.Map(with_row_results(func, declared, "map"), self._state_key(func))
        return self._transform("Map", operation, declared or result_type(func, "map"), about=func)

    @overload
    def flat_map(self, func: f.FlatMapFunction[T, U] | Callable[[T], Iterable[U] | None]) -> DataStream[U]: ...
    @overload
    def flat_map(self, func: f.FlatMapFunction[T, Any] | Callable[[T], Any], output_type: Any) -> DataStream: ...
    def flat_map(self, func: f.FlatMapFunction | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """Any number of values out for each value in: the function returns an iterable, yields, or returns None.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection(["to be or", "not to be"]).flat_map(str.split, output_type=str).get_type()
        Types.STRING()
        """
        checked_function(func, f.FlatMapFunction, operation="flat_map", arguments=1, methods=("flat_map",))
        declared = to_type_info(output_type)
        operation = operations.FlatMap(with_row_results(func, declared, "flat_map"), self._state_key(func))
        return self._transform("Flat Map", operation, declared or element_type(func, "flat_map"), about=func)

    def filter(self, func: f.FilterFunction[T] | Callable[[T], bool] | Expression) -> DataStream[T]:
        """Keeps the values for which the function is true. A `pyarrow.compute` expression over the fields does as well
        and is evaluated on whole columns."""
        if not _is_expression(func):
            checked_function(func, f.FilterFunction, operation="filter", arguments=1, methods=("filter",))
        operation = operations.Filter(func, self._state_key(func))
        return self._transform("Filter", operation, self._type_info, about=func)

    def inspect(self, func: Callable[[T], Any]) -> DataStream[T]:
        """Calls a function with each value and passes the value on: to log, count, or stop in a debugger.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2]).inspect(print).get_type()
        Types.LONG()
        """
        checked_function(func, operation="inspect", arguments=1)
        operation = operations.Map(Inspect(func))
        return self._transform("Inspect", operation, self._type_info, about=func)

    def process(self, func: f.ProcessFunction | Callable[..., Any], output_type: Any = None) -> DataStream:
        """Values with their timestamps, the watermark and side outputs. State and timers need `key_by` before."""
        if isinstance(func, f.KeyedProcessFunction):
            raise _not_keyed(f"{type(func).__name__} is a KeyedProcessFunction, and the stream has no key")
        checked_function(func, f.ProcessFunction, operation="process", arguments=2, methods=("process_element",))
        declared = to_type_info(output_type)
        operation = operations.Process(with_row_results(func, declared, "process_element"))
        return self._transform("Process", operation, declared or element_type(func, "process_element"), about=func)

    def map_batches(
        self, func: Callable[[pa.RecordBatch], pa.RecordBatch | None], output_type: Any = None
    ) -> DataStream:
        """A function from Arrow record batch to Arrow record batch, at the speed of columns.

        The event times are the int64 column `_timestamp` (ms), if there are any. The result may have other records than
        the input only if it keeps that column or there are no event times.
        """
        checked_function(func, operation="map_batches", arguments=1)
        return self._transform("Map Batches", operations.MapBatches(func), to_type_info(output_type), about=func)

    def gather(self, size: int, timeout: TimeLike) -> DataStream[list[T]]:
        """Lists of values, in order, for functions that are cheaper on several at once, such as a model's.

        A list is as new as its newest value. Values that wait are part of checkpoints, so they must be of a type that state can hold.

        Args:
            size: a list goes when it has so many values;
            timeout: or when its first value has waited so long (processing time).

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> texts = env.from_collection(["good", "bad"])
        >>> texts.gather(32, timedelta(milliseconds=50)).flat_map(lambda texts: [(t, len(t)) for t in texts]).get_name()
        'Flat Map'
        """
        if not isinstance(size, int) or size < 1:
            raise refusal(f"gather takes how many values a list may have, from 1, got {size!r}")
        timeout_ms = as_millis(timeout, "timeout")
        if timeout_ms < 1:
            raise refusal(f"the timeout of gather must be at least 1 ms, got {timeout!r}")
        element = self._type_info
        gathered = None if element is None else Types.LIST(element)
        return self._transform("Gather", operations.Gather(size, timeout_ms, element), gathered)

    def project(self, *field_indexes: int) -> DataStream:
        """Keeps the fields at these positions, in this order, of tuples, Rows and columns."""
        if not field_indexes or not all(isinstance(index, int) and index >= 0 for index in field_indexes):
            raise refusal(f"project takes positions of fields, from 0, got {field_indexes!r}")
        return self._transform("Projection", operations.Project(field_indexes), self._projected_type(field_indexes))

    def select(self, *names: str, **columns: pc.Expression) -> DataStream:
        """Records of these fields: named ones as they are, new ones by expressions (`penstock.datastream.columns`).

        As Python objects the records are dicts.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.columns import col
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> readings = env.from_collection([{"station": "KJFK", "celsius": 21.5}])
        >>> readings.select("station", fahrenheit=col("celsius") * 9 / 5 + 32).get_name()
        'Select'
        """
        import pyarrow.compute as pc

        chosen = {name: pc.field(name) for name in names} | columns
        return self._transform("Select", operations.Select(_checked_columns("select", chosen)), None)

    def with_columns(self, **columns: pc.Expression) -> DataStream:
        """As `select`, with all fields that the records have; one of the same name is replaced."""
        operation = operations.Select(_checked_columns("with_columns", columns), keeps=True)
        return self._transform("With Columns", operation, None)

    def _projected_type(self, indexes: Sequence[int]) -> TypeInformation | None:
        known = self._type_info
        if not isinstance(known, TupleTypeInfo | RowTypeInfo):
            return None
        types = known.get_field_types()
        if max(indexes) >= len(types):
            raise refusal(f"project asks for field {max(indexes)}, but the stream's values have {len(types)} fields")
        chosen = [types[index] for index in indexes]
        names = known.get_field_names() if isinstance(known, RowTypeInfo) else None
        projected = TupleTypeInfo(chosen) if names is None else RowTypeInfo(chosen, [names[index] for index in indexes])
        return inferred(projected) if known.is_inferred else projected

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[T]:
        """Gives every value its event time and moves the event-time clock. Put it as near to the source as possible;
        given to `from_source` the strategy works for each split on its own, which is better still."""
        strategy = _checked_strategy(watermark_strategy)
        if strategy.alignment is not None:
            raise refusal(
                "watermark alignment makes sources wait, and assign_timestamps_and_watermarks is behind the source",
                "give the strategy to from_source",
            )
        operation = operations.TimestampsAndWatermarks(strategy)
        return self._transform("Timestamps/Watermarks", operation, self._type_info)

    # --- which subtask a value goes to ------------------------------------------------------------------------

    @overload
    def key_by(
        self, key_selector: Callable[[T], K] | f.KeySelector[T, K], key_type: Any = None
    ) -> KeyedStream[T, K]: ...
    @overload
    def key_by(self, key_selector: str | int | Sequence[str | int], key_type: Any = None) -> KeyedStream[T]: ...
    def key_by(
        self,
        key_selector: Callable[[Any], Any] | f.KeySelector | str | int | Sequence[str | int],
        key_type: Any = None,
    ) -> KeyedStream[T, Any]:
        """Values with equal keys go to the same subtask, and share state.

        Args:
            key_selector: a function, a `KeySelector`, a field (name, position or dotted path), or a list of fields.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection([("a", 1), ("b", 2)])
        >>> words.key_by(0).get_key_type(), words.key_by([0, 1]).get_key_type()
        (Types.STRING(), TupleTypeInfo([Types.STRING(), Types.LONG()]))
        """
        key = selected_key(key_selector, self._type_info)
        return self._keyed_stream(self, key, to_type_info(key_type) or key.key_type)

    @overload
    def broadcast(self) -> DataStream[T]: ...
    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T] | BroadcastStream:
        """Every value to all subtasks.

        Without descriptors a `DataStream`. With them a `BroadcastStream`, to be connected with another stream whose
        process function keeps what was broadcast in these map states.
        """
        if broadcast_state_descriptor is None:
            return self._partitioned(Partitioning(Exchange.BROADCAST), "broadcast")
        return BroadcastStream(self, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    # --- several streams --------------------------------------------------------------------------------------

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """The values of all streams, of one type, in no particular order; the slowest sets the event-time clock."""
        inputs = list(self._inputs)
        types = [self._type_info]
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise refusal(f"union takes streams, got {stream!r}")
            self._check_same_environment(stream, "union")
            inputs += stream._without_key()._inputs
            types.append(stream._type_info)
        known = {type_info for type_info in types if type_info is not None}
        if len(known) > 1:
            raise refusal(
                f"union takes streams of one type, got {', '.join(map(repr, types))}",
                "map them to one type first, or use connect()",
            )
        return DataStream(self._env, inputs, self._type_info if None not in types else None, view="union")

    def iterate(self) -> IterativeStream[T]:
        """The beginning of a loop: this stream, and what `close_with` of the result sends back to it.

        A value that is sent back is read in the next epoch, some 20 ms to a second later; it is in every checkpoint until
        it was. Bounded input ends when nothing goes round any more. The watermark is that of this stream: what comes round may be late.
        Streaming mode only.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> iteration = env.from_collection([5, 40]).iterate()
        >>> doubled = iteration.map(lambda number: number * 2)
        >>> _ = iteration.close_with(doubled.filter(lambda number: number < 100))
        """
        return self._iterative_stream._of(self)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...
    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Two streams for one function with a method for each: `ConnectedStreams`, or with a `BroadcastStream`
        a `BroadcastConnectedStream`."""
        if isinstance(ds, BroadcastStream):
            self._check_same_environment(ds.input_stream, "connect")
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        if not isinstance(ds, DataStream):
            raise refusal(f"connect takes a stream, got {ds!r}")
        self._check_same_environment(ds, "connect")
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream) -> JoinedStreams:
        """Pairs of values with equal keys in the same window:
        `a.join(b).where(key_a).equal_to(key_b).window(assigner).apply(function)`."""
        self._check_same_environment(other, "join")
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """The values of both streams with equal keys in the same window, either side of which may be empty:
        `a.co_group(b).where(key_a).equal_to(key_b).window(assigner).apply(function)`."""
        self._check_same_environment(other, "co_group")
        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The stream of what the operator sent to a side output."""
        if not isinstance(output_tag, OutputTag):
            raise refusal(f"get_side_output takes an OutputTag, got {output_tag!r}")
        transformation = self._own("get_side_output")
        known = transformation.side_types.get(output_tag.tag_id)
        if known is not None and output_tag.type_info not in (None, known):
            raise refusal(
                f"side output {output_tag.tag_id!r} of {transformation.name!r} was read as {known!r} and now as "
                f"{output_tag.type_info!r}",
                "use one OutputTag, or another id",
                operator=transformation.name,
            )
        type_info = known or output_tag.type_info
        transformation.side_types[output_tag.tag_id] = type_info
        edge = Input(transformation, FORWARD, side_tag=output_tag.tag_id)
        return DataStream(self._env, [edge], type_info, view="get_side_output")

    # --- windows ----------------------------------------------------------------------------------------------

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream[T]:
        """Windows over the whole stream; one subtask does all the work. With a key see `KeyedStream.window`."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of `size` values of the whole stream, a new one every `slide` values (0: every `size`)."""
        return self.window_all(count_windows(size, slide))

    def cache(self) -> CachedDataStream[T]:
        """The stream itself: it is computed for each job that reads it."""
        warn_no_effect("cache", "a stream is computed anew by each job that reads it")
        return CachedDataStream(self._env, self._inputs, self._type_info, self._transformation, self._view)

    def _new(
        self,
        inputs: Sequence[Input],
        type_info: TypeInformation | None,
        transformation: Transformation | None = None,
        view: str = "",
    ) -> DataStream:
        return DataStream(self._env, inputs, type_info, transformation, view)

    def _without_key(self) -> DataStream[T]:
        return self

    if not TYPE_CHECKING:  # a type checker is to find what is not there by itself

        def __getattr__(self, name: str) -> Any:
            if name in _OF_KEYED_STREAMS:
                instead = _WITHOUT_KEY.get(name, "")
                raise AttributeError(f"{name} needs a keyed stream: write stream.key_by(…).{name}(…){instead}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        name = self._view if self._transformation is None else self._transformation.name
        return f"{type(self).__name__}({name!r}, {self._type_info!r})"


_OF_KEYED_STREAMS = frozenset(
    {"window", "count_window", "reduce", "sum", "min", "max", "min_by", "max_by", "aggregate", "interval_join"}
)
_WITHOUT_KEY = {"window": ", or window_all(…) for the whole stream", "count_window": ", or count_window_all(…)"}


class CachedDataStream(DataStream[T]):
    """What `cache` gives."""

    def invalidate(self) -> None:
        """Nothing is kept, so nothing is dropped."""


def _is_expression(func: Any) -> bool:
    return type(func).__module__ == "pyarrow._compute" and type(func).__name__ == "Expression"


def _checked_columns(operation: str, columns: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    for name, expression in columns.items():
        if not _is_expression(expression):
            raise refusal(
                f"{operation} takes expressions, got {name}={expression!r}",
                f'write {name}=col("field") * 2, with col of penstock.datastream.columns, or lit(value) for a constant',
            )
    if not columns:
        raise refusal(f"{operation} without a field", "name fields, or give new ones by expressions")
    return tuple(columns.items())


def _checked_strategy(strategy: Any) -> Any:
    from penstock.common.watermark_strategy import WatermarkStrategy

    if not isinstance(strategy, WatermarkStrategy):
        raise refusal(
            f"a WatermarkStrategy is needed, got {strategy!r}",
            "for example WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=10))",
        )
    return strategy


def _not_keyed(message: str) -> Exception:
    from penstock.common.errors import KeyedStateNotAvailable

    return KeyedStateNotAvailable(
        message, remedy="put key_by(...) directly before process(...)", location=user_location()
    )
