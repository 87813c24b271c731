"""What a metric reads at a moment, what it belongs to, and under which names REST shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.metrics.histogram import Summary
    from penstock.metrics.key import MetricKey
    from penstock.metrics.metricbase import Scalar

Kind = Literal["counter", "gauge"]
"""A counter only grows within an attempt. A user's `Counter` can go down, so it reads as a gauge."""


class JobManagerScope(NamedTuple):
    """Metrics of the JobManager itself."""


class TaskManagerScope(NamedTuple):
    """Metrics of a TaskManager."""

    tm_id: str


class JobScope(NamedTuple):
    """Metrics of a job as a whole."""

    job_id: str


class SubtaskScope(NamedTuple):
    """Metrics of one subtask of one vertex, with those of its operators."""

    job_id: str
    vertex_id: str
    subtask: int


Scope = JobManagerScope | TaskManagerScope | JobScope | SubtaskScope


@dataclass(frozen=True)
class Reading:
    """One value of one metric."""

    key: MetricKey
    value: Scalar
    kind: Kind = "gauge"


@dataclass(frozen=True)
class DistributionReading:
    """A distribution: its last minute, with count and sum since the start of the attempt."""

    key: MetricKey
    recent: Summary
    count: int
    sum: float


AnyReading = Reading | DistributionReading


def values_of(readings: Iterable[AnyReading], operator_names: Mapping[str, str]) -> dict[str, Scalar]:
    """Readings by the names REST uses: `<operator name>.<groups>.<name>`, without operator for the task's own.

    >>> from penstock.metrics.key import MetricKey
    >>> values_of([Reading(MetricKey("f-1", (("MyMetrics", None),), "hits"), 3)], {"f-1": "Source: x"})
    {'Source__x.MyMetrics.hits': 3}
    """
    values: dict[str, Scalar] = {}
    for reading in readings:
        name = rest_name(reading.key, operator_names)
        if isinstance(reading, Reading):
            values[name] = reading.value
            continue
        recent = reading.recent
        values[f"{name}_count"] = reading.count
        values[f"{name}_min"] = recent.min
        values[f"{name}_max"] = recent.max
        values[f"{name}_mean"] = recent.mean
        values[f"{name}_stddev"] = recent.stddev
        values[f"{name}_median"] = recent.p50
        values[f"{name}_p75"] = recent.p75
        values[f"{name}_p95"] = recent.p95
        values[f"{name}_p98"] = recent.p98
        values[f"{name}_p99"] = recent.p99
        values[f"{name}_p999"] = recent.p999
    return values


def rest_name(key: MetricKey, operator_names: Mapping[str, str]) -> str:
    """The name of a metric within its scope. Blanks, dots, colons and commas of the parts become `_`, as in Flink."""
    parts = [operator_names.get(key.operator, key.operator)] if key.operator else []
    for name, value in key.groups:
        parts += [name] if value is None else [name, value]
    return ".".join(re.sub(r"[ .:,]", "_", part) for part in [*parts, key.name])
