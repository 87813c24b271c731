"""Functions of single records: map, filter, reduce, aggregate and others.

A plain callable can replace every interface that has one method. A function object can also open and close resources, and use
state and timers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic

from penstock.functions.function import Function
from penstock.functions.type_variables import IN, OUT


class MapFunction(Function, Generic[IN, OUT]):
    """A function with one result per value."""

    @abstractmethod
    def map(self, value: IN, /) -> OUT: ...


class CoMapFunction(Function):
    """A function with one result for each value of two connected streams."""

    @abstractmethod
    def map1(self, value: Any, /) -> Any: ...

    @abstractmethod
    def map2(self, value: Any, /) -> Any: ...


class FlatMapFunction(Function, Generic[IN, OUT]):
    """A function with any number of results per value, returned as an iterable or yielded."""

    @abstractmethod
    def flat_map(self, value: IN, /) -> Iterable[OUT] | None: ...


class CoFlatMapFunction(Function):
    """A function with any number of results for each value of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: Any, /) -> Any: ...

    @abstractmethod
    def flat_map2(self, value: Any, /) -> Any: ...


class ReduceFunction(Function, Generic[IN]):
    """An associative function that combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN, /) -> IN: ...


class AggregateFunction(Function):
    """A function that aggregates values step by step. Input, accumulator and result may have different types.

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
    def add(self, value: Any, accumulator: Any, /) -> Any:
        """Return an accumulator that includes the value. The function may change the given accumulator and return it."""

    @abstractmethod
    def get_result(self, accumulator: Any, /) -> Any: ...

    def merge(self, acc_a: Any, acc_b: Any, /) -> Any:
        """Merge two accumulators into one. Only windows that merge (sessions) need this method."""
        raise NotImplementedError(f"{type(self).__qualname__} has no merge, which session windows need")


class KeySelector(Function, Generic[IN, OUT]):
    """A function that returns the key of a value. The same value must always have the same key. Penstock does not call its `open`."""

    @abstractmethod
    def get_key(self, value: IN, /) -> OUT: ...


class NullByteKeySelector(KeySelector):
    """A key selector that returns the same key for every value."""

    def get_key(self, value: Any) -> int:
        return 0


class FilterFunction(Function, Generic[IN]):
    """A function that keeps the values for which it returns True."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool: ...


class Partitioner(Function):
    """A function that chooses the target subtask of a record by the record's key. Penstock does not call its `open`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int, /) -> int:
        """Return a number from 0 to `num_partitions` - 1."""


class SourceFunction(Function):
    """A source in one function. `run` emits values until it returns, and it returns soon after a call of `cancel`. Only one subtask runs
    it.

    For splits, positions and parallel reading, write a `penstock.connectors.core.source.Source`.
    """

    class SourceContext(ABC):
        """The methods with which `run` emits."""

        @abstractmethod
        def collect(self, value: Any) -> None: ...

        @abstractmethod
        def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
            """Emit a value with an event time in ms."""

        @abstractmethod
        def emit_watermark(self, timestamp: int) -> None:
            """Declare that no record with a timestamp up to this one (ms) follows."""

        @abstractmethod
        def mark_as_temporarily_idle(self) -> None:
            """Let the event-time clock advance without this source until the source emits again."""

        @abstractmethod
        def get_checkpoint_lock(self) -> Any:
            """Return a context manager. No snapshot is taken while `run` holds it."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext, /) -> None: ...

    @abstractmethod
    def cancel(self) -> None:
        """Request that `run` returns soon. Another thread calls this method."""


class ParallelSourceFunction(SourceFunction):
    """A `SourceFunction` that runs in every subtask."""


class SinkFunction(Function):
    """A function that takes the values of a stream one by one, at least once: values may repeat after a failure."""

    class Context(ABC):
        """The context of the current value."""

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time in ms, or None if the record has none."""

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context, /) -> None: ...
