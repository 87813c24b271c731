"""Partitioning of a stream: methods that select the subtask for each record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.program.user_location import user_location
from penstock.datastream import functions as f
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.datastream.streams.arguments.key_selectors import selected_key
from penstock.datastream.streams.recorded_stream import RecordedStream
from penstock.functions.type_variables import T
from penstock.graph.transformation import Exchange, Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.datastream.streams.data_stream import DataStream


class StreamRouting(RecordedStream, Generic[T]):
    """Base class of `DataStream` with the methods that partition a stream. `key_by` and `broadcast` are in `DataStream`."""

    def partition_custom(
        self,
        partitioner: f.Partitioner | Callable[[Any, int], int],
        key_selector: Callable[[Any], Any] | f.KeySelector | str | int | Sequence[str | int],
    ) -> DataStream[T]:
        """Send each record to the subtask that the partitioner returns for the key and the number of subtasks."""
        checked_function(partitioner, f.Partitioner, operation="partition_custom", arguments=2, methods=("partition",))
        key = selected_key(key_selector, self._type_info, "partition_custom")
        choose: Any = getattr(partitioner, "partition", partitioner)
        partitioning = Partitioning(Exchange.CUSTOM, key.selector, key.field, choose, user_location())
        return self._partitioned(partitioning, "partition_custom")

    def shuffle(self) -> DataStream[T]:
        """Send each record to a random subtask."""
        return self._partitioned(Partitioning(Exchange.SHUFFLE), "shuffle")

    def rebalance(self) -> DataStream[T]:
        """Distribute records round-robin over all subtasks, to correct an uneven distribution after a source or a filter."""
        return self._partitioned(Partitioning(Exchange.REBALANCE), "rebalance")

    def rescale(self) -> DataStream[T]:
        """Distribute records round-robin over a subset of the subtasks. It works like `rebalance` with fewer channels."""
        return self._partitioned(Partitioning(Exchange.RESCALE), "rescale")

    def forward(self) -> DataStream[T]:
        """Send records to the subtask with the same index. The next operator must have the same parallelism."""
        return self._partitioned(Partitioning(Exchange.FORWARD), "forward")

    def global_(self) -> DataStream[T]:
        """Send all records to the first subtask, which then processes the whole stream."""
        return self._partitioned(Partitioning(Exchange.GLOBAL), "global_")

    def _partitioned(self, partitioning: Partitioning, view: str) -> DataStream[T]:
        edges = [replace(edge, partitioning=partitioning) for edge in self._inputs]
        return self._new(edges, self._type_info, view=view)
