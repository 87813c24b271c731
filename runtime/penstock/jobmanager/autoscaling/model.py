"""The load of a job at any parallelism, predicted from a window (DS2: true processing rates, from the sources down).

The load of a vertex is its target rate divided by its true processing rate. A load of 1 means that its subtasks are always busy.
Vertices of a level share threads, so their loads add up. The level with the largest load limits the job. In the batched runner
the levels of a slot run one after the other, so all loads add up.

The load of these vertices does not become smaller with the parallelism of the job:

- a vertex whose parallelism the program sets
- a vertex with a key that has a large share of the records, because one subtask processes all of them
- a source with fewer splits than subtasks
- a vertex whose true processing rate did not grow with an earlier rescale, for example because an external system limits it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.jobmanager.autoscaling.samples import Sample
from penstock.jobmanager.autoscaling.window import VertexEstimate

HOT = 1.5
"""Ratio of the busy shares of a subtask and of the mean above which the subtask is hot."""
LEAST_EFFECT = 1.05
"""Ratio of the loads with and without a hot key from which on the key limits a vertex."""
EVEN_REST = 0.25
"""Records of other keys in the subtask of a hot key, relative to those of the key. More parallelism than for this share is of no use."""
SATURATED = 0.9
"""Busy share of a subtask above which its share of the work matters."""


class Limit(Enum):
    """Reason why the load of a vertex does not become smaller with more parallelism."""

    FIXED = "fixed"
    SPLITS = "splits"
    INEFFECTIVE = "ineffective"


@dataclass(frozen=True)
class VertexLoad:
    """Load of a vertex for a flow of records."""

    estimate: VertexEstimate
    target: float
    """Records per second that it must process."""
    slots: float
    """Number of subtasks that these records would keep always busy, if they were distributed evenly."""
    limit: Limit | None
    flat_from: int = 0
    """Smallest parallelism that is known to have the same capacity as larger ones (`Limit.INEFFECTIVE`)."""

    def at(self, parallelism: int) -> float:
        """Return the load at a parallelism of the job."""
        return max(self._spread(parallelism), self._of_key(parallelism))

    def is_held_by_key(self) -> bool:
        """Return whether a hot key prevents that twice the parallelism halves the load."""
        twice = 2 * self.estimate.vertex.parallelism
        return self._of_key(twice) > LEAST_EFFECT * self._spread(twice)

    def _of_key(self, parallelism: int) -> float:
        """Return the load of the subtask with the hot key. It processes all records of the key, and its part of the others."""
        key, now = self.estimate.hot_key, self.estimate.vertex.parallelism
        if key is None or self.limit is not None or self.estimate.rate_in <= 0 or not explains(self.estimate):
            return 0.0
        useful = max(now, math.ceil((1 - key.share) / (EVEN_REST * key.share)))
        part = part_of_key(key.share, min(parallelism, useful)) / part_of_key(key.share, now)
        return key.busy * self.target / self.estimate.rate_in * part

    def _spread(self, parallelism: int) -> float:
        """Return the load if the records are distributed over all subtasks."""
        if self.limit is Limit.FIXED:
            return self.slots / self.estimate.vertex.parallelism
        if self.limit is Limit.INEFFECTIVE:
            return self.slots / self.estimate.vertex.parallelism * max(1.0, self.flat_from / parallelism)
        splits = self.estimate.vertex.splits
        if not self.estimate.vertex.inputs and splits:
            return self.slots * math.ceil(splits / parallelism) / splits
        return self.slots / parallelism


@dataclass(frozen=True)
class LoadModel:
    """Loads of all vertices for one flow."""

    loads: tuple[VertexLoad, ...]
    levels_take_turns: bool

    def at(self, parallelism: int) -> float:
        """Return the load of the job: that of the level with the largest load."""
        levels = self._levels(parallelism)
        return sum(levels.values()) if self.levels_take_turns else max(levels.values(), default=0.0)

    def _levels(self, parallelism: int) -> dict[int, float]:
        found: dict[int, float] = {}
        for load in self.loads:
            level = 0 if self.levels_take_turns else load.estimate.vertex.level
            found[level] = found.get(level, 0.0) + load.at(parallelism)
        return found

    def scalable(self) -> LoadModel:
        """Return the model without the vertices whose parallelism the program sets."""
        return LoadModel(tuple(load for load in self.loads if load.limit is not Limit.FIXED), self.levels_take_turns)

    def bottleneck(self, parallelism: int) -> VertexLoad:
        """Return the vertex with the largest load of the level that limits the job."""
        levels = self._levels(parallelism)
        level = max(levels, key=lambda one: levels[one])
        on_it = [load for load in self.loads if self.levels_take_turns or load.estimate.vertex.level == level]
        return max(on_it, key=lambda load: load.at(parallelism))

    def smallest(self, utilization: float, lowest: int, highest: int) -> int:
        """Return the smallest parallelism at which each level has at most this load, or cannot get a smaller one."""
        best = self._levels(highest)
        low, high = lowest, highest
        while low < high:
            middle = (low + high) // 2
            if self._is_enough(middle, utilization, best):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_enough(self, parallelism: int, utilization: float, best: Mapping[int, float]) -> bool:
        return all(
            load <= utilization + 1e-9 or load <= best[level] * (1 + 1e-9)
            for level, load in self._levels(parallelism).items()
        )


def model_of(
    sample: Sample,
    found: Mapping[str, VertexEstimate],
    arrivals: Mapping[str, float],
    ineffective: Mapping[str, int],
) -> LoadModel:
    """Return the model for given arrivals.

    Args:
        arrivals: records per second that the job must read from each source, by vertex id.
        ineffective: vertices whose capacity does not grow with the parallelism, and the parallelism from which on it is constant.
    """
    targets = target_rates(found, arrivals)
    loads = []
    for id, estimate in found.items():
        vertex = estimate.vertex
        splits = vertex.splits if not vertex.inputs else None
        limit = None
        if vertex.is_fixed:
            limit = Limit.FIXED
        elif id in ineffective:
            limit = Limit.INEFFECTIVE
        elif splits and splits <= sample.parallelism:
            limit = Limit.SPLITS
        slots = _busy_subtasks(estimate, targets[id]) * skew(estimate)
        loads.append(VertexLoad(estimate, targets[id], slots, limit, ineffective.get(id, 0)))
    return LoadModel(tuple(loads), sample.levels_take_turns)


def _busy_subtasks(estimate: VertexEstimate, target: float) -> float:
    """Return the number of subtasks that a rate keeps busy."""
    parallelism = estimate.vertex.parallelism
    if estimate.true_rate is None:
        return estimate.busy * parallelism
    return target / estimate.true_rate * parallelism


def skew(estimate: VertexEstimate) -> float:
    """Return the busy share of a saturated subtask, relative to the mean of its vertex. A hot subtask counts as 1: see `is_hot`."""
    share = _uneven(estimate)
    return share if 1.0 < share <= HOT else 1.0


def is_hot(estimate: VertexEstimate) -> bool:
    """Return whether one subtask is saturated and has much more work than the others. More subtasks would not relieve it."""
    return _uneven(estimate) > HOT


def part_of_key(share: float, parallelism: int) -> float:
    """Return the part of all records that the subtask of a key processes.

    >>> part_of_key(0.5, 2)
    0.75
    """
    return share + (1 - share) / parallelism


def explains(estimate: VertexEstimate) -> bool:
    """Return whether the hot key of a vertex is the reason for its uneven load. Otherwise several keys of one subtask are, or a slow host."""
    key, count = estimate.hot_key, estimate.vertex.parallelism
    return key is not None and part_of_key(key.share, count) * count * HOT >= _uneven(estimate)


def _uneven(estimate: VertexEstimate) -> float:
    """Return the busy share of a saturated subtask relative to the one expected from an even distribution, or 1."""
    vertex, hottest = estimate.vertex, estimate.hottest
    if hottest is None or hottest[1] < SATURATED or estimate.busy <= 0 or vertex.parallelism < 2:
        return 1.0
    expected = estimate.busy
    if not vertex.inputs and vertex.splits:
        expected *= math.ceil(vertex.splits / vertex.parallelism) / vertex.splits * vertex.parallelism
    return hottest[1] / expected


def target_rates(found: Mapping[str, VertexEstimate], arrivals: Mapping[str, float]) -> dict[str, float]:
    """Return the records per second that each vertex must process, from the sources down.

    The rate of a vertex follows the rates of its inputs in the measured ratios. If it has several inputs, the measured output of each
    input is its share.
    """
    readers: dict[str, int] = {}
    for estimate in found.values():
        for source in estimate.vertex.inputs:
            readers[source] = readers.get(source, 0) + 1
    targets: dict[str, float] = {}
    for id, estimate in sorted(found.items(), key=lambda entry: entry[1].vertex.level):
        inputs = [found[source] for source in estimate.vertex.inputs if source in found]
        if not inputs:
            targets[id] = arrivals.get(id, estimate.arrival if estimate.arrival is not None else estimate.rate_in)
            continue
        shares = [source.rate_out / readers[source.id] for source in inputs]
        if sum(shares) <= 0:
            shares = [1.0] * len(inputs)
        growth = sum(
            share * (targets[source.id] / source.rate_in if source.rate_in > 0 else 1.0)
            for share, source in zip(shares, inputs, strict=True)
        )
        targets[id] = estimate.rate_in * growth / sum(shares)
    return targets
