"""Construction of the JobGraph from transformations: validation, uids, chaining, exchanges, levels. Pure.

Every error that can be found without a side effect is raised here. The error (`InvalidJob`) has the operator, the
user's line and the remedy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, PenstockError
from penstock.connectors.simple.feedback import FeedbackSource
from penstock.graph.batch_mode import batch_operation, is_batch
from penstock.graph.job_graph import ExchangeSpec, ExchangeTarget, JobGraph, OperatorNode, OutputEdge, Stage
from penstock.graph.program import upstream_first
from penstock.graph.transformation import Exchange, Input, Partitioning, Transformation

if TYPE_CHECKING:
    from penstock.connectors.core.sink import Sink
    from penstock.connectors.core.source import Source

DEFAULT_MAX_PARALLELISM = 128
UPPER_MAX_PARALLELISM = 32_768
_DEFAULT_GROUP = "default"
"""Flink's name of the default slot sharing group."""


class JobGraphBuilder:
    """The builder of one JobGraph.

    Args:
        sinks: the transformations that no other transformation reads.
        parallelism: parallelism of operators that set no parallelism.
        max_parallelism: number of key groups; None means Flink's default of 128.
        limit: highest parallelism of any operator; None means no limit. The adaptive scheduler sets a limit if fewer
            slots are available than the job needs.
        require_uids: refuse operators without an explicit uid.
        mode: `execution.runtime-mode`.
    """

    def __init__(
        self,
        sinks: Iterable[Transformation],
        *,
        name: str = "Penstock Streaming Job",
        parallelism: int = 1,
        max_parallelism: int | None = None,
        limit: int | None = None,
        chaining: bool = True,
        job_parameters: dict[str, str] | None = None,
        auto_watermark_interval_ms: int = 200,
        require_uids: bool = False,
        object_store_options: dict[str, Any] | None = None,
        mode: str = "STREAMING",
    ) -> None:
        self._sinks = list(sinks)
        self._name = name
        self._default_parallelism = parallelism
        self._default_max = max_parallelism
        self._limit = limit
        self._chaining = chaining
        self._job_parameters = job_parameters or {}
        self._auto_watermark_interval_ms = auto_watermark_interval_ms
        self._require_uids = require_uids
        self._object_store_options = object_store_options or {}
        self._mode = mode
        self._nodes: dict[int, OperatorNode] = {}
        self._groups: dict[int, str] = {}
        """Slot sharing group of each transformation, by id."""

    def build(self, *, validates_connectors: bool = True) -> JobGraph:
        """Build the job graph.

        Args:
            validates_connectors: whether to validate sources and sinks. They may connect to their systems.

        Raises:
            PenstockError: the program or a connector is not valid.
        """
        transformations = upstream_first(self._sinks)
        self._check(transformations)
        if validates_connectors:
            self._validate_connectors(transformations)
        self._check_iterations(transformations)
        self._batch = is_batch(self._mode, transformations)
        max_parallelism = self._default_max or max(
            DEFAULT_MAX_PARALLELISM, *(t.max_parallelism or 0 for t in transformations)
        )
        uids = self._uids(transformations)
        nodes = [self._node(index, t, uids[t.id], max_parallelism) for index, t in enumerate(transformations)]
        self._nodes = {t.id: node for t, node in zip(transformations, nodes, strict=True)}
        by_id = {t.id: t for t in transformations}
        self._groups = _slot_sharing_groups(transformations)
        chained = self._chained(transformations)
        stages, stage_of = self._stages(transformations, chained)
        exchanges = self._exchanges(transformations, chained, stage_of)
        self._assign_levels(stages, exchanges)
        graph = JobGraph(
            name=self._name,
            operators=nodes,
            stages=stages,
            exchanges=exchanges,
            parallelism=self._default_parallelism,
            max_parallelism=max_parallelism,
            job_parameters=self._job_parameters,
            auto_watermark_interval_ms=self._auto_watermark_interval_ms,
            is_batch=self._batch,
        )
        for transformation in by_id.values():
            self._check_parallelism(self._nodes[transformation.id])
        return graph

    # --- validation -------------------------------------------------------------------------------------------

    def _check(self, transformations: list[Transformation]) -> None:
        if not self._sinks:
            raise InvalidJob(
                "the program has no sink: nothing would be computed",
                remedy="end at least one stream with sink_to(...), add_sink(...), print() or execute_and_collect()",
            )
        if not any(t.source is not None for t in transformations):
            raise InvalidJob(
                "the program has no source", remedy="start with env.from_source(...) or from_collection(...)"
            )
        seen: dict[str, Transformation] = {}
        used: dict[str, Transformation] = {}
        for t in transformations:
            self._check_sole_use(t, used)
            if t.uid is None:
                continue
            other = seen.setdefault(t.uid, t)
            if other is not t:
                raise InvalidJob(
                    f"uid {t.uid!r} is used by two operators: {other.name!r} ({other.user_location}) and {t.name!r}",
                    remedy="give each operator another uid. A restore finds the state of an operator by its uid",
                    operator=t.name,
                    location=t.user_location,
                )
        for t in transformations:
            if self._require_uids and t.uid is None:
                raise InvalidJob(
                    f"operator {t.name!r} has no uid, but pipeline.auto-generate-uids is false",
                    remedy='add .uid("a-name-that-stays")',
                    operator=t.name,
                    location=t.user_location,
                )
            for edge in t.inputs:
                self._check_edge(t, edge)

    def _validate_connectors(self, transformations: list[Transformation]) -> None:
        for t in transformations:
            for border in (t.source, t.sink):
                if border is not None:
                    self._check_border(t, border)

    def _check_iterations(self, transformations: list[Transformation]) -> None:
        for t in transformations:
            if isinstance(t.source, FeedbackSource) and self._mode != "STREAMING":
                raise InvalidJob(
                    f"an iteration needs streaming mode, but execution.runtime-mode is {self._mode}",
                    remedy="set the mode to STREAMING. In this mode, a job with bounded input also ends, as soon as the iteration has no more records",
                    operator=t.name,
                    location=t.user_location,
                )

    def _check_sole_use(self, t: Transformation, used: dict[str, Transformation]) -> None:
        resource = t.source and t.source.sole_use
        if resource and (other := used.setdefault(resource, t)) is not t:
            raise InvalidJob(
                f"{resource} is read by two sources: {other.name!r} ({other.user_location}) and {t.name!r}",
                remedy="use another one for each source, or read it with one source and split the stream",
                operator=t.name,
                location=t.user_location,
            )

    def _check_border(self, t: Transformation, border: Source | Sink) -> None:
        """Validate a source or sink.

        Raises:
            PenstockError: the error of the source or sink, with the operator and the user's line.
        """
        try:
            border.with_object_store_options(self._object_store_options).validate()
        except PenstockError as error:
            error.operator = error.operator or t.name
            error.location = error.location or t.user_location
            raise

    def _check_edge(self, t: Transformation, edge: Input) -> None:
        selectors = t.operation.key_selectors
        if edge.index < len(selectors):
            wants_key = selectors[edge.index] is not None
            if wants_key and edge.partitioning.exchange is not Exchange.KEY_GROUP:
                raise InvalidJob(
                    f"operator {t.name!r} uses keyed state, but its input is not keyed",
                    remedy="put key_by(...) directly before it",
                    operator=t.name,
                    location=t.user_location,
                )

    def _check_parallelism(self, node: OperatorNode) -> None:
        if node.parallelism > node.max_parallelism:
            raise InvalidJob(
                f"operator {node.name!r} has parallelism {node.parallelism}, above its max parallelism "
                f"{node.max_parallelism}",
                remedy="lower set_parallelism, or raise set_max_parallelism before the job has state",
                operator=node.name,
                location=node.user_location,
            )
        if not 1 <= node.max_parallelism <= UPPER_MAX_PARALLELISM:
            raise InvalidJob(
                f"max parallelism of {node.name!r} is {node.max_parallelism}, not in 1..{UPPER_MAX_PARALLELISM}",
                operator=node.name,
                location=node.user_location,
            )

    # --- nodes ------------------------------------------------------------------------------------------------

    def _uids(self, transformations: list[Transformation]) -> dict[int, str]:
        """Return the uid of each operator, by id. An operator without an explicit uid gets a hash of its name, place and
        inputs. Any change of the graph's structure changes this hash.
        """
        uids: dict[int, str] = {}
        taken: dict[str, int] = {}
        for t in transformations:
            if t.uid is not None:
                uids[t.id] = t.uid
                continue
            inputs = ",".join(f"{uids[e.upstream.id]}/{e.side_tag}/{e.index}" for e in t.inputs)
            digest = hashlib.sha256(f"{t.name}|{inputs}".encode()).hexdigest()[:16]
            nth = taken[digest] = taken.get(digest, 0) + 1
            uids[t.id] = f"auto-{digest}" + (f"-{nth}" if nth > 1 else "")
        return uids

    def _parallelism(self, t: Transformation) -> int:
        if t.non_parallel:
            return 1
        wanted = t.parallelism if t.parallelism is not None else self._default_parallelism
        return wanted if self._limit is None else min(wanted, self._limit)

    def _node(self, index: int, t: Transformation, uid: str, max_parallelism: int) -> OperatorNode:
        return OperatorNode(
            index=index,
            uid=uid,
            name=t.name,
            operation=batch_operation(t) if self._batch else t.operation,
            parallelism=self._parallelism(t),
            max_parallelism=t.max_parallelism or max_parallelism,
            user_location=t.user_location,
            is_stateful=t.is_stateful or t.operation.is_keyed,
            description=t.description,
            has_own_parallelism=t.non_parallel or t.parallelism is not None,
        )

    # --- chains and exchanges ---------------------------------------------------------------------------------

    def _effective(self, edge: Input, t: Transformation) -> Partitioning:
        if edge.partitioning.exchange is Exchange.FORWARD:
            up, down = self._nodes[edge.upstream.id], self._nodes[t.id]
            if up.parallelism != down.parallelism:
                return Partitioning(Exchange.REBALANCE)
        return edge.partitioning

    def _can_chain(self, edge: Input, t: Transformation) -> bool:
        up = edge.upstream
        return (
            self._chaining
            and len(t.inputs) == 1
            and self._effective(edge, t).exchange is Exchange.FORWARD
            and t.chaining == "always"
            and up.chaining != "never"
            and self._groups[up.id] == self._groups[t.id]
        )

    def _chained(self, transformations: list[Transformation]) -> set[int]:
        """Return the ids of transformations that run in the stage of their only input."""
        return {t.id for t in transformations if t.inputs and self._can_chain(t.inputs[0], t)}

    def _stages(self, transformations: list[Transformation], chained: set[int]) -> tuple[list[Stage], dict[int, Stage]]:
        stages: list[Stage] = []
        stage_of: dict[int, Stage] = {}
        for t in transformations:
            node = self._nodes[t.id]
            if t.id in chained:
                stage = stage_of[t.inputs[0].upstream.id]
                stage.operators.append(node.index)
                stage.name += f" -> {node.name}"
            else:
                stage = Stage(id=len(stages), name=node.name, operators=[node.index], parallelism=node.parallelism)
                stages.append(stage)
            stage_of[t.id] = stage
        return stages, stage_of

    def _exchanges(
        self, transformations: list[Transformation], chained: set[int], stage_of: dict[int, Stage]
    ) -> list[ExchangeSpec]:
        exchanges: list[ExchangeSpec] = []
        shared: dict[tuple[Any, ...], ExchangeSpec] = {}
        for t in transformations:
            node = self._nodes[t.id]
            for edge in t.inputs:
                up = self._nodes[edge.upstream.id]
                if t.id in chained:
                    up.outputs.append(OutputEdge(edge.side_tag, node.index, edge.index))
                    continue
                partitioning = self._effective(edge, t)
                # Edges with the same Partitioning object belong to the same key_by call (or plain forward), and share one stream of
                # buffers.
                identity = id(edge.partitioning) if partitioning is edge.partitioning else partitioning.exchange
                level_peers = tuple(sorted(e.upstream.id for e in t.inputs))
                key = (up.index, edge.side_tag, identity, node.parallelism, node.max_parallelism, level_peers)
                exchange = shared.get(key)
                if exchange is None:
                    exchange = ExchangeSpec(
                        id=len(exchanges),
                        source_stage=stage_of[edge.upstream.id].id,
                        side_tag=edge.side_tag,
                        partitioning=partitioning,
                        source_parallelism=up.parallelism,
                        parallelism=node.parallelism,
                        max_parallelism=node.max_parallelism,
                        name=up.name,
                        user_location=partitioning.user_location or up.user_location,
                    )
                    exchanges.append(exchange)
                    shared[key] = exchange
                    up.outputs.append(OutputEdge(edge.side_tag, -1, 0, exchange.id))
                stage = stage_of[t.id]
                exchange.targets.append(ExchangeTarget(stage.id, node.index, edge.index))
                exchange.takes_columns = exchange.takes_columns or node.operation.takes_columns
                if exchange.id not in stage.inputs:
                    stage.inputs.append(exchange.id)
        return exchanges

    @staticmethod
    def _assign_levels(stages: list[Stage], exchanges: list[ExchangeSpec]) -> None:
        # Stages are in topological order, because a transformation is created after its inputs.
        for stage in stages:
            if stage.inputs:
                stage.level = 1 + max(stages[exchanges[e].source_stage].level for e in stage.inputs)
        for exchange in exchanges:
            exchange.level = max(stages[target.stage].level for target in exchange.targets)


def _slot_sharing_groups(transformations: list[Transformation]) -> dict[int, str]:
    """Return the slot sharing group of each transformation by id.

    A group that the program sets has priority, then the common group of all inputs. The group is "default" for sources, and for operators
    whose inputs have different groups.

    Args:
        transformations: inputs come before their readers.
    """
    found: dict[int, str] = {}
    for t in transformations:
        inherited = {found[edge.upstream.id] for edge in t.inputs}
        found[t.id] = t.slot_sharing_group or (inherited.pop() if len(inherited) == 1 else _DEFAULT_GROUP)
    return found
