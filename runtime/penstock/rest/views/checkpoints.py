"""Checkpoints: their configuration, and vertices by the ids that REST shows."""

from __future__ import annotations

from penstock.rest import facts, models
from penstock.rest.views.ids import vertex_id


def checkpoint_config(settings: facts.CheckpointSettings) -> models.CheckpointConfig:
    return models.CheckpointConfig(
        mode=settings.mode,
        interval=settings.interval_ms,
        timeout=settings.timeout_ms,
        min_pause=settings.min_pause_ms,
        externalization=models.Externalization(
            enabled=settings.externalized, delete_on_cancellation=settings.delete_on_cancellation
        ),
        state_backend=settings.state_backend,
        checkpoint_storage=settings.storage,
        tolerable_failed_checkpoints=settings.tolerable_failures,
        retained_checkpoints=settings.retained,
    )


def with_vertex_ids(checkpoint: models.CheckpointStatistics) -> models.CheckpointStatistics:
    """Return the checkpoint with the ids of `/jobs/:id/vertices` in place of the engine's ids."""
    tasks = {vertex_id(id): task for id, task in checkpoint.tasks.items()}
    return checkpoint.model_copy(update={"tasks": tasks})


def last_completed(checkpoints: models.CheckpointingStatistics) -> models.CheckpointStatistics | None:
    """Return the newest complete checkpoint or savepoint."""
    latest = [found for found in (checkpoints.latest.completed, checkpoints.latest.savepoint) if found is not None]
    return max(latest, key=lambda found: found.id, default=None)
