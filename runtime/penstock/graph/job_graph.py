"""The physical plan: stages of chained operators, exchanges between them, and the levels on which stages run.

A *stage* is a chain (a tree) of operators that call each other directly. Between stages lie *exchanges*. An epoch is one
Spark job, and a Spark job that branches would compute the branching point once per branch; therefore the stages are put
on *levels*: level 0 holds the sources, any other stage stands one level behind the deepest of its inputs. All stages of a
level run in the same Spark stage, in the task of their slot, and one shuffle carries the rows of all exchanges from a
level to the next. What is addressed to a deeper level passes through. So a job with many branches, sinks and side outputs
is one line of Spark stages, and nothing is read or computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.graph.operations import Operation, sink_of, source_of

if TYPE_CHECKING:
    from penstock.connectors.sink import Sink
    from penstock.connectors.source import Source
    from penstock.graph.transformation import Partitioning


@dataclass
class OutputEdge:
    """From one operator's main or side output to the next operator, directly or over an exchange."""

    side_tag: str | None
    target: int
    """Index of the target operator, if chained; -1 if it goes over `exchange`."""
    input_index: int = 0
    exchange: int | None = None


@dataclass
class OperatorNode:
    """One operator as it will run: how parallel, from which line of the program, and where its outputs go."""

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

    @property
    def source(self) -> Source | None:
        """What it reads, if it is a source."""
        return source_of(self.operation)

    @property
    def sink(self) -> Sink | None:
        """What it writes to, if it is a sink."""
        return sink_of(self.operation)

    @property
    def needs_spark(self) -> bool:
        """Runs DataFrames on the job's cluster."""
        return any(border is not None and border.needs_spark for border in (self.source, self.sink))


@dataclass
class ExchangeTarget:
    """Who reads an exchange: a stage, the operator in it, and which of the operator's inputs it is."""

    stage: int
    operator: int
    input_index: int


@dataclass
class ExchangeSpec:
    """One stream of buffers. Several targets share it when they take the same output, partitioned alike."""

    id: int
    source_stage: int
    side_tag: str | None
    partitioning: Partitioning
    source_parallelism: int
    parallelism: int
    max_parallelism: int
    name: str = ""
    """Of the operator whose output it carries; errors of key selectors and partitioners name it."""
    user_location: str = ""
    """Of the call that partitions the stream, else of that operator."""
    targets: list[ExchangeTarget] = field(default_factory=list)
    takes_columns: bool = False
    """Whether a target works on columns; records that could travel as either go as Python objects unless one does."""
    level: int = 0
    """Level of the deepest target; every target stage takes its buffers at its own level."""


@dataclass
class Stage:
    """A chain of operators that runs as one task per subtask."""

    id: int
    name: str
    operators: list[int]
    """Indexes in topological order; the first is the head, unless several heads share inputs."""
    parallelism: int
    level: int = 0
    inputs: list[int] = field(default_factory=list)
    """Ids of the exchanges that this stage reads."""


@dataclass
class JobGraph:
    """The plan of a whole job; pickled, it goes to every worker."""

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
        """Slots needed: the highest parallelism of any stage (D9)."""
        return max(stage.parallelism for stage in self.stages)

    @property
    def keyed_operators(self) -> int:
        """Those with a state backend; a slot has at most one subtask of each."""
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
        """Shape of Flink's `/jobs/:id/plan`: nodes with inputs."""
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
