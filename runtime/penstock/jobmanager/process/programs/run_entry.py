"""The start of a program in the process that the fork server has forked for it."""

from __future__ import annotations

from penstock.common.config import options
from penstock.graph.executor import Executor
from penstock.jobmanager.process.programs.messages import ProcessSpec
from penstock.jobmanager.process.programs.program_process import connect_and_run
from penstock.jobmanager.process.session.entry import run_script_on


def run(connection: int) -> int:
    """Run as the process of a program. Return the exit code."""
    return connect_and_run(connection, _run)


def _run(executor: Executor, spec: ProcessSpec) -> None:
    program = spec.program
    settings = {**spec.settings, **program.configuration}
    if program.parallelism is not None:
        settings[options.PARALLELISM.key] = str(program.parallelism)
    run_script_on(executor, program.entry, program.args, settings)
