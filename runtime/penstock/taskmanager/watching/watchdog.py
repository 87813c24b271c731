"""Where a task is that does not come back: the step, the operator, the line of the user's.

The problem. A function that hangs says nothing; the JobManager only sees that an answer does not come, and whoever kills the
worker then kills the only witness. Nothing may be noted per record for that.

The way. What the task does is divided into *steps* (loading the job, restoring, opening functions, processing, closing); the
task's thread notes when one begins, once per batch at most. A thread beside it looks twice a second. A step that takes
longer than two seconds is looked into: the frames of the task's thread (`sys._current_frames`) tell operator and line, and
that goes to the JobManager, again and again for as long as it lasts. Slow is not wrong: the JobManager only remembers it,
for the status of a job that starts and for the words of a failure. A step that has a time limit and is past it is a
failure, and told as one, with the stack.

Code that keeps the interpreter's lock keeps this thread from looking, too. Steps with a limit are therefore also given to
`faulthandler`, whose timer needs no lock: some seconds after the limit it writes the stack to where the executor will look
for it (`jobmanager.failover.crash`) and ends the process.
"""

from __future__ import annotations

import faulthandler
import linecache
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import TextIO

from penstock.common.program.user_frames import is_engine, is_user, user_frame
from penstock.taskmanager.failure import context_of
from penstock.taskmanager.protocol import STEP_TIMEOUT, TaskFailure, Whereabouts

LOADING = "loading the job"
RESTORING = "restoring state"
OPENING = "opening functions"
PROCESSING = "processing"
CLOSING = "closing functions"

_REMEDY = "see why this line does not return; a step that needs longer is given more time in the configuration"
LOOK_S = 0.5
SLOW_S = 2.0
"""A step that takes longer is told of."""
TELL_EVERY_S = 5.0
GRACE_S = 3.0
"""After a limit, until a process that cannot tell of it is ended."""


class Unwatched:
    """Nobody looks: the task runs in a process of somebody else's, a test's."""

    since = 0.0
    """When the step at hand began (`time.perf_counter`, s); 0: none is. A task sets it around every batch."""

    def step(self, name: str, operator: str = "", location: str = "") -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class Watchdog(Unwatched):
    """Of the tasks of one process, of which one is at work at a time. Its steps are noted by the thread that makes it.

    Args:
        tell: takes what is to be told; called from the watchdog's thread.
        limits: of steps, s; a step without one, or with 0, may take for ever.
    """

    def __init__(self, tell: Callable[[Whereabouts | TaskFailure], None], limits: Mapping[str, float]) -> None:
        self.tell = tell
        self._limits = {step: limit for step, limit in limits.items() if limit}
        self._thread_id = threading.get_ident()
        self._step = PROCESSING
        self._operator = self._location = ""
        self._told_at = 0.0
        self._has_failed = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # --- from the task's thread -------------------------------------------------------------------------------

    @contextmanager
    def step(self, name: str, operator: str = "", location: str = "") -> Iterator[None]:
        """A step of the start or the end: rare, and with a limit, as a rule."""
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
        """In this order: the thread beside must not take the time of one step for that of another with a limit."""
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
        while not self._ended.wait(LOOK_S):
            step = self._step
            since = self.since
            if step is not self._step:
                continue
            seconds = time.perf_counter() - since
            if not since or seconds < min(SLOW_S, self._limits.get(step, SLOW_S)):
                self._told_at = 0.0
                continue
            limit = self._limits.get(step)
            if limit is not None and seconds >= limit and not self._has_failed:
                self._has_failed = True
                self._send(timeout_failure(self.look(step, limit), limit, _REMEDY))
            elif time.perf_counter() - self._told_at >= TELL_EVERY_S:
                self._told_at = time.perf_counter()
                self._send(self.look(step, seconds))

    def _send(self, what: Whereabouts | TaskFailure) -> None:
        with suppress(OSError):  # nobody listens any more: the attempt is over
            self.tell(what)

    def look(self, step: str, seconds: float) -> Whereabouts:
        """Where the task's thread is now."""
        return whereabouts(self._thread_id, step, seconds, self._operator, self._location)


def whereabouts(thread_id: int, step: str, seconds: float, operator: str, location: str) -> Whereabouts:
    """Where a thread of this process is now.

    Args:
        operator: what to name, with its line, if no operator's frame is on the stack.
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
    """A step has taken longer than `limit` s."""
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


def _stack(thread_id: int) -> list[FrameType]:
    """Frames of a thread of this process, the outermost first; then those of the thread that it waits for.

    An object that has work done in a thread of its own says so by `works_in`, the thread's id.
    """
    all_frames = sys._current_frames()
    frames = _frames(all_frames.get(thread_id))
    for frame in reversed(frames):
        worker = getattr(frame.f_locals.get("self"), "works_in", None) if is_engine(frame.f_code.co_filename) else None
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
    """Where the executor looks when this process is gone; None: it is no worker of Spark's."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    return open(os.path.join(folder, str(os.getpid())), "a", encoding="utf-8") if folder else None
