"""The interface that runs programs.

The API builds a `Program` and passes it to the current `Executor`. The API does not know clusters. `python job.py` uses the
embedded executor. The JobManager, the command line's client and `penstock.testing` set their own executor for the
program.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar, Token
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

        The iterator is a generator: closing it, or reaching the limit, cancels the job.
        """
        ...


@runtime_checkable
class RecallsPlans(Protocol):
    """An executor that knows the snapshot from which its next job starts."""

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        """Return `Manifest.plans` of this snapshot. Return an empty mapping if the job starts without one, or if it cannot be read."""
        ...


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
