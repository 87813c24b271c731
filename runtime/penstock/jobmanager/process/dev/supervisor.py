"""The process of `penstock dev`: it watches the program's files and starts each run in a forked process.

The engine is imported once, so a run starts in a fraction of a second. A fork also discards everything that the former
program left behind: modules, threads and connections. This process starts no threads, because a fork copies only the thread that calls it.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import termios
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.common.config import options
from penstock.common.configuration import load_configuration
from penstock.common.credentials.local_token import new_token
from penstock.graph.executor import Executor
from penstock.jobmanager.process.dev.messages import (
    Ended,
    Files,
    JobEnd,
    Line,
    Message,
    Restored,
    Running,
    Stop,
    Waiting,
)
from penstock.jobmanager.process.dev.program_run import END_S, STOP_S, Start, run_forked
from penstock.jobmanager.process.dev.watched_files import WatchedFiles

_POLL_S = 0.1
_KILL_S = STOP_S + END_S + 4.0
"""Time in seconds for a process to end after a request, before it is killed."""
_OVER = ("FINISHED", "CANCELED", "FAILED")
_MOST_ATTEMPTS = 10
"""Maximum number of consecutive starts, each without the state of one more operator."""


@dataclass(frozen=True)
class DevProgram:
    """The program that `penstock dev` runs.

    Args:
        script: file of the program.
        settings: settings of the command line.
        run: function that runs it on an executor with these settings.
        show: function that shows an exception of the program.
        say: function that prints one line.
    """

    script: str
    settings: Mapping[str, str]
    run: Callable[[Executor, Mapping[str, str]], None]
    show: Callable[[BaseException], None]
    say: Callable[[str], None]

    @property
    def folder(self) -> str:
        return str(Path(self.script).resolve().parent)


def develop(program: DevProgram) -> None:
    """Run the program, and again after each change of its files, until Ctrl-C."""
    work = tempfile.mkdtemp(prefix="penstock-dev-")
    try:
        with _terminal_restored():
            _Supervisor(program, work).run()
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # the terminal shows ^C at the end of a line
        program.say("stopped")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def settings_for(given: Mapping[str, str], work: str) -> dict[str, str]:
    """Return the settings of the runs: those of the command line, and defaults for keys that no file configures.

    Frequent checkpoints keep the state of a job that fails. A failed job waits for the next change of the program.
    """
    defaults = {
        options.REST_PORT.key: str(options.REST_PORT.default),
        options.CHECKPOINT_INTERVAL.key: "1s",
        options.CHECKPOINT_DIRECTORY.key: f"file://{work}/checkpoints",
        options.CHECKPOINT_RETENTION.key: "RETAIN_ON_CANCELLATION",
        options.RESTART_STRATEGY.key: "none",
    }
    configured = load_configuration().to_dict()
    missing = {key: value for key, value in defaults.items() if key not in configured}
    return {**missing, **given, options.RUNNER.key: options.IN_PROCESS}


@dataclass
class _Run:
    """A process of the program."""

    pid: int
    line: Line
    is_ending: bool = False
    """Whether the end of the process was requested."""
    is_over: bool = False
    """Whether the process has ended."""
    ends: list[JobEnd] = field(default_factory=list)


class _Supervisor:
    def __init__(self, program: DevProgram, work: str) -> None:
        self._program = program
        self._work = work
        self._settings = settings_for(program.settings, work)
        self._token = new_token()
        self._files = WatchedFiles(str(Path(program.script).resolve()))
        self._snapshots: dict[str, tuple[str, str]] = {}
        self._refused: set[str] = set()
        self._saved_at: float | None = None
        self._dashboard = ""

    def run(self) -> None:
        run = self._start()
        try:
            while True:
                self._receive(run, _POLL_S)
                changed = self._files.changed()
                if changed:
                    self._saved_at = time.monotonic()
                    if self._compiles(changed):
                        self._program.say(f"{self._names(changed)} changed")
                        self._end(run, with_savepoints=True)
                        self._refused.clear()
                        run = self._start()
                elif self._leave_out(run):
                    self._end(run, with_savepoints=True)
                    run = self._start()
        finally:
            self._end(run, with_savepoints=False)

    def _names(self, paths: list[str]) -> str:
        return ", ".join(os.path.relpath(path, self._program.folder) for path in paths)

    @property
    def _script(self) -> str:
        return os.path.basename(self._program.script)

    def _compiles(self, paths: list[str]) -> bool:
        """Show a syntax error, and leave the former program running."""
        for path in paths:
            try:
                compile(Path(path).read_bytes(), path, "exec")
            except (SyntaxError, ValueError) as error:
                self._program.say("".join(traceback.format_exception_only(error)).rstrip())
                self._program.say("the former program keeps running until the next save")
                return False
            except OSError:
                return False
        return True

    # --- processes --------------------------------------------------------------------------------------------

    def _start(self) -> _Run:
        ours, theirs = socket.socketpair()
        settings = dict(self._settings)
        start = Start(
            run=lambda executor: self._program.run(executor, settings),
            show=self._program.show,
            folder=self._program.folder,
            savepoints=f"{self._work}/savepoints",
            token=self._token,
            snapshots=dict(self._snapshots),
            refused=frozenset(self._refused),
        )
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries in native code do not matter
            pid = os.fork()
        if pid == 0:
            ours.close()
            run_forked(start, Line(theirs, Stop))
        theirs.close()
        return _Run(pid, Line(ours, Message))

    def _end(self, run: _Run, *, with_savepoints: bool) -> None:
        """End the process. If it does not answer, kill it."""
        run.is_ending = True
        run.line.send(Stop(with_savepoints))
        kill_at = time.monotonic() + (_KILL_S if with_savepoints else 4 * END_S)
        while not run.is_over:
            waits = self._receive(run, _POLL_S)
            if waits:
                kill_at = float("inf")
            elif run.ends and kill_at == float("inf"):
                kill_at = time.monotonic() + _KILL_S
            if time.monotonic() > kill_at:
                os.kill(run.pid, signal.SIGKILL)
                kill_at = float("inf")
        run.line.socket.close()
        with suppress(ChildProcessError):
            os.waitpid(run.pid, 0)
        if with_savepoints:
            self._remember(run)

    def _remember(self, run: _Run) -> None:
        """Remember from which snapshots the next run starts."""
        for end in run.ends:
            if end.note:
                self._program.say(f"{end.job}: no savepoint, because {end.note}")
            if end.snapshot:
                self._snapshots[end.job] = end.job_id, end.snapshot
            else:
                self._snapshots.pop(end.job, None)
        self._remove_savepoints()

    def _remove_savepoints(self) -> None:
        needed = {url.removeprefix("file://").rstrip("/") for _, url in self._snapshots.values()}
        for found in Path(self._work, "savepoints").glob("*"):
            if str(found) not in needed:
                shutil.rmtree(found, ignore_errors=True)

    def _leave_out(self, run: _Run) -> bool:
        """Return whether to start again without the state that a task could not read."""
        new = {end.refused for end in run.ends if end.refused} - self._refused
        self._refused |= new
        return bool(new) and len(self._refused) <= _MOST_ATTEMPTS

    # --- messages ---------------------------------------------------------------------------------------------

    def _receive(self, run: _Run, seconds: float) -> bool:
        """Handle the messages of the next seconds. Return whether the program waits for a person."""
        if run.is_over:
            time.sleep(seconds)
            return False
        readable, _, _ = select.select([run.line.socket], [], [], seconds)
        messages = run.line.take() if readable else []
        if messages is None:
            self._over(run)
            return False
        waits = False
        for message in messages:
            waits = waits or isinstance(message, Waiting)
            self._handle(run, message)
        return waits

    def _over(self, run: _Run) -> None:
        run.is_over = True
        if not run.is_ending:
            self._program.say(f"the process of {self._script} ended unexpectedly. It starts again after the next save")

    def _handle(self, run: _Run, message: Any) -> None:
        say = self._program.say
        match message:
            case Files(files):
                self._files.add(files)
            case Waiting(reason):
                say(reason)
            case Restored(job, state):
                say(f"{job}: state kept: {', '.join(state.kept) or 'none'}")
                for text in [f"not kept: {lost.operator}: {lost.reason}" for lost in state.lost] + state.changes:
                    say(f"{job}: {text}")
            case Running(job, dashboard, port, is_new):
                if port > 0:
                    self._settings[options.REST_PORT.key] = str(port)
                self._running(run, job, dashboard, is_new)
            case Ended(jobs, failed):
                run.ends = jobs
                if not run.is_ending and not any(end.refused for end in jobs):
                    self._ended(jobs, failed)

    def _running(self, run: _Run, job: str, dashboard: str, is_new: bool) -> None:
        say = self._program.say
        since, self._saved_at = self._saved_at, None
        took = "" if since is None else f", {time.monotonic() - since:.1f} s after the save"
        say(f"{job} runs{' without earlier state' if is_new and took else ''}{took}")
        if dashboard and dashboard != self._dashboard:
            self._dashboard = dashboard
            say(f"dashboard: {dashboard}")

    def _ended(self, jobs: list[JobEnd], failed: bool) -> None:
        """Say that the program ended by itself."""
        self._saved_at = None
        if failed:
            self._program.say(f"{self._script} failed. It runs again after the next save")
        elif all(end.status in _OVER for end in jobs):
            self._program.say(f"{self._script} has ended. It runs again, from the beginning, after the next save")


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """Restore the settings of the terminal, which a debugger changes and a killed process leaves changed."""
    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, ValueError, OSError):
        yield
        return
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)
