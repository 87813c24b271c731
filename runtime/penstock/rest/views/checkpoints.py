"""Checkpoint statistics of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.metrics.histogram import summarise
from penstock.rest import facts, models
from penstock.rest.errors import NotFound
from penstock.rest.views.ids import vertex_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def checkpointing_statistics(checkpoints: facts.Checkpoints, now: int) -> models.CheckpointingStatistics:
    newest_first = sorted(checkpoints.history, key=lambda c: c.id, reverse=True)
    completed = [c for c in newest_first if c.status == "COMPLETED"]
    in_progress = sum(c.status == "IN_PROGRESS" for c in newest_first)
    return models.CheckpointingStatistics(
        counts=models.CheckpointCounts(
            restored=checkpoints.restored_count,
            total=checkpoints.completed + checkpoints.failed + in_progress,
            in_progress=in_progress,
            completed=checkpoints.completed,
            failed=checkpoints.failed,
        ),
        summary=models.CheckpointSummary(
            checkpointed_size=_stats(c.uploaded_bytes for c in completed),
            state_size=_stats(c.state_bytes for c in completed),
            end_to_end_duration=_stats(c.duration_ms for c in completed),
        ),
        latest=models.LatestCheckpoints(
            completed=_first(completed, now, savepoint=False),
            savepoint=_first(completed, now, savepoint=True),
            failed=next((checkpoint_statistics(c, now) for c in newest_first if c.status == "FAILED"), None),
            restored=_restored(checkpoints.restored),
        ),
        history=[checkpoint_statistics(c, now) for c in newest_first],
    )


def checkpoint_statistics(
    checkpoint: facts.Checkpoint, now: int, *, with_tasks: bool = False
) -> models.CheckpointStatistics:
    is_savepoint = checkpoint.kind != "CHECKPOINT"
    is_completed = checkpoint.status == "COMPLETED"
    is_failed = checkpoint.status == "FAILED"
    return models.CheckpointStatistics(
        class_name=checkpoint.status.lower(),
        id=checkpoint.id,
        status=checkpoint.status,
        is_savepoint=is_savepoint,
        savepoint_format="CANONICAL" if is_savepoint else None,
        trigger_timestamp=checkpoint.triggered,
        latest_ack_timestamp=checkpoint.acknowledged,
        checkpointed_size=checkpoint.uploaded_bytes,
        state_size=checkpoint.state_bytes,
        end_to_end_duration=_age(checkpoint, now),
        num_subtasks=checkpoint.subtasks,
        num_acknowledged_subtasks=checkpoint.subtasks_acknowledged,
        checkpoint_type=checkpoint.kind,
        tasks={vertex_id(v): _task(checkpoint, parts) for v, parts in checkpoint.by_vertex.items()}
        if with_tasks
        else {},
        external_path=checkpoint.path if is_completed else None,
        discarded=checkpoint.discarded if is_completed else None,
        failure_timestamp=checkpoint.failed if is_failed else None,
        failure_message=checkpoint.failure if is_failed else None,
    )


def checkpoint_config(settings: facts.CheckpointSettings) -> models.CheckpointConfig:
    return models.CheckpointConfig(
        interval=settings.interval_ms,
        timeout=settings.timeout_ms,
        min_pause=settings.min_pause_ms,
        max_concurrent=settings.max_concurrent,
        externalization=models.Externalization(delete_on_cancellation=settings.delete_on_cancellation),
        state_backend=settings.state_backend,
        checkpoint_storage=settings.storage,
        tolerable_failed_checkpoints=settings.tolerable_failures,
        retained_checkpoints=settings.retained,
    )


def find_checkpoint(checkpoints: facts.Checkpoints, checkpoint_id: int) -> facts.Checkpoint:
    """
    Raises:
        NotFound: it never was, or the history no longer holds it.
    """
    for checkpoint in checkpoints.history:
        if checkpoint.id == checkpoint_id:
            return checkpoint
    ids = [c.id for c in checkpoints.history]
    known = f"the history holds {min(ids)} to {max(ids)}" if ids else "there was none yet"
    raise NotFound(f"checkpoint {checkpoint_id} is not known", remedy=known)


def task_checkpoint_details(checkpoint: facts.Checkpoint, engine_vertex_id: str) -> models.TaskCheckpointDetails:
    """
    Raises:
        NotFound: the vertex had no part in it that is known.
    """
    parts = checkpoint.by_vertex.get(engine_vertex_id)
    if parts is None:
        raise NotFound(f"nothing is known of vertex {vertex_id(engine_vertex_id)} in checkpoint {checkpoint.id}")
    done = [part for part in parts if part.acknowledged != facts.NOT_YET]
    return models.TaskCheckpointDetails(
        **_task(checkpoint, parts).model_dump(),
        summary=models.TaskCheckpointSummary(
            checkpointed_size=_stats(p.uploaded_bytes for p in done),
            state_size=_stats(p.state_bytes for p in done),
            end_to_end_duration=_stats(p.acknowledged - checkpoint.triggered for p in done),
            checkpoint_duration=models.SubtaskCheckpointTimes(
                sync=_stats(p.sync_ms for p in done), async_=_stats(p.async_ms for p in done)
            ),
        ),
        subtasks=[_subtask(checkpoint, part) for part in parts],
    )


def _subtask(checkpoint: facts.Checkpoint, part: facts.SubtaskCheckpoint) -> models.SubtaskCheckpoint:
    if part.acknowledged == facts.NOT_YET:
        return models.SubtaskCheckpoint(class_name="pending", index=part.index, status="pending_or_failed")
    return models.SubtaskCheckpoint(
        class_name="completed",
        index=part.index,
        status="completed",
        ack_timestamp=part.acknowledged,
        end_to_end_duration=max(0, part.acknowledged - checkpoint.triggered),
        checkpointed_size=part.uploaded_bytes,
        state_size=part.state_bytes,
        checkpoint=models.CheckpointTimes(sync=round(part.sync_ms), async_=round(part.async_ms)),
        alignment=models.AlignmentTimes(),
        start_delay=0,
        unaligned_checkpoint=False,
        aborted=checkpoint.status == "FAILED",
    )


def _task(checkpoint: facts.Checkpoint, parts: Sequence[facts.SubtaskCheckpoint]) -> models.TaskCheckpoint:
    done = [part for part in parts if part.acknowledged != facts.NOT_YET]
    latest = max((part.acknowledged for part in done), default=facts.NOT_YET)
    return models.TaskCheckpoint(
        id=checkpoint.id,
        status=checkpoint.status,
        latest_ack_timestamp=latest,
        checkpointed_size=sum(part.uploaded_bytes for part in done),
        state_size=sum(part.state_bytes for part in done),
        end_to_end_duration=max(0, latest - checkpoint.triggered) if done else facts.NOT_YET,
        num_subtasks=len(parts),
        num_acknowledged_subtasks=len(done),
    )


def _first(completed: Iterable[facts.Checkpoint], now: int, *, savepoint: bool) -> models.CheckpointStatistics | None:
    wanted = (c for c in completed if (c.kind != "CHECKPOINT") == savepoint)
    return next((checkpoint_statistics(c, now) for c in wanted), None)


def _restored(restored: facts.Restored | None) -> models.RestoredCheckpoint | None:
    if restored is None:
        return None
    return models.RestoredCheckpoint(
        id=restored.id,
        restore_timestamp=restored.timestamp,
        is_savepoint=restored.is_savepoint,
        external_path=restored.path,
    )


def _age(checkpoint: facts.Checkpoint, now: int) -> int:
    return max(0, now - checkpoint.triggered) if checkpoint.status == "IN_PROGRESS" else checkpoint.duration_ms


def _stats(values: Iterable[float]) -> models.StatsSummary:
    summary = summarise(values)
    return models.StatsSummary(
        min=round(summary.min),
        max=round(summary.max),
        avg=round(summary.mean),
        p50=summary.p50,
        p90=summary.p90,
        p95=summary.p95,
        p99=summary.p99,
        p999=summary.p999,
    )
