"""Facts of the cluster and its jobs as metrics under Flink's names, for monitoring and alerts."""

from __future__ import annotations

import gc
import resource
import threading
from typing import TYPE_CHECKING

from penstock.checkpoint.coordinator.triggers import TriggerState
from penstock.rest.views.checkpoints import last_completed
from penstock.rest.views.ids import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.metrics.metricbase import Scalar
    from penstock.rest import facts, models


def cluster_metrics(cluster: facts.Cluster, jobs: Sequence[facts.Job]) -> dict[str, Scalar]:
    """Return the metrics of the JobManager: slots, workers, jobs."""
    return {
        "taskSlotsTotal": cluster.slots_total,
        "taskSlotsAvailable": cluster.slots_available,
        "numRegisteredTaskManagers": len(cluster.task_managers),
        "numRunningJobs": sum(job.state == "RUNNING" for job in jobs),
    }


def task_manager_metrics(worker: facts.TaskManager) -> dict[str, Scalar]:
    """Return the metrics of a TaskManager: resident memory (bytes) and CPU time (s) of the Python processes in its slots."""
    return {"Status.Python.Memory.RSS": worker.memory_used, "Status.Python.CPU.Time": worker.cpu_seconds}


def process_metrics() -> dict[str, Scalar]:
    """Return the metrics of this process: CPU time (s), peak memory (bytes), threads, collections of the oldest generation."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "Status.Process.CPU.Time": usage.ru_utime + usage.ru_stime,
        "Status.Process.Memory.Max": usage.ru_maxrss * 1024,
        "Status.Process.Threads.Count": threading.active_count(),
        "Status.Process.GarbageCollector.Count": gc.get_stats()[-1]["collections"],
    }


def job_metrics(job: facts.Job, checkpoints: models.CheckpointingStatistics, now: int) -> dict[str, Scalar]:
    """Return the metrics of a job: up time and down time, restarts, checkpoints, progress. Times in ms, sizes in bytes."""
    since = job.timestamps.get(job.state, job.start)
    is_running = job.state == "RUNNING"
    last = last_completed(checkpoints)
    counts, trigger = checkpoints.counts, checkpoints.trigger
    waits = is_running and trigger is not None and trigger.state == TriggerState.WAITING_FOR_COMMITS.name
    return {
        "uptime": duration(since, job.end, now) if is_running else 0,
        "downtime": duration(since, job.end, now) if job.state in ("RESTARTING", "INITIALIZING", "CREATED") else 0,
        "numRestarts": job.restarts,
        "numRescales": job.rescale_count,
        "parallelism": job.parallelism,
        "isRunning": is_running,
        "recordsPerSecond": job.progress.records_per_second,
        "currentWatermark": job.progress.watermark,
        "lag": job.progress.lag,
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "numberOfUncommittedCheckpoints": 0 if trigger is None else trigger.uncommitted_checkpoints,
        "numberOfPendingCommits": 0 if trigger is None else trigger.pending_commits,
        "checkpointWaitForCommits": max(0, now - trigger.since) if trigger is not None and waits else 0,
        "lastCompletedCheckpointId": None if last is None else last.id,
        "lastCheckpointDuration": None if last is None else last.end_to_end_duration,
        "lastCheckpointSize": None if last is None else last.checkpointed_size,
        "lastCheckpointFullSize": None if last is None else last.state_size,
        "lastCheckpointExternalPath": None if last is None else last.external_path,
        "lastCheckpointAge": None if last is None else max(0, now - last.trigger_timestamp),
    }
