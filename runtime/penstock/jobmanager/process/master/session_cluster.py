"""The process of a session cluster (`penstock session`): a JobManager without a program, which runs the programs that clients send.

It is for experiments, and for programs that start jobs from other processes (`create_remote_environment`). A client that may send a program
can run code in the cluster, so the process always requires a token. It generates one unless `security.rest.token-file` is set. When the
process stops, it leaves its jobs with their checkpoints. Use one JobManager for each job (`master_process`) if jobs must continue by
themselves.
"""

from __future__ import annotations

import signal
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from penstock.checkpoint.store.object_store import join_url, normalize_url
from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.credentials.local_token import LocalToken, is_loopback
from penstock.common.errors import ClusterError
from penstock.jobmanager.job.settings import object_store_options
from penstock.jobmanager.process.election.member import Member
from penstock.jobmanager.process.master.master_process import collect_rarely, suspend
from penstock.jobmanager.process.master.serving import serve_as
from penstock.jobmanager.process.programs.graphs import SentGraphs
from penstock.jobmanager.process.programs.jars import SessionJars
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.session_gateway import SessionGateway
from penstock.jobmanager.process.programs.store.program_store import ProgramStore
from penstock.jobmanager.process.session.process_log import master_log
from penstock.jobmanager.process.session.session import ClusterProvider, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.jobmanager.cluster.spark_cluster import SharedCluster
    from penstock.rest.gateway import ClusterGateway

WAKE_S = 1.0
"""Interval in seconds in which the main thread handles signals."""
_LEAD_POLL_S = 0.2


class SharedProvider(ClusterProvider, Protocol):
    """Provider of a cluster that the processes of programs also use."""

    def shared(self, settings: Configuration) -> SharedCluster: ...


def run_session_cluster(
    provider: SharedProvider,
    settings: Configuration,
    stop_requested: threading.Event | None = None,
    member: Member | None = None,
) -> int:
    """Accept programs until the process must stop. Return the exit code, 0.

    Args:
        stop_requested: event that is set when the process must stop. SIGTERM and SIGINT set it too.
        member: this process in the election of its cluster. A standby runs no programs. None means that this process always leads.

    Raises:
        ClusterError: REST is disabled, or its port is in use.
    """
    if settings.get(options.REST_PORT) < 0:
        raise ClusterError(
            "a session cluster receives programs over REST, but rest.port is -1",
            remedy="set rest.port to a port, or to 0",
        )
    with _with_token(settings) as (with_token, token):
        return _serve(provider, with_token, token, stop_requested or threading.Event(), member)


def check_elected(settings: Configuration) -> None:
    """Check the settings of a session cluster whose masters elect a leader.

    Raises:
        ClusterError: a standby would not find the programs, or its clients would have another token.
    """
    for option, reason in (
        (options.HIGH_AVAILABILITY_DIRECTORY, "a standby would not find the programs of the session"),
        (options.REST_TOKEN_FILE, "each master would generate its own token"),
    ):
        if not settings.get(option):
            raise ClusterError(
                f"{options.HIGH_AVAILABILITY.key} is set, but {option.key} is not: {reason}",
                remedy=f"set {option.key} to the same value for each master of the session",
            )


def _serve(
    provider: SharedProvider,
    settings: Configuration,
    token: LocalToken | None,
    stop_requested: threading.Event,
    member: Member | None,
) -> int:
    collect_rarely()
    session = _EndingSession(provider, stop_requested)
    with master_log(settings) as session.logs, _storage(settings) as (folder, url):
        session.programs = _programs(provider, session, settings, folder, url)
        if member is None:
            session.programs.start()
        jars = SessionJars(session.programs, settings.get(options.PROGRAM_RETENTION).total_seconds())
        server = serve_as(member, session, settings, programs=SentGraphs(session.programs), jars=jars)
        assert server is not None
        session.waits_to_lead = None  # the whole session waits
        if token is not None and is_loopback(settings.get(options.REST_BIND_ADDRESS)):
            token.publish(server.address, server.port)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop_requested.set())
        print(f"Session cluster at {server.url}", flush=True)
        print(f"export PENSTOCK_TOKEN_FILE={settings.get(options.REST_TOKEN_FILE)}", flush=True)
        try:
            if member is not None and _leads(member, stop_requested):
                session.programs.start()
                member.serve()
            while not stop_requested.wait(WAKE_S):  # a signal that another thread has received takes effect only then
                jars.sweep_sometimes()
        finally:
            session.programs.suspend()
            suspend(session)
            if member is not None:
                member.leave()
            server.stop()
            session.cluster.stop()
    return 0


def _leads(member: Member, stop_requested: threading.Event) -> bool:
    """Wait until this process leads, or must stop. Return whether it leads."""
    while not stop_requested.is_set():
        if member.wait(_LEAD_POLL_S):
            return True
    return False


@contextmanager
def _storage(settings: Configuration) -> Iterator[tuple[str, str]]:
    """Yield a temporary folder for the output of programs, and the URL of the session's folder in storage. Without storage for high
    availability, this folder is a part of the temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-programs-", ignore_cleanup_errors=True) as folder:
        storage = settings.get(options.HIGH_AVAILABILITY_DIRECTORY)
        yield folder, _session_folder(storage or folder)


def with_checkpoints(settings: Configuration, url: str = "") -> Configuration:
    """Return the settings with a directory for checkpoints, so that a program that starts again continues from its newest checkpoints.

    Args:
        url: folder of the session in storage. Empty means the folder in the storage for high availability, if it is configured.
    """
    storage = settings.get(options.HIGH_AVAILABILITY_DIRECTORY)
    if not url and storage:
        url = _session_folder(storage)
    if settings.get(options.CHECKPOINT_DIRECTORY) or not url:
        return settings
    return Configuration(settings).set(options.CHECKPOINT_DIRECTORY, join_url(url, "checkpoints"))


def _session_folder(storage: str) -> str:
    return join_url(normalize_url(storage), "session")


def _programs(
    provider: SharedProvider, session: Session, settings: Configuration, folder: str, url: str
) -> ProgramRunner:
    """Return the runner of programs.

    Args:
        folder, url: see `_storage`.
    """
    return ProgramRunner(
        lambda: provider.shared(settings),
        _for_jobs(with_checkpoints(settings, url).to_dict()),
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
        own = self.own_gateway(settings, self.programs.slot_uses, self.programs.known_jobs)
        return SessionGateway(own, self.programs, self.programs.ended)

    def stop(self) -> None:
        self.programs.cancel_all()
        self.end_jobs()
        self._stop_requested.set()


def _for_jobs(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the cluster's settings that apply to jobs, without those of this process's REST server."""
    return {key: value for key, value in settings.items() if not key.startswith(("rest.", "security.", "jobmanager."))}
