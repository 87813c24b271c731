"""Latency markers: how long a record takes from its source to every operator, without looking at a record.

A source subtask makes a marker with the time every `metrics.latency.interval`. Markers wait where records wait: in the writer's
buffers, on the network, behind a barrier until it is aligned. They go past functions and windows: an operator notes how old they
are and hands them on at once, to one of the targets of each of its exchanges, each in turn. They are in no state, and none is made
anew after a failure. Times are of the machines' clocks, which are to be the same (NTP).
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
"""What is told apart: nothing, the sources, or their subtasks."""


class LatencyTracking:
    """Of one subtask.

    Args:
        operators: those of its stage, by index.
        writers: their exchanges, by operator.
        granularity: see `GRANULARITIES`.
        interval_ms: between two markers of a source; 0: none are made.
        clock: s since the epoch.
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
        self._ways: dict[int, list[int]] = {}
        self.sources = [index for index in operators if graph.operators[index].source is not None]
        self.next_at = 0.0 if self.sources and interval_ms else math.inf
        """When (on the monotonic clock) a marker is due."""

    def make(self, subtask: int, now: float) -> None:
        """A marker of each source, if it is time for one (s, monotonic)."""
        if now < self.next_at:
            return
        self.next_at = now + self._interval_s
        for source in self.sources:
            behind = [edge.target for edge in self._graph.operators[source].outputs if edge.exchange is None]
            marker = LatencyMarker(source, subtask, self._clock() * 1e3)
            for writer in self._writers.get(source, ()):
                writer.latency(marker)
            for operator in behind:
                self.pass_on(marker, operator)

    def pass_on(self, marker: LatencyMarker, operator: int) -> None:
        """A marker has come to this operator, and so to those that are chained to it."""
        age_ms = max(0.0, self._clock() * 1e3 - marker.at)
        way = self._ways.get(operator)
        if way is None:
            way = self._ways[operator] = self._way(operator)
        key = operator, marker.source, marker.subtask if self._granularity == SUBTASK else 0
        seen_by = self._seen_by.get(key)
        if seen_by is None:
            seen_by = self._seen_by[key] = [self._distribution(index, marker) for index in way]
        for distribution in seen_by:
            distribution.update(age_ms)
        for index in way:
            for writer in self._writers.get(index, ()):
                writer.latency(marker)

    def _way(self, operator: int) -> list[int]:
        """The operator, and all behind it in the chain, each once."""
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
