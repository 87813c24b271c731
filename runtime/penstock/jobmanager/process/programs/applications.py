"""The programs of a session as Flink's applications: a program with all its jobs, its state and its end."""

from __future__ import annotations

import threading
import time

from penstock.common.job_status import JobStatus
from penstock.jobmanager.process.programs.messages import CANCELED
from penstock.jobmanager.process.programs.running_program import RunningProgram
from penstock.rest import facts
from penstock.rest.errors import NotFound


class Applications:
    """Running programs, and descriptions of ended ones. The oldest descriptions are removed first. Thread-safe.

    Args:
        max_ended: maximum number of ended programs.
        ttl_s: time in seconds after which an ended program is removed.
    """

    def __init__(self, max_ended: int, ttl_s: float) -> None:
        self._max_ended, self._ttl_s = max_ended, ttl_s
        self._running: dict[str, RunningProgram] = {}
        self._ended: dict[str, tuple[float, facts.Application]] = {}
        self._lock = threading.Lock()

    def add(self, program: RunningProgram) -> None:
        with self._lock:
            self._running[program.spec.id] = program

    def close(self, program: RunningProgram) -> None:
        """Keep the description of a program that has ended, after its output is complete. A program without a job is forgotten."""
        now = time.monotonic()
        with self._lock:
            if self._running.pop(program.spec.id, None) is None:
                return
            if program.jobs:
                self._ended[program.spec.id] = now, _described(program, int(time.time() * 1000))
            for one, (at, _) in list(self._ended.items()):
                if len(self._ended) > self._max_ended or now - at > self._ttl_s:
                    del self._ended[one]

    def all(self) -> list[facts.Application]:
        """Return all programs in the order of their start."""
        with self._lock:
            found = [_described(program) for program in self._running.values()]
            found += [application for _, application in self._ended.values()]
        return sorted(found, key=lambda application: application.start)

    def running(self, program_id: str) -> RunningProgram | None:
        with self._lock:
            return self._running.get(program_id)

    def one(self, program_id: str) -> facts.Application:
        """Return a program.

        Raises:
            NotFound: no such program is known.
        """
        with self._lock:
            if program_id in self._running:
                return _described(self._running[program_id])
            if program_id in self._ended:
                return self._ended[program_id][1]
        raise NotFound(
            f"application {program_id} does not exist",
            remedy="GET /applications/overview lists the applications. Ended ones are kept for a limited time",
        )


def _described(program: RunningProgram, ended_at: int = facts.NOT_YET) -> facts.Application:
    end = program.end
    failure = exit_code = None
    if ended_at == facts.NOT_YET or end is None:
        state = "CANCELING" if program.is_canceled else "RUNNING" if program.jobs else "CREATED"
    else:
        is_canceled = program.is_canceled or end.code == CANCELED
        states = {program.known[job_id].state for job_id in program.jobs if job_id in program.known}
        exit_code = 0 if is_canceled else end.exit_code or int(bool(end.code))
        state = "FAILED" if exit_code else "FINISHED"
        if is_canceled or (not exit_code and states == {JobStatus.CANCELED.value}):
            state = "CANCELED"
        if state == "FAILED":
            text = "\n".join(filter(None, (end.message, end.remedy and f"remedy: {end.remedy}")))
            failure = facts.Failure(ended_at, end.code, text, end.traceback)
    return facts.Application(
        program.spec.id,
        next(iter(program.jobs.values()), program.spec.bundle),
        state,
        program.spec.submitted_at,
        ended_at,
        list(program.jobs),
        exit_code,
        failure,
    )
