"""Actions on a running job: savepoint, checkpoint, stop, rescale. A request starts an action, and clients poll its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from penstock.rest import models
from penstock.rest.errors import NotFound
from penstock.rest.models import TRIGGER_ID_PATTERN
from penstock.rest.views.operations import checkpoint_result, operation_result

if TYPE_CHECKING:
    from penstock.rest import facts
    from penstock.rest.gateway import ClusterGateway


def action_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}", tags=["actions"])

    @router.post("/savepoints", status_code=202, response_model=models.TriggerResponse)
    def savepoint(job_id: str, request: models.SavepointRequest | None = None) -> models.TriggerResponse:
        """Start a savepoint. If `cancel-job` is set, the job is cancelled only after the savepoint is complete."""
        request = request or models.SavepointRequest()
        request_id = gateway.trigger_savepoint(
            job_id, request.target_directory, cancel_job=request.cancel_job, trigger_id=request.trigger_id
        )
        return models.TriggerResponse(request_id=request_id)

    @router.get("/savepoints/{request_id}", response_model=models.OperationResult, response_model_exclude_none=True)
    def savepoint_outcome(job_id: str, request_id: str) -> models.OperationResult:
        """Return the status of a savepoint or of a stop."""
        return operation_result(_find(job_id, request_id, "savepoint", "stop"))

    @router.post("/stop", status_code=202, response_model=models.TriggerResponse)
    def stop(job_id: str, request: models.StopRequest | None = None) -> models.TriggerResponse:
        """Start to stop the job with a savepoint. Poll the result under `/savepoints`."""
        request = request or models.StopRequest()
        request_id = gateway.stop(job_id, request.target_directory, drain=request.drain, trigger_id=request.trigger_id)
        return models.TriggerResponse(request_id=request_id)

    @router.post("/checkpoints", status_code=202, response_model=models.TriggerResponse)
    def checkpoint(job_id: str, request: models.CheckpointRequest | None = None) -> models.TriggerResponse:
        """Start a checkpoint."""
        request = request or models.CheckpointRequest()
        request_id = gateway.trigger_checkpoint(job_id, trigger_id=request.trigger_id)
        return models.TriggerResponse(request_id=request_id)

    @router.patch("/rescaling", response_model=models.RescaleTriggered)
    def rescale(
        job_id: str,
        parallelism: Annotated[int, Query(ge=1)],
        trigger_id: Annotated[str | None, Query(alias="triggerId", pattern=TRIGGER_ID_PATTERN)] = None,
    ) -> models.RescaleTriggered:
        """Start to change the parallelism of the running job."""
        request_id = gateway.rescale(job_id, parallelism, trigger_id=trigger_id)
        return models.RescaleTriggered(request_id=request_id, triggerid=request_id)

    @router.get("/rescaling/{request_id}", response_model=models.OperationResult, response_model_exclude_none=True)
    def rescale_outcome(job_id: str, request_id: str) -> models.OperationResult:
        return operation_result(_find(job_id, request_id, "rescale"))

    def _find(job_id: str, request_id: str, *kinds: str) -> facts.Operation:
        operation = gateway.operation(request_id)
        if operation.kind not in kinds or operation.job_id not in ("", job_id):
            raise NotFound(f"request {request_id} is not a {' or '.join(kinds)} of job {job_id}")
        return operation

    @router.get("/checkpoints/{request_id}", response_model=models.CheckpointResult, response_model_exclude_none=True)
    def checkpoint_outcome(job_id: str, request_id: str) -> models.CheckpointResult:
        return checkpoint_result(_find(job_id, request_id, "checkpoint"))

    return router
