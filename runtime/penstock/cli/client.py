"""A client of the REST API."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

import httpx

from penstock.cli.access.masters import Masters, split_addresses, unreachable
from penstock.cli.errors import MasterUnreachable, OperationFailed, RequestFailed
from penstock.common.credentials.local_token import find_token
from penstock.common.job_status import GLOBALLY_TERMINAL
from penstock.rest import models
from penstock.rest.models.jars import ApplicationDetails, ApplicationExceptions, JarStarted

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

S = TypeVar("S", bound=models.Shape)
R = TypeVar("R", models.OperationResult, models.CheckpointResult)

Consistency = Literal["checkpoint", "live"]
"""Source of looked-up state: the newest checkpoint, or the task that owns the key."""
_UPLOAD_S = 600.0
_START_S = 900.0
"""Timeouts in seconds: `_UPLOAD_S` for the upload of a program, and `_START_S` until its first job is accepted."""
_POLL_FIRST, _POLL_LAST = 0.1, 1.0
_LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=None)
"""Idle connections have no limit. If they had a limit, httpcore could close a connection that another thread has just
received from the pool.
"""


class RestClient:
    """Client of the JobManager at `url`. All methods wait for the response.

    Args:
        url: `http://HOST:PORT` or `https://HOST:PORT`. If the URL has no scheme, the client uses https if `tls` is
            given, else http. The client never changes the scheme of a URL. Several URLs, separated by commas, are the masters of one
            cluster (`cli.access.masters`).
        token: bearer token. None means the token of this user's `python job.py`, if it serves the URL (`common.local_token`).
        timeout: seconds for each request.
        tls: CAs and client certificate (`connection.client_tls`). None means the system's CAs.
        server_name: name that the certificate must have, if it is not the host of the URL.
        transport: transport, for tests.

    Every method raises:
        MasterUnreachable: there is no response, the certificate is refused, or the server is not a JobManager.
        RequestFailed: the JobManager refused the request.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._timeout = timeout
        self._extensions = None if server_name is None else {"sni_hostname": server_name}
        scheme = "http" if tls is None else "https"
        urls = [(one if "://" in one else f"{scheme}://{one}").rstrip("/") for one in split_addresses(url)]
        if token is None and transport is None and len(urls) == 1 and (found := find_token(urls[0])) is not None:
            urls[0], token = found
        self._masters = Masters(urls)
        self.url = ",".join(urls)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            for one in urls:
                httpx.URL(one)
            self._http = httpx.Client(
                base_url=urls[0],
                headers=headers,
                timeout=timeout,
                transport=transport,
                limits=_LIMITS,
                verify=True if tls is None else tls,
            )
        except httpx.InvalidURL as error:
            raise MasterUnreachable(
                f"'{url}' is not a valid address of a JobManager: {error}", remedy="write -m http://HOST:PORT"
            ) from None

    def close(self) -> None:
        self._http.close()

    # information

    def overview(self) -> models.ClusterOverview:
        return self._get("/overview", models.ClusterOverview)

    def task_managers(self) -> models.TaskManagers:
        return self._get("/taskmanagers", models.TaskManagers)

    def jobs(self) -> list[models.JobSummary]:
        return self._get("/jobs/overview", models.JobsOverview).jobs

    def job(self, job_id: str) -> models.JobDetails:
        return self._get(f"/jobs/{_part(job_id)}", models.JobDetails)

    def state(self, job_id: str) -> str:
        return self._get(f"/jobs/{_part(job_id)}/status", models.JobStatus).status

    def progress(self, job_id: str) -> models.JobProgress:
        return self._get(f"/jobs/{_part(job_id)}/progress", models.JobProgress)

    def autoscaler(self, job_id: str, limit: int) -> models.AutoscalerStatus:
        """Return the state of the autoscaler, with at most `limit` decisions."""
        return self._get(f"/jobs/{_part(job_id)}/autoscaler?limit={limit}", models.AutoscalerStatus)

    def autoscaler_recording(self, job_id: str) -> str:
        """Return the recorded measurements of the autoscaler as JSON lines."""
        path = f"/jobs/{_part(job_id)}/autoscaler/recording"
        response = self._send("GET", path)
        if response.is_success:
            return response.text
        raise self._refusal(response, self._json(response, "GET", path))

    def exceptions(self, job_id: str) -> models.JobExceptions:
        return self._get(f"/jobs/{_part(job_id)}/exceptions", models.JobExceptions)

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        return self._get(f"/jobs/{_part(job_id)}/checkpoints", models.CheckpointingStatistics)

    def read_log(self, task_manager: str | None, file: str, start: int) -> tuple[str, int]:
        """Return whole lines from a position on (negative: from the end), and the position after them.

        Args:
            task_manager: id of the TaskManager. None means the JobManager.
            file: `log` or `stdout`.
        """
        path = "/jobmanager" if task_manager is None else f"/taskmanagers/{_part(task_manager)}"
        return self._log_part(f"{path}/{file}", start)

    def thread_dump(self, task_manager: str | None, job_id: str = "") -> models.ThreadDump:
        """Return the threads of a TaskManager's Python workers. None means the JobManager's process, or the process that runs a job's program."""
        path = "/jobmanager" if task_manager is None else f"/taskmanagers/{_part(task_manager)}"
        path = f"/jobs/{_part(job_id)}" if job_id else path
        return self._get(f"{path}/thread-dump", models.ThreadDump)

    def flame_graph(
        self, job_id: str, vertex: str | None, *, seconds: float, hertz: int, kind: str, subtask: int | None = None
    ) -> str:
        """Sample a vertex or one of its subtasks for `seconds` seconds, and return folded stacks. Without a vertex, sample the program."""
        path = f"/jobs/{_part(job_id)}{'' if vertex is None else f'/vertices/{_part(vertex)}'}/flamegraph"
        params = {"seconds": str(seconds), "hertz": str(hertz), "type": kind, "format": "folded"}
        if subtask is not None:
            params["subtaskindex"] = str(subtask)
        response = self._send("GET", path, params=params, timeout=seconds + self._timeout)
        if response.is_success and response.headers.get("content-type", "").startswith("text/plain"):
            return response.text
        raise self._refusal(response, self._json(response, "GET", path))

    def edges(self, job_id: str) -> models.EdgeList:
        """Return the edges of the job graph."""
        return self._get(f"/jobs/{_part(job_id)}/edges", models.EdgeList)

    def edge_records(self, job_id: str, edge: str, *, limit: int = 10, seconds: float = 3.0) -> models.EdgeRecords:
        """Wait up to `seconds` seconds for records on an edge, and return the last records."""
        path = f"/jobs/{_part(job_id)}/edges/records"
        params = {"edge": edge, "limit": str(limit), "seconds": str(seconds)}
        response = self._send("GET", path, params=params, timeout=seconds + self._timeout)
        return models.EdgeRecords.model_validate(self._answer(response, "GET", path))

    def states(self, job_id: str) -> models.JobStates:
        """Return the states in the newest checkpoint."""
        return self._get(f"/jobs/{_part(job_id)}/state", models.JobStates)

    def state_entries(
        self,
        job_id: str,
        name: str,
        key: str | None,
        *,
        uid: str | None = None,
        limit: int | None = None,
        consistency: Consistency = "checkpoint",
    ) -> models.StateEntryList:
        """Return the entries of one key (as JSON or as text), or the first entries.

        The entries come from the newest checkpoint. If `consistency` is `live`, the entries of one key come from the
        task that owns the key.
        """
        parameters = {
            "key": key,
            "uid": uid,
            "limit": None if limit is None else str(limit),
            "consistency": None if consistency == "checkpoint" else consistency,
        }
        params = {name: value for name, value in parameters.items() if value is not None}
        answer = self._request("GET", f"/jobs/{_part(job_id)}/state/{_part(name)}", params=params)
        return models.StateEntryList.model_validate(answer)

    def find_job(self, text: str) -> models.JobSummary:
        """Return the job with that id, prefix of an id, or name.

        If several jobs have the name, return the job that has not ended, or else the job that ended last.

        Raises:
            RequestFailed: no job or several jobs match.
        """
        jobs = self.jobs()
        exact = [job for job in jobs if job.jid == text]
        named = [job for job in jobs if job.name == text and job.state not in GLOBALLY_TERMINAL]
        begins = [job for job in jobs if job.jid.startswith(text.lower())]
        ended = sorted(
            (job for job in jobs if job.name == text and job.state in GLOBALLY_TERMINAL), key=lambda job: job.end_time
        )
        for found in (exact, named, begins, ended[-1:]):
            if len(found) == 1:
                return found[0]
            if found:
                raise RequestFailed(
                    f"'{text}' matches more than one job: {_listing(found)}",
                    remedy="give more digits of the job id",
                    code="NOT_FOUND",
                )
        remedy = f"jobs here: {_listing(jobs)}" if jobs else "the JobManager has no jobs; see `penstock list -a`"
        raise RequestFailed(
            f"the JobManager at {self.url} has no job '{text}'", remedy=remedy, code="NOT_FOUND", status=404
        )

    # actions

    def checkpoint(self, job_id: str) -> str:
        """Start a checkpoint and return the path that `wait_for_checkpoint` polls."""
        path = f"/jobs/{_part(job_id)}/checkpoints"
        return f"{path}/{self._trigger('POST', path, {})}"

    def savepoint(self, job_id: str, directory: str | None, *, cancel: bool = False) -> str:
        """Start a savepoint and return the path that `wait` polls."""
        path = f"/jobs/{_part(job_id)}/savepoints"
        body = {"target-directory": directory, "cancel-job": cancel}
        return f"{path}/{self._trigger('POST', path, body)}"

    def stop(self, job_id: str, directory: str | None, *, drain: bool = False) -> str:
        body = {"targetDirectory": directory, "drain": drain}
        request_id = self._trigger("POST", f"/jobs/{_part(job_id)}/stop", body)
        return f"/jobs/{_part(job_id)}/savepoints/{request_id}"

    def cancel(self, job_id: str) -> None:
        self._request("PATCH", f"/jobs/{_part(job_id)}", params={"mode": "cancel"}, may_repeat=True)

    def rescale(self, job_id: str, parallelism: int) -> str:
        path = f"/jobs/{_part(job_id)}/rescaling"
        return f"{path}/{self._trigger('PATCH', path, None, {'parallelism': str(parallelism)})}"

    def send_program(self, content: bytes, headers: Mapping[str, str], timeout: float, *, collects: bool) -> str:
        """Send a program and return the job's id after it is accepted.

        Args:
            content, headers: see `cli.remote`.
            collects: whether the records of the job are requested with `program_results`.
        """
        params = {"collect": "true"} if collects else None
        response = self._send("POST", "/programs", content=content, headers=headers, timeout=timeout, params=params)
        return models.ProgramAccepted.model_validate(self._program_answer(response, "POST", "/programs")).job_id

    def program_outcome(self, job_id: str) -> models.ProgramOutcome:
        return self._get(f"/programs/{_part(job_id)}", models.ProgramOutcome)

    def program_results(self, job_id: str, start: int) -> models.ProgramResults:
        """Return the records of `execute_and_collect` from number `start` on."""
        path = f"/programs/{_part(job_id)}/results?from={start}"
        response = self._send("POST", path, may_repeat=True)
        return models.ProgramResults.model_validate(self._answer(response, "POST", path))

    def programs(self) -> list[str]:
        """Return the ids of the programs that are stored in a session cluster.

        Raises:
            RequestFailed: the JobManager belongs to one program and stores no other programs.
        """
        answer = self._program_answer(self._send("GET", "/jars"), "GET", "/jars")
        return [str(file["id"]) for file in answer["files"]]

    def upload_program(self, name: str, content: bytes) -> str:
        """Store a program in a session cluster, and return its id."""
        response = self._send("POST", "/jars/upload", files={"jarfile": (name, content)}, timeout=_UPLOAD_S)
        answer = self._program_answer(response, "POST", "/jars/upload")
        return str(answer["filename"]).rsplit("/", 1)[-1]

    def run_program(self, program: str, request: Mapping[str, object]) -> JarStarted:
        """Start a stored program, and return its id and the id of its first job after the job is accepted.

        Args:
            request: body of `POST /jars/:id/run`.
        """
        path = f"/jars/{_part(program)}/run"
        response = self._send("POST", path, json=request, timeout=_START_S)
        return JarStarted.model_validate(self._program_answer(response, "POST", path))

    def application(self, application_id: str) -> ApplicationDetails:
        """Return a started program of a session cluster with its jobs."""
        return self._get(f"/applications/{_part(application_id)}", ApplicationDetails)

    def application_exceptions(self, application_id: str) -> ApplicationExceptions:
        return self._get(f"/applications/{_part(application_id)}/exceptions", ApplicationExceptions)

    def program_output(self, job_id: str, start: int, *, log: bool = False) -> tuple[str, int]:
        """Return whole lines of the output or (`log`) the log of a job's program, and the position after them. `start`:
        position of the first line.
        """
        return self._log_part(f"/jobs/{_part(job_id)}/{'log' if log else 'output'}", start)

    def _log_part(self, path: str, start: int) -> tuple[str, int]:
        response = self._send("GET", path, params={"from": str(start)})
        end = response.headers.get("X-Penstock-Log-End", "")
        if response.is_success and end.isdecimal():
            return response.text, int(end)
        raise self._refusal(response, self._json(response, "GET", path))

    def _program_answer(
        self, response: httpx.Response, method: str, path: str
    ) -> Any:  # JSON, which the callers validate
        if response.status_code in (404, 405) and path in ("/programs", "/jars", "/jars/upload"):
            raise RequestFailed(
                f"the JobManager at {self.url} does not accept programs",
                remedy="send the program to a session cluster (`penstock session`). A deployed JobManager runs only its own job. To run "
                "the program on this machine, omit -m and unset PENSTOCK_MASTER",
                code="NOT_FOUND",
                status=404,
            )
        return self._answer(response, method, path)

    def dispose(self, savepoint: str) -> str:
        return f"/savepoint-disposal/{self._trigger('POST', '/savepoint-disposal', {'savepoint-path': savepoint})}"

    def shut_down(self) -> None:
        self._request("DELETE", "/cluster")
        self._masters.is_ending = True

    def wait(self, path: str, operation_name: str, timeout: float) -> models.OperationOutcome:
        """Wait for an action that was started. `operation_name` is its name in errors, and `timeout` is in seconds.

        Raises:
            OperationFailed: the action failed, or took longer than `timeout`.
        """
        return (
            self._outcome(path, models.OperationResult, operation_name, timeout).operation or models.OperationOutcome()
        )

    def wait_for_checkpoint(self, path: str, operation_name: str, timeout: float) -> int | None:
        """Wait for a checkpoint that was started, as `wait` does, and return its number."""
        outcome = self._outcome(path, models.CheckpointResult, operation_name, timeout).operation
        return None if outcome is None else outcome.checkpoint_id

    def _outcome(self, path: str, shape: type[R], operation_name: str, timeout: float) -> R:
        result: R | None = self._until(
            lambda: self._get(path, shape), lambda found: found.status.id == "COMPLETED", timeout
        )
        if result is None:
            raise OperationFailed(
                f"{operation_name} has not ended after {timeout:g} s",
                remedy=f"the operation still runs. Poll {self._masters.url}{path}, or set a longer --timeout",
            )
        if result.operation is not None and result.operation.failure_cause is not None:
            raise OperationFailed(f"{operation_name} failed: {result.operation.failure_cause.stack_trace}")
        return result

    def wait_until_ended(self, job_id: str, timeout: float) -> str:
        """Return the state in which the job ended, or its current state after `timeout` seconds."""
        state = self._until(lambda: self.state(job_id), lambda found: found in GLOBALLY_TERMINAL, timeout)
        return state or self.state(job_id)

    def _until(self, ask: Callable[[], Any], is_done: Callable[[Any], bool], timeout: float) -> Any:
        deadline = time.monotonic() + timeout
        pause = _POLL_FIRST
        while True:
            found = ask()
            if is_done(found):
                return found
            if time.monotonic() + pause > deadline:
                return None
            time.sleep(pause)
            pause = min(_POLL_LAST, pause * 1.5)

    def _trigger(
        self, method: str, path: str, body: Mapping[str, object] | None, params: Mapping[str, str] | None = None
    ) -> str:
        """Start an action. A new trigger id makes it possible to repeat the request."""
        trigger = {"triggerId": uuid.uuid4().hex}
        if body is None:
            params = {**(params or {}), **trigger}
        else:
            body = {**body, **trigger}
        answer = self._request(method, path, json=body, params=params, may_repeat=True)
        return models.TriggerResponse.model_validate(answer).request_id

    def _get(self, path: str, shape: type[S]) -> S:
        answer = self._request("GET", path)
        try:
            return shape.model_validate(answer)
        except ValueError as error:
            raise self._not_a_master(
                f"the response to GET {path} has an unexpected form ({type(error).__name__})"
            ) from None

    def _request(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
        may_repeat: bool = False,
    ) -> Any:  # JSON, which the callers validate
        response = self._send(method, path, json=json, params=params, may_repeat=may_repeat)
        return self._answer(response, method, path)

    def _answer(self, response: httpx.Response, method: str, path: str) -> Any:  # JSON, which the callers validate
        answer = self._json(response, method, path)
        if response.is_success:
            return answer
        raise self._refusal(response, answer)

    def _send(
        self,
        method: str,
        path: str,
        *,
        json: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        files: Mapping[str, tuple[str, bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        may_repeat: bool = False,
    ) -> httpx.Response:
        may_repeat = may_repeat or method == "GET"

        def send(url: str) -> httpx.Response:
            return self._http.request(
                method,
                f"{url}{path}",
                json=json,
                params=params,
                content=content,
                files=files,
                headers=headers,
                timeout=self._timeout if timeout is None else timeout,
                extensions=self._extensions,
            )

        def send_again_if_closed(url: str) -> httpx.Response:
            try:
                return send(url)
            except httpx.RemoteProtocolError:
                # Most likely, the server or its proxy has just closed an idle connection.
                if not may_repeat:
                    raise
                return send(url)

        try:
            return self._masters.send(send_again_if_closed, may_repeat=may_repeat)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise unreachable(self.url, error) from None

    def _json(self, response: httpx.Response, method: str, path: str) -> Any:  # JSON, which the callers validate
        try:
            return response.json()
        except ValueError:
            raise self._not_a_master(
                f"the response to {method} {path} has the status {response.status_code} and is not JSON"
            ) from None

    def _refusal(self, response: httpx.Response, answer: object) -> RequestFailed:
        errors = answer.get("errors") if isinstance(answer, dict) else None
        lines = [str(line) for line in errors] if isinstance(errors, list) and errors else [response.reason_phrase]
        remedies = [line.removeprefix("remedy: ") for line in lines if line.startswith("remedy: ")]
        message = [line for line in lines if not line.startswith("remedy: ")]
        return RequestFailed(
            "\n".join(message),
            remedy="; ".join(remedies),
            code=response.headers.get("X-Penstock-Error", ""),
            status=response.status_code,
        )

    def _not_a_master(self, problem: str) -> MasterUnreachable:
        return MasterUnreachable(
            f"the server at {self.url} is not a JobManager: {problem}",
            remedy="check the URL (-m URL or PENSTOCK_MASTER)",
        )


def _part(text: str) -> str:
    return quote(text, safe="")


def _listing(jobs: list[models.JobSummary]) -> str:
    shown = ", ".join(f"{job.jid} ({job.name}, {job.state})" for job in jobs[:5])
    return f"{shown} and {len(jobs) - 5} more" if len(jobs) > 5 else shown
