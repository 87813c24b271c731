"""Estimates from the samples of a window: rates, true processing rates, arrivals. Samples that cannot be trusted are found here.

The true processing rate of a vertex is the rate that its subtasks could process if they were always busy: rate / busy share. It comes from
Kalavri et al., "Three steps is all you need" (OSDI '18). The arrival rate of a source is its rate plus the growth of its lag.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.jobmanager.autoscaling.samples import Sample, VertexSample

LEAST_BUSY = 0.001
"""Busy share below which a true processing rate is not known."""
FULL = 0.95
"""Busy share at which a level counts as saturated."""
LEAST_SAMPLES = 2
"""Smallest number of samples of a window. A growth needs two of them."""
OF_GROUP = 1.25
"""Ratio of the shares of a key group and of its largest key above which the group is named instead of the key."""
LONGEST_GAP = 4
"""Number of intervals between two samples that still belong together."""


@dataclass(frozen=True)
class HotKey:
    """Key, or key group, with the largest share of a vertex's input."""

    key: str | None
    """Text of the key. None means all keys of the key group together."""
    group: int
    subtask: int
    share: float
    busy: float
    """Busy share of the subtask. If the subtask is not one of the busiest, the mean of all subtasks."""


@dataclass(frozen=True)
class VertexEstimate:
    """Means of a vertex over a window."""

    vertex: VertexSample
    rate_in: float
    rate_out: float
    busy: float
    back_pressured: float
    idle: float
    true_rate: float | None
    """Records per second that all its subtasks could process. None means that it was not busy, so the rate is not known."""
    arrival: float | None
    """Records per second that arrive at a source. Without a known lag it is the rate. None means that it is not a source."""
    lag: float | None
    hottest: tuple[int, float] | None
    """Subtask that was the busiest, with its busy share."""
    is_observed: bool = False
    """Whether `true_rate` is the observed rate, because the busy time misses work of other threads."""
    hot_key: HotKey | None = None

    @property
    def id(self) -> str:
        return self.vertex.id


def problem_of(samples: Sequence[Sample]) -> str:
    """Return what is wrong with the values of the samples, or an empty text."""
    for sample in samples:
        if sample.interval_ms <= 0 or sample.parallelism < 1 or not sample.vertices:
            return f"the sample of attempt {sample.attempt} has no vertices, no parallelism or no duration"
        for vertex in sample.vertices:
            found = _problem_of(vertex)
            if found:
                return f"vertex {vertex.name!r} reports {found}"
        if any(vertex.rate_in > 0 for vertex in sample.vertices) and not any(vertex.busy for vertex in sample.vertices):
            return "records flow, but no vertex reports busy time"
    if samples and {v.id for v in samples[0].vertices} != {v.id for v in samples[-1].vertices}:
        return "the vertices of the job have changed"
    return ""


def _problem_of(vertex: VertexSample) -> str:
    named = {
        "rate_in": vertex.rate_in,
        "rate_out": vertex.rate_out,
        "busy": vertex.busy,
        "back_pressured": vertex.back_pressured,
        "idle": vertex.idle,
        **({} if vertex.lag is None else {"lag": vertex.lag}),
        **{f"busy of subtask {subtask}": busy for subtask, busy in vertex.busiest},
    }
    for name, value in named.items():
        if not math.isfinite(value):
            return f"{name} = {value}"
        if value < 0:
            return f"a negative {name} ({value:g})"
    if vertex.parallelism < 1:
        return f"a parallelism of {vertex.parallelism}"
    return ""


def contiguous(samples: Sequence[Sample], since_ms: int) -> tuple[list[Sample], str]:
    """Return the newest samples of one attempt since a time, the oldest first, and why there are not more of them.

    The reason is `attempt`, `clock` (time went back, or samples are missing) or empty.
    """
    found: list[Sample] = []
    for sample in reversed(samples):
        if found:
            later = found[-1]
            if len(found) >= LEAST_SAMPLES and later.at_ms - later.interval_ms <= since_ms:
                break
            if sample.attempt != later.attempt:
                return found[::-1], "attempt"
            gap = later.at_ms - sample.at_ms
            if gap <= 0 or gap > LONGEST_GAP * max(later.interval_ms, sample.interval_ms):
                return found[::-1], "clock"
        found.append(sample)
    return found[::-1], ""


def estimates(samples: Sequence[Sample], max_lag_ms: int) -> dict[str, VertexEstimate]:
    """Return the estimates of the vertices by id, the sources first. The samples are contiguous and have no problem."""
    found = {vertex.id: _estimate(samples, index) for index, vertex in enumerate(samples[-1].vertices)}
    return {id: _observed(estimate, found, max_lag_ms) for id, estimate in found.items()}


