"""Programs on a remote session cluster, for `create_remote_environment`.

The program is built here and sent as a whole to the JobManager of `penstock session`. Records of `execute_and_collect`
are unpickled here. So a program trusts its cluster. The cluster also trusts every client that has its token.
"""

from __future__ import annotations

import base64
import threading
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.cli.access.connection import client_tls
from penstock.cli.client import RestClient
from penstock.common import errors
from penstock.common.completable_future import CompletableFuture
from penstock.common.errors import InvalidJob, JobSuspended, PenstockError
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.job_id import JobID
from penstock.common.job_status import GLOBALLY_TERMINAL, JobStatus
from penstock.connectors.simple.collect import decode_collected
from penstock.graph.executor import JobResults

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from penstock.graph.program import Program
    from penstock.rest import models

START_S = 900.0
"""Timeout in seconds for the acceptance of a job, which includes the wait for slots."""
LEAVE_S = 7 * 24 * 3600.0
"""Timeout in seconds of an operation for which a caller waits."""
_POLL_S = 0.2


class RemoteExecutor:
    """Executor that runs programs on a session cluster.

    Args:
        url: URL of the REST API of the cluster's JobManager.
        token: bearer token, if the JobManager requires one.
        ca_file: PEM file with the CAs of an https URL. None means the system's CAs.
        client_certificate: PEM file with a client certificate and its key.
    """

    def __init__(
        self, url: str, token: str | None = None, ca_file: str | None = None, client_certificate: str | None = None
    ) -> None:
        self._client = RestClient(url, token, tls=client_tls(ca_file, client_certificate))

    def execute(self, program: Program) -> JobExecutionResult:
        """Run a program.

        Raises:
            PenstockError: the job is refused or fails, with the same error as on a local cluster, or the cluster does not respond.
        """
        job_id = self._submit(program)
        try:
            return self._end_of(job_id)
        except KeyboardInterrupt:
            self._client.cancel(job_id)
            raise

    def execute_async(self, program: Program) -> JobClient:
        return RemoteJobClient(self, self._submit(program))

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        return JobResults(partial(self._results, program, limit))

    def _results(
        self, program: Program, limit: int | None, submitted: Callable[[Callable[[], object]], None]
    ) -> Generator[Any]:
        job_id = self._submit(program, collects=True)
        submitted(lambda: self._client.cancel(job_id))
        start = 0
        is_done = False
        try:
            while not is_done:
                results = self._client.program_results(job_id, start)
                is_done = results.is_done
                for encoded in results.values:
                    if start == limit:
                        return
                    start += 1
                    yield decode_collected(base64.b64decode(encoded))
            self._end_of(job_id)
        finally:
            if not is_done and self._client.state(job_id) not in GLOBALLY_TERMINAL:
                self._client.cancel(job_id)
                self._client.wait_until_ended(job_id, 30)

    def _submit(self, program: Program, *, collects: bool = False) -> str:
        for key in ("python.files", "python.archives"):
            if program.configuration.get(key):
                raise InvalidJob(
                    f"{key} names files of this machine, which a remote cluster cannot read",
                    remedy="add the files to the image of the cluster. Imported modules are sent with the program",
                )
        shipping = import_module("penstock.jobmanager.process.programs.process.shipping")
        headers = {"X-Penstock-Version": __version__, "X-Python-Version": shipping.PYTHON}
        return self._client.send_program(shipping.shipped(program), headers, START_S, collects=collects)

    def _end_of(self, job_id: str) -> JobExecutionResult:
        """Wait for the end of the job, and raise the error of its failure."""
        while True:
            outcome = self._client.program_outcome(job_id)
            if outcome.failure is not None:
                raise _error_of(outcome.failure)
            if outcome.status in GLOBALLY_TERMINAL:
                return JobExecutionResult(JobID(job_id), outcome.net_runtime, outcome.accumulators)
            if outcome.status == JobStatus.SUSPENDED.value:
                raise JobSuspended(
                    f"job {job_id} did not end, but its JobManager received a signal to shut down",
                    remedy="start the job again from its newest checkpoint",
                )
            time.sleep(_POLL_S)


class RemoteJobClient(JobClient):
    """Client of a job on a session cluster, which `execute_async` returns."""

    def __init__(self, executor: RemoteExecutor, job_id: str) -> None:
        self._executor = executor
        self._client = executor._client
        self._job_id = job_id

    def get_job_id(self) -> JobID:
        return JobID(self._job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return _in_thread(lambda: JobStatus(self._client.state(self._job_id)))

    def cancel(self) -> CompletableFuture[None]:
        def cancel() -> None:
            self._client.cancel(self._job_id)
            self._client.wait_until_ended(self._job_id, LEAVE_S)

        return _in_thread(cancel)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        return self._located(
            "stop",
            lambda: self._client.stop(self._job_id, savepoint_directory, drain=advance_to_end_of_event_time),
        )

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._located("savepoint", lambda: self._client.savepoint(self._job_id, savepoint_directory))

    def _located(self, operation_name: str, begin: Callable[[], str]) -> CompletableFuture[str]:
        return _in_thread(lambda: self._client.wait(begin(), operation_name, LEAVE_S).location or "")

    def rescale(self, parallelism: int) -> CompletableFuture[int]:
        """Change the parallelism of the running job. The result is the new parallelism."""

        def rescale() -> int:
            self._client.wait(self._client.rescale(self._job_id, parallelism), "rescale", LEAVE_S)
            return parallelism

        return _in_thread(rescale)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return _in_thread(lambda: self._client.program_outcome(self._job_id).accumulators)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return _in_thread(lambda: self._executor._end_of(self._job_id))


def _in_thread(work: Callable[[], Any]) -> CompletableFuture[Any]:
    future: CompletableFuture[Any] = CompletableFuture()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # the caller that requests the result handles it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _error_of(failure: models.ProgramFailure) -> PenstockError:
    """Return the error in the form in which it was raised on the cluster."""
    found = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PenstockError))
    kind = next((kind for kind in found if kind.code == failure.code), PenstockError)
    return kind(failure.message, remedy=failure.remedy, operator=failure.operator, location=failure.location)
