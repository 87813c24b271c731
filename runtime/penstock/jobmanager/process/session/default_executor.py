"""The executor of `python job.py`. It starts the JVM of the first job before it imports the engine.

The JVM needs half a second until it responds, and the imports take about as long. If the job needs another cluster, this JVM stops and
another cluster starts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.errors import PenstockError
from penstock.jobmanager.process.session.local_clusters import ClusterAhead, ClusterNeeds, runs_in_one_jvm
from penstock.jobmanager.process.session.program_settings import settings_of

if TYPE_CHECKING:
    from penstock.common.configuration import Configuration
    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.graph.program import Program
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

_DATAFRAMES = "penstock.connectors.spark"
"""Package that a program with DataFrames has imported."""


class DefaultExecutor:
    """Embedded executor whose first JVM starts early."""

    def __init__(self) -> None:
        self._embedded: EmbeddedExecutor | None = None

    def execute(self, program: Program) -> JobExecutionResult:
        return self._executor(program).execute(program)

    def execute_async(self, program: Program) -> JobClient:
        return self._executor(program).execute_async(program)

    def collect(self, program: Program, limit: int | None) -> Iterator[Any]:
        return self._executor(program).collect(program, limit)

    def recorded_plans(self, configuration: Configuration) -> Mapping[str, Any]:
        from penstock.jobmanager.process.session.recorded_plans import recorded_plans

        return recorded_plans(configuration)

    def stop(self) -> None:
        """Stop the cluster and REST now, and not only at the end of the process. It may be called twice."""
        if self._embedded is not None:
            self._embedded.stop()

    def _executor(self, program: Program) -> EmbeddedExecutor:
        if self._embedded is None:
            ahead = None
            with suppress(PenstockError):  # the job reports it
                ahead = _start_ahead(program)
            from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

            self._embedded = EmbeddedExecutor()
            self._embedded.provider.ahead = ahead
        return self._embedded


def _start_ahead(program: Program) -> ClusterAhead | None:
    """Start the JVM that the program will probably need. Return None if its tasks will not run in one JVM."""
    if program.settings().get(options.RUNNER) == options.IN_PROCESS or _DATAFRAMES in sys.modules:
        return None
    settings = settings_of(program)
    slots = max([program.parallelism, *(node.parallelism or 1 for node in program.transformations)])
    needs = ClusterNeeds(slots)
    return ClusterAhead(settings, needs) if runs_in_one_jvm(settings, needs) else None
