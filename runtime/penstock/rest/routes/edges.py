"""The edges of the job graph, and the last records on an edge. Flink has no such paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from penstock.common.job_status import JobStatus
from penstock.common.stacks.edge_records import LONGEST_WAIT_S, MAX_RECORDS, EdgeQuestion
from penstock.rest import models
from penstock.rest.errors import Conflict
from penstock.rest.views import edges as views
from penstock.rest.views.ids import find_vertex
from penstock.rest.views.stacks import task_managers_of

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def edge_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/edges", tags=["edges"])

    @router.get("", response_model=models.EdgeList)
    def edges(job_id: str) -> models.EdgeList:
        """Return the edges between operators, also those inside of vertices."""
        return views.edge_list(gateway.insight.edges(job_id))

    @router.get("/records", response_model=models.EdgeRecords)
    def records(
        job_id: str,
        edge: Annotated[str, Query(description="Name of the edge, such as `Orders → Totals`.")],
        limit: Annotated[int, Query(ge=1, le=MAX_RECORDS, description="Number of records.")] = 10,
        seconds: Annotated[
            float,
            Query(ge=0.0, le=LONGEST_WAIT_S, description="Seconds to wait until a subtask has emitted the records."),
        ] = 3.0,
    ) -> models.EdgeRecords:
        """Wait for the next records on an edge, and return the last records. Nothing is recorded before the request."""
        job = gateway.job(job_id)
        found = views.find_edge(gateway.insight.edges(job_id), edge)
        if job.state != JobStatus.RUNNING.value:
            raise Conflict(
                f"job {job.name!r} is {job.state}, so no record is on its edges",
                remedy="ask again while the job is RUNNING",
            )
        vertex = find_vertex(job, found.vertex_id)
        question = EdgeQuestion(job.id, found.uid, found.side_tag, limit, seconds)
        return views.last_records(
            gateway.edge_records, task_managers_of(vertex, None), question, views.edge_name(found)
        )

    return router
