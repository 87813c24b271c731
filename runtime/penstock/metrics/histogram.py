"""A histogram of bounded size with percentiles that are exact within 2 %, and exact summaries of short lists.

Values fall into buckets whose bounds grow by a constant factor. So the middle of a bucket differs by at most
2 % from any value in it (Masson, Rim, Lee: "DDSketch", VLDB 2019). Histograms can be added (subtasks of an operator)
and subtracted (the last minute = now minus the state a minute ago). Reservoirs of samples do not allow this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ACCURACY = 0.02
_GAMMA = (1 + _ACCURACY) / (1 - _ACCURACY)
_FACTOR = 1 / math.log(_GAMMA)
_OFFSET = 20_000
"""Offset that makes a bucket's index positive for the smallest double. The index then has the sign of the value."""

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999)

Wire = tuple[int, float, float, float, float, dict[int, int]]
"""Encoded histogram: count, sum, sum of squares, min, max, buckets. After msgpack or JSON, the tuple is a list."""


@dataclass(frozen=True)
class Summary:
    """The displayed values of a distribution, in the unit of its values. All are zero if the distribution is empty."""

    count: int = 0
    min: float = 0.0
    max: float = 0.0
    mean: float = 0.0
    stddev: float = 0.0
    p50: float = 0.0
    p75: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p98: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


def summarise(values: Iterable[float]) -> Summary:
    """Return the exact summary of some values. Percentiles interpolate between neighbours (the method R-7).

    >>> summarise([10, 20, 30, 40]).p50
    25.0
    >>> summarise([]).count
    0
    """
    ordered = sorted(values)
    count = len(ordered)
    if count == 0:
        return Summary()
    mean = math.fsum(ordered) / count
    variance = math.fsum((v - mean) ** 2 for v in ordered) / count
    return Summary(
        count,
        float(ordered[0]),
        float(ordered[-1]),
        mean,
        math.sqrt(variance),
        *(_interpolate(ordered, q) for q in QUANTILES),
    )


def _interpolate(ordered: Sequence[float], quantile: float) -> float:
    position = quantile * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass
class LogHistogram:
    """The number of values in each bucket, with exact count, sum, min and max.

    >>> histogram = LogHistogram()
    >>> histogram.add_all(range(1, 1001))
    >>> abs(histogram.quantile(0.99) - 990) < 0.02 * 990
    True
    """

    count: int = 0
    sum: float = 0.0
    sum_of_squares: float = 0.0
    min: float = 0.0
    max: float = 0.0
    buckets: dict[int, int] = field(default_factory=dict)

    def add_all(self, values: Iterable[float]) -> None:
        """Add values. NaN and infinities are ignored."""
        buckets = self.buckets
        get, log, ceil, factor = buckets.get, math.log, math.ceil, _FACTOR
        finite = [v for v in values if math.isfinite(v)]
        if not finite:
            return
        for value in finite:
            if value > 0:
                index = ceil(log(value) * factor) + _OFFSET
            elif value < 0:
                index = -ceil(log(-value) * factor) - _OFFSET
            else:
                index = 0
            buckets[index] = get(index, 0) + 1
        smallest, largest = float(min(finite)), float(max(finite))
        self.min = min(self.min, smallest) if self.count else smallest
        self.max = max(self.max, largest) if self.count else largest
        self.count += len(finite)
        self.sum += sum(finite)
        self.sum_of_squares += sum(v * v for v in finite)

    def quantile(self, q: float) -> float:
        """Return the value below which the share `q` (0 to 1) of the values lies, or 0.0 if the histogram is empty."""
        if self.count == 0:
            return 0.0
        rank = q * (self.count - 1)
        seen = 0
        for index in sorted(self.buckets):
            seen += self.buckets[index]
            if seen > rank:
                return min(max(_middle(index), self.min), self.max)
        return self.max

    def summary(self) -> Summary:
        if self.count == 0:
            return Summary()
        mean = self.sum / self.count
        variance = max(0.0, self.sum_of_squares / self.count - mean * mean)
        return Summary(
            self.count, self.min, self.max, mean, math.sqrt(variance), *(self.quantile(q) for q in QUANTILES)
        )

    def plus(self, other: LogHistogram) -> LogHistogram:
        """Return the sum of both histograms."""
        if not self.count or not other.count:
            return self if self.count else other
        buckets = dict(self.buckets)
        for index, n in other.buckets.items():
            buckets[index] = buckets.get(index, 0) + n
        return LogHistogram(
            self.count + other.count,
            self.sum + other.sum,
            self.sum_of_squares + other.sum_of_squares,
            min(self.min, other.min),
            max(self.max, other.max),
            buckets,
        )

    def minus(self, earlier: LogHistogram) -> LogHistogram:
        """Return the values added since `earlier`. Their min and max come from the buckets, exact within 2 %."""
        if not earlier.count:
            return self
        buckets = {i: n - earlier.buckets.get(i, 0) for i, n in self.buckets.items() if n > earlier.buckets.get(i, 0)}
        if not buckets:
            return LogHistogram()
        lowest, highest = _middle(min(buckets)), _middle(max(buckets))
        return LogHistogram(
            self.count - earlier.count,
            self.sum - earlier.sum,
            self.sum_of_squares - earlier.sum_of_squares,
            max(lowest, self.min),
            min(highest, self.max),
            buckets,
        )

    def to_wire(self) -> Wire:
        return (self.count, self.sum, self.sum_of_squares, self.min, self.max, dict(self.buckets))

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> LogHistogram:
        """Decode the result of `to_wire`. Types may have changed on the way: bucket numbers are strings after JSON."""
        count, total, squares, smallest, largest, buckets = wire
        return cls(count, total, squares, smallest, largest, {int(i): n for i, n in buckets.items()})


def _middle(index: int) -> float:
    if index == 0:
        return 0.0
    magnitude = 2 * _GAMMA ** (abs(index) - _OFFSET) / (_GAMMA + 1)
    return magnitude if index > 0 else -magnitude
