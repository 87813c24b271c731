"""The one seam through which a program is run.

The API builds a `Program` and hands it to the current `Executor`; it knows nothing of clusters. `python job.py` finds the
embedded one; the JobManager, the command line's client and `penstock.testing` set their own around the program they run.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar, Token
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.graph.program import Program

DEFAULT_EXECUTOR = ("penstock.jobmanager.process.embedded", "EmbeddedExecutor")
"""Module and class of the executor that runs programs where none is set."""


class Executor(Protocol):
    """Runs programs."""

    def execute(self, program: Program) -> JobExecutionResult:
        """Runs the job to its end.

        Raises:
            PenstockError: the job cannot be started, or failed for good.
        """
        ...

    def execute_async(self, program: Program) -> JobClient:
        """Starts the job and returns as soon as it is accepted."""
        ...

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        """Starts the job and gives the values of its one `CollectSink` as they come, at most `limit`.

        The iterator is a generator: closing it, or reaching the limit, cancels the job.
        """
        ...


REMOTE_EXECUTOR = ("penstock.cli.remote", "RemoteExecutor")
"""As `DEFAULT_EXECUTOR`: of the one that sends programs to a session cluster."""


def remote_executor(url: str, token: str | None) -> Executor:
    """
    Raises:
        PenstockError: the URL is none.
    """
    module, name = REMOTE_EXECUTOR
    return cast("Executor", getattr(import_module(module), name)(url, token))


_current: ContextVar[Executor | None] = ContextVar("penstock.executor", default=None)


def set_executor(executor: Executor | None) -> Token[Executor | None]:
    """Programs of this context run on that executor; None: on the embedded one. `reset_executor` undoes it."""
    return _current.set(executor)


def reset_executor(token: Token[Executor | None]) -> None:
    _current.reset(token)


@contextmanager
def executing_on(executor: Executor) -> Iterator[None]:
    """Programs run on that executor within the `with` block."""
    token = set_executor(executor)
    try:
        yield
    finally:
        reset_executor(token)


def current_executor() -> Executor:
    """The executor of this context. The embedded one is made when it is first asked for, and kept."""
    executor = _current.get()
    if executor is None:
        module, name = DEFAULT_EXECUTOR
        executor = cast("Executor", getattr(import_module(module), name)())
        _current.set(executor)
    return executor
