"""One run of a program for `penstock dev`, in a forked process that has the terminal. So `breakpoint()` works in every function.

The main thread runs the program. Another thread waits for the request to stop. It stops the jobs with a savepoint, and
reports where the next run may start.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.checkpoint.savepoint.snapshots import newest_complete
from penstock.common.errors import PenstockError, StateSchemaIncompatible
from penstock.common.job_id import JobID
from penstock.common.job_status import JobStatus
from penstock.graph.executor import Executor
from penstock.graph.program import Program
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.dev.kept_state import keep
from penstock.jobmanager.process.dev.messages import Ended, Files, JobEnd, Line, Restored, Running, Stop, Waiting
from penstock.jobmanager.process.dev.watched_files import program_files
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

STOP_S = 10.0
"""Time in seconds for a savepoint. A function that does not return until then is ended by force."""
END_S = 1.0
"""Time in seconds for the program to end after its jobs."""
_FILES_S = 0.5
_DEBUGGERS = frozenset({"bdb", "pdb", "IPython.core.debugger", "pudb", "ipdb.__main__"})


@dataclass(frozen=True)
class Start:
    """The start of a run.

    Args:
        run: function that runs the program on an executor.
        show: function that shows an exception of the program.
        folder: folder of the program.
        savepoints: folder for savepoints.
        token: token of the REST API, which stays the same over all runs.
        snapshots: job id and snapshot of earlier jobs, by the job's label.
        refused: names of operators whose tasks have refused their state.
    """

    run: Callable[[Executor], None]
    show: Callable[[BaseException], None]
    folder: str
    savepoints: str
    token: str
    snapshots: dict[str, tuple[str, str]] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


def run_forked(start: Start, line: Line) -> None:
    """Run the program in this forked process until a stop is requested. Does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that watches the files ends this process
    try:
        _Run(start, line).run()
    finally:
        _end_process()


