"""Programs that clients upload to a session cluster, under the paths that Flink has for JAR files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from penstock.rest import facts
from penstock.rest.clock import now_ms
from penstock.rest.errors import BadRequest
from penstock.rest.models import jars as shapes
from penstock.rest.views.jobs import application_details, application_exceptions, application_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.common.logs.log_file import LogPart
    from penstock.rest.gateway import ClusterGateway, Jars

OUTPUT_BYTES = 1 << 20
"""Maximum size of a part of a program's output, in bytes."""

Start = Annotated[
    int, Query(alias="from", description="Position of the first byte. A negative number counts from the end.")
]


def runs_program(path: str) -> bool:
    """Return whether a request to the path runs code of a program. This may be true even if the method of the request is GET.

    >>> runs_program("/jars/1_job.py/plan"), runs_program("/jobs/1/plan")
    (True, False)
    """
    return path.removeprefix("/v1").startswith("/jars/") and path.rstrip("/").endswith("/plan")


def jar_routes(jars: Jars) -> APIRouter:
    router = APIRouter(tags=["programs"])

    @router.post("/jars/upload", response_model=shapes.JarUploaded)
    async def upload(request: Request) -> shapes.JarUploaded:
        """Upload a program: a module (.py), an archive or a wheel, as the form field `jarfile`."""
        async with request.form(max_files=1, max_fields=10) as form:
            file = next((value for value in form.values() if isinstance(value, UploadFile)), None)
            if file is None or not file.filename:
                raise BadRequest(
                    "the request has no file",
                    remedy="send the program as a form: curl -F jarfile=@job.py URL/jars/upload",
                )
            content = await file.read()
            jar = await run_in_threadpool(jars.upload, file.filename, content)
        return shapes.JarUploaded(filename=f"/jars/{jar.id}")

    @router.post("/jars/fetch", response_model=shapes.JarUploaded)
    def fetch(body: Annotated[shapes.JarFetch, Body()]) -> shapes.JarUploaded:
        """Let the cluster fetch a program: a file with a known checksum, or a commit of a git repository. Respond when it is stored."""
        if bool(body.sha256) == bool(body.commit):
            raise BadRequest("the request must have either sha256 or commit", remedy="set one of them")
        return shapes.JarUploaded(filename=f"/jars/{jars.fetch(facts.FetchRequest(**body.model_dump())).id}")

    @router.get("/jars", response_model=shapes.JarList)
    def listing(request: Request) -> shapes.JarList:
        """List the uploaded programs, the newest first."""
        files = [shapes.JarFile(id=jar.id, name=jar.name, uploaded=jar.uploaded) for jar in jars.jars()]
        return shapes.JarList(address=str(request.base_url).rstrip("/"), files=files)

    @router.delete("/jars/{jar_id}", response_model=dict[str, str])
    def delete(jar_id: str) -> dict[str, str]:
        """Delete an uploaded program. Programs that were started from it continue."""
        jars.delete(jar_id)
        return {}

    @router.post("/jars/{jar_id}/run", response_model=shapes.JarStarted)
    def run(jar_id: str, request: Request, body: Annotated[shapes.JarRun | None, Body()] = None) -> shapes.JarStarted:
        """Start an uploaded program. Respond when its first job is accepted or refused."""
        started = jars.run(jar_id, _request_of(body, request))
        return shapes.JarStarted(jobid=started.jobs[0], applicationid=started.id)

    @router.post("/jars/{jar_id}/run-application", response_model=shapes.ApplicationStarted)
    def run_application(
        jar_id: str, request: Request, body: Annotated[shapes.JarRun | None, Body()] = None
    ) -> shapes.ApplicationStarted:
        """Start an uploaded program, as `run` does, and return the id of the program instead of its first job."""
        return shapes.ApplicationStarted(applicationid=jars.run(jar_id, _request_of(body, request)).id)

    def plan(jar_id: str, request: Request, body: Annotated[shapes.JarRun | None, Body()] = None) -> shapes.JarPlan:
        """Return the graph of the program's first job, without running it."""
        return shapes.JarPlan(plan=dict(jars.plan(jar_id, _request_of(body, request))))

    for method in ("GET", "POST"):
        router.add_api_route(
            "/jars/{jar_id}/plan", plan, methods=[method], response_model=shapes.JarPlan, name=f"plan_{method.lower()}"
        )

    _add_texts(router, jars)
    return router


