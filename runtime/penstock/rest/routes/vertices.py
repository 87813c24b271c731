"""Vertices of a job and their subtasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from penstock.rest import models
from penstock.rest.clock import now_ms
from penstock.rest.metric_facts import refresh_exchanges
from penstock.rest.views import insight, metrics, vertices
from penstock.rest.views.ids import find_attempt, find_subtask, find_vertex
from penstock.rest.views.io import subtask_values

if TYPE_CHECKING:
    from penstock.metrics.metricbase import Scalar
    from penstock.rest import facts
    from penstock.rest.gateway import ClusterGateway


def vertex_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/vertices/{vertex_id}", tags=["vertices"])
    _add_metrics(router, gateway)
    _add_vertex(router, gateway)
    return router


def _find(gateway: ClusterGateway, job_id: str, vertex_id: str) -> tuple[facts.Job, facts.Vertex]:
    job = gateway.job(job_id)
    return job, find_vertex(job, vertex_id)


def _add_metrics(router: APIRouter, gateway: ClusterGateway) -> None:
    """Add the paths of all subtasks. These paths are added first, because `metrics` and `accumulators` are not subtask indexes."""

    def _values(job_id: str, vertex_id: str) -> dict[int, dict[str, Scalar]]:
        job, vertex = _find(gateway, job_id, vertex_id)
        refresh_exchanges(gateway)
        return subtask_values(gateway.metrics, job.id, vertex.id)

    @router.get("/metrics", response_model=list[models.Metric], response_model_exclude_none=True)
    def metric_values(job_id: str, vertex_id: str, get: str | None = None) -> list[models.Metric]:
        """Return the metrics of all subtasks, as `<subtask>.<name>`."""
        by_subtask = _values(job_id, vertex_id)
        flat = {f"{index}.{name}": value for index, values in by_subtask.items() for name, value in values.items()}
        return metrics.metric_list(flat, get)

    @router.get("/subtasks/metrics", response_model=list[models.AggregatedMetric], response_model_exclude_none=True)
    def aggregated(
        job_id: str, vertex_id: str, get: str | None = None, agg: str | None = None, subtasks: str | None = None
    ) -> list[models.AggregatedMetric]:
        wanted = metrics.parse_subtasks(subtasks)
        by_subtask = _values(job_id, vertex_id)
        chosen = [values for index, values in by_subtask.items() if wanted is None or index in wanted]
        return metrics.aggregates(chosen, get, agg)

    @router.get("/subtasks/accumulators", response_model=models.VertexAccumulators, response_model_exclude_none=True)
    def accumulators(job_id: str, vertex_id: str) -> models.VertexAccumulators:
        """Return the accumulators of each subtask."""
        return insight.vertex_accumulators(_find(gateway, job_id, vertex_id)[1])

    @router.get("/subtasks/{index}/metrics", response_model=list[models.Metric], response_model_exclude_none=True)
    def subtask_metrics(job_id: str, vertex_id: str, index: int, get: str | None = None) -> list[models.Metric]:
        _, vertex = _find(gateway, job_id, vertex_id)
        find_subtask(vertex, index)
        return metrics.metric_list(_values(job_id, vertex_id).get(index, {}), get)


def _add_vertex(router: APIRouter, gateway: ClusterGateway) -> None:
    @router.get("", response_model=models.VertexDetails)
    def details(job_id: str, vertex_id: str) -> models.VertexDetails:
        job, vertex = _find(gateway, job_id, vertex_id)
        return vertices.vertex_details(job, vertex, gateway.metrics, now_ms())

    @router.get("/backpressure", response_model=models.BackPressure)
    def back_pressure(job_id: str, vertex_id: str) -> models.BackPressure:
        job, vertex = _find(gateway, job_id, vertex_id)
        return vertices.back_pressure(job, vertex, gateway.metrics, now_ms())

    @router.get("/watermarks", response_model=list[models.Metric])
    def watermarks(job_id: str, vertex_id: str) -> list[models.Metric]:
        job, vertex = _find(gateway, job_id, vertex_id)
        return vertices.watermarks(job, vertex, gateway.metrics)

    @router.get("/taskmanagers", response_model=models.VertexTaskManagers)
    def task_managers(job_id: str, vertex_id: str) -> models.VertexTaskManagers:
        job, vertex = _find(gateway, job_id, vertex_id)
        return vertices.vertex_task_managers(job, vertex, gateway.metrics, now_ms())

    @router.get("/subtasktimes", response_model=models.SubtaskTimes)
    def subtask_times(job_id: str, vertex_id: str) -> models.SubtaskTimes:
        _, vertex = _find(gateway, job_id, vertex_id)
        return vertices.subtask_times(vertex, now_ms())

    @router.get("/subtasks/{index}", response_model=models.SubtaskAttempt)
    def subtask(job_id: str, vertex_id: str, index: int) -> models.SubtaskAttempt:
        job, vertex = _find(gateway, job_id, vertex_id)
        return vertices.subtask_attempt(job, vertex, find_subtask(vertex, index), gateway.metrics, now_ms())

    @router.get("/subtasks/{index}/attempts/{attempt}", response_model=models.SubtaskAttempt)
    def of_attempt(job_id: str, vertex_id: str, index: int, attempt: int) -> models.SubtaskAttempt:
        """Return an attempt. Only the latest attempt is known."""
        job, vertex = _find(gateway, job_id, vertex_id)
        found = find_attempt(find_subtask(vertex, index), attempt)
        return vertices.subtask_attempt(job, vertex, found, gateway.metrics, now_ms())

    @router.get(
        "/subtasks/{index}/attempts/{attempt}/accumulators",
        response_model=models.SubtaskAccumulators,
        response_model_exclude_none=True,
    )
    def accumulators(job_id: str, vertex_id: str, index: int, attempt: int) -> models.SubtaskAccumulators:
        _, vertex = _find(gateway, job_id, vertex_id)
        return insight.subtask_accumulators(vertex, find_attempt(find_subtask(vertex, index), attempt))
