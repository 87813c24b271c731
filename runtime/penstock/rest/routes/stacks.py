"""The threads of JobManager and TaskManagers: dumps of their stacks, and flame graphs. Paths and shapes are Flink's.
`seconds`, `hertz` and `format` are additions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from penstock.common.stacks.sampling import HERTZ, LONGEST_S, MAX_HERTZ, Place
from penstock.rest import models
from penstock.rest.clock import now_ms
from penstock.rest.errors import Conflict
from penstock.rest.facts import NOT_YET
from penstock.rest.views import stacks
from penstock.rest.views.ids import find_subtask, find_vertex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.common.stacks.sampling import Sample
    from penstock.rest.gateway import ClusterGateway

Seconds = Annotated[
    float,
    Query(ge=0.1, le=LONGEST_S, description="Seconds over which stacks are sampled. The response takes the same time."),
]
Hertz = Annotated[int, Query(ge=1, le=MAX_HERTZ, description="Number of samples in a second.")]
Kind = Annotated[
    Literal["full", "on_cpu", "off_cpu"],
    Query(alias="type", description="Which samples to return: all, only running threads, or only waiting threads."),
]
Form = Annotated[Literal["tree", "folded"], Query(alias="format")]


def stack_routes(gateway: ClusterGateway) -> APIRouter:
    router = APIRouter(tags=["stacks"])

    @router.get("/jobmanager/thread-dump", response_model=models.ThreadDump)
    def job_manager() -> models.ThreadDump:
        return stacks.thread_dump(gateway.stacks(None, 0.0, HERTZ, Place()))

    @router.get("/taskmanagers/{tm_id}/thread-dump", response_model=models.ThreadDump)
    def task_manager(tm_id: str) -> models.ThreadDump:
        """Return the stacks of a TaskManager's Python workers."""
        return stacks.thread_dump(gateway.stacks(tm_id, 0.0, HERTZ, Place()))

    @router.get("/jobs/{job_id}/thread-dump", response_model=models.ThreadDump)
    def program(job_id: str) -> models.ThreadDump:
        """Return the stacks of the process that runs the job's program. In a session, each program has its own process."""
        return stacks.thread_dump(gateway.stacks(None, 0.0, HERTZ, _process_of(gateway, job_id)))

    @router.get("/jobs/{job_id}/flamegraph", response_model=models.FlameGraph)
    def program_flame_graph(
        job_id: str,
        kind: Kind = "full",
        seconds: Seconds = 3.0,
        hertz: Hertz = HERTZ,
        form: Form = "tree",
    ) -> models.FlameGraph | Response:
        """Take samples of the process that runs the job's program."""
        seen = gateway.stacks(None, seconds, hertz, _process_of(gateway, job_id))
        return _graph(stacks.filter_kind(seen, kind), form)

    @router.get("/jobs/{job_id}/vertices/{vertex_id}/flamegraph", response_model=models.FlameGraph)
    def flame_graph(
        job_id: str,
        vertex_id: str,
        kind: Kind = "full",
        subtask: Annotated[int | None, Query(alias="subtaskindex")] = None,
        seconds: Seconds = 3.0,
        hertz: Hertz = HERTZ,
        form: Form = "tree",
    ) -> models.FlameGraph | Response:
        """Take samples now and return the samples. `format=folded` returns lines for flamegraph.pl and speedscope."""
        job = gateway.job(job_id)
        vertex = find_vertex(job, vertex_id)
        if subtask is not None:
            find_subtask(vertex, subtask)
        of = Place(job.id, vertex.id, -1 if subtask is None else subtask)
        hosts = stacks.task_managers_of(vertex, subtask)
        return _graph(stacks.filter_kind(stacks.sample_all(gateway.stacks, hosts, seconds, hertz, of), kind), form)

    return router


def _process_of(gateway: ClusterGateway, job_id: str) -> Place:
    job = gateway.job(job_id)
    if job.end != NOT_YET:
        raise Conflict(f"job {job.name!r} is {job.state}, so no process runs its program", remedy="read its log")
    return Place(job.id)


def _graph(seen: Sequence[Sample], form: str) -> models.FlameGraph | Response:
    if form == "folded":
        return PlainTextResponse(stacks.folded(seen))
    return stacks.flame_graph(seen, now_ms())