def _add_texts(router: APIRouter, jars: Jars) -> None:
    @router.get("/jobs/{job_id}/output")
    def output(job_id: str, start: Start = 0) -> Response:
        """Return what the program of a job has printed, from a byte position on.

        The header `X-Penstock-Log-End` has the position after the last returned line.
        """
        return _part(jars.output(job_id, start, OUTPUT_BYTES, log=False))

    @router.get("/jobs/{job_id}/log")
    def log(job_id: str, start: Start = 0) -> Response:
        """Return the log of the job's JobManager, from a byte position on. The response has the same header as that of
        `output`."""
        return _part(jars.output(job_id, start, OUTPUT_BYTES, log=True))


def application_routes(jars: Jars, gateway: ClusterGateway) -> APIRouter:
    """Return the paths that show a started program with all its jobs."""
    router = APIRouter(prefix="/applications", tags=["programs"])

    def jobs_of(application: facts.Application, jobs: Sequence[facts.Job]) -> list[facts.Job]:
        by_id = {job.id: job for job in jobs}
        return [by_id[job_id] for job_id in application.jobs if job_id in by_id]

    @router.get("/overview", response_model=shapes.ApplicationList)
    def overview() -> shapes.ApplicationList:
        """List the started programs, and how many of their jobs are in each state."""
        jobs, now = gateway.jobs(), now_ms()
        found = [application_summary(one, jobs_of(one, jobs), now) for one in jars.applications()]
        return shapes.ApplicationList(applications=found)

    @router.get("/{application_id}", response_model=shapes.ApplicationDetails)
    def details(application_id: str) -> shapes.ApplicationDetails:
        """Return a started program with its jobs."""
        found = jars.application(application_id)
        return application_details(found, jobs_of(found, gateway.jobs()), now_ms())

    @router.get(
        "/{application_id}/exceptions",
        response_model=shapes.ApplicationExceptions,
        response_model_exclude_none=True,
    )
    def exceptions(application_id: str) -> shapes.ApplicationExceptions:
        """Return the failure of the program and those of its jobs, the newest first."""
        found = jars.application(application_id)
        return application_exceptions(found, jobs_of(found, gateway.jobs()))

    @router.post("/{application_id}/cancel", status_code=202, response_model=dict[str, str])
    def cancel(application_id: str) -> dict[str, str]:
        """Cancel all jobs of a program, and end the program."""
        jars.cancel_application(application_id)
        return {}

    return router


def _part(part: LogPart) -> Response:
    headers = {"X-Penstock-Log-End": str(part.end)}
    return Response(part.data, media_type="text/plain; charset=utf-8", headers=headers)


def _request_of(body: shapes.JarRun | None, request: Request) -> facts.RunRequest:
    """Return the start that a request describes. A field of the body takes precedence over the same parameter of the URL, as in Flink."""
    lists = {"programArg": request.query_params.getlist("programArg")}
    values: dict[str, object] = {**request.query_params} | {name: value for name, value in lists.items() if value}
    try:
        found = shapes.JarRun.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRequest(
            f"parameter {'.'.join(map(str, first['loc']))} of the URL: {first['msg']}",
            remedy="the parameters are entry-class, program-args, programArg, parallelism, savepointPath and allowNonRestoredState",
        ) from None
    if body is not None:
        found = found.model_copy(update=body.model_dump(exclude_none=True))
    if found.restore_mode not in (None, "NO_CLAIM", "CLAIM"):
        raise BadRequest(f"restoreMode {found.restore_mode!r} is not supported", remedy="use NO_CLAIM")
    if found.restore_mode == "CLAIM":
        raise BadRequest("restoreMode CLAIM is not supported: a job never deletes the savepoint that it starts from")
    try:
        args = found.program_args_list or shlex.split(found.program_args or "")
    except ValueError as error:
        raise BadRequest(f"programArgs cannot be split: {error}", remedy="send programArgsList") from None
    return facts.RunRequest(
        entry=found.entry_class or "",
        args=args,
        parallelism=found.parallelism,
        savepoint_path=found.savepoint_path or "",
        allow_non_restored=found.allow_non_restored_state or False,
        job_id=found.job_id or "",
        configuration=found.flink_configuration or {},
    )
