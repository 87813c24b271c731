"""Which subtask a value goes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.program.user_location import user_location
from penstock.datastream import functions as f
from penstock.datastream.streams.checks import checked_function
from penstock.datastream.streams.key_selectors import selected_key
from penstock.datastream.streams.recorded_stream import RecordedStream
from penstock.functions.type_variables import T
from penstock.graph.transformation import Exchange, Partitioning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.datastream.streams.data_stream import DataStream


class StreamRouting(RecordedStream, Generic[T]):
    """The part of `DataStream` that says where values go; `key_by` and `broadcast` are in `DataStream`."""

    def partition_custom(
        self,
        partitioner: f.Partitioner | Callable[[Any, int], int],
        key_selector: Callable[[Any], Any] | f.KeySelector | str | int | Sequence[str | int],
    ) -> DataStream[T]:
        """The partitioner chooses the subtask from the key and the number of subtasks."""
        checked_function(partitioner, f.Partitioner, operation="partition_custom", arguments=2, methods=("partition",))
        key = selected_key(key_selector, self._type_info, "partition_custom")
        choose: Any = getattr(partitioner, "partition", partitioner)
        partitioning = Partitioning(Exchange.CUSTOM, key.selector, key.field, choose, user_location())
        return self._partitioned(partitioning, "partition_custom")

    def shuffle(self) -> DataStream[T]:
        """Each value to a random subtask."""
        return self._partitioned(Partitioning(Exchange.SHUFFLE), "shuffle")

    def rebalance(self) -> DataStream[T]:
        """The values to all subtasks in turn: evens out what a source or a filter left uneven."""
        return self._partitioned(Partitioning(Exchange.REBALANCE), "rebalance")

    def rescale(self) -> DataStream[T]:
        """The values in turn to a part of the subtasks: as `rebalance`, with fewer channels."""
        return self._partitioned(Partitioning(Exchange.RESCALE), "rescale")

    def forward(self) -> DataStream[T]:
        """The values to the subtask of the same number; the next operator needs the same parallelism."""
        return self._partitioned(Partitioning(Exchange.FORWARD), "forward")

    def global_(self) -> DataStream[T]:
        """All values to the first subtask. One subtask then does all the work."""
        return self._partitioned(Partitioning(Exchange.GLOBAL), "global_")

    def _partitioned(self, partitioning: Partitioning, view: str) -> DataStream[T]:
        edges = [replace(edge, partitioning=partitioning) for edge in self._inputs]
        return self._new(edges, self._type_info, view=view)
