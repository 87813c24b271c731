"""The metrics that a subtask reports with an ack: records, bytes, times, watermark, user metrics and accumulators."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from penstock.common.errors import StateTypeError
from penstock.functions.accumulators import Accumulator
from penstock.functions.operator_context import OperatorContext
from penstock.graph.job_graph import Stage
from penstock.metrics.task import TaskMetrics
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.records.fields import shortened
from penstock.state.backend import KeyedStateBackend
from penstock.state.encoding.tagged import Unencodable, pack, type_name
from penstock.taskmanager.chain import ChainedOutput
from penstock.taskmanager.exchange.writer import ExchangeWriter
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.taskmanager.protocol import VertexMetrics
from penstock.taskmanager.task_environment import TaskEnvironment


def task_metrics(stage: Stage, index: int, environment: TaskEnvironment) -> TaskMetrics:
    """Return the metrics of a subtask, with the variables of its scope."""
    return TaskMetrics(
        {
            "host": environment.host,
            "job_id": environment.job_id,
            "job_name": environment.job_name,
            "task_name": stage.name,
            "task_id": str(stage.id),
            "subtask_index": str(index),
            "tm_id": environment.task_manager,
            "task_attempt_num": str(environment.attempt),
            "task_attempt_id": f"{environment.job_id}_{stage.id}_{index}_{environment.attempt}",
        },
        environment.metric_scopes,
    )


class MetricsCollector:
    """Collector of the metrics of a subtask since its last report.

    Args:
        contexts: contexts of the operators by the operators' index in the graph. The backends have the same keys.
    """

    def __init__(
        self,
        writers: Sequence[ExchangeWriter],
        outputs: Mapping[int, ChainedOutput],
        sources: Mapping[str, SourceOperator],
        contexts: Mapping[int, OperatorContext],
        backends: Mapping[int, KeyedStateBackend],
        task_metrics: TaskMetrics,
    ) -> None:
        self._writers = writers
        self._outputs = outputs
        self._sources = sources
        self._contexts = contexts
        self._backends = backends
        self._task_metrics = task_metrics
        self._last_metrics_at = time.perf_counter()
        self._published: set[tuple[str, str]] = set()
        """Names of queryable states that the JobManager knows, with the uids of their operators."""

    def complete(self, metrics: VertexMetrics) -> VertexMetrics:
        """Fill in the metrics that the operators and writers have counted since the last call, and return them."""
        now = time.perf_counter()
        metrics.idle_ms = max(0.0, (now - self._last_metrics_at) * 1e3 - metrics.busy_ms - metrics.blocked_ms)
        self._last_metrics_at = now
        self._take_output(metrics)
        for source in self._sources.values():
            metrics.records_in += source.records_out
            source.records_out = 0
            watermark = source.current_watermark()
            metrics.watermark = None if watermark in (MIN_TIMESTAMP, MAX_TIMESTAMP) else watermark
        if metrics.watermark == MAX_TIMESTAMP:
            metrics.watermark = None
        metrics.user = self._task_metrics.snapshot()
        metrics.accumulators = {
            name: [accumulator.kind, _packed(accumulator, name, context)]
            for context in self._contexts.values()
            for name, accumulator in context.accumulators.items()
        }
        metrics.queryable = self._new_queryable()
        taken = {writer.spec.id: writer.take_key_counts() for writer in self._writers}
        metrics.keys = {exchange: counts for exchange, counts in taken.items() if counts is not None}
        return metrics

    def _take_output(self, metrics: VertexMetrics) -> None:
        metrics.bytes_out = sum(writer.bytes_out for writer in self._writers)
        metrics.records_out = sum(writer.records_out for writer in self._writers)
        for writer in self._writers:
            writer.bytes_out = writer.records_out = 0
        if not self._writers:
            metrics.records_out = sum(output.records for output in self._outputs.values())
        for output in self._outputs.values():
            output.records = 0

    def _new_queryable(self) -> dict[str, list[str]]:
        found = {}
        for index, backend in self._backends.items():
            for name, state in backend.queryable.items():
                uid = self._contexts[index].uid
                if (name, uid) not in self._published:
                    self._published.add((name, uid))
                    found[name] = [uid, state]
        return found


def _packed(accumulator: Accumulator, name: str, context: OperatorContext) -> bytes:
    try:
        return pack(accumulator.parts())
    except Unencodable as error:
        raise StateTypeError(
            f"the accumulator {name!r} holds a {type_name(type(error.value))}, which has no encoding: {shortened(error.value)}",
            remedy="add builtin values or numpy values",
            operator=context.name,
            location=context.user_location,
        ) from None
