"""The process of a deployed JobManager (`penstock master`): one program and one job, until it receives a stop signal.

The process outlives its job if `execution.shutdown-on-application-finish` is false, which the operator sets. Clients can then read the
result of the job, and the container is not restarted. SIGTERM leaves the job with its checkpoints, and the next master continues from them.

If another master takes over the job, the superseded master reports SUSPENDED for a minute and exits with code 75. If another pod has
replaced the superseded master's pod, as after a network partition of a node, Kubernetes removes the old pod in that time. Otherwise,
Kubernetes restarts the master, and it takes over the job again. If Kubernetes restarts both masters repeatedly, they alternate about once a
minute, and both report the reason.

In an election (`process.election`), the loss of the leadership ends the process at once. A master that is superseded but still leads in the
election was superseded by the operator or by another deployment. It reports SUSPENDED for a minute, too.
"""

from __future__ import annotations

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import Fenced, InvalidJob, JobSuspended, PenstockError, StorageError, StorageRefused
from penstock.common.job_status import JobStatus
from penstock.common.logs.redaction import traceback_of
from penstock.common.system.native_memory import trim_heap
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.election.member import EXIT_LOST, Member
from penstock.jobmanager.process.master.serving import serve_as
from penstock.jobmanager.process.session.process_log import master_log
from penstock.jobmanager.process.session.session import ClusterProvider, Session, SubmitOptions

SUSPEND_TIMEOUT_S = 20.0
"""Time in seconds for a job to reach the end of an epoch when the process must end."""
LAST_CHECKPOINT_S = 5.0
"""Time in seconds for a last checkpoint before a leader leaves. The sum of both times is shorter than the grace period of a pod."""
READ_OUTCOME_S = 3.0
"""Time in seconds for which an ended master responds, so that clients can read the outcomes of their requests."""
FENCED_EXIT_DELAY_S = 60.0
"""Time in seconds for which a superseded master responds before it ends."""
EXIT_STORAGE = 74
"""EX_IOERR of sysexits.h: checkpoint storage failed. The Kubernetes operator knows this exit code and `EXIT_FENCED`."""
EXIT_FENCED = EXIT_LOST
"""EX_TEMPFAIL of sysexits.h: restart the master if it is still needed. The Kubernetes operator knows this exit code (`troubles`)."""
REFUSED_EXIT_DELAY_S = 60.0
"""Time in seconds for which a master stays after its check has refused the program. The operator reads the report and removes the pod."""
STARTED_S = 30.0
"""Time in seconds after which most objects of a start are garbage."""
GC_ALLOCATIONS = 50_000
"""Allocations between two collections of the youngest generation. Python's default is 700."""
_ENDED_WELL = (JobStatus.FINISHED, JobStatus.CANCELED)

logger = logging.getLogger(__name__)


def run_master_process(
    provider: ClusterProvider,
    submit: SubmitOptions,
    settings: Configuration,
    program: Callable[[Session], None],
    stop_requested: threading.Event | None = None,
    begin: Callable[[], object] = lambda: None,
    is_admitted: Callable[[], bool] = lambda: True,
    member: Member | None = None,
) -> int:
    """Serve REST, run the program, and keep running as the settings require. Return the exit code.

    Exit code 0 means that the job finished or was cancelled, 74 that checkpoint storage failed, and 75 that another master
    has taken over. Exit code 1 means any other end.

    Args:
        program: function that runs the user's program. Its jobs go to the session.
        stop_requested: event that is set when the process must stop. SIGTERM sets it too.
        begin: function that is called first, after the log files are set up.
        is_admitted: function that waits for the check of the program, and returns whether the program may run.
        member: this process in the election of its cluster. None means that this process always leads.
    """
    collect_rarely()
    leftovers = threading.Timer(STARTED_S, trim_heap)
    leftovers.daemon = True
    leftovers.start()
    session = Session(provider, submit)
    with master_log(settings) as session.logs:
        begin()
        return _serve(session, settings, program, stop_requested, is_admitted, member)


