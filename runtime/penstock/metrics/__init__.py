"""Metrics, under PyFlink's names: `MetricGroup`, `Counter`, `Gauge`, `Meter`, `Distribution`.

A task keeps its metrics in a `task.TaskMetrics`; what changed travels with each epoch's ack to the JobManager, whose
`store.MetricStore` holds the values of all jobs, computes rates and percentiles, and gives them to REST and to
Prometheus. The package knows neither Spark nor the engine: the engine feeds it.
"""

from __future__ import annotations

from penstock.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
