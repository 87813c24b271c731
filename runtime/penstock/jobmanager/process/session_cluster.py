"""The process of a session cluster (`penstock session`): a JobManager without a program, which runs those that are sent to it.

It is for trying things out and for programs that start jobs from elsewhere (`create_remote_environment`). Who may send a program may
run code here: it asks for a token in any case, one that it makes unless `security.rest.token-file` is set. When the process is to leave, its jobs are left as they are; a
deployment whose jobs must go on by themselves has a JobManager for each (`master_process`).
"""

from __future__ import annotations

import base64
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import ClusterError, InvalidJob, PenstockError
from penstock.connectors.collect import CollectSink
from penstock.graph.program import Program
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.master_process import collect_rarely, suspend
from penstock.jobmanager.process.process_log import log_of_master
from penstock.jobmanager.process.session import ClusterProvider, Session, raise_if_failed, result_of
from penstock.jobmanager.process.shipping import unpacked
from penstock.rest import models
from penstock.rest.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobmanager.job.job_master import JobMaster

WAIT_S = 1.0
"""For the first record."""
FORGOTTEN_S = 120.0
"""A job whose records nobody has asked for in so long is cancelled: they would fill the memory."""
AT_ONCE_BYTES = 8 * 1024 * 1024

logger = logging.getLogger(__name__)


def run_session_cluster(provider: ClusterProvider, settings: Configuration, told: threading.Event | None = None) -> int:
    """Take programs until the process is to leave; returns the exit code, 0.

    Args:
        told: set when it is to; SIGTERM and SIGINT do it, too.

    Raises:
        ClusterError: REST is switched off, or its port is in use.
    """
    if settings.get(options.REST_PORT) < 0:
        raise ClusterError(
            "a session cluster takes programs over REST, and rest.port is -1", remedy="set rest.port to a port, or to 0"
        )
    with _with_token(settings) as with_token:
        return _serve(provider, with_token, told or threading.Event())


def _serve(provider: ClusterProvider, settings: Configuration, told: threading.Event) -> int:
    collect_rarely()
    session = _EndingSession(provider, told)
    programs = RemotePrograms(session, settings)
    with log_of_master(settings) as session.logs:
        server = session.serve(settings, programs=programs)
        assert server is not None
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: told.set())
        print(f"Session cluster at {server.url}", flush=True)
        print(f"export PENSTOCK_TOKEN_FILE={settings.get(options.REST_TOKEN_FILE)}", flush=True)
        try:
            while not told.wait(WAIT_S):
                programs.look()
        finally:
            suspend(session)
            server.stop()
            session.cluster.stop()
    return 0


@contextmanager
def _with_token(settings: Configuration) -> Iterator[Configuration]:
    """The settings with a token's file: a new one, which only this user can read, unless one is set."""
    if settings.get(options.REST_TOKEN_FILE):
        yield settings
        return
    folder = tempfile.mkdtemp(prefix="penstock-session-")
    try:
        file = os.path.join(folder, "token")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(secrets.token_urlsafe(32))
        yield Configuration(settings).set(options.REST_TOKEN_FILE, file)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _EndingSession(Session):
    """`DELETE /cluster` ends the process, which then stops the cluster: nobody else may at the same time."""

    def __init__(self, provider: ClusterProvider, told: threading.Event) -> None:
        super().__init__(provider)
        self._told = told

    def stop(self) -> None:
        self.end_jobs()
        self._told.set()


