"""The logical program: the operators that the DataStream API records before the job runs.

Every call on a stream adds a `Transformation`. `execute` converts the transformations that the sinks need to a JobGraph
(`graph.job_graph`). This module does not depend on Spark, tasks or storage. An `operations.Operation` describes the work of an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.graph.operations import Operation, sink_of, source_of

if TYPE_CHECKING:
    from penstock.connectors.core.sink import Sink
    from penstock.connectors.core.source import Source


class Exchange(Enum):
    """The ways in which records get from one operator to the next."""

    FORWARD = "forward"
    KEY_GROUP = "key-group"
    REBALANCE = "rebalance"
    RESCALE = "rescale"
    SHUFFLE = "shuffle"
    BROADCAST = "broadcast"
    GLOBAL = "global"
    CUSTOM = "custom"


@dataclass(frozen=True)
class Partitioning:
    """An exchange with its arguments: the key selector, or the custom partitioner and its selector.

    `key_field`: set if the key is a plain field (name or position) of the record, so that a columnar exchange can use
    the key's column. `key_selector` then reads the same field of a row.
    """

    exchange: Exchange
    key_selector: Callable[[Any], Any] | None = None
    key_field: str | int | None = None
    partitioner: Callable[[Any, int], int] | None = None
    user_location: str = ""
    """`file:line` of the user's call whose argument can fail."""


FORWARD = Partitioning(Exchange.FORWARD)


@dataclass(frozen=True)
class Input:
    """One input edge. If `side_tag` is set, the edge reads this side output of the upstream operator instead of the main output.

    `index` is the logical input of the operator: 0, or 0 and 1 for a connected stream. A union is several Inputs with
    the same index.
    """

    upstream: Transformation
    partitioning: Partitioning = FORWARD
    side_tag: str | None = None
    index: int = 0


_ids = count(1)


@dataclass(eq=False)
class Transformation:
    """One operator of the logical program. It is mutable: `.name()`, `.uid()`, `.set_parallelism()` change it in place."""

    name: str
    operation: Operation
    inputs: list[Input] = field(default_factory=list)
    output_type: Any = None
    """TypeInformation of the main output or None (unknown)."""
    side_types: dict[str, Any] = field(default_factory=dict)
    uid: str | None = None
    parallelism: int | None = None
    """Parallelism of the operator; None means the environment's default."""
    max_parallelism: int | None = None
    chaining: str = "always"
    """`always`; `head`: start a new chain here; `never`: chain with neither the previous nor the next operator."""
    slot_sharing_group: str | None = None
    description: str = ""
    user_location: str = ""
    """`file:line` of the user's call."""
    is_stateful: bool = False
    non_parallel: bool = False
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def source(self) -> Source | None:
        """The connector that the operator reads, if it is a source."""
        return source_of(self.operation)

    @property
    def sink(self) -> Sink | None:
        """The connector to which the operator writes, if it is a sink."""
        return sink_of(self.operation)

    def inherit_parallelism(self) -> None:
        """Take the parallelism of the input operator if this operator has only one input, so that no record moves to another subtask."""
        if len(self.inputs) == 1 and self.inputs[0].partitioning == FORWARD:
            upstream = self.inputs[0].upstream
            self.parallelism, self.non_parallel = upstream.parallelism, upstream.non_parallel

    @property
    def is_sink(self) -> bool:
        return self.sink is not None
