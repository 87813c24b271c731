"""The process of a deployed JobManager (`penstock master`): one program, one job, until it is told to leave.

It outlives its job when `execution.shutdown-on-application-finish` is false, as the operator sets it: who asks how the job
ended must get an answer, and a container that ends is started again. SIGTERM leaves the job as it is, with its
checkpoints; the next master goes on from them.

A master that another one has taken over from does not stay for ever: it answers SUSPENDED for a minute and ends with exit
code 75. Kubernetes removes it meanwhile if another pod stands in its place, as after a node was cut off; if it is the only
one that should run, it is started again and takes over. Two that are both started again and again take turns at the pace of
these minutes, and everybody sees why.
"""

from __future__ import annotations

import gc
import logging
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.common.config import options
from penstock.common.configuration import Configuration
from penstock.common.errors import Fenced, InvalidJob, JobSuspended, PenstockError
from penstock.common.job_status import JobStatus
from penstock.common.native_memory import give_back
from penstock.jobmanager.process.process_log import log_of_master
from penstock.jobmanager.process.session import ClusterProvider, Session, SubmitOptions

LEAVE_S = 20.0
"""How long a job may take to come to an epoch's end when the process is to go."""
FENCED_STAY_S = 60.0
"""How long a master that was superseded answers before it ends."""
EXIT_FENCED = 75
"""EX_TEMPFAIL of sysexits.h: start it again if it is still wanted. The Kubernetes operator knows it (`troubles`)."""
STARTED_S = 30.0
"""After so long most of what a start has needed is thrown away."""
GC_ALLOCATIONS = 50_000
"""Allocations between two runs of the youngest generation's collector; Python's own number is 700."""
_ENDED_WELL = (JobStatus.FINISHED, JobStatus.CANCELED)

logger = logging.getLogger(__name__)


def run_master_process(
    provider: ClusterProvider,
    submit: SubmitOptions,
    settings: Configuration,
    program: Callable[[Session], None],
    told: threading.Event | None = None,
    begin: Callable[[], object] = lambda: None,
) -> int:
    """Serve REST, run the program, stay as long as the settings say; returns the exit code.

    0: the job finished or was cancelled; 75: another master has taken over; 1: it failed, or was left as it is.

    Args:
        program: runs the user's program; its jobs go to the session.
        told: set when the process is to leave; SIGTERM does it, too.
        begin: called first of all, when what is logged is kept.
    """
    collect_rarely()
    leftovers = threading.Timer(STARTED_S, give_back)
    leftovers.daemon = True
    leftovers.start()
    session = Session(provider, submit)
    with log_of_master(settings) as session.logs:
        begin()
        return _serve(session, settings, program, told)


def _serve(
    session: Session, settings: Configuration, program: Callable[[Session], None], told: threading.Event | None
) -> int:
    session.on_line = None
    told = told or threading.Event()
    server = session.serve(settings)
    threading.Thread(target=_suspend_when, args=(told, session), name="leave", daemon=True).start()
    try:
        with _leaving_on_sigterm(session, told):
            failure = _run(session, program)
            if session.dispatcher.jobs() and not settings.get(options.SHUTDOWN_ON_FINISH):
                told.wait(FENCED_STAY_S if _is_fenced(session) else None)
    finally:
        suspend(session)
        if server is not None:
            server.stop()
        session.cluster.stop()
    if _is_fenced(session):
        return EXIT_FENCED
    ended = [master.history.status for master in session.dispatcher.jobs()]
    return 0 if failure is None and ended and all(status in _ENDED_WELL for status in ended) else 1


def _is_fenced(session: Session) -> bool:
    return any(isinstance(master.error, Fenced) for master in session.dispatcher.jobs())


def collect_rarely() -> None:
    """Python's collector of cycles looks at every object again and again, and the JobManager has many that live long: what it
    knows of each subtask. With hundreds of slots it took half of an epoch's time."""
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)


def _run(session: Session, program: Callable[[Session], None]) -> BaseException | None:
    """Run it; what it raised is told, and returned if a job of it is there to be asked about.

    Raises:
        What the program raised before it started a job: there is nothing to stay for.
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
            traceback.print_exc()
        return error
    if not session.dispatcher.jobs():
        raise InvalidJob("the program has ended without a job", remedy="end the program with env.execute(...)")
    for master in session.dispatcher.jobs():
        logger.info("job %r (%s) is %s", master.program.name, master.job_id, master.history.status.value)
    return None


@contextmanager
def _leaving_on_sigterm(session: Session, told: threading.Event) -> Iterator[None]:
    """On SIGTERM: what runs is suspended; a process that has no job yet ends at once."""

    def leave(signum: int, frame: object) -> None:
        told.set()
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


def _suspend_when(told: threading.Event, session: Session) -> None:
    told.wait()
    suspend(session)


def suspend(session: Session) -> None:
    """Never cancel: that might delete the checkpoints that the next master goes on from."""
    for master in session.dispatcher.jobs():
        if not master.is_done:
            master.suspend()
            master.wait(LEAVE_S)
