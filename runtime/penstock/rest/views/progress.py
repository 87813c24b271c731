"""All data of a live view in one response, and a small summary for a client that polls often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.rest import facts, models
from penstock.rest.views.checkpoints import last_completed
from penstock.rest.views.ids import vertex_id
from penstock.rest.views.insight import stacktrace
from penstock.rest.views.io import number, subtask_values
from penstock.rest.views.states import vertex_state

if TYPE_CHECKING:
    from penstock.metrics.store import MetricStore

SHOWN_EVENTS = 50
SHOWN_CHARACTERS = 2000
"""Maximum number of characters of a failure in the summary."""


def job_progress(
    job: facts.Job, checkpoints: models.CheckpointingStatistics, cluster: facts.Cluster, metrics: MetricStore, now: int
) -> models.JobProgress:
    progress = job.progress
    newest = job.failures[-1] if job.failures else None
    return models.JobProgress(
        jid=job.id,
        name=job.name,
        state=job.state,
        start_step=job.start_step,
        end_step=job.end_step,
        now=now,
        start_time=job.start,
        end_time=job.end,
        attempt=job.attempt,
        restarts=job.restarts,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        epoch=progress.epoch,
        epoch_duration=progress.epoch_ms,
        records=progress.records,
        records_per_second=progress.records_per_second,
        watermark=progress.watermark,
        lag=progress.lag,
        checkpoints=_checkpoints(checkpoints),
        vertices=[_vertex(job, vertex, metrics) for vertex in job.vertices],
        events=[models.ProgressEvent(timestamp=e.timestamp, text=e.text) for e in job.events][-SHOWN_EVENTS:],
        rescales=[_rescale(r) for r in job.rescales],
        slots_total=cluster.slots_total,
        slots_available=cluster.slots_available,
        taskmanagers=len(cluster.task_managers),
        last_exception=None if newest is None else f"{newest.name}: {newest.message}",
    )


def _rescale(rescale: facts.Rescale) -> models.ProgressRescale:
    return models.ProgressRescale(
        timestamp=rescale.timestamp,
        old_parallelism=rescale.old_parallelism,
        new_parallelism=rescale.new_parallelism,
        trigger=rescale.trigger,
        duration=rescale.duration_ms,
        outcome=rescale.outcome,
    )


def _checkpoints(checkpoints: models.CheckpointingStatistics) -> models.ProgressCheckpoints:
    last = last_completed(checkpoints)
    return models.ProgressCheckpoints(
        completed=checkpoints.counts.completed,
        failed=checkpoints.counts.failed,
        in_progress=checkpoints.counts.in_progress,
        last=None
        if last is None
        else models.ProgressCheckpoint(
            id=last.id,
            kind=last.checkpoint_type,
            status=last.status,
            trigger_timestamp=last.trigger_timestamp,
            duration=last.end_to_end_duration,
            checkpointed_size=last.checkpointed_size,
            state_size=last.state_size,
            external_path=last.external_path or "",
        ),
    )


def _vertex(job: facts.Job, vertex: facts.Vertex, metrics: MetricStore) -> models.ProgressVertex:
    values = list(subtask_values(metrics, job.id, vertex.id).values())
    marks = [v for found in values if isinstance(v := found.get("currentInputWatermark"), int)]
    return models.ProgressVertex(
        id=vertex_id(vertex.id),
        name=vertex.name,
        parallelism=vertex.parallelism,
        status=vertex_state(s.state for s in vertex.subtasks),
        records_in=int(sum(number(v.get("numRecordsIn")) for v in values)),
        records_in_per_second=sum(number(v.get("numRecordsInPerSecond")) for v in values),
        records_out_per_second=sum(number(v.get("numRecordsOutPerSecond")) for v in values),
        busy=min(1.0, max((number(v.get("busyTimeMsPerSecond")) for v in values), default=0.0) / 1000),
        watermark=min(marks, default=None),
    )


def job_glance(job: facts.Job, checkpoints: models.CheckpointingStatistics) -> models.JobGlance:
    last, failed = checkpoints.latest.completed, checkpoints.latest.failed
    rescaled = [r for r in job.rescales if r.outcome == "COMPLETED"]
    failure = stacktrace(job.failures[-1]) if job.failures and job.state != "RUNNING" else ""
    return models.JobGlance(
        jid=job.id,
        state=job.state,
        parallelism=job.parallelism,
        restarts=job.restarts,
        checkpoints=models.SummaryCheckpoints(
            completed=checkpoints.counts.completed,
            failed=checkpoints.counts.failed,
            restored=checkpoints.counts.restored,
            last=None
            if last is None
            else models.SummaryCheckpoint(
                id=last.id, external_path=last.external_path or "", time=last.latest_ack_timestamp
            ),
            failure=((failed.failure_message if failed is not None else None) or "")[:SHOWN_CHARACTERS],
        ),
        last_rescale=_rescale(rescaled[-1]) if rescaled else None,
        exception=failure[:SHOWN_CHARACTERS],
        end_of_input=job.end_of_input,
    )
