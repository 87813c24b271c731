"""Checkpoints of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from penstock.rest import models
from penstock.rest.views import checkpoints
from penstock.rest.views.ids import find_vertex

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def checkpoint_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/checkpoints", tags=["checkpoints"])

    @router.get("", response_model=models.CheckpointingStatistics)
    def statistics(job_id: str) -> models.CheckpointingStatistics:
        return gateway.checkpoints(job_id)

    @router.get("/config", response_model=models.CheckpointConfig)
    def configuration(job_id: str) -> models.CheckpointConfig:
        return checkpoints.checkpoint_config(gateway.checkpoint_settings(job_id))

    @router.get(
        "/details/{checkpoint_id}", response_model=models.CheckpointStatistics, response_model_exclude_none=True
    )
    def details(job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        return checkpoints.with_vertex_ids(gateway.checkpoint(job_id, checkpoint_id))

    @router.get(
        "/details/{checkpoint_id}/subtasks/{vertex_id}",
        response_model=models.TaskCheckpointDetails,
        response_model_exclude_none=True,
    )
    def subtasks(job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        vertex = find_vertex(gateway.job(job_id), vertex_id)
        return gateway.checkpoint_subtasks(job_id, checkpoint_id, vertex.id)

    return router
