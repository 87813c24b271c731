"""What the operator asks of a job's master: Flink's REST API, as far as it is needed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

import httpx

from penstock_operator.engine.account import Checkpoints, Progress, Request, Rescaled
from penstock_operator.errors import EngineError, EngineUnreachable
from penstock_operator.fence import no_fence

if TYPE_CHECKING:
    from penstock_operator.fence import Fence

RequestKind = Literal["stop", "savepoint", "checkpoint", "rescale"]


@dataclass(frozen=True)
class JobView:
    """A job as the master sees it."""

    id: str
    state: str
    parallelism: int | None = None


@dataclass(frozen=True)
class Glance:
    """All that is asked of a job that runs as it should."""

    job: JobView
    checkpoints: Checkpoints
    progress: Progress
    exception: str = ""
    """The root cause of the last failure, while the job is not RUNNING."""
    end_of_input: bool = False
    """It is known to have FINISHED because all of its input was read; nobody has stopped it."""


class EngineClient(Protocol):
    """One job's master. Every method raises `EngineError`, or `EngineUnreachable` if nobody answers."""

    async def glance(self, job_id: str) -> Glance | None:
        """How the job is, in one request; None if the master does not know the job, or not the question."""

    async def jobs(self) -> list[JobView]:
        """All jobs of the master; an application has one."""

    async def parallelism(self, job_id: str) -> int | None:
        """The parallelism the job runs with."""

    async def checkpoints(self, job_id: str) -> Checkpoints:
        """Counts and the newest completed checkpoint."""

    async def progress(self, job_id: str) -> Progress:
        """How often the job failed and was restarted by the engine, and its last rescale."""

    async def exception(self, job_id: str) -> str:
        """The root cause of the last failure; empty if there was none."""

    async def slots(self) -> int:
        """Slots of all registered workers."""

    async def busy_workers(self) -> frozenset[str]:
        """Ids and addresses of workers that hold part of the job."""

    async def stop(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Stop with a savepoint below `directory`; the request's id. Asking twice with one id stops once."""

    async def savepoint(self, job_id: str, directory: str, trigger_id: str) -> str:
        """Take a savepoint below `directory`; the request's id."""

    async def checkpoint(self, job_id: str, trigger_id: str) -> str:
        """Take a checkpoint; the request's id."""

    async def rescale(self, job_id: str, parallelism: int, trigger_id: str) -> str:
        """Change the parallelism; the request's id."""

    async def request(self, job_id: str, kind: RequestKind, request_id: str) -> Request:
        """How far a request is; `Unknown` if the master does not know it."""


_PATHS: dict[RequestKind, str] = {
    "stop": "savepoints",
    "savepoint": "savepoints",
    "checkpoint": "checkpoints",
    "rescale": "rescaling",
}


class HttpEngine:
    """A master over HTTP. `fence` is asked before everything that changes the job."""

    def __init__(self, http: httpx.AsyncClient, base_url: str, token: str | None, fence: Fence = no_fence) -> None:
        self._http, self._fence = http, fence
        self._base = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def glance(self, job_id: str) -> Glance | None:
        """See `EngineClient`."""
        try:
            return read_summary(await self._call("GET", f"/jobs/{job_id}/summary"))
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def jobs(self) -> list[JobView]:
        """See `EngineClient`."""
        body = await self._call("GET", "/jobs/overview")
        return [
            JobView(str(job.get("jid") or job.get("id")), str(job.get("state") or job.get("status")))
            for job in body.get("jobs", ())
        ]

    async def parallelism(self, job_id: str) -> int | None:
        """See `EngineClient`."""
        body = await self._call("GET", f"/jobs/{job_id}/config")
        value = body.get("execution-config", {}).get("job-parallelism")
        return int(value) if isinstance(value, int) and value > 0 else None

    async def checkpoints(self, job_id: str) -> Checkpoints:
        """See `EngineClient`."""
        body = await self._call("GET", f"/jobs/{job_id}/checkpoints")
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
        """See `EngineClient`."""
        return read_progress(await self._call("GET", f"/jobs/{job_id}/progress"))

    async def exception(self, job_id: str) -> str:
        """See `EngineClient`."""
        body = await self._call("GET", f"/jobs/{job_id}/exceptions")
        history = (body.get("exceptionHistory") or {}).get("entries") or []
        newest = history[0] if history else {}
        return first_lines(
            str(body.get("root-exception") or newest.get("stacktrace") or newest.get("exceptionName") or "")
        )

    async def slots(self) -> int:
        """See `EngineClient`."""
        return int((await self._call("GET", "/overview")).get("slots-total", 0))

    async def busy_workers(self) -> frozenset[str]:
        """See `EngineClient`."""
        body = await self._call("GET", "/taskmanagers")
        busy = [w for w in body.get("taskmanagers", ()) if w.get("freeSlots", 0) < w.get("slotsNumber", 0)]
        return frozenset(str(w[key]) for w in busy for key in ("id", "path") if w.get(key))

    async def stop(self, job_id: str, directory: str, trigger_id: str) -> str:
        """See `EngineClient`."""
        body = {"targetDirectory": directory, "drain": False, "triggerId": trigger_id}
        return await self._ask("POST", f"/jobs/{job_id}/stop", body, trigger_id)

    async def savepoint(self, job_id: str, directory: str, trigger_id: str) -> str:
        """See `EngineClient`."""
        body = {"target-directory": directory, "cancel-job": False, "triggerId": trigger_id}
        return await self._ask("POST", f"/jobs/{job_id}/savepoints", body, trigger_id)

    async def checkpoint(self, job_id: str, trigger_id: str) -> str:
        """See `EngineClient`."""
        return await self._ask("POST", f"/jobs/{job_id}/checkpoints", {"triggerId": trigger_id}, trigger_id)

    async def rescale(self, job_id: str, parallelism: int, trigger_id: str) -> str:
        """See `EngineClient`."""
        path = f"/jobs/{job_id}/rescaling?parallelism={parallelism}&triggerId={trigger_id}"
        return await self._ask("PATCH", path, None, trigger_id)

    async def request(self, job_id: str, kind: RequestKind, request_id: str) -> Request:
        """See `EngineClient`."""
        try:
            body = await self._call("GET", f"/jobs/{job_id}/{_PATHS[kind]}/{request_id}")
        except EngineUnreachable:
            raise
        except EngineError as error:
            if error.status == 404:
                return Request(request_id, "Unknown")
            raise
        return read_request(request_id, body)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None, trigger_id: str) -> str:
        try:
            async with asyncio.timeout(self._fence()):
                answer = await self._call(method, path, body)
        except TimeoutError as error:
            msg = f"{method} {path}: no answer in time"
            raise EngineUnreachable(msg) from error
        return str(answer.get("request-id") or trigger_id)

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            response = await self._http.request(method, self._base + path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            msg = f"{method} {path}: {type(error).__name__}"
            raise EngineUnreachable(msg) from error
        if response.status_code in (502, 503, 504):
            msg = f"{method} {path}: {response.status_code}"
            raise EngineUnreachable(msg, status=response.status_code)
        if not response.is_success:
            msg = f"{method} {path}: {response.status_code} {_errors(response)}"
            raise EngineError(msg, status=response.status_code)
        try:
            answer = response.json() if response.content else {}
        except ValueError as error:
            msg = f"{method} {path}: the answer is not JSON"
            raise EngineError(msg, status=response.status_code) from error
        return answer if isinstance(answer, dict) else {}


def read_progress(body: dict[str, Any]) -> Progress:
    """Failovers and the last rescale; a master of another version may say less.

    >>> read_progress({"restarts": 1, "rescales": [{"new-parallelism": 4, "duration": 2800}]}).rescaled
    Rescaled(parallelism=4, took=datetime.timedelta(seconds=2, microseconds=800000))
    """
    done = [r for r in body.get("rescales") or () if r.get("outcome", "COMPLETED") == "COMPLETED"]
    return Progress(int(body.get("restarts", 0)), _rescaled(done[-1] if done else {}))


def read_summary(body: dict[str, Any]) -> Glance:
    """What `GET /jobs/:id/summary` says.

    >>> read_summary({"jid": "a", "state": "RUNNING", "parallelism": 2, "checkpoints": {"completed": 3}}).checkpoints.completed
    3
    """
    points, newest = body.get("checkpoints") or {}, (body.get("checkpoints") or {}).get("last") or {}
    return Glance(
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
    """Flink's shape of a long action's state.

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
    """The head of a stack trace: never more than `limit` characters, however long a line is."""
    lines = [line.strip() for line in text[: limit * 4].splitlines() if line.strip()]
    return " | ".join(lines[:4])[:limit]


def _errors(response: httpx.Response) -> str:
    try:
        body = response.json()
    except ValueError:
        return response.text[:200]
    errors = body.get("errors") if isinstance(body, dict) else None
    return first_lines("\n".join(map(str, errors))) if errors else response.text[:200]
