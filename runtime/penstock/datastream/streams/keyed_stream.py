"""`KeyedStream`: a partitioned stream with keyed state, timers, rolling aggregates and windows."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.program.user_location import refusal, user_location
from penstock.common.type_info.type_inference import element_type, holds_objects, to_type_info
from penstock.common.types import Row
from penstock.datastream import functions as f
from penstock.datastream.streams.arguments.aggregates import KeyAndAggregates, aggregated_type, all_of
from penstock.datastream.streams.arguments.checks import checked_field, checked_function
from penstock.datastream.streams.arguments.key_selectors import Field, FieldOf
from penstock.datastream.streams.arguments.row_results import with_row_results, with_row_sums
from penstock.datastream.streams.data_stream import DataStream
from penstock.datastream.streams.interval_join import IntervalJoin
from penstock.datastream.streams.windowed_stream import WindowedStream, count_windows
from penstock.functions.function import has_life_cycle
from penstock.functions.state.queryable import KeepQueryable, nothing
from penstock.functions.state.state_functions import FlatMapWithState, MapWithState
from penstock.functions.type_variables import K, T, U
from penstock.graph import operations
from penstock.graph.transformation import Exchange, Partitioning
from penstock.records.fields import field_of
from penstock.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.common.typeinfo import TypeInformation
    from penstock.datastream.state import MapStateDescriptor
    from penstock.datastream.streams.arguments.key_selectors import SelectedKey
    from penstock.datastream.window import FieldAggregate, WindowAssigner
    from penstock.functions.field_reduce import AggregateKind


class KeyedStream(DataStream[T], Generic[T, K]):
    """Stream that is partitioned by key, which `key_by` returns. Its operations can use the state of the key, and
    return streams without a key."""

    class AccumulateType(Enum):
        """Kinds of rolling aggregates."""

        MIN = "min"
        MAX = "max"
        MIN_BY = "min_by"
        MAX_BY = "max_by"
        SUM = "sum"

    is_keyed = True

    def __init__(self, original: DataStream, key: SelectedKey, key_type: TypeInformation | None) -> None:
        partitioning = Partitioning(Exchange.KEY_GROUP, key.selector, key.field, user_location=user_location())
        edges = original._partitioned(partitioning, "key_by")._inputs
        super().__init__(original._env, edges, original._type_info, view="key_by")
        self._original = original
        self._key = key
        self._key_type = key_type

    @property
    def key_selector(self) -> Callable[[Any], Any]:
        """Return the function from record to key."""
        return self._key.selector

    def get_key_type(self) -> TypeInformation | None:
        """Return the type of the keys, or None if it is unknown."""
        return self._key_type

    def process(
        self, func: f.KeyedProcessFunction | f.ProcessFunction | Callable[..., Any], output_type: Any = None
    ) -> DataStream:
        """Apply a process function, which has access to keyed state, timers and side outputs."""
        checked_function(
            func,
            f.KeyedProcessFunction,
            f.ProcessFunction,
            operation="process",
            arguments=2,
            methods=("process_element",),
        )
        declared = to_type_info(output_type)
        operation = operations.Process(with_row_results(func, declared, "process_element"), self.key_selector)
        return self._transform(
            "Keyed Process", operation, declared or element_type(func, "process_element"), about=func
        )

    def map_with_state(
        self, func: Callable[[T, Any], tuple[U, Any]], state_type: Any = None, output_type: Any = None
    ) -> DataStream[U]:
        """Apply a function of the record and the state of its key. It returns one result for each record.

        Args:
            func: `(value, state) -> (result, new state)`. For `state` and `new state`, None means that the key has no state.
            state_type: type of the state. Default: the type of each value.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection(["a", "b", "a"]).key_by(lambda word: word)
        >>> words.map_with_state(lambda word, count: ((word, (count or 0) + 1), (count or 0) + 1), int).get_name()
        'Map'
        """
        checked_function(func, operation="map_with_state", arguments=2)
        return self.map(MapWithState(func, to_type_info(state_type)), output_type)

    def flat_map_with_state(
        self, func: Callable[[Any, Any], tuple[Any, Any]], state_type: Any = None, output_type: Any = None
    ) -> DataStream:
        """Apply a function as `map_with_state` does, with any number of results: `(value, state) -> (results, new state)`."""
        checked_function(func, operation="flat_map_with_state", arguments=2)
        return self.flat_map(FlatMapWithState(func, to_type_info(state_type)), output_type)

    def as_queryable_state(
        self, queryable_state_name: str, state_descriptor: ValueStateDescriptor | ReducingStateDescriptor | None = None
    ) -> DataStream:
        """Make the newest record of each key queryable from outside. If a `ReducingStateDescriptor` is given, make the
        reduction of all records of the key queryable instead.

        Return the stream of the operator, on which `name` and `uid` can be set. The stream is empty.

        Args:
            queryable_state_name: name of the state in the job. See `docs/state.md`.
            state_descriptor: descriptor of the state. Default: a value of the stream's type, with the same name.

        Raises:
            InvalidJob: the descriptor is of another kind.
        """
        descriptor = state_descriptor or ValueStateDescriptor(queryable_state_name, self._type_info)
        if not isinstance(descriptor, ValueStateDescriptor | ReducingStateDescriptor):
            raise refusal(
                f"as_queryable_state cannot keep {descriptor!r}",
                remedy="pass a ValueStateDescriptor or a ReducingStateDescriptor. Keep other state in a function, with set_queryable",
            )
        descriptor.set_queryable(queryable_state_name)
        kept = self.flat_map(KeepQueryable(descriptor)).name(f"Queryable state: {queryable_state_name}")
        # An operator that leads to no sink does not run.
        kept.add_sink(nothing).name(f"End of queryable state: {queryable_state_name}").uid(
            f"queryable-{queryable_state_name}-end"
        )
        return kept

    def reduce(self, func: f.ReduceFunction[T] | Callable[[T, T], T]) -> DataStream[T]:
        """Combine each record with the current result of its key, and emit the new result for every record.

        In batch mode, only the final result of each key is emitted. State keeps the result of a key without a time limit. If the
        set of keys changes over time, use a window.
        """
        checked_function(func, f.ReduceFunction, operation="reduce", arguments=2, methods=("reduce",))
        if self._env._emits_only_final_results(self._inputs):
            return self._at_end().reduce(func)
        operation = operations.Reduce(self.key_selector, with_row_sums(func, self._type_info), self._type_info)
        return self._transform("Keyed Reduce", operation, self._type_info, about=func)

    def sum(self, position_to_sum: Field = 0) -> DataStream[T]:
        """Emit the running sum of a field for every record. The other fields are those of the first record of the key.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.from_collection([("a", 1), ("a", 2)]).key_by(0).sum(1).get_type()
        TupleTypeInfo([Types.STRING(), Types.LONG()])
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: Field = 0) -> DataStream[T]:
        """Emit the smallest value of a field so far for every record. The other fields are those of the first record of the key."""
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: Field = 0) -> DataStream[T]:
        """Emit the greatest value of a field so far for every record. The other fields are those of the first record of the key."""
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: Field = 0) -> DataStream[T]:
        """Emit the record with the smallest value of a field so far. If several records have this value, emit the first of them."""
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: Field = 0) -> DataStream[T]:
        """Emit the record with the greatest value of a field so far. If several records have this value, emit the first of them."""
        return self._rolling("max_by", position_to_max_by)

    def _rolling(self, kind: AggregateKind, field: Field) -> DataStream:
        checked_field(kind, field)
        if self._env._emits_only_final_results(self._inputs):
            return self._at_end()._aggregate_field(kind, field)
        operation = operations.RollingAggregate(self.key_selector, kind, field, self._type_info)
        return self._transform(f"Keyed {kind.replace('_', ' ').title()}", operation, self._type_info)

    def aggregate(self, aggregate: FieldAggregate, output_type: Any = None) -> DataStream:
        """Emit running aggregates of fields for every record: `(key, *aggregates)`. Several aggregates are computed in one pass.

        This method is the fastest way to count and to sum by key, because it does not convert columns to records.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import FieldAggregate
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> readings = env.from_collection([{"station": "KJFK", "celsius": 21.5}])
        >>> both = FieldAggregate.of(FieldAggregate.count(), FieldAggregate.max("celsius"))
        >>> readings.key_by("station").aggregate(both).get_name()
        'Keyed Aggregate'
        """
        from penstock.datastream.window import FieldAggregate

        if not isinstance(aggregate, FieldAggregate):
            raise refusal(
                f"aggregate on a keyed stream takes a FieldAggregate, got {aggregate!r}",
                "an AggregateFunction needs a window: key_by(…).window(…).aggregate(…)",
            )
        declared = to_type_info(output_type)
        if self._env._emits_only_final_results(self._inputs):
            return self._at_end().aggregate(
                aggregate, KeyAndAggregates(several=len(aggregate.parts) > 1), output_type=declared
            )
        operation = operations.RollingFields(self._field_selector(), aggregate)
        return self._transform("Keyed Aggregate", operation, declared)

    def agg(self, *aggregates: FieldAggregate) -> DataStream[tuple[Any, ...]]:
        """Emit running aggregates of fields for every record: `(key, *aggregates)`. See `penstock.datastream.columns`.

        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.columns import col, count, mean
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> readings = env.from_collection([("KJFK", 21.5)])
        >>> readings.filter(col("f1") > 20).key_by(0).agg(mean(1), count()).get_type()
        TupleTypeInfo([Types.STRING(), Types.DOUBLE(), Types.LONG()])
        """
        aggregate = all_of(aggregates)
        return self.aggregate(aggregate, aggregated_type(self._key_type, self._type_info, aggregate))

    def _at_end(self) -> WindowedStream:
        """Return the stream in one window per key that fires at the end of the input, for the final results of batch mode."""
        from penstock.datastream.window import EventTimeTrigger, GlobalWindows

        return self.window(GlobalWindows.create()).trigger(EventTimeTrigger.create())

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream[T, K]:
        """Group the records of each key into windows.

        >>> from datetime import timedelta
        >>> from penstock.datastream import StreamExecutionEnvironment
        >>> from penstock.datastream.window import TumblingEventTimeWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> readings = env.from_collection([("KJFK", 21.5)])
        >>> daily = readings.key_by(0).window(TumblingEventTimeWindows.of(timedelta(days=1)))
        >>> daily.max(1).get_type()
        TupleTypeInfo([Types.STRING(), Types.DOUBLE()])
        """
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T, K]:
        """Group the records of each key into windows of `size` records. A window starts every `slide` records, or `size` if `slide` is 0."""
        return self.window(count_windows(size, slide))

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Join pairs of records with equal keys and close event times:
        `a.key_by(k).interval_join(b.key_by(k)).between(lower, upper).process(function)`.
        """
        if not isinstance(other, KeyedStream):
            raise refusal(f"interval_join takes a keyed stream, got {other!r}", "call key_by on it")
        self._check_same_environment(other, "interval_join")
        return IntervalJoin(self, other)

    def key_by(self, key_selector: Any, key_type: Any = None) -> KeyedStream:
        return self._original.key_by(key_selector, key_type)

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        return self._original.union(*streams)

    def shuffle(self) -> DataStream[T]:
        raise _has_its_partitioning("shuffle")

    def rebalance(self) -> DataStream[T]:
        raise _has_its_partitioning("rebalance")

    def rescale(self) -> DataStream[T]:
        raise _has_its_partitioning("rescale")

    def forward(self) -> DataStream[T]:
        raise _has_its_partitioning("forward")

    def global_(self) -> DataStream[T]:
        raise _has_its_partitioning("global_")

    def broadcast(self, *args: MapStateDescriptor) -> Any:
        raise _has_its_partitioning("broadcast")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        raise _has_its_partitioning("partition_custom")

    def get_side_output(self, output_tag: Any) -> DataStream:
        return self._original.get_side_output(output_tag)

    def _stored_key_type(self) -> TypeInformation | None:
        return self._key_type if holds_objects(self._key_type) else None

    def _collected(self) -> DataStream:
        rows = self._original.map(KeyAndValue(self.key_selector))
        assert rows._transformation is not None
        rows._transformation.inherit_parallelism()
        return rows

    def _without_key(self) -> DataStream[T]:
        return self._original

    def _field_selector(self) -> Callable[[Any], Any]:
        """Return the key selector. For a plain field, the selector knows the field, so that operators can read its column."""
        field = self._key.field
        if field is None or field_of(self.key_selector) == field:
            return self.key_selector
        return FieldOf(field)

    def _state_key(self, func: Any) -> Callable[[Any], Any] | None:
        # A plain callable cannot access state. Its operator is faster without a key.
        return self.key_selector if has_life_cycle(func) else None


class KeyAndValue(f.MapFunction):
    """Function that adds the key to each record, for `execute_and_collect` of a keyed stream, as in PyFlink."""

    def __init__(self, key_selector: Callable[[Any], Any]) -> None:
        self.key_selector = key_selector

    def map(self, value: Any) -> Row:
        return Row(f0=self.key_selector(value), f1=value)


def _has_its_partitioning(operation: str) -> Exception:
    return refusal(
        f"{operation} on a keyed stream would send values to other subtasks than the subtasks of their keys",
        f"call {operation} on the stream before key_by",
    )


DataStream._keyed_stream = KeyedStream
