"""One vertex: its subtasks, their times, workers, back pressure and watermarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.rest import facts, models
from penstock.rest.views.ids import duration, first_start, last_end, vertex_id
from penstock.rest.views.io import io_metrics, number, subtask_values
from penstock.rest.views.states import state_counts, subtask_state, vertex_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.metrics.store import MetricStore

LONG_MIN = -(2**63)
"""Flink's value for a watermark that has not come."""

LOW_BACK_PRESSURE = 0.1
HIGH_BACK_PRESSURE = 0.5


def vertex_details(job: facts.Job, vertex: facts.Vertex, metrics: MetricStore, now: int) -> models.VertexDetails:
    return models.VertexDetails(
        id=vertex_id(vertex.id),
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        now=now,
        subtasks=[subtask_attempt(job, vertex, subtask, metrics, now) for subtask in vertex.subtasks],
    )


def subtask_attempt(
    job: facts.Job, vertex: facts.Vertex, subtask: facts.Subtask, metrics: MetricStore, now: int
) -> models.SubtaskAttempt:
    return models.SubtaskAttempt(
        subtask=subtask.index,
        status=subtask_state(subtask.state),
        attempt=subtask.attempt,
        host=subtask.host,
        endpoint=subtask.host,
        start_time=subtask.start,
        end_time=subtask.end,
        duration=duration(subtask.start, subtask.end, now),
        metrics=io_metrics(metrics, job.id, vertex.id, subtask.index),
        taskmanager_id=subtask.tm_id,
        start_time_again=subtask.start,
    )


def subtask_times(vertex: facts.Vertex, now: int) -> models.SubtaskTimes:
    return models.SubtaskTimes(
        id=vertex_id(vertex.id),
        name=vertex.name,
        now=now,
        subtasks=[
            models.SubtaskTime(
                subtask=subtask.index,
                host=subtask.host,
                endpoint=subtask.host,
                duration=duration(subtask.start, subtask.end, now),
                timestamps={subtask_state(subtask.state): subtask.start},
            )
            for subtask in vertex.subtasks
        ],
    )


def vertex_task_managers(
    job: facts.Job, vertex: facts.Vertex, metrics: MetricStore, now: int
) -> models.VertexTaskManagers:
    by_worker: dict[str, list[facts.Subtask]] = {}
    for subtask in vertex.subtasks:
        by_worker.setdefault(subtask.tm_id, []).append(subtask)
    return models.VertexTaskManagers(
        id=vertex_id(vertex.id),
        name=vertex.name,
        now=now,
        taskmanagers=[_on_worker(job, vertex, tm_id, subtasks, metrics, now) for tm_id, subtasks in by_worker.items()],
    )


def _on_worker(
    job: facts.Job,
    vertex: facts.Vertex,
    tm_id: str,
    subtasks: Sequence[facts.Subtask],
    metrics: MetricStore,
    now: int,
) -> models.VertexTaskManager:
    start, end = first_start(subtasks), last_end(subtasks)
    parts = [io_metrics(metrics, job.id, vertex.id, subtask.index) for subtask in subtasks]
    return models.VertexTaskManager(
        host=subtasks[0].host,
        endpoint=subtasks[0].host,
        status=vertex_state(s.state for s in subtasks),
        start_time=start,
        end_time=end,
        duration=duration(start, end, now),
        metrics=models.IoMetrics(
            read_bytes=sum(p.read_bytes for p in parts),
            write_bytes=sum(p.write_bytes for p in parts),
            read_records=sum(p.read_records for p in parts),
            write_records=sum(p.write_records for p in parts),
            accumulated_busy_time=sum(p.accumulated_busy_time for p in parts),
        ),
        status_counts=state_counts(s.state for s in subtasks),
        taskmanager_id=tm_id,
    )


def back_pressure(job: facts.Job, vertex: facts.Vertex, metrics: MetricStore, now: int) -> models.BackPressure:
    """Return the back pressure, from the share of the last seconds in which a subtask waited for subtasks downstream."""
    attempts = {subtask.index: subtask.attempt for subtask in vertex.subtasks}
    subtasks = []
    for index, values in subtask_values(metrics, job.id, vertex.id).items():
        waiting = _share(number(values.get("backPressuredTimeMsPerSecond")))
        busy = _share(number(values.get("busyTimeMsPerSecond")))
        subtasks.append(
            models.SubtaskBackPressure(
                subtask=index,
                attempt_number=attempts.get(index, 0),
                backpressure_level=back_pressure_level(waiting),
                ratio=waiting,
                idle_ratio=max(0.0, 1 - waiting - busy),
                busy_ratio=busy,
            )
        )
    return models.BackPressure(
        backpressure_level=back_pressure_level(max((s.ratio for s in subtasks), default=0.0)),
        end_timestamp=now,
        subtasks=subtasks,
    )


def watermarks(job: facts.Job, vertex: facts.Vertex, metrics: MetricStore) -> list[models.Metric]:
    """Return `<subtask>.currentInputWatermark` in ms. Before the first watermark, the value is the smallest long."""
    result = []
    for index, values in subtask_values(metrics, job.id, vertex.id).items():
        watermark = values.get("currentInputWatermark")
        text = str(LONG_MIN if watermark is None else watermark)
        result.append(models.Metric(id=f"{index}.currentInputWatermark", value=text))
    return result


def _share(ms_per_second: float) -> float:
    return min(1.0, max(0.0, ms_per_second / 1000))


def back_pressure_level(ratio: float) -> str:
    """Return `ok`, `low` or `high` for the share of time (0 to 1) in which a subtask waits for subtasks downstream."""
    if ratio <= LOW_BACK_PRESSURE:
        return "ok"
    return "low" if ratio <= HIGH_BACK_PRESSURE else "high"
