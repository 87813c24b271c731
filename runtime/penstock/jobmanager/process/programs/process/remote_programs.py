"""Programs of `create_remote_environment` in their own process: the client sends a graph, and requests the result and the records."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.job_status import JobStatus
from penstock.connectors.simple.collect import CollectSink
from penstock.graph.program import Program
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.programs.process.shipping import unpacked
from penstock.jobmanager.process.session.session import Session, raise_if_failed, result_of
from penstock.rest.errors import Conflict, NotFound

if TYPE_CHECKING:
    from penstock.jobmanager.job.job_master import JobMaster

WAIT_S = 1.0
"""Time in seconds to wait for the first record."""
ABANDONED_AFTER_S = 120.0
"""Time in seconds without a request for a job's records after which the job is cancelled, because the records would fill the memory."""
AT_ONCE_BYTES = 8 * 1024 * 1024

logger = logging.getLogger(__name__)


class RemotePrograms:
    """Programs that were sent as graphs. `rest.gateway.Programs` describes the methods. Results are the JSON values of REST, because this
    process does not load REST's packages.

    Args:
        settings: settings of the cluster for jobs.
    """

    def __init__(self, session: Session, settings: Mapping[str, str]) -> None:
        self._session = session
        self._settings = dict(settings)
        self._collected: dict[str, _Collected] = {}
        self._lock = threading.Lock()

    def submit(self, content: bytes, penstock: str, python: str, job_id: str) -> None:
        """Start a program. The session gives its job this id.

        Raises:
            PenstockError: the program was refused, or cannot be started.
        """
        program = unpacked(content, penstock, python, __version__)
        if not isinstance(program, Program):
            raise InvalidJob(
                f"the request has no program, but a {type(program).__name__}", remedy="use create_remote_environment"
            )
        # The cluster's settings apply unless the program or its client sets a value.
        configuration = {**self._settings, **program.configuration}
        program = replace(program, configuration=configuration, user_script=None)
        collects = any(isinstance(sink.sink, CollectSink) for sink in program.sinks)
        collected = _Collected() if collects else None
        if collected is not None:  # the client may request records before `submit` returns
            with self._lock:
                self._collected[job_id] = collected
        master = self._session.submit(program, None if collected is None else collected.put)
        if collected is not None:
            collected.master = master
        if not master.is_accepted:
            raise_if_failed(master)

    def outcome(self, job_id: str) -> dict[str, Any]:
        master = self._job(job_id)
        result = result_of(master)
        outcome: dict[str, Any] = {
            "status": master.history.status.value,
            "accumulators": {name: _plain(value) for name, value in result.accumulators.items()},
        }
        if master.is_done:
            try:
                raise_if_failed(master)
            except PenstockError as error:
                outcome["failure"] = {
                    "code": error.code,
                    "message": error.message,
                    "remedy": error.remedy,
                    "operator": error.operator,
                    "location": error.location,
                }
            except Exception as error:
                outcome["failure"] = {"code": "", "message": f"{type(error).__name__}: {error}"}
            outcome["net-runtime"] = result.net_runtime
        return outcome

    def results(self, job_id: str, start: int) -> dict[str, Any]:
        self._job(job_id)
        with self._lock:
            collected = self._collected.get(job_id)
        if collected is None:
            raise Conflict(f"job {job_id} collects no records", remedy="end the program with execute_and_collect()")
        return collected.since(start)

    def wait(self, job_id: str) -> JobMaster:
        """Wait for the end of the job, and until a client has requested its records. Cancel the job if no client requests them."""
        master = self._job(job_id)
        with self._lock:
            collected = self._collected.get(job_id)
        while not master.is_done:
            master.wait(WAIT_S)
            if collected is not None and collected.is_abandoned and not master.is_done:
                logger.warning(
                    "job %s is cancelled: no client has requested its records for %.0f s", job_id, ABANDONED_AFTER_S
                )
                master.request(Operation("cancel"))
                collected = None
        if collected is not None and master.history.status is not JobStatus.CANCELED:
            while not collected.is_taken.wait(WAIT_S) and not collected.is_abandoned:
                pass
        return master

    def _job(self, job_id: str) -> JobMaster:
        master = self._session.dispatcher.job(job_id)
        if master is None:
            raise NotFound(
                f"job {job_id} does not exist", remedy="it was never submitted here, or it was removed after its end"
            )
        return master


class _Collected:
    """Records of a job until its program requests them."""

    def __init__(self) -> None:
        self.master: JobMaster | None = None
        self._values: list[bytes] = []
        self._first = 0
        """Number of the first stored record."""
        self._last_request = time.monotonic()
        self._changed = threading.Condition()
        self.is_taken = threading.Event()
        """Set when a client has requested the last records."""

    @property
    def is_abandoned(self) -> bool:
        return time.monotonic() - self._last_request > ABANDONED_AFTER_S

    def put(self, uid: str, values: list[bytes]) -> None:
        with self._changed:
            self._values += values
            self._changed.notify_all()

    def since(self, start: int) -> dict[str, Any]:
        """Return the records from number `start` on.

        Raises:
            Conflict: the records before `start` were already requested and are deleted, or fewer records exist so far.
        """
        with self._changed:
            self._last_request = time.monotonic()
            if not self._first <= start <= self._first + len(self._values):
                raise Conflict(
                    f"the request asks for record {start}, but records {self._first} to {self._first + len(self._values)} are "
                    "available",
                    remedy="read the records in one program, from one thread",
                )
            del self._values[: start - self._first]
            self._first = start
            # Check first, so that records that arrive before the end are not missed.
            is_done = self.master is not None and self.master.is_done
            if not self._values and not is_done:
                self._changed.wait(WAIT_S)
            taken: list[str] = []
            size = 0
            for value in self._values:
                taken.append(base64.b64encode(value).decode("ascii"))
                size += len(value)
                if size >= AT_ONCE_BYTES:
                    break
            is_last = is_done and len(taken) == len(self._values)
            if is_last:
                self.is_taken.set()
            return {"values": taken, "is-done": is_last}


def _plain(value: Any) -> Any:
    """Return the value of an accumulator as a JSON value."""
    return value if isinstance(value, int | float | str | list | dict | None) else str(value)
