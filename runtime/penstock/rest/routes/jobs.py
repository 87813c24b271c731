"""Information about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from penstock.metrics.reading import JobScope
from penstock.rest import models
from penstock.rest.clock import now_ms
from penstock.rest.errors import Gone
from penstock.rest.metric_facts import refresh_metrics
from penstock.rest.views import insight, jobs, metrics
from penstock.rest.views.progress import job_glance, job_progress

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def job_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs", tags=["jobs"])
    _add_all_jobs(router, gateway)
    _add_one_job(router, gateway)
    _add_results(router, gateway)
    return router


def _add_all_jobs(router: APIRouter, gateway: ClusterGateway) -> None:
    """Add the paths of all jobs. They come first, because `overview` and `metrics` are not job ids."""

    @router.get("", response_model=models.JobIds)
    def ids() -> models.JobIds:
        return jobs.job_ids(gateway.jobs())

    @router.get("/overview", response_model=models.JobsOverview)
    def overview() -> models.JobsOverview:
        return jobs.jobs_overview(gateway.jobs(), now_ms())

    @router.get("/metrics", response_model=list[models.AggregatedMetric], response_model_exclude_none=True)
    def aggregated(
        get: str | None = None, agg: str | None = None, jobs: str | None = None
    ) -> list[models.AggregatedMetric]:
        refresh_metrics(gateway)
        chosen = jobs.split(",") if jobs else [job.id for job in gateway.jobs()]
        return metrics.aggregates([gateway.metrics.values(JobScope(job_id)) for job_id in chosen], get, agg)


def _add_one_job(router: APIRouter, gateway: ClusterGateway) -> None:
    @router.get("/{job_id}", response_model=models.JobDetails)
    def details(job_id: str) -> models.JobDetails:
        return jobs.job_details(gateway.job(job_id), gateway.metrics, now_ms())

    @router.patch("/{job_id}", status_code=202)
    def cancel(job_id: str, mode: str = "cancel") -> dict[str, str]:
        """Start to cancel the job. The only mode is `cancel`."""
        if mode.lower() != "cancel":
            raise Gone(
                f"mode={mode} is not supported",
                remedy=f"use mode=cancel, or POST /jobs/{job_id}/stop to stop with a savepoint",
            )
        gateway.cancel(job_id)
        return {}

    @router.get("/{job_id}/status", response_model=models.JobStatus)
    def status(job_id: str) -> models.JobStatus:
        return models.JobStatus(status=gateway.job(job_id).state)

    @router.get("/{job_id}/config", response_model=models.JobConfig)
    def configuration(job_id: str) -> models.JobConfig:
        return jobs.job_config(gateway.job(job_id))

    @router.get("/{job_id}/plan", response_model=models.JobPlan)
    def plan(job_id: str) -> models.JobPlan:
        return models.JobPlan(plan=jobs.plan(gateway.job(job_id)))


def _add_results(router: APIRouter, gateway: ClusterGateway) -> None:
    """Add the paths for the progress and the result of a job."""

    @router.get("/{job_id}/exceptions", response_model=models.JobExceptions)
    def exceptions(
        job_id: str,
        limit: Annotated[int, Query(alias="maxExceptions", ge=0)] = insight.DEFAULT_EXCEPTIONS,
    ) -> models.JobExceptions:
        return insight.job_exceptions(gateway.job(job_id), limit)

    @router.get("/{job_id}/accumulators", response_model=models.JobAccumulators)
    def accumulators(job_id: str) -> models.JobAccumulators:
        return insight.job_accumulators(gateway.job(job_id))

    @router.get("/{job_id}/execution-result", response_model=models.ExecutionResult, response_model_exclude_none=True)
    def execution_result(job_id: str) -> models.ExecutionResult:
        return insight.execution_result(gateway.job(job_id), now_ms())

    @router.get("/{job_id}/metrics", response_model=list[models.Metric], response_model_exclude_none=True)
    def metric_values(job_id: str, get: str | None = None) -> list[models.Metric]:
        refresh_metrics(gateway)
        return metrics.metric_list(gateway.metrics.values(JobScope(gateway.job(job_id).id)), get)

    @router.get("/{job_id}/progress", response_model=models.JobProgress)
    def progress(job_id: str) -> models.JobProgress:
        """Return all data of a live view in one response. Flink does not have this path."""
        job = gateway.job(job_id)
        return job_progress(job, gateway.checkpoints(job_id), gateway.cluster(), gateway.metrics, now_ms())

    @router.get("/{job_id}/summary", response_model=models.JobGlance)
    def summary(job_id: str) -> models.JobGlance:
        """Return state, restarts and newest checkpoint in a small response. Flink does not have this path."""
        return job_glance(gateway.job(job_id), gateway.checkpoints(job_id))
