"""The process of a session cluster (`penstock session`): a JobManager without a program, which runs the programs that clients send.

It is for experiments, and for programs that start jobs from other processes (`create_remote_environment`). A client that may send a program
can run code in the cluster, so the process always requires a token. It generates one unless `security.rest.token-file` is set. When the
process stops, it leaves its jobs with their checkpoints. Use one JobManager for each job (`master_process`) if jobs must continue by
themselves.
"""

from __future__ import annotations

import base64
import logging
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from penstock import __version__
from penstock.checkpoint.store.object_store import join_url, normalize_url
from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.credentials.local_token import LocalToken, is_loopback
from penstock.common.errors import ClusterError, InvalidJob, PenstockError
from penstock.connectors.simple.collect import CollectSink
from penstock.graph.program import Program
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.settings import object_store_options
from penstock.jobmanager.process.master.master_process import collect_rarely, suspend
from penstock.jobmanager.process.master.shipping import unpacked
from penstock.jobmanager.process.programs.jars import SessionJars
from penstock.jobmanager.process.programs.program_store import ProgramStore
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.session_gateway import SessionGateway
from penstock.jobmanager.process.session.process_log import master_log
from penstock.jobmanager.process.session.session import ClusterProvider, Session, raise_if_failed, result_of
from penstock.rest import models
from penstock.rest.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobmanager.cluster.spark_cluster import SharedCluster
    from penstock.jobmanager.job.job_master import JobMaster
    from penstock.rest.gateway import ClusterGateway

WAIT_S = 1.0
"""Time in seconds to wait for the first record."""
ABANDONED_AFTER_S = 120.0
"""Time in seconds without a request for a job's records after which the job is cancelled, because the records would fill the memory."""
AT_ONCE_BYTES = 8 * 1024 * 1024

logger = logging.getLogger(__name__)


class SharedProvider(ClusterProvider, Protocol):
    """Provider of a cluster that the processes of programs also use."""

    def shared(self, settings: Configuration) -> SharedCluster: ...


def run_session_cluster(
    provider: SharedProvider, settings: Configuration, stop_requested: threading.Event | None = None
) -> int:
    """Accept programs until the process must stop. Return the exit code, 0.

    Args:
        stop_requested: event that is set when the process must stop. SIGTERM and SIGINT set it too.

    Raises:
        ClusterError: REST is disabled, or its port is in use.
    """
    if settings.get(options.REST_PORT) < 0:
        raise ClusterError(
            "a session cluster receives programs over REST, but rest.port is -1",
            remedy="set rest.port to a port, or to 0",
        )
    with _with_token(settings) as (with_token, token):
        return _serve(provider, with_token, token, stop_requested or threading.Event())


def _serve(
    provider: SharedProvider, settings: Configuration, token: LocalToken | None, stop_requested: threading.Event
) -> int:
    collect_rarely()
    session = _EndingSession(provider, stop_requested)
    with master_log(settings) as session.logs, _storage(settings) as (folder, url):
        settings = _with_checkpoints(settings, url)
        remote = RemotePrograms(session, settings)
        session.programs = _programs(provider, session, settings, folder, url)
        session.programs.start()
        server = session.serve(settings, programs=remote, jars=SessionJars(session.programs))
        assert server is not None
        if token is not None and is_loopback(settings.get(options.REST_BIND_ADDRESS)):
            token.publish(server.address, server.port)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop_requested.set())
        print(f"Session cluster at {server.url}", flush=True)
        print(f"export PENSTOCK_TOKEN_FILE={settings.get(options.REST_TOKEN_FILE)}", flush=True)
        try:
            while not stop_requested.wait(WAIT_S):
                remote.cancel_abandoned()
        finally:
            session.programs.suspend()
            suspend(session)
            server.stop()
            session.cluster.stop()
    return 0


