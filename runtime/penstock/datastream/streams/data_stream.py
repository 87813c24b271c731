"""`DataStream`: a stream of records without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.program.user_location import refusal, user_location
from penstock.common.time import TimeLike, as_millis
from penstock.common.type_info.type_inference import element_type, inferred, result_type, to_type_info
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from penstock.datastream import functions as f
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.arguments.key_selectors import selected_key
from penstock.datastream.streams.arguments.row_results import with_row_results
from penstock.datastream.streams.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from penstock.datastream.streams.joins import CoGroupedStreams, JoinedStreams
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
    """Stream of records of the same type. Sources of an environment and transformations of other streams create it.

    >>> from penstock.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment()
    >>> def fahrenheit(celsius: float) -> float:
    ...     return celsius * 9 / 5 + 32
    >>> stream = env.from_collection([21.5, 30.0]).map(fahrenheit).name("to fahrenheit").uid("to-fahrenheit")
    >>> stream.get_name(), stream.get_type()
    ('to fahrenheit', Types.DOUBLE())

    For type checkers, the stream above is a `DataStream[float]`. The type argument comes from the annotations of the functions.
    """

    is_keyed = False
    """Whether `key_by` returned the stream."""
    _keyed_stream: ClassVar[type[KeyedStream]]
    """Class that `key_by` returns. The module of the subclass sets it, because this module cannot import the subclass."""
    _iterative_stream: ClassVar[type[IterativeStream]]
    """Class that `iterate` returns. It is set in the same way as `_keyed_stream`."""

    # --- properties -------------------------------------------------------------------------------------------

    def get_name(self) -> str:
        return self._own("get_name").name

    def get_execution_config(self) -> ExecutionConfig:
        return self._env.get_config()

    def force_non_parallel(self) -> DataStream[T]:
        """Run the operator in one subtask, regardless of the parallelism of the job."""
        transformation = self._own("force_non_parallel")
        transformation.parallelism = 1
        transformation.non_parallel = True
        return self

    def start_new_chain(self) -> DataStream[T]:
        """Do not chain the operator to the preceding one."""
        self._own("start_new_chain").chaining = "head"
        return self

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> DataStream[T]:
        warn_no_effect("DataStream.set_buffer_timeout", "the setting of the environment applies to the whole job")
        return self

    # --- operations on records --------------------------------------------------------------------------------

    @overload
    def map(self, func: f.MapFunction[T, U] | Callable[[T], U]) -> DataStream[U]: ...
    @overload
    def map(self, func: f.MapFunction[T, Any] | Callable[[T], Any], output_type: Any) -> DataStream: ...
    def map(self, func: f.MapFunction | Callable[[Any], Any], output_type: Any = None) -> DataStream:
        """Apply a function that returns one result for each record.

        Args:
            output_type: type information or a Python type. Default: the annotation of the function.
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
        """Apply a function that returns any number of results for each record: it returns an iterable, yields results, or returns None.

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
        """Keep the records for which the function returns true.

        The method also accepts a `pyarrow.compute` expression over the fields, which is evaluated on whole columns.
        """
        if not _is_expression(func):
            checked_function(func, f.FilterFunction, operation="filter", arguments=1, methods=("filter",))
        operation = operations.Filter(func, self._state_key(func))
        return self._transform("Filter", operation, self._type_info, about=func)

    def inspect(self, func: Callable[[T], Any]) -> DataStream[T]:
        """Call a function with each record and emit the record unchanged. Use it for logs, counters or breakpoints.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([1, 2]).inspect(print).get_type()
        Types.LONG()
        """
        checked_function(func, operation="inspect", arguments=1)
        operation = operations.Map(Inspect(func))
        return self._transform("Inspect", operation, self._type_info, about=func)

    def process(self, func: f.ProcessFunction | Callable[..., Any], output_type: Any = None) -> DataStream:
        """Apply a process function, which has access to timestamps, watermarks and side outputs. State and timers need `key_by` first."""
        if isinstance(func, f.KeyedProcessFunction):
            raise _not_keyed(f"{type(func).__name__} is a KeyedProcessFunction, but the stream has no key")
        checked_function(func, f.ProcessFunction, operation="process", arguments=2, methods=("process_element",))
        declared = to_type_info(output_type)
        operation = operations.Process(with_row_results(func, declared, "process_element"))
        return self._transform("Process", operation, declared or element_type(func, "process_element"), about=func)

    def map_batches(
        self, func: Callable[[pa.RecordBatch], pa.RecordBatch | None], output_type: Any = None
    ) -> DataStream:
        """Apply a function from an Arrow record batch to an Arrow record batch.

        Event times are in the int64 column `_timestamp` (ms). The column is missing if the records have no event times. If the input has
        this column, a result without the column must have one record for each input record, in the same order.

        A column that is made from Python records holds values of one Python type and None. If a field holds an `int` in some records and
        a `float` in others, these records are in different batches, as int64 and as double. Datetimes of different time zones
        are in different batches too.

        If a field is None in all records of a batch, its column has the type of the previous batch. The type is `null` if there was no
        value yet. The scale of Decimals, and the types inside lists and dicts, come from the values in the batch.

        A numpy scalar has the column type of the equal Python value, so all integers are int64. Narrow columns of the result are widened
        in the same way.
        """
        checked_function(func, operation="map_batches", arguments=1)
        return self._transform("Map Batches", operations.MapBatches(func), to_type_info(output_type), about=func)

    def gather(self, size: int, timeout: TimeLike) -> DataStream[list[T]]:
        """Collect records into lists, in order. Use it for functions that process several records faster together, such as a model.

        A list has the timestamp of its newest record. Checkpoints contain the records that wait, so state must be able
        to store records of this type.

        Args:
            size: number of records after which a list is emitted.
            timeout: processing time after which a list is emitted. It starts with the first record of the list.

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> texts = env.from_collection(["good", "bad"])
        >>> texts.gather(32, timedelta(milliseconds=50)).flat_map(lambda texts: [(t, len(t)) for t in texts]).get_name()
        'Flat Map'
        """
        if not isinstance(size, int) or size < 1:
            raise refusal(f"the size of gather is the maximum number of values in a list, at least 1, got {size!r}")
        timeout_ms = as_millis(timeout, "timeout")
        if timeout_ms < 1:
            raise refusal(f"the timeout of gather must be at least 1 ms, got {timeout!r}")
        element = self._type_info
        gathered = None if element is None else Types.LIST(element)
        return self._transform("Gather", operations.Gather(size, timeout_ms, element), gathered)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep the fields at these positions, in this order. The records can be tuples, Rows or columns."""
        if not field_indexes or not all(isinstance(index, int) and index >= 0 for index in field_indexes):
            raise refusal(f"project takes the positions of fields (the first is 0), got {field_indexes!r}")
        return self._transform("Projection", operations.Project(field_indexes), self._projected_type(field_indexes))

    def select(self, *names: str, **columns: pc.Expression) -> DataStream:
        """Keep the named fields, and add fields that expressions compute (see `penstock.datastream.columns`).

        The results are dicts when a Python function reads them.

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
        """Keep all fields and add fields that expressions compute. A new field replaces an existing field of the same name."""
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
        """Assign an event timestamp to every record and generate watermarks.

        Call this method as close to the source as possible. A strategy that is passed to `from_source` is even better, because
        it generates watermarks for each split separately.
        """
        strategy = _checked_strategy(watermark_strategy)
        if strategy.alignment is not None:
            raise refusal(
                "watermark alignment pauses sources, but assign_timestamps_and_watermarks runs after the source",
                "pass the strategy to from_source",
            )
        operation = operations.TimestampsAndWatermarks(strategy)
        return self._transform("Timestamps/Watermarks", operation, self._type_info)

    # --- partitioning -----------------------------------------------------------------------------------------

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
        """Partition the stream by key. Records with equal keys go to the same subtask and share state.

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
        """Send every record to all subtasks.

        Return a `DataStream`, or a `BroadcastStream` if state descriptors are given. Connect a `BroadcastStream` with another stream. The
        process function keeps the broadcast records in the map states of the descriptors.
        """
        if broadcast_state_descriptor is None:
            return self._partitioned(Partitioning(Exchange.BROADCAST), "broadcast")
        return BroadcastStream(self, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    # --- several streams --------------------------------------------------------------------------------------

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """Merge streams of the same type. The order of records from different streams is undefined. The slowest stream sets the watermark."""
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
        """Start an iteration. The returned stream contains the records of this stream, and the records that its `close_with` sends back.

        A record that is sent back is read in the next epoch, 20 ms to 1 s later. Until then, checkpoints contain the record. A bounded
        program ends when no records remain in the loop. The watermark comes from this stream, so a record that is sent back may be late.
        Iterations need streaming mode.

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
        """Connect two streams, so that one function with a method for each stream processes both.

        Return a `BroadcastConnectedStream` if `ds` is a `BroadcastStream`, otherwise a `ConnectedStreams`.
        """
        if isinstance(ds, BroadcastStream):
            self._check_same_environment(ds.input_stream, "connect")
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        if not isinstance(ds, DataStream):
            raise refusal(f"connect takes a stream, got {ds!r}")
        self._check_same_environment(ds, "connect")
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream) -> JoinedStreams:
        """Join pairs of records that have equal keys and are in the same window:
        `a.join(b).where(key_a).equal_to(key_b).window(assigner).apply(function)`.
        """
        self._check_same_environment(other, "join")
        return JoinedStreams(self, other)

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """Group the records of both streams by key and window. One side of a group may be empty:
        `a.co_group(b).where(key_a).equal_to(key_b).window(assigner).apply(function)`.
        """
        self._check_same_environment(other, "co_group")
        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the stream of the records that the operator sent to a side output."""
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
        """Group the whole stream into windows. One subtask processes all records. Use `KeyedStream.window` for windows by key."""
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Group the whole stream into windows of `size` records. A window starts every `slide` records, or `size` if `slide` is 0."""
        return self.window_all(count_windows(size, slide))

    def cache(self) -> CachedDataStream[T]:
        """Return the stream without caching it. Each job that reads the stream computes it again."""
        warn_no_effect("cache", "each job that reads a stream computes it again")
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

    if not TYPE_CHECKING:  # a type checker must report unknown attributes itself

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
    """Stream that `cache` returns."""

    def invalidate(self) -> None:
        """Do nothing, because no records are cached."""


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
        raise refusal(f"{operation} needs at least one field", "pass field names, or expressions for new fields")
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