def _estimate(samples: Sequence[Sample], index: int) -> VertexEstimate:
    of = [(sample.interval_ms, sample.vertices[index]) for sample in samples]
    total = sum(ms for ms, _ in of)

    def mean(values: Sequence[float]) -> float:
        return sum(ms * value for (ms, _), value in zip(of, values, strict=True)) / total

    last = of[-1][1]
    rate_in, busy = mean([v.rate_in for _, v in of]), min(1.0, mean([v.busy for _, v in of]))
    true_rate = rate_in / busy if busy >= LEAST_BUSY and rate_in > 0 else None
    arrival = None if last.inputs else max(0.0, rate_in + lag_growth([(ms, v.lag) for ms, v in of]))
    hot: dict[int, float] = {}
    for ms, vertex in of:
        for subtask, share in vertex.busiest:
            hot[subtask] = hot.get(subtask, 0.0) + ms * share / total
    hottest = max(hot.items(), key=lambda entry: entry[1], default=None)
    return VertexEstimate(
        last,
        rate_in,
        mean([v.rate_out for _, v in of]),
        busy,
        mean([v.back_pressured for _, v in of]),
        mean([v.idle for _, v in of]),
        true_rate,
        arrival,
        last.lag,
        hottest,
        hot_key=_hot_key([vertex for _, vertex in of], hot, busy),
    )


def _hot_key(samples: Sequence[VertexSample], busiest: Mapping[int, float], busy: float) -> HotKey | None:
    """Return the key or the key group with the largest share of all records of the samples."""
    records: dict[tuple[str | None, int], float] = {}
    total = 0.0
    for sample in samples:
        total += sample.rate_in if sample.keys else 0.0
        for one in sample.keys:
            records[one.key, one.group] = records.get((one.key, one.group), 0.0) + one.share * sample.rate_in
    if total <= 0:
        return None
    keys = {at: count for at, count in records.items() if at[0] is not None}
    groups = {at: count for at, count in records.items() if at[0] is None}
    (key, group), count = max(keys.items(), key=lambda entry: entry[1], default=((None, 0), 0.0))
    (_, full), of_group = max(groups.items(), key=lambda entry: entry[1], default=((None, 0), 0.0))
    if of_group > OF_GROUP * count:
        key, group, count = None, full, of_group
    subtask = next(one.subtask for sample in reversed(samples) for one in sample.keys if one.group == group)
    return HotKey(key, group, subtask, count / total, busiest.get(subtask, busy))


def lag_growth(lags: Sequence[tuple[int, float | None]]) -> float:
    """Return the growth of the lag in records per second between the first and the last known lag.

    >>> lag_growth([(5_000, 0.0), (5_000, 50.0), (5_000, 100.0)]), lag_growth([(5_000, None), (5_000, 7.0)])
    (10.0, 0.0)
    """
    known = [(index, lag) for index, (_, lag) in enumerate(lags) if lag is not None]
    if len(known) < 2:
        return 0.0
    (first, before), (last, after) = known[0], known[-1]
    ms = sum(ms for ms, _ in lags[first + 1 : last + 1])
    return (after - before) / ms * 1e3 if ms else 0.0


def lag_ms(estimate: VertexEstimate) -> float:
    """Return how old the oldest unread record of a source is, about. 0 means that no lag is known."""
    if not estimate.lag:
        return 0.0
    rate = max(estimate.rate_in, estimate.arrival or 0.0)
    return estimate.lag / rate * 1e3 if rate > 0 else math.inf


def level_busy(found: Sequence[VertexEstimate]) -> dict[int, float]:
    """Return the busy share of the threads of each level."""
    levels: dict[int, float] = {}
    for estimate in found:
        levels[estimate.vertex.level] = levels.get(estimate.vertex.level, 0.0) + estimate.busy
    return levels


def _observed(estimate: VertexEstimate, found: dict[str, VertexEstimate], max_lag_ms: int) -> VertexEstimate:
    """Use the observed rate of a source that lags, although neither it nor any other vertex is busy."""
    is_behind = estimate.arrival is not None and lag_ms(estimate) > max_lag_ms
    is_growing = estimate.arrival is not None and estimate.arrival > estimate.rate_in * 1.02
    saturated = max(level_busy(list(found.values())).values()) >= 0.85
    if not (is_behind and is_growing) or estimate.rate_in <= 0 or saturated or estimate.back_pressured > 0.1:
        return estimate
    if any(other.hottest is not None and other.hottest[1] >= FULL for other in found.values()):
        return estimate  # a hot subtask holds it back
    return VertexEstimate(**{**vars(estimate), "true_rate": estimate.rate_in, "is_observed": True})