@contextmanager
def _storage(settings: Configuration) -> Iterator[tuple[str, str]]:
    """Yield a temporary folder for the output of programs, and the URL of the session's folder in storage. Without storage for high
    availability, this folder is a part of the temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-programs-", ignore_cleanup_errors=True) as folder:
        storage = settings.get(options.HIGH_AVAILABILITY_DIRECTORY)
        yield folder, join_url(normalize_url(storage or folder), "session")


def _with_checkpoints(settings: Configuration, url: str) -> Configuration:
    """Return the settings with a directory for checkpoints, so that a program that starts again continues from its newest checkpoints."""
    if settings.get(options.CHECKPOINT_DIRECTORY):
        return settings
    return Configuration(settings).set(options.CHECKPOINT_DIRECTORY, join_url(url, "checkpoints"))


def _programs(
    provider: SharedProvider, session: Session, settings: Configuration, folder: str, url: str
) -> ProgramRunner:
    """Return the runner of programs.

    Args:
        folder, url: see `_storage`.
    """
    return ProgramRunner(
        lambda: provider.shared(settings),
        _for_jobs(settings.to_dict()),
        ProgramStore(url, object_store_options(settings), settings.get(options.PROGRAM_UNPACKED)),
        session.dispatcher.metric_store,
        settings.get(options.JOBSTORE_CAPACITY),
        settings.get(options.JOBSTORE_EXPIRATION).total_seconds(),
        folder,
    )


@contextmanager
def _with_token(settings: Configuration) -> Iterator[tuple[Configuration, LocalToken | None]]:
    """Yield the settings with a token file. If no token file is set, create a token file that only this user can
    read."""
    if settings.get(options.REST_TOKEN_FILE):
        yield settings, None
        return
    token = LocalToken()
    try:
        yield Configuration(settings).set(options.REST_TOKEN_FILE, str(token.path)), token
    finally:
        token.remove()


class _EndingSession(Session):
    """Session that lets `DELETE /cluster` end the process. The end of the process stops the cluster, and no other code may stop it at the
    same time.
    """

    def __init__(self, provider: ClusterProvider, stop_requested: threading.Event) -> None:
        super().__init__(provider)
        self._stop_requested = stop_requested
        self.programs: ProgramRunner

    def create_gateway(self, settings: Configuration) -> ClusterGateway:
        own = self.own_gateway(settings, self.programs.slot_uses)
        return SessionGateway(own, self.programs, self.programs.ended)

    def stop(self) -> None:
        self.programs.cancel_all()
        self.end_jobs()
        self._stop_requested.set()


class RemotePrograms:
    """Programs that were sent to a session. See `rest.gateway.Programs`."""

    def __init__(self, session: Session, settings: Configuration) -> None:
        self._session = session
        self._settings = settings
        self._collected: dict[str, _Collected] = {}
        self._lock = threading.Lock()

    def submit(self, content: bytes, penstock: str, python: str) -> str:
        """Start a program.

        Raises:
            PenstockError: the program was refused, or cannot be started.
        """
        program = unpacked(content, penstock, python, __version__)
        if not isinstance(program, Program):
            raise InvalidJob(
                f"the request has no program, but a {type(program).__name__}", remedy="use create_remote_environment"
            )
        # The cluster's settings apply unless the program or its client sets a value.
        configuration = {**_for_jobs(self._settings.to_dict()), **program.configuration}
        program = replace(program, configuration=configuration, user_script=None)
        collects = any(isinstance(sink.sink, CollectSink) for sink in program.sinks)
        collected = _Collected() if collects else None
        master = self._session.submit(program, None if collected is None else collected.put)
        if not master.is_accepted:
            raise_if_failed(master)
        logger.info("received job %r (%s)", program.name, master.job_id)
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

    def cancel_abandoned(self) -> None:
        """Cancel jobs whose results no client requests."""
        with self._lock:
            found = list(self._collected.items())
        for job_id, collected in found:
            master = collected.master
            if self._session.dispatcher.job(job_id) is None:
                with self._lock:
                    del self._collected[job_id]
            elif master is not None and not master.is_done and collected.is_abandoned:
                logger.warning(
                    "job %s is cancelled: no client has requested its records for %.0f s", job_id, ABANDONED_AFTER_S
                )
                master.request(Operation("cancel"))

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

    @property
    def is_abandoned(self) -> bool:
        return time.monotonic() - self._last_request > ABANDONED_AFTER_S

    def put(self, uid: str, values: list[bytes]) -> None:
        with self._changed:
            self._values += values
            self._changed.notify_all()

    def since(self, start: int) -> models.ProgramResults:
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
            is_done = self.master is None or self.master.is_done
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
    """Return the cluster's settings that apply to jobs, without those of this process's REST server."""
    return {key: value for key, value in settings.items() if not key.startswith(("rest.", "security.", "jobmanager."))}


def _plain(value: Any) -> Any:
    """Return the value of an accumulator as a JSON value."""
    return value if isinstance(value, int | float | str | list | dict | None) else str(value)
