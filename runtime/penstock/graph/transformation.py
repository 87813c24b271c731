"""The logical program: what the DataStream API records before anything runs (A3).

Every call on a stream adds a `Transformation`; `execute` turns those reachable from the sinks into a StreamGraph and
that into a JobGraph (`graph.job_graph`). Nothing here knows Spark, tasks or storage; what an operator is to do is an
`operations.Operation`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.graph.operations import Operation, sink_of, source_of

if TYPE_CHECKING:
    from penstock.connectors.sink import Sink
    from penstock.connectors.source import Source


class Exchange(Enum):
    """How records get from one operator to the next (A31, A32)."""

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
    """An exchange with what it needs: the key selector, or the custom partitioner and its selector.

    `key_field`: set when the key is a plain field (name or position) of the record, so that a columnar exchange can
    take the key's column; `key_selector` then does the same on a row.
    """

    exchange: Exchange
    key_selector: Callable[[Any], Any] | None = None
    key_field: str | int | None = None
    partitioner: Callable[[Any, int], int] | None = None
    user_location: str = ""
    """`file:line` of the user's call, where what it gave can fail."""


FORWARD = Partitioning(Exchange.FORWARD)


@dataclass(frozen=True)
class Input:
    """One incoming edge. `side_tag`: take this side output of the upstream instead of its main output.

    `index` is the logical input of the operator (0; for a connected stream 0 and 1). A union is several Inputs with the
    same index.
    """

    upstream: Transformation
    partitioning: Partitioning = FORWARD
    side_tag: str | None = None
    index: int = 0


_ids = count(1)


@dataclass(eq=False)
class Transformation:
    """One operator of the logical program. Mutable: `.name()`, `.uid()`, `.set_parallelism()` change it in place."""

    name: str
    operation: Operation
    inputs: list[Input] = field(default_factory=list)
    output_type: Any = None
    """TypeInformation of the main output or None (unknown)."""
    side_types: dict[str, Any] = field(default_factory=dict)
    uid: str | None = None
    parallelism: int | None = None
    """None: the environment's default."""
    max_parallelism: int | None = None
    chaining: str = "always"
    """`always`; `head`: start a new chain here; `never`: neither to the front nor to the back."""
    slot_sharing_group: str | None = None
    description: str = ""
    user_location: str = ""
    """`file:line` of the user's call."""
    is_stateful: bool = False
    non_parallel: bool = False
    id: int = field(default_factory=lambda: next(_ids))

    @property
    def source(self) -> Source | None:
        """What it reads, if it is a source."""
        return source_of(self.operation)

    @property
    def sink(self) -> Sink | None:
        """What it writes to, if it is a sink."""
        return sink_of(self.operation)

    def stand_beside_input(self) -> None:
        """Take the parallelism of the operator that it reads, if that is one, so that no record changes the subtask."""
        if len(self.inputs) == 1 and self.inputs[0].partitioning == FORWARD:
            upstream = self.inputs[0].upstream
            self.parallelism, self.non_parallel = upstream.parallelism, upstream.non_parallel

    @property
    def is_sink(self) -> bool:
        return self.sink is not None
