"""Metrics by name: lists, chosen values, aggregates over subtasks, jobs or TaskManagers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.rest import models
from penstock.rest.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.metrics.metricbase import Scalar

AGGREGATIONS = ("min", "max", "avg", "sum", "skew")


def metric_list(values: Mapping[str, Scalar], wanted: str | None) -> list[models.Metric]:
    """Return the names of all metrics. If `wanted` (`a,b,c`) is given, return the values of the wanted metrics that exist.

    >>> metric_list({"a": 1, "b": 2.5}, "b,c")
    [Metric(id='b', value='2.5')]
    """
    if wanted is None:
        return [models.Metric(id=name) for name in sorted(values)]
    names = [name for name in wanted.split(",") if values.get(name) is not None]
    return [models.Metric(id=name, value=_text(values[name])) for name in names]


def aggregates(
    sources: Sequence[Mapping[str, Scalar]], wanted: str | None, modes: str | None
) -> list[models.AggregatedMetric]:
    """Return min, max, avg, sum and skew (percent) of each metric over the sources in which the metric is a number.

    Raises:
        BadRequest: `modes` contains another name.
    """
    chosen = [mode.strip().lower() for mode in modes.split(",")] if modes else list(AGGREGATIONS)
    unknown = [mode for mode in chosen if mode not in AGGREGATIONS]
    if unknown:
        raise BadRequest(
            f"agg={modes}: the aggregation '{unknown[0]}' does not exist", remedy="use " + ", ".join(AGGREGATIONS)
        )
    names = wanted.split(",") if wanted is not None else sorted({name for source in sources for name in source})
    if wanted is None:
        return [models.AggregatedMetric(id=name) for name in names]
    result = []
    for name in names:
        numbers = [float(v) for source in sources if isinstance(v := source.get(name), (int, float))]
        if numbers:
            result.append(models.AggregatedMetric(id=name, **{m: _aggregate(m, numbers) for m in chosen}))
    return result


def parse_subtasks(text: str | None) -> set[int] | None:
    """Return `1,3,5-9` as a set, or None for all subtasks.

    >>> sorted(parse_subtasks("1,3,5-7"))
    [1, 3, 5, 6, 7]

    Raises:
        BadRequest: the text does not have that form.
    """
    if not text:
        return None
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        try:
            chosen.update(range(int(first), int(last or first) + 1))
        except ValueError:
            raise BadRequest(f"subtasks={text}: '{part}' is not a number or range", remedy="write 1,3,5-9") from None
    return chosen


def _aggregate(mode: str, numbers: Sequence[float]) -> float:
    total = sum(numbers)
    mean = total / len(numbers)
    match mode:
        case "min":
            return min(numbers)
        case "max":
            return max(numbers)
        case "sum":
            return total
        case "avg":
            return mean
        case _:
            return _skew(numbers, mean)


def _skew(numbers: Iterable[float], mean: float) -> float:
    """Return the mean distance from the mean in percent of the mean, at most 100. 0 means that all numbers are equal (Flink's definition)."""
    values = list(numbers)
    if mean == 0:
        return 0.0
    return min(100.0, 100 * sum(abs(v - mean) for v in values) / len(values) / abs(mean))


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
