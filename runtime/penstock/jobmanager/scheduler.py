"""How parallel a job runs: what it wants, what there are slots for, and the job graph of that.

`default` waits for the slots the wanted parallelism needs. `adaptive` goes on with fewer after a moment, and returns to what
is wanted when slots come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.common.errors import NotEnoughSlots
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.jobmanager.job_parts import JobMasterOptions
from penstock.jobmanager.runner import Runner
from penstock.jobmanager.settings import JobSettings

PAUSE_S = 0.1
"""Between two looks at the slots."""


class JobScheduler:
    """One per job; called from the JobMaster's thread.

    Making one builds the job graph.

    Raises:
        InvalidJob: it cannot be built.
    """

    def __init__(self, program: Program, settings: JobSettings, options: JobMasterOptions) -> None:
        self._program = program
        self._settings = settings
        self._options = options
        self.parallelism = options.parallelism or program.parallelism
        """Of the attempt that runs."""
        self.wanted = self.parallelism
        self.graph: JobGraph = self._build_graph()

    @property
    def is_adaptive(self) -> bool:
        return self._settings.scheduler == "adaptive"

    def place(self, runner: Runner, pause: Callable[[float], None], tell: Callable[[str], None]) -> JobGraph:
        """Settle on a parallelism for which there are slots; wait if need be. Returns the job graph.

        Args:
            pause: waits so many seconds, and handles requests meanwhile.
            tell: takes a line for the job's events.

        Raises:
            NotEnoughSlots: they did not come in time.
        """
        started = time.monotonic()
        told = False
        pause(0)
        while True:
            self.parallelism = self.wanted
            needed = self._build_graph().slots
            available = runner.available_slots()
            if available >= needed:
                break
            waited = time.monotonic() - started
            if self.is_adaptive and available >= 1 and waited >= self._options.stabilization_s:
                self.parallelism = available
                tell(f"{available} of {needed} slots: going on with parallelism {available}")
                break
            if waited >= self._options.slot_timeout_s:
                raise NotEnoughSlots(
                    f"job {self._program.name!r} needs {needed} slots, the cluster has {available}, "
                    f"after waiting {int(waited)} s",
                    remedy="add workers or slots per worker, lower the parallelism, or set jobmanager.scheduler: adaptive",
                )
            if not told:
                told = True
                tell(f"waiting for slots: {available} of {needed}")
            pause(PAUSE_S)
        self.graph = self._build_graph()
        return self.graph

    def can_grow_to(self, runner: Runner) -> int | None:
        """Adaptive: slots have come back; the parallelism nearest to the wanted one. None: there is nothing to gain."""
        if self.parallelism >= self.wanted or not self.is_adaptive:
            return None
        available = runner.available_slots()
        return min(available, self.wanted) if available > self.parallelism else None

    def refuse(self, parallelism: int, runner: Runner) -> str | None:
        """Why the job cannot run with this parallelism; None: it can."""
        if not 1 <= parallelism <= self.graph.max_parallelism:
            return f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)"
        available = runner.available_slots()
        if available < parallelism and parallelism > self.parallelism and not self.is_adaptive:
            return (
                f"parallelism {parallelism} needs {parallelism} slots, the cluster has {available}: add workers, or set "
                "jobmanager.scheduler to adaptive"
            )
        return None

    def _build_graph(self) -> JobGraph:
        program, settings = self._program, self._settings
        return JobGraphBuilder(
            program.transformations,
            name=program.name,
            parallelism=self.parallelism,
            max_parallelism=program.max_parallelism,
            limit=self.parallelism if self.parallelism < self.wanted else None,
            chaining=settings.chaining,
            job_parameters=program.global_job_parameters,
            auto_watermark_interval_ms=settings.auto_watermark_interval_ms,
            require_uids=settings.require_uids,
            object_store_options=settings.object_store_options,
        ).build()
