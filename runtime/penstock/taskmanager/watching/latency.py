"""Latency markers, which measure how long a record takes from its source to every operator, without touching records.

A source subtask creates a marker with the current time every `metrics.latency.interval`. Markers wait where records wait: in the writer's
buffers, on the network, and behind a barrier until it is aligned. They bypass functions and windows. An operator records the age of a
marker and forwards the marker immediately, to the next target (round robin) of each of its exchanges.

Markers are not part of the state, and a restart does not restore them. Times come from the machines' clocks, which must agree (NTP).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.taskmanager.exchange.rows import LatencyMarker

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph
    from penstock.metrics.metricbase import Distribution
    from penstock.metrics.task import TaskMetrics
    from penstock.taskmanager.exchange.writer import ExchangeWriter

METRIC = "latency"
SINGLE, OPERATOR, SUBTASK = GRANULARITIES = ("single", "operator", "subtask")
"""Levels of detail of the metric: one for all sources, one per source, or one per source subtask."""


class LatencyTracking:
    """The latency markers of one subtask.

    Args:
        operators: indexes of the operators in the subtask's stage.
        writers: the exchange writers of each operator.
        granularity: see `GRANULARITIES`.
        interval_ms: time between two markers of a source; 0 creates no markers.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        graph: JobGraph,
        operators: Sequence[int],
        writers: Mapping[int, Sequence[ExchangeWriter]],
        metrics: TaskMetrics,
        granularity: str,
        interval_ms: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._graph = graph
        self._operators = frozenset(operators)
        self._writers = writers
        self._metrics = metrics
        self._granularity = granularity
        self._interval_s = interval_ms / 1000 if interval_ms else math.inf
        self._clock = clock
        self._seen_by: dict[tuple[int, int, int], list[Distribution]] = {}
        self._chains: dict[int, list[int]] = {}
        self.sources = [index for index in operators if graph.operators[index].source is not None]
        self.next_at = 0.0 if self.sources and interval_ms else math.inf
        """Time on the monotonic clock at which the next marker is due."""

    def make(self, subtask: int, now: float) -> None:
        """Create a marker of each source if one is due. `now` is in seconds on the monotonic clock."""
        if now < self.next_at:
            return
        self.next_at = now + self._interval_s
        for source in self.sources:
            behind = [edge.target for edge in self._graph.operators[source].outputs if edge.exchange is None]
            marker = LatencyMarker(source, subtask, self._clock() * 1e3)
            for writer in self._writers.get(source, ()):
                writer.latency(marker)
            for operator in behind:
                self.record_marker(marker, operator)

    def record_marker(self, marker: LatencyMarker, operator: int) -> None:
        """Record a marker that has reached this operator and the operators chained to it, and forward the marker."""
        age_ms = max(0.0, self._clock() * 1e3 - marker.at)
        way = self._chains.get(operator)
        if way is None:
            way = self._chains[operator] = self._operators_from(operator)
        key = operator, marker.source, marker.subtask if self._granularity == SUBTASK else 0
        seen_by = self._seen_by.get(key)
        if seen_by is None:
            seen_by = self._seen_by[key] = [self._distribution(index, marker) for index in way]
        for distribution in seen_by:
            distribution.update(age_ms)
        for index in way:
            for writer in self._writers.get(index, ()):
                writer.latency(marker)

    def _operators_from(self, operator: int) -> list[int]:
        """Return the operator and all later operators of the chain, each operator once."""
        found: list[int] = []
        todo: list[int] = [operator]
        while todo:
            index = todo.pop()
            if index not in found:
                found.append(index)
                todo += self._chained(index)
        return found

    def _chained(self, index: int) -> Iterable[int]:
        edges = self._graph.operators[index].outputs
        return (edge.target for edge in edges if edge.exchange is None and edge.target in self._operators)

    def _distribution(self, index: int, marker: LatencyMarker) -> Distribution:
        node = self._graph.operators[index]
        group = self._metrics.operator_group(node.uid, node.name)
        if self._granularity != SINGLE:
            group = group.add_group("source_id", self._graph.operators[marker.source].uid)
        if self._granularity == SUBTASK:
            group = group.add_group("source_subtask_index", str(marker.subtask))
        return group.distribution(METRIC)
