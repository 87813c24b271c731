"""The physical plan: stages of chained operators, exchanges between them, and the levels on which stages run.

A *stage* is a chain (a tree) of operators that call each other directly. *Exchanges* connect stages. If a Spark job has branches, Spark
computes the part before the branches once for each branch. To avoid branches, the stages are on *levels*. Level 0 has the sources, and any
other stage is one level after the deepest of its inputs.

All stages of a level run in the same Spark stage, in the task of their slot. One shuffle carries the rows of all
exchanges from a level to the next. Rows for a deeper level pass through the levels between. So even a job with many branches, sinks and
side outputs is a linear sequence of Spark stages. No data is read or computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.graph.operations import Operation, sink_of, source_of

if TYPE_CHECKING:
    from penstock.connectors.core.sink import Sink
    from penstock.connectors.core.source import Source
    from penstock.graph.transformation import Partitioning


@dataclass
class OutputEdge:
    """An edge from an operator's main or side output to the next operator, directly or through an exchange."""

    side_tag: str | None
    target: int
    """Index of the target operator if it is chained; -1 if the edge goes through `exchange`."""
    input_index: int = 0
    exchange: int | None = None


@dataclass
class OperatorNode:
    """An operator as it will run: its parallelism, its line in the program, and its outputs."""

    index: int
    uid: str
    name: str
    operation: Operation
    parallelism: int
    max_parallelism: int
    user_location: str = ""
    is_stateful: bool = False
    outputs: list[OutputEdge] = field(default_factory=list)
    description: str = ""
    has_own_parallelism: bool = False
    """Whether the program sets the operator's parallelism. A rescale does not change such a parallelism."""

    @property
    def source(self) -> Source | None:
        """The connector that the operator reads, if it is a source."""
        return source_of(self.operation)

    @property
    def sink(self) -> Sink | None:
        """The connector to which the operator writes, if it is a sink."""
        return sink_of(self.operation)

    @property
    def needs_spark(self) -> bool:
        """Whether the operator runs DataFrames on the job's cluster."""
        return any(border is not None and border.needs_spark for border in (self.source, self.sink))


@dataclass
class ExchangeTarget:
    """A reader of an exchange: a stage, the operator in it, and the index of the operator's input."""

    stage: int
    operator: int
    input_index: int


@dataclass
class ExchangeSpec:
    """A stream of buffers. Several targets share it if they read the same output with the same partitioning."""

    id: int
    source_stage: int
    side_tag: str | None
    partitioning: Partitioning
    source_parallelism: int
    parallelism: int
    max_parallelism: int
    name: str = ""
    """Name of the operator whose output the exchange carries. Errors of key selectors and partitioners contain it."""
    user_location: str = ""
    """Line of the call that partitions the stream. If no call does, the line of the operator that `name` names."""
    targets: list[ExchangeTarget] = field(default_factory=list)
    takes_columns: bool = False
    """Whether a target works on columns. If no target does, records that could be rows or columns are sent as Python objects."""
    level: int = 0
    """Level of the deepest target. Each target stage takes the buffers of the exchange at the level of the stage."""


@dataclass
class Stage:
    """A chain of operators that runs as one task per subtask."""

    id: int
    name: str
    operators: list[int]
    """Indexes in topological order. The first operator is the head of the chain, which reads the stage's inputs."""
    parallelism: int
    level: int = 0
    inputs: list[int] = field(default_factory=list)
    """Ids of the exchanges that this stage reads."""


@dataclass
class JobGraph:
    """The plan of a whole job. It is pickled and sent to every worker."""

    name: str
    operators: list[OperatorNode]
    stages: list[Stage]
    exchanges: list[ExchangeSpec]
    parallelism: int
    max_parallelism: int
    job_parameters: dict[str, str] = field(default_factory=dict)
    auto_watermark_interval_ms: int = 200
    is_batch: bool = False

    @property
    def levels(self) -> int:
        return 1 + max(stage.level for stage in self.stages)

    @property
    def slots(self) -> int:
        """Number of needed slots: the highest parallelism of any stage."""
        return max(stage.parallelism for stage in self.stages)

    @property
    def keyed_operators(self) -> int:
        """Number of operators with a state backend. A slot has at most one subtask of each."""
        return sum(node.operation.is_keyed for node in self.operators)

    def keyed_operators_on(self, level: int) -> int:
        return sum(self.operators[i].operation.is_keyed for stage in self.stages_on(level) for i in stage.operators)

    @property
    def bounded(self) -> bool:
        return all(node.source.bounded for node in self.operators if node.source is not None)

    @property
    def needs_spark(self) -> bool:
        return any(node.needs_spark for node in self.operators)

    def stages_on(self, level: int) -> list[Stage]:
        return [stage for stage in self.stages if stage.level == level]

    def stage_of(self, operator: int) -> Stage:
        return next(stage for stage in self.stages if operator in stage.operators)

    def node(self, uid: str) -> OperatorNode:
        return next(node for node in self.operators if node.uid == uid)

    def to_json(self) -> dict[str, Any]:
        """Return the plan in the format of Flink's `/jobs/:id/plan`: nodes with inputs."""
        nodes = []
        for stage in self.stages:
            inputs = [
                {
                    "num": n,
                    "id": str(self.exchanges[e].source_stage),
                    "ship_strategy": self.exchanges[e].partitioning.exchange.value.upper(),
                    "exchange": "pipelined_bounded",
                }
                for n, e in enumerate(stage.inputs)
            ]
            nodes.append(
                {
                    "id": str(stage.id),
                    "parallelism": stage.parallelism,
                    "operator": "",
                    "operator_strategy": "",
                    "description": stage.name,
                    "operators": [
                        {"uid": self.operators[o].uid, "name": self.operators[o].name} for o in stage.operators
                    ],
                    "inputs": inputs,
                    "optimizer_properties": {},
                }
            )
        return {"jid": "", "name": self.name, "type": "BATCH" if self.is_batch else "STREAMING", "nodes": nodes}
