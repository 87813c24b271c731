"""The interface that runs programs.

The API builds a `Program` and passes it to the current `Executor`. The API does not know clusters. `python job.py` uses the
embedded executor. The JobManager, the command line's client and `penstock.testing` set their own executor for the
program.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar, Token
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from penstock.common.configuration import Configuration
    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.graph.program import Program

DEFAULT_EXECUTOR = ("penstock.jobmanager.process.session.default_executor", "DefaultExecutor")
"""Module and class of the executor that runs programs if no executor is set."""


class Executor(Protocol):
    """An object that runs programs."""

    def execute(self, program: Program) -> JobExecutionResult:
        """Run the job to its end.

        Raises:
            PenstockError: the job cannot be started, or failed and does not restart.
        """
        ...

    def execute_async(self, program: Program) -> JobClient:
        """Start the job and return as soon as it is accepted."""
        ...

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        """Start the job and yield the values of its only `CollectSink` as they arrive, at most `limit` values.

        Closing the iterator, or reaching the limit, cancels the job. The iterator may be a `JobResults`.
        """
        ...


@runtime_checkable
class RecallsPlans(Protocol):
    """An executor that knows the snapshot from which its next job starts."""

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        """Return `Manifest.plans` of this snapshot. Return an empty mapping if the job starts without one, or if it cannot be read."""
        ...


class JobResults:
    """The results of a running job, which another thread can cancel.

    Args:
        run: function that returns a generator of the results. The generator submits the job with the first `next`. It then passes a
            function that requests the cancellation of the job to the argument of `run`.
    """

    def __init__(self, run: Callable[[Callable[[Callable[[], object]], None]], Generator[Any]]) -> None:
        self._lock = threading.Lock()
        self._request: Callable[[], object] | None = None
        self._is_cancelled = False
        self._values = run(self._submitted)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def close(self) -> None:
        """Cancel the job and wait for its end. Only the thread that reads the results may call it."""
        self._values.close()

    def cancel(self) -> None:
        """Request the cancellation of the job, from any thread. The results then end after those that have already arrived."""
        with self._lock:
            self._is_cancelled = True
            request = self._request
        if request is not None:
            request()

    def _submitted(self, request: Callable[[], object]) -> None:
        with self._lock:
            self._request = request
            is_cancelled = self._is_cancelled
        if is_cancelled:
            request()


REMOTE_EXECUTOR = ("penstock.cli.remote", "RemoteExecutor")
"""Module and class of the executor that sends programs to a session cluster."""


def remote_executor(url: str, token: str | None, ca_file: str | None, client_certificate: str | None) -> Executor:
    """Return the executor of `penstock.cli.remote`.

    Raises:
        PenstockError: the URL is not valid, or a file cannot be read.
    """
    module, name = REMOTE_EXECUTOR
    return cast("Executor", getattr(import_module(module), name)(url, token, ca_file, client_certificate))


_current: ContextVar[Executor | None] = ContextVar("penstock.executor", default=None)


def set_executor(executor: Executor | None) -> Token[Executor | None]:
    """Set the executor for programs of this context; None means the embedded executor. `reset_executor` undoes the call."""
    return _current.set(executor)


def reset_executor(token: Token[Executor | None]) -> None:
    _current.reset(token)


@contextmanager
def executing_on(executor: Executor) -> Iterator[None]:
    """Run programs on this executor within the `with` block."""
    token = set_executor(executor)
    try:
        yield
    finally:
        reset_executor(token)


def current_executor() -> Executor:
    """Return the executor of this context. The embedded executor is created at its first use and then kept."""
    executor = _current.get()
    if executor is None:
        module, name = DEFAULT_EXECUTOR
        executor = cast("Executor", getattr(import_module(module), name)())
        _current.set(executor)
    return executor
