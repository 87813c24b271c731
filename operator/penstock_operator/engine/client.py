"""The client of a job's master: the part of Flink's REST API that the operator uses."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

import httpx

from penstock_operator.api.status.autoscaling import DECISIONS_KEPT
from penstock_operator.engine.account import Checkpoints, Progress, Request, Rescaled
from penstock_operator.engine.autoscaler import Autoscaler, read_autoscaler
from penstock_operator.errors import EngineError, EngineUnreachable, ProgramRefused
from penstock_operator.fence import no_fence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.fence import Fence

RequestKind = Literal["stop", "savepoint", "checkpoint", "rescale"]


@dataclass(frozen=True)
class JobView:
    """A job, as the master reports it."""

    id: str
    state: str
    parallelism: int | None = None


@dataclass(frozen=True)
class JobOverview:
    """Summary of a job. It has all the information that the operator needs about a healthy job."""

    job: JobView
    checkpoints: Checkpoints
    progress: Progress
    exception: str = ""
    """Root cause of the last failure, set while the job is not RUNNING."""
    end_of_input: bool = False
    """Whether the job is FINISHED because it read all of its input, and not because a user stopped it."""


@dataclass(frozen=True)
class SessionOverview:
    """The slots and workers of a session cluster."""

    workers: int
    slots: int
    free_slots: int


@dataclass(frozen=True)
class MasterTls:
    """A master that serves TLS. `ca` is the CA in PEM format. If it is empty, the client uses the CAs of the system."""

    ca: str = ""


class EngineClient(Protocol):
    """The master of one job. Every method raises `EngineError`, or `EngineUnreachable` if the master does not
    respond.
    """

    async def overview(self, job_id: str) -> JobOverview | None:
        """Return the summary of the job in one request. Return None if the master does not know the job or does not
        support the request.
        """

    async def jobs(self) -> list[JobView]:
        """Return all jobs of the master. A master in application mode has one job."""

    async def parallelism(self, job_id: str) -> int | None:
        """Return the parallelism of the running job."""

    async def checkpoints(self, job_id: str) -> Checkpoints:
        """Return the counters and the newest completed checkpoint."""

    async def progress(self, job_id: str) -> Progress:
        """Return the number of restarts by the engine, and the last rescale."""

    async def exception(self, job_id: str) -> str:
        """Return the root cause of the last failure, or an empty string if none occurred."""

    async def configure_autoscaler(self, job_id: str, keys: Mapping[str, str], configuration_id: str) -> None:
        """Replace all keys of the job's autoscaler. The engine refuses keys that are not valid."""

    async def autoscaler(self, job_id: str) -> Autoscaler:
        """Return the state of the job's autoscaler, with its newest decisions."""

    async def slots(self) -> int:
        """Return the number of slots of all registered workers."""

    async def session(self) -> SessionOverview:
        """Return the registered workers, their slots, and the slots that no job uses."""

    async def upload(self, name: str, content: bytes) -> str:
        """Store a program in a session. Return the id of the stored program."""

    async def fetch(self, request: Mapping[str, Any]) -> str:
        """Let a session fetch a program and store it. Return the id of the stored program.

        Raises:
            ProgramRefused: the source does not exist, or it has another content.
        """

    async def run(self, program: str, start: Mapping[str, Any]) -> None:
        """Start a stored program. Wait until its first job is accepted, which may take minutes. If a program with this job
        already runs, do nothing.

        Raises:
            ProgramRefused: the program cannot start, whatever the session does.
        """

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""

    async def busy_workers(self) -> frozenset[str]:
        """Return ids and addresses of the workers that run part of the job."""

    async def stop(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Stop the job with a savepoint below `directory`. Return the id of the request. A repeated request with the
        same id has no effect.
        """

    async def savepoint(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Take a savepoint below `directory`. Return the id of the request."""

    async def checkpoint(self, job_id: str, trigger_id: str) -> str:
        """Take a checkpoint. Return the id of the request."""

    async def rescale(self, job_id: str, parallelism: int, trigger_id: str) -> str:
        """Change the parallelism. Return the id of the request."""

    async def request(self, job_id: str, kind: RequestKind, request_id: str) -> Request:
        """Return the state of a request. It is `Unknown` if the master does not know the request."""


MAX_RESPONSE_BYTES = 4 << 20
"""Maximum size of a response in bytes."""
TOTAL_TIMEOUT = 15.0
"""Timeout in seconds for a complete response, even if data arrives steadily."""
START_TIMEOUT = 960.0
"""Timeout in seconds for the start of a program in a session, which may install packages."""

_PATHS: dict[RequestKind, str] = {
    "stop": "savepoints",
    "savepoint": "savepoints",
    "checkpoint": "checkpoints",
    "rescale": "rescaling",
}


class HttpEngine:
    """Implementation of `EngineClient` over HTTP. It calls `fence` before each request that changes the job."""

    def __init__(self, http: httpx.AsyncClient, base_url: str, token: str | None, fence: Fence = no_fence) -> None:
        self._http, self._fence = http, fence
        self._base = base_url.rstrip("/")
        self._headers = {"Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    async def overview(self, job_id: str) -> JobOverview | None:
        """Implement `EngineClient.overview`."""
        try:
            return read_summary(await self._request_json("GET", f"/jobs/{job_id}/summary"))
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def jobs(self) -> list[JobView]:
        """Implement `EngineClient.jobs`."""
        body = await self._request_json("GET", "/jobs/overview")
        return [
            JobView(str(job.get("jid") or job.get("id")), str(job.get("state") or job.get("status")))
            for job in body.get("jobs", ())
        ]

    async def parallelism(self, job_id: str) -> int | None:
        """Implement `EngineClient.parallelism`."""
        body = await self._request_json("GET", f"/jobs/{job_id}/config")
        value = body.get("execution-config", {}).get("job-parallelism")
        return int(value) if isinstance(value, int) and value > 0 else None

    async def checkpoints(self, job_id: str) -> Checkpoints:
        """Implement `EngineClient.checkpoints`."""
        body = await self._request_json("GET", f"/jobs/{job_id}/checkpoints")
        counts = body.get("counts") or {}
        latest = body.get("latest") or {}
        newest, failed = latest.get("completed") or {}, latest.get("failed") or {}
        return Checkpoints(
            completed=int(counts.get("completed", 0)),
            failed=int(counts.get("failed", 0)),
            restored=int(counts.get("restored", 0)),
            latest_id=newest.get("id"),
            latest_path=newest.get("external_path"),
            latest_at=_moment(newest.get("latest_ack_timestamp")),
            failure=first_lines(str(failed.get("failure_message") or "")),
        )

    async def progress(self, job_id: str) -> Progress:
        """Implement `EngineClient.progress`."""
        return read_progress(await self._request_json("GET", f"/jobs/{job_id}/progress"))

    async def exception(self, job_id: str) -> str:
        """Implement `EngineClient.exception`."""
        body = await self._request_json("GET", f"/jobs/{job_id}/exceptions")
        history = (body.get("exceptionHistory") or {}).get("entries") or []
        newest = history[0] if history else {}
        return first_lines(
            str(body.get("root-exception") or newest.get("stacktrace") or newest.get("exceptionName") or "")
        )

    async def autoscaler(self, job_id: str) -> Autoscaler:
        """Implement `EngineClient.autoscaler`."""
        path = f"/jobs/{job_id}/autoscaler?limit={DECISIONS_KEPT}"
        body = await self._request_json("GET", path)
        try:
            return read_autoscaler(body)
        except (LookupError, TypeError, ValueError, ArithmeticError, OSError) as error:
            msg = f"GET {path}: the response is not that of an autoscaler: {type(error).__name__}: {str(error)[:200]}"
            raise EngineError(msg) from error

    async def configure_autoscaler(self, job_id: str, keys: Mapping[str, str], configuration_id: str) -> None:
        """Implement `EngineClient.configure_autoscaler`."""
        self._fence()
        body = {"configuration": dict(keys), "configurationId": configuration_id}
        await self._request_json("PUT", f"/jobs/{job_id}/autoscaler/configuration", body)

    async def slots(self) -> int:
        """Implement `EngineClient.slots`."""
        return int((await self._request_json("GET", "/overview")).get("slots-total", 0))

    async def session(self) -> SessionOverview:
        """Implement `EngineClient.session`."""
        body = await self._request_json("GET", "/overview")
        found = (int(body.get(key, 0)) for key in ("taskmanagers", "slots-total", "slots-available"))
        return SessionOverview(*found)

    async def upload(self, name: str, content: bytes) -> str:
        """Implement `EngineClient.upload`."""
        self._fence()
        try:
            form = {"jarfile": (name, content)}
            response = await self._http.post(self._base + "/jars/upload", files=form, headers=self._headers)
        except httpx.HTTPError as error:
            msg = f"POST /jars/upload: {type(error).__name__}"
            raise EngineUnreachable(msg) from error
        _raise_for(response, "POST /jars/upload")
        return str(response.json().get("filename", "")).rpartition("/")[2]

    async def fetch(self, request: Mapping[str, Any]) -> str:
        """Implement `EngineClient.fetch`."""
        self._fence()
        try:
            body = await self._request_json("POST", "/jars/fetch", dict(request), timeout_s=START_TIMEOUT)
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status in (404, 405):
                msg = "the image of the FlinkCluster cannot fetch programs. Set a newer image, or put the program into source.files"
                raise ProgramRefused(msg, status=error.status) from error
            if error.status == 400:
                raise ProgramRefused(str(error), status=error.status) from error
            raise
        return str(body.get("filename", "")).rpartition("/")[2]

    async def run(self, program: str, start: Mapping[str, Any]) -> None:
        """Implement `EngineClient.run`."""
        self._fence()
        try:
            await self._request_json("POST", f"/jars/{program}/run", dict(start), timeout_s=START_TIMEOUT)
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status == 400:
                raise ProgramRefused(str(error), status=error.status) from error
            if error.status != 409:
                raise

    async def cancel(self, job_id: str) -> None:
        """Implement `EngineClient.cancel`."""
        self._fence()
        await self._request_json("PATCH", f"/jobs/{job_id}?mode=cancel")

    async def busy_workers(self) -> frozenset[str]:
        """Implement `EngineClient.busy_workers`."""
        body = await self._request_json("GET", "/taskmanagers")
        busy = [w for w in body.get("taskmanagers", ()) if w.get("freeSlots", 0) < w.get("slotsNumber", 0)]
        return frozenset(str(w[key]) for w in busy for key in ("id", "path") if w.get(key))

    async def stop(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Implement `EngineClient.stop`."""
        body = {"targetDirectory": directory, "drain": False, "triggerId": trigger_id}
        return await self._start_action("POST", f"/jobs/{job_id}/stop", body, trigger_id)

    async def savepoint(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Implement `EngineClient.savepoint`."""
        body = {"target-directory": directory, "cancel-job": False, "triggerId": trigger_id}
        return await self._start_action("POST", f"/jobs/{job_id}/savepoints", body, trigger_id)

    async def checkpoint(self, job_id: str, trigger_id: str) -> str:
        """Implement `EngineClient.checkpoint`."""
        return await self._start_action("POST", f"/jobs/{job_id}/checkpoints", {"triggerId": trigger_id}, trigger_id)

    async def rescale(self, job_id: str, parallelism: int, trigger_id: str) -> str:
        """Implement `EngineClient.rescale`."""
        path = f"/jobs/{job_id}/rescaling?parallelism={parallelism}&triggerId={trigger_id}"
        return await self._start_action("PATCH", path, None, trigger_id)

    async def request(self, job_id: str, kind: RequestKind, request_id: str) -> Request:
        """Implement `EngineClient.request`."""
        try:
            body = await self._request_json("GET", f"/jobs/{job_id}/{_PATHS[kind]}/{request_id}")
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status == 404:
                return Request(request_id, "Unknown")
            raise
        return read_request(request_id, body)

    async def _start_action(self, method: str, path: str, body: dict[str, Any] | None, trigger_id: str) -> str:
        try:
            async with asyncio.timeout(self._fence()):
                answer = await self._request_json(method, path, body)
        except TimeoutError as error:
            msg = f"{method} {path}: no response before the timeout"
            raise EngineUnreachable(msg) from error
        return str(answer.get("request-id") or trigger_id)

    async def _request_json(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        timeout_s = TOTAL_TIMEOUT if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._response(method, path, body, timeout_s)
        except httpx.HTTPError as error:
            msg = f"{method} {path}: {type(error).__name__}"
            raise EngineUnreachable(msg) from error
        except TimeoutError as error:
            msg = f"{method} {path}: the response was not complete within {timeout_s:.0f} s"
            raise EngineUnreachable(msg) from error
        _raise_for(response, f"{method} {path}")
        try:
            answer = response.json() if response.content else {}
        except (ValueError, RecursionError) as error:
            msg = f"{method} {path}: the response is not JSON"
            raise EngineError(msg, status=response.status_code) from error
        return answer if isinstance(answer, dict) else {}

    async def _response(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> httpx.Response:
        """Return the whole response. Reject a compressed response, and a response that is larger than
        `MAX_RESPONSE_BYTES`.

        A master runs the code of the job's author, so its responses can be hostile. A compressed response of 1 MB can
        expand to gigabytes.
        """
        limit = self._http.timeout
        if timeout_s > TOTAL_TIMEOUT:
            limit = httpx.Timeout(limit.connect, read=timeout_s)
        async with self._http.stream(
            method, self._base + path, json=body, headers=self._headers, timeout=limit
        ) as response:
            coding = response.headers.get("Content-Encoding", "identity").lower()
            if coding not in ("", "identity"):
                msg = (
                    f"{method} {path}: the response is compressed ({coding[:40]}), but the request did not accept that"
                )
                raise EngineError(msg, status=response.status_code)
            content = bytearray()
            if not isinstance(response.stream, httpx.AsyncByteStream):
                msg = "an asynchronous client streams asynchronously"
                raise TypeError(msg)
            async for block in response.stream:
                content += block
                if len(content) > MAX_RESPONSE_BYTES:
                    msg = f"{method} {path}: the response is larger than {MAX_RESPONSE_BYTES >> 20} MiB"
                    raise EngineError(msg, status=response.status_code)
            return httpx.Response(response.status_code, content=bytes(content), request=response.request)


def read_progress(body: dict[str, Any]) -> Progress:
    """Parse failovers and the last rescale. A master of another version may omit fields.

    >>> read_progress({"restarts": 1, "rescales": [{"new-parallelism": 4, "duration": 2800}]}).rescaled
    Rescaled(parallelism=4, took=datetime.timedelta(seconds=2, microseconds=800000))
    """
    done = [r for r in body.get("rescales") or () if r.get("outcome", "COMPLETED") == "COMPLETED"]
    return Progress(int(body.get("restarts", 0)), _rescaled(done[-1] if done else {}))


def read_summary(body: dict[str, Any]) -> JobOverview:
    """Parse the response of `GET /jobs/:id/summary`.

    >>> read_summary({"jid": "a", "state": "RUNNING", "parallelism": 2, "checkpoints": {"completed": 3}}).checkpoints.completed
    3
    """
    points, newest = body.get("checkpoints") or {}, (body.get("checkpoints") or {}).get("last") or {}
    return JobOverview(
        JobView(str(body.get("jid")), str(body.get("state")), body.get("parallelism")),
        Checkpoints(
            completed=int(points.get("completed", 0)),
            failed=int(points.get("failed", 0)),
            restored=int(points.get("restored", 0)),
            latest_id=newest.get("id"),
            latest_path=newest.get("external-path") or None,
            latest_at=_moment(newest.get("time")),
            failure=first_lines(str(points.get("failure") or "")),
        ),
        Progress(int(body.get("restarts", 0)), _rescaled(body.get("last-rescale") or {})),
        first_lines(str(body.get("exception") or "")),
        end_of_input=body.get("end-of-input") is True,
    )


def _rescaled(entry: dict[str, Any]) -> Rescaled | None:
    parallelism, took = entry.get("new-parallelism"), entry.get("duration")
    if isinstance(parallelism, int) and isinstance(took, int):
        return Rescaled(parallelism, timedelta(milliseconds=took))
    return None


def _moment(millis: int | None) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC).replace(microsecond=0) if millis else None


def read_request(request_id: str, body: dict[str, Any]) -> Request:
    """Parse the state of a long action in Flink's format.

    >>> read_request("r", {"status": {"id": "COMPLETED"}, "operation": {"location": "s3://b/sp"}}).location
    's3://b/sp'
    """
    if (body.get("status") or {}).get("id") != "COMPLETED":
        return Request(request_id, "InProgress")
    operation = body.get("operation") or {}
    cause = operation.get("failure-cause")
    if cause:
        text = cause if isinstance(cause, str) else str(cause.get("stack-trace") or cause.get("class") or cause)
        return Request(request_id, "Failed", cause=first_lines(text))
    return Request(request_id, "Completed", location=operation.get("location"))


def first_lines(text: str, limit: int = 600) -> str:
    """Return the start of a stack trace. The result never exceeds `limit` characters, even if a line is very long."""
    lines = [line.strip() for line in text[: limit * 4].splitlines() if line.strip()]
    return " | ".join(lines[:4])[:limit]


def _raise_for(response: httpx.Response, request: str) -> None:
    if response.status_code in (502, 503, 504):
        msg = f"{request}: {response.status_code} {_errors(response)}"
        raise EngineUnreachable(msg, status=response.status_code)
    if not response.is_success:
        msg = f"{request}: {response.status_code} {_errors(response)}"
        raise EngineError(msg, status=response.status_code)


def _errors(response: httpx.Response) -> str:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return response.text[:200]
    errors = body.get("errors") if isinstance(body, dict) else None
    return first_lines("\n".join(map(str, errors))) if errors else response.text[:200]
