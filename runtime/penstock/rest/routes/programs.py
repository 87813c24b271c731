"""Programs that clients send to a session cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.concurrency import run_in_threadpool

from penstock.common.errors import InvalidJob
from penstock.rest import models
from penstock.rest.body_limit import PROGRAM_BYTES

if TYPE_CHECKING:
    from penstock.rest.gateway import Programs


def program_routes(programs: Programs) -> APIRouter:
    router = APIRouter(prefix="/programs", tags=["programs"])

    @router.post("", status_code=202, response_model=models.ProgramAccepted)
    async def run(
        request: Request,
        penstock: Annotated[str, Header(alias="X-Penstock-Version")] = "",
        python: Annotated[str, Header(alias="X-Python-Version")] = "",
        collects: Annotated[
            bool, Query(alias="collect", description="Whether the client requests the records of the job.")
        ] = False,
    ) -> models.ProgramAccepted:
        """Run a program that uses `create_remote_environment`. Respond when the program is accepted or refused."""
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > PROGRAM_BYTES:
                raise InvalidJob(
                    f"the program has more than {PROGRAM_BYTES} bytes",
                    remedy="read large values from files or another source instead of from_collection",
                )
        submit = partial(programs.submit, bytes(content), penstock, python, collects=collects)
        job_id = await run_in_threadpool(submit)
        return models.ProgramAccepted(job_id=job_id)

    @router.get("/{job_id}", response_model=models.ProgramOutcome)
    def outcome(job_id: str) -> models.ProgramOutcome:
        """Return the state of the job and its result: its accumulators, or the cause of its failure."""
        return programs.outcome(job_id)

    @router.post("/{job_id}/results", response_model=models.ProgramResults)
    def results(job_id: str, start: Annotated[int, Query(alias="from", ge=0)] = 0) -> models.ProgramResults:
        """Return records of `execute_and_collect` from the number `from` on, and delete the records before this number.

        Wait up to one second for the first record. A client may repeat the request.
        """
        return programs.results(job_id, start)

    return router
