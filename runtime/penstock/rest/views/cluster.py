"""The cluster: overview, TaskManagers, configuration, the process itself."""

from __future__ import annotations

import platform
import sys
import time
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.common.logs.redaction import without_secrets
from penstock.rest import facts, models
from penstock.rest.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FLINK_VERSION = f"2.3-penstock-{__version__}"
"""Version of Flink whose REST API defines the paths and the fields of the responses, and Penstock's version."""
REFRESH_MS = 3000


def cluster_overview(cluster: facts.Cluster, jobs: Iterable[facts.Job]) -> models.ClusterOverview:
    states = [job.state for job in jobs]
    failed, cancelled, finished = (states.count(s) for s in ("FAILED", "CANCELED", "FINISHED"))
    return models.ClusterOverview(
        taskmanagers=len(cluster.task_managers),
        slots_total=cluster.slots_total,
        slots_available=cluster.slots_available,
        jobs_running=len(states) - failed - cancelled - finished,
        jobs_finished=finished,
        jobs_cancelled=cancelled,
        jobs_failed=failed,
        flink_version=FLINK_VERSION,
        flink_commit="",
    )


def dashboard_configuration(*, takes_programs: bool = False) -> models.DashboardConfiguration:
    now = time.localtime()
    return models.DashboardConfiguration(
        refresh_interval=REFRESH_MS,
        timezone_name=now.tm_zone,
        timezone_offset=now.tm_gmtoff * 1000,
        flink_version=FLINK_VERSION,
        flink_revision="",
        features=models.Features(web_submit=takes_programs),
    )


def configuration_entries(configuration: Mapping[str, str]) -> list[models.ConfigurationEntry]:
    """Return all keys in order. Values that may be secrets are hidden."""
    return [models.ConfigurationEntry(key=k, value=v) for k, v in sorted(without_secrets(configuration).items())]


def environment() -> models.EnvironmentInfo:
    """Return the environment of this process. The keys name a JVM, as in Flink."""
    version = f"{platform.python_implementation()} {platform.python_version()} (Penstock {__version__})"
    return models.EnvironmentInfo(jvm=models.JvmInfo(version=version, arch=platform.machine()), classpath=sys.path)


def task_managers(cluster: facts.Cluster) -> models.TaskManagers:
    return models.TaskManagers(taskmanagers=[_task_manager(worker) for worker in cluster.task_managers])


def task_manager_details(cluster: facts.Cluster, tm_id: str) -> models.TaskManagerDetails:
    """Return the details of a TaskManager.

    Raises:
        NotFound: the TaskManager does not exist. The error lists the existing TaskManagers.
    """
    for worker in cluster.task_managers:
        if worker.id == tm_id:
            return models.TaskManagerDetails(
                **_task_manager(worker).model_dump(),
                allocated_slots=[
                    models.AllocatedSlot(job_id=job_id) for job_id, n in worker.slots_by_job.items() for _ in range(n)
                ],
                metrics=models.TaskManagerMetrics(heap_used=worker.memory_used, heap_max=worker.memory),
            )
    known = ", ".join(worker.id for worker in cluster.task_managers)
    raise NotFound(
        f"TaskManager {tm_id} is not registered",
        remedy=f"registered TaskManagers: {known}" if known else "no TaskManager is registered",
    )


def _task_manager(worker: facts.TaskManager) -> models.TaskManager:
    return models.TaskManager(
        id=worker.id,
        path=f"{worker.host}:{worker.port}" if worker.port else worker.host,
        data_port=worker.port,
        time_since_last_heartbeat=worker.last_heartbeat,
        slots_number=worker.slots,
        free_slots=worker.free_slots,
        total_resource=_share(worker, worker.slots),
        free_resource=_share(worker, worker.free_slots),
        hardware=models.Hardware(
            cpu_cores=worker.cpu_cores,
            physical_memory=worker.memory,
            free_memory=worker.memory_free,
            managed_memory=worker.memory_configuration.get("managedMemory", 0),
        ),
        memory_configuration=dict(worker.memory_configuration),
        memory_used=worker.memory_used,
    )


def _share(worker: facts.TaskManager, slots: int) -> models.ResourceProfile:
    """Return the worker's resources for this number of slots."""
    of_all = slots / worker.slots if worker.slots else 0.0
    return models.ResourceProfile(
        cpu_cores=worker.cpu_cores * of_all,
        task_heap_memory=round(worker.heap * of_all / 2**20),
        managed_memory=round(worker.memory_configuration.get("managedMemory", 0) * of_all / 2**20),
    )
