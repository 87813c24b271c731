"""Brings the metrics that are facts up to date, just before they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.metrics.reading import JobManagerScope, JobScope, TaskManagerScope
from penstock.rest.clock import now_ms
from penstock.rest.views.facts_as_metrics import cluster_metrics, job_metrics, process_metrics, task_manager_metrics
from penstock.rest.views.states import ENDED

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def refresh_metrics(gateway: ClusterGateway) -> None:
    """Set the facts of the JobManager, of all TaskManagers and jobs in the metric store; those of ended jobs stay as they were."""
    jobs, cluster = gateway.jobs(), gateway.cluster()
    gateway.metrics.set_facts(JobManagerScope(), cluster_metrics(cluster, jobs) | process_metrics())
    for worker in cluster.task_managers:
        gateway.metrics.set_facts(TaskManagerScope(worker.id), task_manager_metrics(worker))
    gateway.metrics.keep_task_managers([worker.id for worker in cluster.task_managers])
    for job in jobs:
        if job.state in ENDED:
            continue
        gateway.metrics.set_facts(JobScope(job.id), job_metrics(job, gateway.checkpoints(job.id), now_ms()))