class RemotePrograms:
    """The programs that were sent to a session; see `rest.gateway.Programs`."""

    def __init__(self, session: Session, settings: Configuration) -> None:
        self._session = session
        self._settings = settings
        self._collected: dict[str, _Collected] = {}
        self._lock = threading.Lock()

    def submit(self, content: bytes, penstock: str, python: str) -> str:
        """
        Raises:
            PenstockError: the program was refused, or cannot be started.
        """
        program = unpacked(content, penstock, python, __version__)
        if not isinstance(program, Program):
            raise InvalidJob(f"this is no program but {type(program).__name__}", remedy="use create_remote_environment")
        # What the cluster is set to counts where the program and who sent it have said nothing.
        configuration = {**_for_jobs(self._settings.to_dict()), **program.configuration}
        program = replace(program, configuration=configuration, user_script=None)
        collects = any(isinstance(sink.sink, CollectSink) for sink in program.sinks)
        collected = _Collected() if collects else None
        master = self._session.submit(program, None if collected is None else collected.put)
        if not master.is_accepted:
            raise_if_failed(master)
        logger.info("job %r (%s) was sent here", program.name, master.job_id)
        if collected is not None:
            collected.master = master
            with self._lock:
                self._collected[master.job_id] = collected
        return master.job_id

    def outcome(self, job_id: str) -> models.ProgramOutcome:
        master = self._job(job_id)
        outcome = models.ProgramOutcome(status=master.history.status.value)
        if master.is_done:
            try:
                raise_if_failed(master)
            except PenstockError as error:
                outcome.failure = models.ProgramFailure(
                    code=error.code,
                    message=error.message,
                    remedy=error.remedy,
                    operator=error.operator,
                    location=error.location,
                )
            except Exception as error:
                outcome.failure = models.ProgramFailure(code="", message=f"{type(error).__name__}: {error}")
            outcome.net_runtime = result_of(master).net_runtime
        outcome.accumulators = {name: _plain(value) for name, value in result_of(master).accumulators.items()}
        return outcome

    def results(self, job_id: str, start: int) -> models.ProgramResults:
        self._job(job_id)
        with self._lock:
            collected = self._collected.get(job_id)
        if collected is None:
            raise Conflict(f"job {job_id} collects no records", remedy="end the program with execute_and_collect()")
        return collected.since(start)

    def look(self) -> None:
        """Cancel what nobody waits for."""
        with self._lock:
            found = list(self._collected.items())
        for job_id, collected in found:
            master = collected.master
            if self._session.dispatcher.job(job_id) is None:
                with self._lock:
                    del self._collected[job_id]
            elif master is not None and not master.is_done and collected.is_forgotten:
                logger.warning("job %s is cancelled: nobody has asked for its records for %.0f s", job_id, FORGOTTEN_S)
                master.request(Operation("cancel"))

    def _job(self, job_id: str) -> JobMaster:
        master = self._session.dispatcher.job(job_id)
        if master is None:
            raise NotFound(f"there is no job {job_id}", remedy="it was never here, or was forgotten after its end")
        return master


class _Collected:
    """Records between the job and the program that asks for them."""

    def __init__(self) -> None:
        self.master: JobMaster | None = None
        self._values: list[bytes] = []
        self._first = 0
        """Number of the first of them."""
        self._asked = time.monotonic()
        self._changed = threading.Condition()

    @property
    def is_forgotten(self) -> bool:
        return time.monotonic() - self._asked > FORGOTTEN_S

    def put(self, uid: str, values: list[bytes]) -> None:
        with self._changed:
            self._values += values
            self._changed.notify_all()

    def since(self, start: int) -> models.ProgramResults:
        """
        Raises:
            Conflict: those before `start` were asked for, and are gone; or there are none so far.
        """
        with self._changed:
            self._asked = time.monotonic()
            if not self._first <= start <= self._first + len(self._values):
                raise Conflict(
                    f"records {self._first} to {self._first + len(self._values)} are here, and {start} was asked for",
                    remedy="one program reads them, from one thread",
                )
            del self._values[: start - self._first]
            self._first = start
            is_done = self.master is None or self.master.is_done  # asked before: what came until then is seen
            if not self._values and not is_done:
                self._changed.wait(WAIT_S)
            taken: list[str] = []
            size = 0
            for value in self._values:
                taken.append(base64.b64encode(value).decode("ascii"))
                size += len(value)
                if size >= AT_ONCE_BYTES:
                    break
            return models.ProgramResults(values=taken, is_done=is_done and len(taken) == len(self._values))


def _for_jobs(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of the cluster that a job takes: none that speak of this process's own door."""
    return {key: value for key, value in settings.items() if not key.startswith(("rest.", "security.", "jobmanager."))}


def _plain(value: Any) -> Any:
    """What JSON can say of an accumulator."""
    return value if isinstance(value, int | float | str | list | dict | None) else str(value)
