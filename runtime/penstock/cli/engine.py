"""The interface to the engine: the functions of `penstock.jobmanager.process.launch` for the commands that start something."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.common.program.extras import missing_package

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LAUNCH_MODULE = "penstock.jobmanager.process.launch"
WORKER_MODULE = "penstock.jobmanager.process.worker.worker_launch"


class Launcher(Protocol):
    """Functions of `penstock.jobmanager.process.launch`. All raise `PenstockError` for errors that they can explain."""

    def run_script(
        self,
        *,
        script: str,
        args: Sequence[str],
        parallelism: int | None,
        savepoint_path: str | None,
        allow_non_restored_state: Sequence[str],
        configuration: Mapping[str, str],
        on_submitted: Callable[[str, str, str], None],
        is_detached: bool = False,
    ) -> None:
        """Run a program in this process as `__main__` on an embedded cluster. Return when the program has ended.

        `savepoint_path` and `allow_non_restored_state` (uids) apply to the first job that the program starts.
        `on_submitted(job id, job name, REST URL)` is called for each job when it is accepted. The URL is empty if the
        REST API is disabled. The program's exceptions are raised.
        """
        ...

    def run_dev(
        self,
        *,
        script: str,
        args: Sequence[str],
        parallelism: int | None,
        configuration: Mapping[str, str],
        show: Callable[[BaseException], None],
        say: Callable[[str], None],
    ) -> None:
        """Run a program in one process, and again after each change of its files. Return after Ctrl-C.

        `show` shows an exception of the program, and `say` prints a line. The program's process calls them, too.
        """
        ...

    def run_cluster(self, *, entry: str, configuration: Mapping[str, str]) -> int | None:
        """Run the cluster of a master, and the JobManager in a child process, if the configuration requires it. Return the exit code.

        None means that this process must run the JobManager.
        """
        ...

    def run_master(
        self,
        *,
        entry: str,
        args: Sequence[str],
        restore: str | None,
        restore_latest: bool,
        fresh: bool,
        when_released: bool,
        allow_non_restored_state: Sequence[str],
        job_id: str | None,
        parallelism: int | None,
        configuration: Mapping[str, str],
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> int:
        """Run the JobManager of one job until it ends. Return the exit code. Exactly one of the four ways to start must be selected.

        `is_admitted` waits for the check of the program, and returns whether the program may run.
        """
        ...

    def is_released(self, *, job_id: str, configuration: Mapping[str, str]) -> bool:
        """Return whether a job that waits for its release was released. Raise `PenstockError` if storage cannot be
        read."""
        ...

    def fork_check(self, check: Callable[[], bool]) -> Callable[[], bool]:
        """Run `check`, which prints its report, in a forked process. Return a function that waits for the result of
        `check`.

        The returned function raises `PenstockError` if the program ended the forked process. Call `fork_check` before
        this process has threads.
        """
        ...

    def run_session(self, *, configuration: Mapping[str, str], local: bool) -> int:
        """Run a session cluster until the process receives a stop signal. `local`: start workers in local processes."""
        ...

    def check(
        self,
        *,
        entry: str,
        args: Sequence[str],
        parallelism: int | None,
        against: str | None,
        configuration: Mapping[str, str],
        allow_non_restored_state: Sequence[str] = (),
    ) -> Mapping[str, Any]:
        """Build the program's graph without running it, and compare it with a savepoint if one is given.

        Args:
            allow_non_restored_state: uids whose state in the savepoint may be skipped. Callers pass this argument only
                if it is not empty.

        Returns:
            {"ok": bool, "problems": [{"code", "message", "remedy", "operator", "location"}], "graph": the plan or None,
            "not_looked_at": [{"operator", "location", "statement"}], "warnings": [{"code", "message", "remedy"}]}. `not_looked_at` lists
            code that may declare states and was not checked. `warnings` lists containers that are too small for the job.
        """
        ...


class WorkerLauncher(Protocol):
    """Function of `penstock.jobmanager.process.worker.worker_launch`, which imports little."""

    def run_worker(self, *, master: str, slots: int) -> int:
        """Run a TaskManager of the master at `host:port` until it ends. Return the exit code."""
        ...


def launcher() -> Launcher:
    """Import and return the engine.

    Raises:
        ClusterError: the engine is not installed here.
    """
    return cast("Launcher", _imported(LAUNCH_MODULE))


def worker_launcher() -> WorkerLauncher:
    """Import and return the part of the engine that a worker's process needs.

    Raises:
        ClusterError: the engine is not installed here.
    """
    return cast("WorkerLauncher", _imported(WORKER_MODULE))


def _imported(module: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        raise missing from None
