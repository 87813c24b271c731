"""Data for the dashboard, and state by key. Flink does not have these paths. Other clients may use them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query

from penstock.rest import models
from penstock.rest.clock import now_ms
from penstock.rest.errors import BadRequest
from penstock.rest.views import dashboard
from penstock.rest.views.ids import find_vertex

if TYPE_CHECKING:
    from penstock.rest.gateway import ClusterGateway


def dashboard_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}", tags=["dashboard"])

    @router.get("/history", response_model=models.History)
    def history(job_id: str, vertex: str | None = None) -> models.History:
        """Return samples of about the last hour, for the job or for one vertex."""
        wanted = None if vertex is None else find_vertex(gateway.job(job_id), vertex).id
        return dashboard.history(gateway.insight.metric_history(job_id, wanted))

    @router.get("/timeline", response_model=models.Timeline)
    def timeline(job_id: str) -> models.Timeline:
        """Return states, checkpoints, rescales and failures with their times."""
        return dashboard.timeline(gateway.job(job_id), gateway.insight.past_checkpoints(job_id), now_ms())

    @router.get("/configuration", response_model=models.JobSettingList)
    def configuration(job_id: str) -> models.JobSettingList:
        """Return every key in effect, the source of its value, and its meaning. Secrets are hidden."""
        return dashboard.settings(gateway.configuration(), gateway.job(job_id).configuration)

    @router.get("/connectors", response_model=models.JobConnectors)
    def connectors(job_id: str) -> models.JobConnectors:
        """Return the sources with splits, positions and lag, and the sinks with pending commits."""
        return dashboard.connectors(gateway.insight.connectors(job_id))

    @router.get("/vertices/{vertex_id}/load", response_model=models.VertexLoad)
    def load(job_id: str, vertex_id: str) -> models.VertexLoad:
        """Return the load of each subtask, and its key groups."""
        vertex = find_vertex(gateway.job(job_id), vertex_id)
        return dashboard.vertex_load(vertex, gateway.metrics.loads(job_id, vertex.id))

    return router


def state_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(prefix="/jobs/{job_id}/state", tags=["state"])

    @router.get("", response_model=models.JobStates)
    def states(job_id: str) -> models.JobStates:
        """Return the states in the newest checkpoint."""
        found = gateway.insight.states(job_id)
        return models.JobStates(
            states=[
                {
                    "uid": s.uid,
                    "operator": s.operator,
                    "name": s.name,
                    "kind": s.kind,
                    "operatorBytes": s.operator_bytes,
                    "queryable": s.queryable,
                }
                for s in found
            ]
        )

    @router.get("/{name}", response_model=models.StateEntryList)
    def entries(
        job_id: str,
        name: str,
        uid: str | None = None,
        key: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        consistency: Literal["checkpoint", "live"] = "checkpoint",
    ) -> models.StateEntryList:
        """Return the entries of one key (as JSON or as text), or the first entries, in the newest checkpoint.

        `name` is the name of the state, or its queryable name. `consistency=live` returns one key of a queryable state from its task.
        """
        if consistency == "live":
            if key is None:
                raise BadRequest(
                    "current values can only be read for single keys",
                    remedy="add ?key=, or ask with consistency=checkpoint to read from the newest checkpoint",
                )
            found = gateway.insight.live_entries(job_id, name, uid, key)
        else:
            found = gateway.insight.state_entries(job_id, name, uid, key, limit)
        return models.StateEntryList(
            checkpoint_id=found.checkpoint_id,
            timestamp=found.timestamp,
            entries=[dict(entry) for entry in found.entries],
            truncated=found.is_truncated,
            attempt=found.attempt,
        )

    return router
