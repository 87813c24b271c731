"""Records and bytes of a vertex or a subtask, from the metric store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.rest import models

if TYPE_CHECKING:
    from penstock.metrics.metricbase import Scalar
    from penstock.metrics.store import MetricStore


def io_metrics(metrics: MetricStore, job_id: str, vertex_id: str, subtask: int | None = None) -> models.IoMetrics:
    """Return the counters of one subtask, or of all subtasks. `complete` is false until all subtasks have reported, as in Flink."""
    scopes = metrics.subtasks(job_id, vertex_id)
    wanted = [scope for scope in scopes if subtask in (None, scope.subtask)]
    values = [metrics.values(scope) for scope in wanted]

    def total(name: str) -> float:
        return sum(number(found.get(name)) for found in values)

    is_complete = bool(values)
    return models.IoMetrics(
        read_bytes=int(total("numBytesIn")),
        read_bytes_complete=is_complete,
        write_bytes=int(total("numBytesOut")),
        write_bytes_complete=is_complete,
        read_records=int(total("numRecordsIn")),
        read_records_complete=is_complete,
        write_records=int(total("numRecordsOut")),
        write_records_complete=is_complete,
        accumulated_busy_time=total("busyTimeMs"),
        accumulated_backpressured_time=int(total("backPressuredTimeMs")),
    )


def subtask_values(metrics: MetricStore, job_id: str, vertex_id: str) -> dict[int, dict[str, Scalar]]:
    """Return all values of a vertex, by subtask."""
    return {scope.subtask: metrics.values(scope) for scope in metrics.subtasks(job_id, vertex_id)}


def number(value: Scalar) -> float:
    """Return the value as a number, or 0 if it is not a number."""
    return value if isinstance(value, (int, float)) else 0.0
