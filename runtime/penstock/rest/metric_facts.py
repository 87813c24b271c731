"""Updates of the metrics that are derived from facts. The readers of metrics call these functions first."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.common.errors import PenstockError
from penstock.metrics.reading import JobManagerScope, JobScope, SubtaskScope, TaskManagerScope
from penstock.rest.clock import now_ms
from penstock.rest.views.facts_as_metrics import cluster_metrics, job_metrics, process_metrics, task_manager_metrics
from penstock.rest.views.states import ENDED

if TYPE_CHECKING:
    from penstock.rest import facts
    from penstock.rest.gateway import ClusterGateway

logger = logging.getLogger(__name__)


def refresh_metrics(gateway: ClusterGateway) -> None:
    """Set the facts of the JobManager, of all TaskManagers and of jobs in the metric store. The facts of ended jobs are not changed."""
    jobs, cluster = gateway.jobs(), gateway.cluster()
    measured = gateway.measurements()
    of_master = cluster_metrics(cluster, jobs) | process_metrics() | dict(measured.job_manager)
    gateway.metrics.set_facts(JobManagerScope(), of_master)
    for worker in cluster.task_managers:
        of_worker = task_manager_metrics(worker) | dict(measured.task_managers.get(worker.id, {}))
        gateway.metrics.set_facts(TaskManagerScope(worker.id), of_worker)
    _set_gauges(gateway, measured)
    gateway.metrics.keep_task_managers([worker.id for worker in cluster.task_managers])
    for job in jobs:
        if job.state in ENDED:
            continue
        try:
            checkpoints = gateway.checkpoints(job.id)
        except PenstockError as error:  # a program that does not answer must not prevent the metrics of other jobs
            logger.debug("the metrics of job %s are those of the previous reading: %s", job.id, error)
            continue
        gateway.metrics.set_facts(JobScope(job.id), job_metrics(job, checkpoints, now_ms()))


def refresh_exchanges(gateway: ClusterGateway) -> None:
    """Set the sizes of the buffers at the input and the output of subtasks."""
    _set_gauges(gateway, gateway.measurements())


def _set_gauges(gateway: ClusterGateway, measured: facts.Measurements) -> None:
    for (job_id, vertex_id, subtask), values in measured.subtasks.items():
        gateway.metrics.set_gauges(SubtaskScope(job_id, vertex_id, subtask), values)
