"""Runs a user's program in this process: its jobs go to an executor, or only the graph of its first job is built."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.configuration import Configuration, reset_command_line, set_command_line
from penstock.common.errors import InvalidJob
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.graph.executor import Executor, executing_on
from penstock.graph.program import Program

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobGraph


SQL_FILES = "penstock.table.client.sql_file"
"""Module that runs a program in SQL. It needs the package of Flink's planner."""


def run_script_on(executor: Executor, entry: str, args: Sequence[str], settings: Mapping[str, str]) -> None:
    """Run a program in this process as `__main__`. Its jobs go to the executor.

    Args:
        entry: `script.py`, `statements.sql` or `package.module:function`.
        settings: settings of the command line. The program's settings override them.
    """
    token = set_command_line(settings)
    try:
        with executing_on(executor):
            _run_entry(entry, args)
    finally:
        reset_command_line(token)


class GraphBuilt(BaseException):
    """Signal that the program has reached execute(), so its graph is complete. It does not inherit from Exception, because programs may
    catch every Exception.
    """


class GraphCollector:
    """Executor that builds the graph of the first program and then stops the program.

    Args:
        recall: function that returns `Manifest.plans` of the snapshot from which the program would start.
    """

    def __init__(self, recall: Callable[[], Mapping[str, Any]] = dict) -> None:
        self.graph: JobGraph | None = None
        self.settings = Configuration()
        self.plans: Mapping[str, Any] = {}
        """Plans of the program's SQL statements."""
        self._recall = recall

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        return self._recall()

    def _build(self, program: Program) -> None:
        from penstock.graph.job_graph_builder import JobGraphBuilder
        from penstock.jobmanager.job.settings import JobSettings
        from penstock.jobmanager.validation.declared_state import check_declared_states
        from penstock.jobmanager.validation.sink_settings import check_borders

        conf = self.settings = program.settings()
        self.plans = program.plans
        self.graph = JobGraphBuilder(
            program.transformations,
            name=program.name,
            parallelism=program.parallelism,
            max_parallelism=program.max_parallelism,
            chaining=conf.get(options.OPERATOR_CHAINING),
            job_parameters=program.global_job_parameters,
            require_uids=not conf.get(options.AUTO_GENERATE_UIDS),
            mode=conf.get(options.RUNTIME_MODE),
        ).build()
        check_declared_states(self.graph)
        check_borders(self.graph, JobSettings.from_configuration(conf.to_dict()).checkpoint_interval_ms)
        raise GraphBuilt

    def execute(self, program: Program) -> JobExecutionResult:
        self._build(program)
        raise AssertionError("unreachable")

    def execute_async(self, program: Program) -> JobClient:
        self._build(program)
        raise AssertionError("unreachable")

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        self._build(program)
        raise AssertionError("unreachable")


def _run_entry(entry: str, args: Sequence[str]) -> None:
    """Run `script.py` as `__main__`, execute `statements.sql`, or call `package.module:function`."""
    with _arguments([entry, *args]):
        if entry.endswith((".py", ".sql")) or os.sep in entry:
            path = Path(entry)
            if not path.is_file():
                raise InvalidJob(f"the program {entry} does not exist", remedy="pass the path of the job's file")
            if path.suffix == ".sql":
                import_module(SQL_FILES).run_file(str(path), args)
                return
            sys.path.insert(0, str(path.resolve().parent))
            runpy.run_path(str(path), run_name="__main__")
            return
        module_name, _, function = entry.partition(":")
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            raise InvalidJob(
                f"module {error.name!r} of entry {entry!r} cannot be imported",
                remedy="check the name, and that the module is a part of the program or of the image",
            ) from error
        target = getattr(module, function or "main", None)
        if not callable(target):
            raise InvalidJob(f"{module_name} has no function {function or 'main'!r}", remedy="write module:function")
        target()


@contextmanager
def _arguments(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = argv
    try:
        yield
    finally:
        sys.argv = before
