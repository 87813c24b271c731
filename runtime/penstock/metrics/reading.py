"""The reading of a metric at a moment, its scope, and its name in REST."""

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
"""Kind of a reading. A counter only grows within an attempt. A user's `Counter` can go down, so it reads as a gauge."""


class JobManagerScope(NamedTuple):
    """The scope of the JobManager's metrics."""


class TaskManagerScope(NamedTuple):
    """The scope of a TaskManager's metrics."""

    tm_id: str


class JobScope(NamedTuple):
    """The scope of a job's metrics."""

    job_id: str


class SubtaskScope(NamedTuple):
    """The scope of the metrics of one subtask of one vertex, and of its operators."""

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
    """The values of a distribution in the last minute, and its count and sum since the start of the attempt."""

    key: MetricKey
    recent: Summary
    count: int
    sum: float


AnyReading = Reading | DistributionReading


def values_of(readings: Iterable[AnyReading], operator_names: Mapping[str, str]) -> dict[str, Scalar]:
    """Return the readings by their REST names: `<operator name>.<groups>.<name>`. The task's own metrics have no operator.

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
    """Return the name of a metric within its scope. Blanks, dots, colons and commas in its parts become `_`, as in Flink."""
    parts = [operator_names.get(key.operator, key.operator)] if key.operator else []
    for name, value in key.groups:
        parts += [name] if value is None else [name, value]
    return ".".join(re.sub(r"[ .:,]", "_", part) for part in [*parts, key.name])
