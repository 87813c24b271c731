"""The watchdog, which reports where a task hangs: the step, the operator and the line of user code.

The problem: a function that hangs reports nothing. The JobManager only sees that an answer is missing. If it kills the
worker, the evidence is lost. A solution must not cost anything per record.

The solution: the work of a task is divided into *steps* (loading the job, restoring, opening functions, processing, closing). The
task's thread notes the start of a step, at most once per batch.

The watchdog's thread checks the step twice a second. If a step takes longer than two seconds, the watchdog reads the
frames of the task's thread (`sys._current_frames`). The watchdog reports the operator and the line to the JobManager,
and repeats the report while the step lasts. A slow step is not an error. The JobManager only keeps the report for the
status of a job that starts and for failure messages. A step that exceeds its time limit is a failure. The watchdog
reports the failure with the stack.

If the process has a memory limit, the watchdog also checks its memory, ten times a second. A process that uses more reports it as a
failure, with the line that the task is at, and ends.

Code that holds the GIL also stops the watchdog's thread. So steps with a limit also set the timer of
`faulthandler`, which does not need the GIL. Some seconds after the limit, `faulthandler` writes the stack to the file that the
executor reads (`jobmanager.failover.crash`), and ends the process.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TextIO

from penstock.common.config import options
from penstock.common.errors import MemoryLimitExceeded
from penstock.common.program.user_frames import is_engine, is_user, user_frame
from penstock.common.system.memory_use import used_memory
from penstock.taskmanager.failure import context_of
from penstock.taskmanager.protocol import STEP_TIMEOUT, TaskFailure, Whereabouts

LOADING = "loading the job"
RESTORING = "restoring state"
OPENING = "opening functions"
PROCESSING = "processing"
CLOSING = "closing functions"

_REMEDY = "find out why this line does not return, or increase the time limit of the step in the configuration"
CHECK_INTERVAL_S = 0.5
SLOW_S = 2.0
"""Seconds after which a step counts as slow and is reported."""
REPORT_INTERVAL_S = 5.0
MEMORY_CHECK_S = 0.1
"""Seconds between two checks if the process has a memory limit."""
REPORT_S = 0.2
"""Seconds for the report to leave a process that ends for its memory."""
GRACE_S = 3.0
"""Seconds from a step's limit until `faulthandler` ends a process that could not report the failure."""


class Unwatched:
    """A watchdog that does nothing, for a task outside of a worker process, such as in a test."""

    since = 0.0
    """Start of the current step in seconds (`time.perf_counter`), or 0 without a step.

    A task sets it before every batch, and resets it afterwards.
    """

    def step(self, name: str, operator: str = "", location: str = "") -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class Watchdog(Unwatched):
    """The watchdog of the tasks of one process. Only one task works at a time. Create it in the thread that runs the tasks.

    Args:
        report: receives the reports, in the watchdog's thread.
        limits: seconds per step. A step without a limit, or with limit 0, may take any time.
        memory_limit: maximum bytes that this process may use. 0 means no limit.
    """

    def __init__(
        self,
        report: Callable[[Whereabouts | TaskFailure], None],
        limits: Mapping[str, float],
        memory_limit: int = 0,
    ) -> None:
        self.report = report
        self._memory_limit = memory_limit
        self._limits = {step: limit for step, limit in limits.items() if limit}
        self._thread_id = threading.get_ident()
        self._step = PROCESSING
        self._operator = self._location = ""
        self._last_report_at = 0.0
        self._has_failed = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # --- from the task's thread -------------------------------------------------------------------------------

    @contextmanager
    def step(self, name: str, operator: str = "", location: str = "") -> Iterator[None]:
        """Run a step of the start or the end. Such steps are rare and usually have a limit."""
        self._start()
        limit = self._limits.get(name)
        dump = _dump_file() if limit else None
        before = self._step, self.since
        self._operator, self._location = operator, location
        self._begin(name, time.perf_counter())
        if limit and dump is not None:
            faulthandler.dump_traceback_later(limit + GRACE_S, exit=True, file=dump)
        try:
            yield
        finally:
            self._begin(*before)
            self._operator = self._location = ""
            if dump is not None:
                faulthandler.cancel_dump_traceback_later()
                dump.close()

    def _begin(self, step: str, since: float) -> None:
        """Set the step and its start in a safe order: the watchdog must never combine one step with the start of
        another.
        """
        self.since = 0.0
        self._step = step
        self.since = since

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._ended.set()

    # --- the watchdog's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        interval = MEMORY_CHECK_S if self._memory_limit else CHECK_INTERVAL_S
        while not self._ended.wait(interval):
            if self._memory_limit:
                self._check_memory()
            step = self._step
            since = self.since
            if step is not self._step:
                continue
            seconds = time.perf_counter() - since
            if not since or seconds < min(SLOW_S, self._limits.get(step, SLOW_S)):
                self._last_report_at = 0.0
                continue
            limit = self._limits.get(step)
            if limit is not None and seconds >= limit and not self._has_failed:
                self._has_failed = True
                self._send(timeout_failure(self.locate(step, limit), limit, _REMEDY))
            elif time.perf_counter() - self._last_report_at >= REPORT_INTERVAL_S:
                self._last_report_at = time.perf_counter()
                self._send(self.locate(step, seconds))

    def _check_memory(self) -> None:
        used = used_memory()
        if used > self._memory_limit:
            self._send(memory_failure(self.locate(self._step, 0.0), used, self._memory_limit))
            time.sleep(REPORT_S)
            os.kill(os.getpid(), signal.SIGKILL)

    def _send(self, report: Whereabouts | TaskFailure) -> None:
        with suppress(OSError):  # the attempt is over and the JobManager no longer reads
            self.report(report)

    def locate(self, step: str, seconds: float) -> Whereabouts:
        """Return where the task's thread is now."""
        return whereabouts(self._thread_id, step, seconds, self._operator, self._location)


