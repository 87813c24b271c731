"""Actions on the jobs of a session's programs, such as savepoints: which program performs an action, and how the action ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from penstock.common.errors import PenstockError
from penstock.jobmanager.process.programs.remote_gateway import LIST_S
from penstock.jobmanager.process.programs.running_program import RunningProgram
from penstock.rest import facts

MAX_ACTIONS = 1_000


class ProgramActions:
    """Actions by id. The oldest are forgotten first. Thread-safe.

    Args:
        program_of: function that returns the running program of a job.
        programs: function that returns all running programs.
    """

    def __init__(
        self, program_of: Callable[[str], RunningProgram | None], programs: Callable[[], list[RunningProgram]]
    ) -> None:
        self._program_of, self._programs = program_of, programs
        self._ended: dict[str, facts.Operation] = {}
        """Actions on the jobs of processes that have ended."""
        self._requested: dict[str, str] = {}
        """Ids of programs by the id of an action on one of their jobs."""
        self._lock = threading.Lock()

    def note(self, job_id: str, request_id: str) -> str:
        """Remember which program performs an action. Return the id of the action."""
        program = self._program_of(job_id)
        if program is not None:
            with self._lock:
                self._requested[request_id] = program.spec.id
                _shorten(self._requested)
        return request_id

    def keep(self, operations: Iterable[facts.Operation]) -> None:
        """Keep the actions of a process that ends."""
        with self._lock:
            self._ended |= {operation.id: operation for operation in operations}
            _shorten(self._ended)

    def status(self, request_id: str) -> facts.Operation | None:
        """Return the status of an action, or None if the action is unknown.

        The process of the job knows the status. When the process ends, `keep` stores the status here.

        Raises:
            Unavailable: the process does not answer.
        """
        with self._lock:
            if request_id in self._ended:
                return self._ended[request_id]
            wanted = self._requested.get(request_id, "")
        programs = self._programs()
        for program in programs:
            if program.spec.id == wanted and program.gateway is not None:
                return program.gateway.operation(request_id)
        deadline = time.monotonic() + LIST_S
        for program in programs:  # the session was restarted after the request
            gateway = program.gateway
            with suppress(PenstockError):
                if gateway is not None:
                    return gateway.operation(request_id, deadline)
        return None


def _shorten(entries: dict[str, Any]) -> None:
    """Remove the oldest entries of a dictionary that is too large."""
    while len(entries) > MAX_ACTIONS:
        del entries[next(iter(entries))]
