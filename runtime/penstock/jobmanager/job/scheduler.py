"""Rescaling: how parallel a job runs, what it wants, what there are slots for, and how it gets from one to the other.

The problem. With another parallelism every key group, split and operator state may belong to another subtask, and each record
has to find its key's state where it now is. Handing state from task to task while records flow (Megaphone, Rhino) needs a
protocol between all pairs; stopping the job with a savepoint and starting it again costs the start of every process.

The way lies between them. An attempt is cheap to begin while its processes stay, so a rescale is: one last snapshot, and
another attempt from it with another graph.
1. `JobRequests` refuses what cannot be (`refuse`) before anything is given up; then the rescale is what ends the attempt
   (`attempt_end`), with a checkpoint as its last snapshot. A savepoint that is being taken comes first.
2. The epoch that takes this checkpoint reads no input and its uploads are waited for. The job stands still until the manifest
   is stored and `EpochLoop` raises `BegunAnew`: from here on the new parallelism is the wanted one.
3. `JobMaster.begin_anew` begins anew as after a failure, without a pause and without counting one: `place`,
   next leader epoch, restore by key group, sources and operator state redistributed, commits of the snapshot carried out.
4. When the first epoch has run, the request is answered.

What holds. Until the manifest is stored the job can go on as it was, and does if the snapshot fails. After it everything is
durable, and a failure is an ordinary one: the next attempt has the new parallelism. Only operators that set no parallelism of
their own follow; key groups (the max parallelism) never change. Slots that stay keep their executor, not their state.

`default` waits for the slots that the wanted parallelism needs. `adaptive` goes on with those that are there after a moment,
and rescales itself when slots come back, at a barrier like any other. From the outside: docs/rescaling.md. Prior art: Flink's
AdaptiveScheduler and its declarative resources, key groups as in Carbone et al., "State Management in Apache Flink" (2017).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.common.errors import NotEnoughSlots, PenstockError
from penstock.graph.job_graph import JobGraph
from penstock.graph.program import Program
from penstock.graph.stream_graph import JobGraphBuilder
from penstock.jobmanager.job.job_parts import JobMasterOptions
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.runners.runner import Runner
from penstock.jobmanager.validation.declared_state import check_declared_states

PAUSE_S = 0.1
"""Between two looks at the slots."""
HOME_S = 10.0
"""How long a job with local copies of its state waits for an executor to come back where they are, though there are slots elsewhere. An
executor takes two or three seconds to start; state that is worth to be kept on disk takes longer to be fetched."""


class JobScheduler:
    """One per job; called from the JobMaster's thread.

    Making one builds the job graph.

    Raises:
        InvalidJob: it cannot be built.
        KeyedStateNotAvailable, StateNameConflict, StateTypeError: a function declares a state that it cannot have.
    """

    def __init__(self, program: Program, settings: JobSettings, options: JobMasterOptions) -> None:
        self._program = program
        self._settings = settings
        self._options = options
        self.parallelism = options.parallelism or program.parallelism
        """Of the attempt that runs."""
        self.wanted = self.parallelism
        self._limit: int | None = None
        """Adaptive: the slots the attempt makes do with, fewer than it needs; None: it has what it needs."""
        self.graph: JobGraph = self._build_graph(self.wanted)
        check_declared_states(self.graph)

    @property
    def is_adaptive(self) -> bool:
        return self._settings.scheduler == "adaptive"

    def place(self, runner: Runner, pause: Callable[[float], None], tell: Callable[[str], None]) -> JobGraph:
        """Settle on a parallelism for which there are slots, and hold them; wait if need be. Returns the job graph.

        Args:
            pause: waits so many seconds, and handles requests meanwhile.
            tell: takes a line for the job's events.

        Raises:
            NotEnoughSlots: they did not come in time.
        """
        started = time.monotonic()
        patience = self._options.slot_timeout_s
        if patience is None:
            patience = self._settings.slot_timeout_s
        told = False
        pause(0)
        while True:
            self.parallelism = self.wanted
            graph = self._build_graph(self.wanted)
            needed, available = graph.slots, runner.available_slots()
            waited = time.monotonic() - started
            if available >= needed and not self._is_early(runner, waited, patience) and _hold(runner, needed):
                return self._settle(graph, None)
            if self.is_adaptive and 1 <= available < needed and waited >= self._options.stabilization_s:
                narrowed = self._build_graph(self.wanted, available)
                if _hold(runner, narrowed.slots):
                    tell(f"{available} of {needed} slots: going on with parallelism {available}")
                    return self._settle(narrowed, available)
            if waited >= patience:
                raise NotEnoughSlots(
                    f"job {self._program.name!r} needs {needed} slots, the cluster has {available} for it, "
                    f"after waiting {int(waited)} s",
                    remedy="add workers or slots per worker, lower the parallelism, or set jobmanager.scheduler: adaptive",
                )
            if not told:
                told = True
                where = " where its state is" if available >= needed else ""
                tell(f"waiting for slots{where}: {available} of {needed}")
            pause(PAUSE_S)

    def _is_early(self, runner: Runner, waited: float, patience: float) -> bool:
        """The job's state may be on a disk whose slots are about to come back."""
        return self._settings.keeps_local_copies and waited < min(HOME_S, patience) and runner.expects_home()

    def _settle(self, graph: JobGraph, limit: int | None) -> JobGraph:
        self.graph, self.parallelism, self._limit = graph, graph.parallelism, limit
        return graph

    def can_grow_to(self, runner: Runner) -> int | None:
        """Adaptive: slots have come back; the parallelism nearest to the wanted one. None: there is nothing to gain."""
        if self._limit is None:
            return None
        available = runner.available_slots()
        if available <= self._limit or self._build_graph(self.wanted, available).slots <= self.graph.slots:
            return None
        return min(available, self.wanted)

    def refuse(self, parallelism: int, runner: Runner) -> str | None:
        """Why the job cannot run with this parallelism; None: it can."""
        refusal = self.refuse_graph(parallelism)
        if refusal is not None:
            return refusal
        available = runner.available_slots()
        if available < parallelism and parallelism > self.parallelism and not self.is_adaptive:
            return (
                f"parallelism {parallelism} needs {parallelism} slots, the cluster has {available} for it: add workers, or set "
                "jobmanager.scheduler to adaptive"
            )
        return None

    def refuse_graph(self, parallelism: int) -> str | None:
        """Why there is no job graph of this parallelism, on whatever cluster; None: there is. From any thread."""
        if not 1 <= parallelism <= self.graph.max_parallelism:
            return f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)"
        try:
            self._build_graph(parallelism)
        except PenstockError as error:
            return str(error)
        return None

    def _build_graph(self, wanted: int, available: int | None = None) -> JobGraph:
        """
        Args:
            wanted: parallelism of operators that set none.
            available: no operator gets more slots than these; None: as many as it wants.

        Raises:
            InvalidJob: an operator cannot run with this parallelism.
        """
        program, settings = self._program, self._settings
        return JobGraphBuilder(
            program.transformations,
            name=program.name,
            parallelism=wanted if available is None else min(wanted, available),
            max_parallelism=program.max_parallelism,
            limit=available,
            chaining=settings.chaining,
            job_parameters=program.global_job_parameters,
            auto_watermark_interval_ms=settings.auto_watermark_interval_ms,
            require_uids=settings.require_uids,
            object_store_options=settings.object_store_options,
            mode=settings.runtime_mode,
        ).build()


def _hold(runner: Runner, slots: int) -> bool:
    """False: another job was faster."""
    try:
        runner.place(slots)
    except NotEnoughSlots:
        return False
    return True