def whereabouts(thread_id: int, step: str, seconds: float, operator: str, location: str) -> Whereabouts:
    """Return where a thread of this process is now.

    Args:
        operator: name to report if no operator's frame is on the stack.
        location: line in the user's program to report with `operator`.
    """
    frames = _stack(thread_id)
    context = context_of(frames)
    summary = traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False)
    first = next((i for i, frame in enumerate(summary) if is_user(frame.filename)), 0)
    line = user_frame(summary)
    linecache.checkcache()
    return Whereabouts(
        step=step,
        seconds=seconds,
        operator=operator if context is None else context.name,
        location=location if context is None else context.user_location,
        line="" if line is None else f"{line.filename}:{line.lineno} in {line.name}",
        stack="".join(traceback.format_list(summary[first:])),
    )


def timeout_failure(where: Whereabouts, limit: float, remedy: str) -> TaskFailure:
    """Return the failure of a step that took longer than `limit` seconds."""
    detail = f"{where.step} has not ended within {limit:g} s{f' (at {where.line})' if where.line else ''}"
    return TaskFailure(
        kind=STEP_TIMEOUT,
        message=detail,
        detail=detail,
        traceback=f"Traceback (most recent call last):\n{where.stack}{detail}\n",
        name=where.operator,
        location=where.location,
        code="USER_CODE",
        remedy=remedy,
    )


def memory_failure(where: Whereabouts, used: int, limit: int) -> TaskFailure:
    """Return the failure of a process that uses more than `limit` bytes."""
    key = options.PROGRAM_WORKER_MEMORY.key
    detail = (
        f"a process of the job's tasks used {used >> 20} MiB of memory, above its limit of {limit >> 20} MiB ({key})"
        f"{f' (at {where.line})' if where.line else ''}"
    )
    return TaskFailure(
        kind=MemoryLimitExceeded.__name__,
        message=detail,
        detail=detail,
        traceback=f"Traceback (most recent call last):\n{where.stack}{detail}\n",
        name=where.operator,
        location=where.location,
        code=MemoryLimitExceeded.code,
        remedy=f"keep less in the functions, use the rocksdb state backend, increase the parallelism, or raise {key}",
    )


def _stack(thread_id: int) -> list[FrameType]:
    """Return the frames of a thread of this process, the outermost first. The frames of the thread that it waits for
    follow.

    The thread waits for another thread if an object on its stack has the attribute `worker_thread_id`.
    """
    all_frames = sys._current_frames()
    frames = _frames(all_frames.get(thread_id))
    for frame in reversed(frames):
        worker = (
            getattr(frame.f_locals.get("self"), "worker_thread_id", None)
            if is_engine(frame.f_code.co_filename)
            else None
        )
        if isinstance(worker, int):
            return frames + _frames(all_frames.get(worker))
    return frames


def _frames(innermost: FrameType | None) -> list[FrameType]:
    frames = []
    frame = innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _dump_file() -> TextIO | None:
    """Open the file that the executor reads after a crash, or return None if this process is not a worker of Spark."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    return open(os.path.join(folder, str(os.getpid())), "a", encoding="utf-8") if folder else None
