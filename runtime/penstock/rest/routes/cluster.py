"""The cluster, the JobManager, the TaskManagers, and the disposal of savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, BackgroundTasks

from penstock.metrics.reading import JobManagerScope, TaskManagerScope
from penstock.rest import models
from penstock.rest.errors import NotFound
from penstock.rest.metric_facts import refresh_metrics
from penstock.rest.views import cluster, metrics
from penstock.rest.views.operations import operation_result

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def cluster_routes(gateway: ClusterGateway, *, takes_programs: bool = False) -> APIRouter:
    router = APIRouter(tags=["cluster"])

    @router.get("/overview", response_model=models.ClusterOverview)
    def overview() -> models.ClusterOverview:
        return cluster.cluster_overview(gateway.cluster(), gateway.jobs())

    @router.get("/config", response_model=models.DashboardConfiguration)
    def configuration() -> models.DashboardConfiguration:
        return cluster.dashboard_configuration(takes_programs=takes_programs)

    @router.delete("/cluster")
    def shut_down(background: BackgroundTasks) -> dict[str, str]:
        """Shut down the cluster after this response."""
        background.add_task(gateway.shut_down)
        return {}

    return router


def job_manager_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobmanager", tags=["jobmanager"])

    @router.get("/config", response_model=list[models.ConfigurationEntry])
    def configuration() -> list[models.ConfigurationEntry]:
        """Return the whole configuration. Secrets are hidden."""
        return cluster.configuration_entries(gateway.configuration())

    @router.get("/environment", response_model=models.EnvironmentInfo)
    def environment() -> models.EnvironmentInfo:
        return cluster.environment()

    @router.get("/metrics", response_model=list[models.Metric], response_model_exclude_none=True)
    def metric_values(get: str | None = None) -> list[models.Metric]:
        refresh_metrics(gateway)
        return metrics.metric_list(gateway.metrics.values(JobManagerScope()), get)

    return router


def task_manager_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/taskmanagers", tags=["taskmanagers"])

    @router.get("", response_model=models.TaskManagers)
    def task_managers() -> models.TaskManagers:
        return cluster.task_managers(gateway.cluster())

    @router.get("/metrics", response_model=list[models.AggregatedMetric], response_model_exclude_none=True)
    def aggregated(
        get: str | None = None, agg: str | None = None, taskmanagers: str | None = None
    ) -> list[models.AggregatedMetric]:
        refresh_metrics(gateway)
        ids = taskmanagers.split(",") if taskmanagers else [w.id for w in gateway.cluster().task_managers]
        return metrics.aggregates([gateway.metrics.values(TaskManagerScope(tm_id)) for tm_id in ids], get, agg)

    @router.get("/{tm_id}", response_model=models.TaskManagerDetails)
    def task_manager(tm_id: str) -> models.TaskManagerDetails:
        return cluster.task_manager_details(gateway.cluster(), tm_id)

    @router.get("/{tm_id}/metrics", response_model=list[models.Metric], response_model_exclude_none=True)
    def metric_values(tm_id: str, get: str | None = None) -> list[models.Metric]:
        refresh_metrics(gateway)
        cluster.task_manager_details(gateway.cluster(), tm_id)
        return metrics.metric_list(gateway.metrics.values(TaskManagerScope(tm_id)), get)

    return router


def disposal_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/savepoint-disposal", tags=["savepoints"])

    @router.post("", response_model=models.TriggerResponse)
    def dispose(request: models.DisposalRequest) -> models.TriggerResponse:
        """Start to delete a savepoint's files."""
        request_id = gateway.dispose_savepoint(request.savepoint_path, trigger_id=request.trigger_id)
        return models.TriggerResponse(request_id=request_id)

    @router.get("/{request_id}", response_model=models.OperationResult, response_model_exclude_none=True)
    def outcome(request_id: str) -> models.OperationResult:
        operation = gateway.operation(request_id)
        if operation.kind != "dispose":
            raise NotFound(f"request {request_id} is a {operation.kind}, not a disposal")
        return operation_result(operation)

    return router