def _serve(
    session: Session,
    settings: Configuration,
    program: Callable[[Session], None],
    stop_requested: threading.Event | None,
    is_admitted: Callable[[], bool],
    member: Member | None,
) -> int:
    session.on_line = None
    stop_requested = stop_requested or threading.Event()
    server = serve_as(member, session, settings)
    leaving = threading.Thread(
        target=_suspend_when, args=(stop_requested, session, member is not None), name="leave", daemon=True
    )
    leaving.start()
    try:
        with _leaving_on_sigterm(session, stop_requested):
            if not is_admitted():
                logger.error("the check has refused the program, which does not run. The report is above")
                stop_requested.wait(REFUSED_EXIT_DELAY_S)
                return 1
            try:
                failure = _run(session, program)
            except StorageError as error:
                if not _is_of_storage(error):
                    raise
                logger.error("the program ended: %s", error)
                failure = error
            if session.dispatcher.jobs() and not settings.get(options.SHUTDOWN_ON_FINISH):
                if member is not None and _is_fenced(session):
                    session.cluster.stop()  # another master needs the workers now
                stop_requested.wait(FENCED_EXIT_DELAY_S if _is_fenced(session) else None)
            elif server is not None and session.dispatcher.has_operations:
                stop_requested.wait(READ_OUTCOME_S)
    finally:
        if stop_requested.is_set():
            leaving.join()  # it takes the last checkpoints
        suspend(session)
        if member is not None:
            member.leave()
        if server is not None:
            server.stop()
        session.cluster.stop()
    if _is_fenced(session):
        return EXIT_FENCED
    if any(map(_is_of_storage, (failure, *(master.error for master in session.dispatcher.jobs())))):
        return EXIT_STORAGE
    ended = [master.history.status for master in session.dispatcher.jobs()]
    return 0 if failure is None and ended and all(status in _ENDED_WELL for status in ended) else 1


def _is_of_storage(error: BaseException | None) -> bool:
    """Return whether storage did not respond or refused. A missing or damaged snapshot does not count, because it is a permanent failure."""
    return isinstance(error, PenstockError) and error.code in (StorageError.code, StorageRefused.code)


def _is_fenced(session: Session) -> bool:
    return any(isinstance(master.error, Fenced) for master in session.dispatcher.jobs())


def collect_rarely() -> None:
    """Make Python's cycle collector run less often.

    The collector scans every object repeatedly, and the JobManager has many long-lived objects for each subtask. For hundreds of slots, the
    collector took half of an epoch's time.
    """
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)


def _run(session: Session, program: Callable[[Session], None]) -> BaseException | None:
    """Run the program. Log its exception, and return it if a job exists that clients can query.

    Raises:
        Exception: the program's exception before it started a job, because the process then has no reason to keep running.
    """
    try:
        program(session)
    except Exception as error:
        if not session.dispatcher.jobs():
            raise
        if isinstance(error, JobSuspended):
            logger.info("%s", error)
        elif isinstance(error, PenstockError):
            logger.error("the program ended: %s", error)
        else:
            sys.stderr.write(traceback_of(error))
        return error
    if not session.dispatcher.jobs():
        raise InvalidJob("the program ended without starting a job", remedy="end the program with env.execute(...)")
    for master in session.dispatcher.jobs():
        logger.info("job %r (%s) is %s", master.program.name, master.job_id, master.history.status.value)
    return None


@contextmanager
def _leaving_on_sigterm(session: Session, stop_requested: threading.Event) -> Iterator[None]:
    """Handle SIGTERM: suspend the running jobs. A process without a job ends at once."""

    def leave(signum: int, frame: object) -> None:
        stop_requested.set()
        if not session.dispatcher.jobs():
            raise SystemExit(0)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _suspend_when(stop_requested: threading.Event, session: Session, hands_over: bool) -> None:
    stop_requested.wait()
    suspend(session, hands_over=hands_over)


def suspend(session: Session, *, hands_over: bool = False) -> None:
    """Suspend the jobs. Never cancel them, because a cancel may delete the checkpoints from which the next master continues.

    Args:
        hands_over: whether a standby continues at once. A last checkpoint then spares it the records since the previous checkpoint.
    """
    for master in session.dispatcher.jobs():
        if not master.is_done:
            if hands_over and master.history.status is JobStatus.RUNNING:
                master.request(Operation("checkpoint")).wait(LAST_CHECKPOINT_S)
            master.suspend()
            master.wait(SUSPEND_TIMEOUT_S)
