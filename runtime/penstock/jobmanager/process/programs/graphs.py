"""Programs of `create_remote_environment`, which clients send to a session as serialized graphs, for REST (`rest.gateway.Programs`).

Only the process of a program reads its graph, because reading it runs code of the client. The session stores the graph, so that the job
continues after a restart. A program of `execute_and_collect` is not stored: its client could not read the records of a second run.
"""

from __future__ import annotations

import threading
import time

from penstock import __version__
from penstock.common.errors import InvalidJob, NotNow
from penstock.common.job_status import JobStatus
from penstock.common.program.bundle import digest_of
from penstock.jobmanager.process.programs.messages import ProgramSpec, SentGraph
from penstock.jobmanager.process.programs.process.shipping import check_versions
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.remote_gateway import RemoteGateway
from penstock.rest import models
from penstock.rest.errors import Conflict, NotFound, Unavailable

NAME = "remote environment"
"""Name of a program until its job has started."""
END_S = 5.0
"""Time in seconds for a crashed program to end or to start again, before a client gets an answer."""
MAX_LAST = 20
"""Maximum number of programs whose last records are kept for a client that has not received them."""


class SentGraphs:
    """Programs of clients. `rest.gateway.Programs` describes the methods."""

    def __init__(self, programs: ProgramRunner) -> None:
        self._programs = programs
        self._last: dict[str, tuple[int, models.ProgramResults]] = {}
        """Last records of a job, with the number of the first of them."""
        self._lock = threading.Lock()

    def submit(self, content: bytes, penstock: str, python: str, *, collects: bool) -> str:
        check_versions(penstock, python, __version__)
        if not content:
            raise InvalidJob("the request has no program", remedy="use create_remote_environment")
        graph = SentGraph(penstock, python, collects)
        spec = ProgramSpec(id="", bundle=NAME, digest=digest_of(content), entry=NAME, graph=graph)
        return self._programs.run(spec, content).jobs[0]

    def outcome(self, job_id: str) -> models.ProgramOutcome:
        program = self._programs.program_of(job_id)
        try:
            gateway = self._gateway(job_id)
            if gateway is not None:
                return models.ProgramOutcome.model_validate(gateway.outcome(job_id))
        except (NotFound, NotNow, Unavailable):  # its process has crashed, and may start again
            if program is None:
                raise
            self._has_ended(job_id)
        known = self._programs.outcomes.get(job_id)
        if known is not None:
            return models.ProgramOutcome.model_validate(known)
        if program is None:
            raise _unknown(job_id)
        job = program.known.get(job_id)
        return models.ProgramOutcome(status=JobStatus.RESTARTING.value if job is None else job.state)

    def results(self, job_id: str, start: int) -> models.ProgramResults:
        try:
            gateway = self._gateway(job_id)
            if gateway is None:
                return self._last_results(job_id, start)
            found = models.ProgramResults.model_validate(gateway.results(job_id, start))
        except Unavailable:
            if not self._has_ended(job_id):
                raise
            return self._last_results(job_id, start)
        if found.is_done:
            with self._lock:
                self._last[job_id] = start, found
                while len(self._last) > MAX_LAST:
                    del self._last[next(iter(self._last))]
        return found

    def _last_results(self, job_id: str, start: int) -> models.ProgramResults:
        """Return the last records of an ended job, or none if the job has failed. The client then requests the outcome."""
        with self._lock:
            first, last = self._last.get(job_id, (-1, None))
        if last is not None and first == start:
            return last
        outcome = self._programs.outcomes.get(job_id)
        if outcome is None:
            raise _unknown(job_id)
        if outcome.get("failure"):
            return models.ProgramResults(values=[], is_done=True)
        raise Conflict(
            f"the records of job {job_id} from {start} on are no longer kept",
            remedy="read the records in one program, from one thread, at most two minutes after the end of the job",
        )

    def _has_ended(self, job_id: str) -> bool:
        """Wait a few seconds for the end of a program whose process does not answer. Return whether it has ended."""
        deadline = time.monotonic() + END_S
        while self._programs.program_of(job_id) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._programs.program_of(job_id) is None

    def _gateway(self, job_id: str) -> RemoteGateway | None:
        """Return the gateway to the process of a running program, or None."""
        program = self._programs.program_of(job_id)
        if program is None:
            return None
        if program.spec.graph is None:
            raise Conflict(
                f"job {job_id} was started by an uploaded program",
                remedy="GET /jobs/:id shows its state, and GET /jobs/:id/output the output of its program",
            )
        if program.gateway is None and not program.spec.is_stored:
            raise Unavailable(f"the process of job {job_id} has just ended", remedy="repeat the request in a second")
        return program.gateway


def _unknown(job_id: str) -> NotFound:
    return NotFound(
        f"job {job_id} does not exist", remedy="it was never submitted here, or it was removed after its end"
    )
