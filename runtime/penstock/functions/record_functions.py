"""Functions of single records: map, filter, reduce, aggregate and the like.

Plain callables do wherever the interface has one method. A function object is for what has to be opened and closed, for
state and for timers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from penstock.functions.function import Function
from penstock.functions.type_variables import IN, OUT


class MapFunction(Function, Generic[IN, OUT]):
    """One value in, one value out."""

    @abstractmethod
    def map(self, value: IN) -> OUT: ...


class CoMapFunction(Function):
    """One value out for each value of either of two connected streams."""

    @abstractmethod
    def map1(self, value: Any) -> Any: ...

    @abstractmethod
    def map2(self, value: Any) -> Any: ...


class FlatMapFunction(Function, Generic[IN, OUT]):
    """One value in; any number out, returned as an iterable or yielded."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None: ...


class CoFlatMapFunction(Function):
    """Any number of values out for each value of either of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any: ...

    @abstractmethod
    def flat_map2(self, value: Any) -> Any: ...


class ReduceFunction(Function, Generic[IN]):
    """Combines two values to one of the same type; associative."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN: ...


class AggregateFunction(Function):
    """Aggregates values step by step: input, accumulator and result may have types of their own.

    >>> class Mean(AggregateFunction):
    ...     def create_accumulator(self): return 0.0, 0
    ...     def add(self, value, accumulator): return accumulator[0] + value, accumulator[1] + 1
    ...     def get_result(self, accumulator): return accumulator[0] / accumulator[1]
    >>> mean = Mean()
    >>> mean.get_result(mean.add(3.0, mean.add(1.0, mean.create_accumulator())))
    2.0
    """

    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator after the value; it may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Two accumulators as one; needed where windows merge (sessions) only."""
        raise NotImplementedError(f"{type(self).__qualname__} has no merge, which session windows need")


class KeySelector(Function, Generic[IN, OUT]):
    """Gives the key of a value; the same value must always give the same key. It is not opened."""

    @abstractmethod
    def get_key(self, value: IN) -> OUT: ...


class NullByteKeySelector(KeySelector):
    """Gives every value the same key."""

    def get_key(self, value: Any) -> int:
        return 0


class FilterFunction(Function, Generic[IN]):
    """Keeps the values for which it is true."""

    @abstractmethod
    def filter(self, value: IN) -> bool: ...


class Partitioner(Function):
    """Chooses the subtask a record goes to, by its key. It is not opened."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """From 0 to `num_partitions` - 1."""


class SourceFunction(Function):
    """A source in one function: `run` emits until it is done or `cancel` was called. One subtask runs it.

    For splits, positions and parallel reading write a `penstock.connectors.source.Source`.
    """

    class SourceContext(ABC):
        """How `run` emits."""

        @abstractmethod
        def collect(self, value: Any) -> None: ...

        @abstractmethod
        def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
            """`timestamp`: event time in ms."""

        @abstractmethod
        def emit_watermark(self, timestamp: int) -> None:
            """No record with a timestamp up to this one (ms) follows."""

        @abstractmethod
        def mark_as_temporarily_idle(self) -> None:
            """The event-time clock does not wait for this source until it emits again."""

        @abstractmethod
        def get_checkpoint_lock(self) -> Any:
            """A context manager: no snapshot is taken while it is held."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """Called from another thread: `run` should return soon."""


class ParallelSourceFunction(SourceFunction):
    """A `SourceFunction` that runs in every subtask."""


class SinkFunction(Function):
    """Takes the values of a stream one by one. At least once: after a failure values may come again."""

    class Context(ABC):
        """Of the value being written."""

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def timestamp(self) -> int | None:
            """Event time in ms; None if the record has none."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None: ...
