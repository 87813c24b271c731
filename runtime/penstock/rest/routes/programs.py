"""Programs that are sent here to be run: of a session cluster only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool

from penstock.common.errors import InvalidJob
from penstock.rest import models

if TYPE_CHECKING:
    from penstock.rest.gateway import Programs

MOST_BYTES = 256 * 1024 * 1024
"""Of a program, with the values of its collections."""


def program_routes(programs: Programs) -> APIRouter:
    router = APIRouter(prefix="/programs", tags=["programs"])

    @router.post("", status_code=202, response_model=models.ProgramAccepted)
    async def run(
        request: Request,
        penstock: Annotated[str, Header(alias="X-Penstock-Version")] = "",
        python: Annotated[str, Header(alias="X-Python-Version")] = "",
    ) -> models.ProgramAccepted:
        """Runs a program of an environment of `create_remote_environment`; answers when it was accepted or refused."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                raise InvalidJob(
                    f"the program has more than {MOST_BYTES} bytes",
                    remedy="read large values from files or another source instead of from_collection",
                )
        job_id = await run_in_threadpool(programs.submit, bytes(content), penstock, python)
        return models.ProgramAccepted(job_id=job_id)

    @router.get("/{job_id}", response_model=models.ProgramOutcome)
    def outcome(job_id: str) -> models.ProgramOutcome:
        """How the job is, and what it left: its accumulators, or why it failed."""
        return programs.outcome(job_id)

    @router.post("/{job_id}/results", response_model=models.ProgramResults)
    def results(job_id: str, start: Annotated[int, Query(alias="from", ge=0)] = 0) -> models.ProgramResults:
        """Of `execute_and_collect`: records from that number on; those before it are forgotten. Waits a second for the first. May be
        asked again."""
        return programs.results(job_id, start)

    return router
