"""Metrics with PyFlink's names: `MetricGroup`, `Counter`, `Gauge`, `Meter`, `Distribution`.

A task keeps its metrics in a `task.TaskMetrics`. Each epoch's ack carries the changed values to the JobManager. The JobManager's
`store.MetricStore` holds the values of all jobs, computes rates and percentiles, and serves all of them to REST and Prometheus. The package
depends neither on Spark nor on the engine: the engine fills it.
"""

from __future__ import annotations

from penstock.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