class _Run:
    def __init__(self, start: Start, line: Line) -> None:
        self._start = start
        self._line = line
        self._executor = EmbeddedExecutor(token=start.token)
        self._executor.read_outcome_s = 0.0
        session = self._executor.session
        session.job_id_of = self._job_id_of
        session.on_started = self._restore
        session.on_accepted = self._accepted
        self._labels: dict[str, str] = {}
        """Label of each job, by job id. It is the job's name. If several jobs have the name, later jobs also have a
        number."""
        self._restored: dict[str, str] = {}
        """Snapshot with which a job started, by job id."""
        self._stop = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._listen, name="penstock-dev", daemon=True).start()
        threading.Thread(target=self._report_files, name="penstock-dev-files", daemon=True).start()
        failed = False
        try:
            self._start.run(self._executor)
        except SystemExit as ended:
            failed = ended.code not in (None, 0)
        except BaseException as error:
            failed = True
            if not self._stop.is_set() and not any(map(_refused, self._jobs())):
                self._start.show(error)
        self._send_files()
        if not self._stop.is_set():
            self._line.send(Ended([self._end_of(job) for job in self._jobs() if job.is_done], failed))
        self._stop.wait()

    def _jobs(self) -> list[JobMaster]:
        return self._executor.session.dispatcher.jobs()

    # --- the start of a job -----------------------------------------------------------------------------------

    def _job_id_of(self, program: Program) -> str:
        """Return the id of the same job in the former run, or a new id."""
        labels, label, number = set(self._labels.values()), program.name, 1
        while label in labels:
            number += 1
            label = f"{program.name} ({number})"
        job_id = self._start.snapshots.get(label, ("", ""))[0] or JobID.generate().digits
        self._labels[job_id] = label
        return job_id

    def _restore(self, job: JobMaster) -> None:
        self._send_files()  # the program has read them a moment ago
        label = self._labels[job.job_id]
        _, snapshot = self._start.snapshots.get(label, ("", ""))
        if not snapshot:
            return
        found = keep(
            job.graph, snapshot, self._start.savepoints, job.settings.object_store_options, self._start.refused
        )
        if found.url:
            job.checkpoints.restore_from(found.url)
            self._restored[job.job_id] = snapshot
        self._line.send(Restored(label, found))

    def _accepted(self, job: JobMaster) -> None:
        label, url = self._labels[job.job_id], self._executor.dashboard_url
        self._line.send(Running(label, url, self._executor.rest_port, job.job_id not in self._restored))

    # --- files ------------------------------------------------------------------------------------------------

    def _report_files(self) -> None:
        """Report files that are imported later, by functions."""
        while True:
            self._send_files()
            time.sleep(_FILES_S)

    def _send_files(self) -> None:
        self._line.send(Files(program_files(self._start.folder)))

    # --- the end ----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        messages = self._line.take()
        request = messages[0] if messages else Stop(with_savepoints=False)
        try:
            self._end_jobs(request)
        finally:
            self._stop.set()
            time.sleep(END_S)
            _end_process()

    def _end_jobs(self, request: Stop) -> None:
        jobs = self._jobs()
        running = [job for job in jobs if not job.is_done]
        if not request.with_savepoints:
            self._stop.set()
            for job in running:
                job.request(Operation("cancel"))
            for job in running:
                job.wait(END_S)
            return
        requests = {
            job.job_id: job.request(Operation("stop", {"drain": False, "directory": self._start.savepoints}))
            for job in running
        }
        for operation in requests.values():
            self._wait_for(operation)
        self._stop.set()
        self._line.send(Ended([self._end_of(job, requests.get(job.job_id)) for job in jobs]))

    def _wait_for(self, operation: Operation) -> None:
        """Wait for a savepoint. The time limit begins again while a person uses a debugger."""
        deadline, is_waiting = time.monotonic() + STOP_S, False
        while not operation.wait(0.05) and time.monotonic() < deadline:
            if _is_debugging():
                deadline = time.monotonic() + STOP_S
                if not is_waiting:
                    is_waiting = True
                    self._line.send(Waiting("the program is at a breakpoint. Continue it, and the restart follows"))

    def _end_of(self, job: JobMaster, stop: Operation | None = None) -> JobEnd:
        """Describe the end of a job, with the snapshot from which the next run may start."""
        label, status = self._labels[job.job_id], job.history.status
        if stop is not None and stop.is_done and stop.location:
            return JobEnd(label, job.job_id, status.value, stop.location)
        if job.is_done and status is JobStatus.FINISHED and stop is None:
            return JobEnd(label, job.job_id, status.value)
        note = ""
        if stop is not None:
            note = stop.failure or f"the job did not stop within {STOP_S:.0f} s"
        return JobEnd(label, job.job_id, status.value, self._newest(job), note, _refused(job))

    def _newest(self, job: JobMaster) -> str:
        """Return the newest checkpoint of the job, or else the snapshot with which it started."""
        settings = job.settings
        try:
            newest = newest_complete(settings.checkpoint_dir, job.job_id, settings.object_store_options).snapshot
        except PenstockError:
            newest = None
        return self._restored.get(job.job_id, "") if newest is None else newest.url


def _refused(job: JobMaster) -> str:
    """Return the operator whose task could not read its state."""
    error = job.error
    is_refused = isinstance(error, JobFailed) and error.failure.code == StateSchemaIncompatible.code
    return error.failure.name if is_refused and isinstance(error, JobFailed) else ""


def _is_debugging() -> bool:
    """Return whether a thread is in a debugger."""
    for frame in list(sys._current_frames().values()):
        innermost = frame
        while innermost is not None:
            if innermost.f_globals.get("__name__") in _DEBUGGERS:
                return True
            innermost = innermost.f_back  # type: ignore[assignment]
    return False


def _end_process() -> None:
    """End this process, even if a function of the program never returns."""
    exit_functions = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    exit_functions.start()
    exit_functions.join(END_S)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
