"""Brings the metrics that are facts up to date, just before they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.metrics.reading import JobManagerScope, JobScope
from penstock.rest.routes.clock import now_ms
from penstock.rest.views.facts_as_metrics import cluster_metrics, job_metrics, process_metrics
from penstock.rest.views.states import ENDED

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def refresh_metrics(gateway: ClusterGateway) -> None:
    """Set the facts of the JobManager and of all jobs in the metric store; those of ended jobs stay as they were."""
    jobs = gateway.jobs()
    gateway.metrics.set_facts(JobManagerScope(), cluster_metrics(gateway.cluster(), jobs) | process_metrics())
    for job in jobs:
        if job.state in ENDED:
            continue
        gateway.metrics.set_facts(JobScope(job.id), job_metrics(job, gateway.checkpoints(job.id), now_ms()))
