"""Checkpoints of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from penstock.rest import models
from penstock.rest.routes.clock import now_ms
from penstock.rest.views import checkpoints
from penstock.rest.views.ids import find_vertex

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def checkpoint_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/checkpoints", tags=["checkpoints"])

    @router.get("", response_model=models.CheckpointingStatistics)
    def statistics(job_id: str) -> models.CheckpointingStatistics:
        return checkpoints.checkpointing_statistics(gateway.checkpoints(job_id), now_ms())

    @router.get("/config", response_model=models.CheckpointConfig)
    def configuration(job_id: str) -> models.CheckpointConfig:
        return checkpoints.checkpoint_config(gateway.checkpoints(job_id).settings)

    @router.get(
        "/details/{checkpoint_id}", response_model=models.CheckpointStatistics, response_model_exclude_none=True
    )
    def details(job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        found = checkpoints.find_checkpoint(gateway.checkpoints(job_id), checkpoint_id)
        return checkpoints.checkpoint_statistics(found, now_ms(), with_tasks=True)

    @router.get(
        "/details/{checkpoint_id}/subtasks/{vertex_id}",
        response_model=models.TaskCheckpointDetails,
        response_model_exclude_none=True,
    )
    def subtasks(job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        vertex = find_vertex(gateway.job(job_id), vertex_id)
        found = checkpoints.find_checkpoint(gateway.checkpoints(job_id), checkpoint_id)
        return checkpoints.task_checkpoint_details(found, vertex.id)

    return router
