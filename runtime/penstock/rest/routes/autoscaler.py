"""The decisions of a job's autoscaler, and the recording of their measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from penstock.rest import models

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


MAX_DECISIONS = 1000


def autoscaler_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/autoscaler", tags=["autoscaler"])

    @router.get("", response_model=models.AutoscalerStatus)
    def status(job_id: str, limit: Annotated[int, Query(ge=0)] = MAX_DECISIONS) -> models.AutoscalerStatus:
        """Return the wanted parallelism and the decisions, the newest first. They exist also if the autoscaler is disabled.

        `limit` is the maximum number of decisions.
        """
        found = gateway.insight.autoscaler(job_id)
        return found.model_copy(update={"decisions": found.decisions[:limit]})

    @router.get("/recording", response_class=StreamingResponse)
    def recording(job_id: str) -> StreamingResponse:
        """Return the measurements of about the last hour as JSON lines, for `penstock autoscaler replay`."""
        lines = gateway.insight.autoscaler_recording(job_id)
        name = f"autoscaler-{job_id[:8]}.jsonl"
        return StreamingResponse(
            iter(lines),
            media_type="application/jsonl",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    @router.put("/configuration", response_model=models.AutoscalerStatus)
    def configure(job_id: str, request: models.AutoscalerConfiguration) -> models.AutoscalerStatus:
        """Replace the keys of the autoscaler in the running job, without a restart."""
        gateway.configure_autoscaler(job_id, request.configuration, request.configuration_id)
        return status(job_id, 0)

    return router
