"""Rescaling: the current and the wanted parallelism of a job, the available slots, and the transition to another
parallelism.

Problem. After a change of the parallelism, every key group, split and operator state may belong to another subtask. Each record must
reach the subtask with the state of its key. Moving state between tasks while records flow (Megaphone, Rhino) needs a protocol between
every two tasks. A stop with a savepoint and a new start costs the start of every process.

Solution. A rescale is a compromise between these two. A new attempt is cheap to start, because the processes stay alive. So a rescale takes
one last snapshot and starts another attempt from it with another graph.
1. `JobRequests` refuses an impossible rescale (`refuse`) before anything ends. Otherwise the rescale ends the attempt (`attempt_end`) with
   a checkpoint as its last snapshot. A savepoint in progress is completed first.
2. The epoch that takes this checkpoint reads no input, and waits for the uploads of the checkpoint. The job pauses until the manifest is
   stored and `EpochLoop` raises `AttemptRestarted`. From then on, the new parallelism is the wanted parallelism.
3. `JobMaster.restart_attempt` starts another attempt as after a failure, but without a delay and without counting a failure. The attempt
   has the usual steps: `place`, next leader epoch, restore by key group, redistribution of sources and operator state, commits of
   the snapshot.
4. When the first epoch has run, the request is answered.

Invariants. Until the manifest is stored, the job can continue unchanged, and it continues if the snapshot fails. When
the manifest is stored, everything is durable. A failure is then handled like any other failure, and the next attempt
already has the new parallelism. Only
operators without their own parallelism change. Key groups (the max parallelism) never change. Slots that the job keeps
have the same executor, but not the same state.

The `default` scheduler waits for the slots that the wanted parallelism needs. The `adaptive` scheduler continues with the available slots
after a short time, and rescales at a barrier when slots come back. docs/rescaling.md has the user's view. Prior art: Flink's
AdaptiveScheduler and its declarative resources, and key groups as in Carbone et al., "State Management in Apache Flink" (2017).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.common.errors import NotEnoughSlots, PenstockError
from penstock.graph.job_graph import JobGraph
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.graph.program import Program
from penstock.jobmanager.job.job_parts import JobMasterOptions
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.runners.runner import Runner
from penstock.jobmanager.validation.declared_state import check_declared_states

PAUSE_S = 0.1
"""Interval in seconds of checks of the slots."""
HOME_S = 10.0
"""Time in seconds for which a job with local copies of its state waits for an executor on the machine of the copies. It waits even if other
slots are free. An executor takes 2 to 3 s to start. A download of large state takes longer.
"""


class JobScheduler:
    """Scheduler of one job. The JobMaster's thread calls it. The constructor builds the job graph.

    Raises:
        InvalidJob: the graph cannot be built.
        KeyedStateNotAvailable, StateNameConflict, StateTypeError: a function declares a state that it cannot have.
    """

    def __init__(self, program: Program, settings: JobSettings, options: JobMasterOptions) -> None:
        self._program = program
        self._settings = settings
        self._options = options
        self.parallelism = options.parallelism or program.parallelism
        """Parallelism of the current attempt."""
        self.wanted = self.parallelism
        self.on_rescale: Callable[[], object] = lambda: None
        """Callback of the job's thread after a change of `wanted` by a request. It must not wait."""
        self._limit: int | None = None
        """Adaptive scheduler: number of slots of an attempt that has fewer slots than it needs. None if it has all."""
        self.graph: JobGraph = self._build_graph(self.wanted, validates_connectors=True)
        check_declared_states(self.graph)

    @property
    def is_adaptive(self) -> bool:
        return self._settings.scheduler == "adaptive"

    def place(self, runner: Runner, pause: Callable[[float], None], report: Callable[[str], None]) -> JobGraph:
        """Choose a parallelism with available slots and hold the slots. Wait for them if necessary. Return the job graph.

        Args:
            pause: function that waits for a number of seconds and handles requests during the wait.
            report: function that adds a line to the job's events.

        Raises:
            NotEnoughSlots: the slots were not available in time.
        """
        started = time.monotonic()
        patience = self._options.slot_timeout_s
        if patience is None:
            patience = self._settings.slot_timeout_s
        is_logged = False
        pause(0)
        while True:
            self.parallelism = self.wanted
            graph = self._build_graph(self.wanted)
            needed = graph.slots
            available = runner.available_slots(needed, self._settings.slot_priority)
            waited = time.monotonic() - started
            is_early = available >= needed and self._is_early(runner, waited, patience)
            if available >= needed and not is_early and _hold(runner, needed):
                return self._settle(graph, None)
            if self.is_adaptive and 1 <= available < needed and waited >= self._options.stabilization_s:
                narrowed = self._build_graph(self.wanted, available)
                if _hold(runner, narrowed.slots):
                    report(f"{available} of {needed} slots: continuing with parallelism {available}")
                    return self._settle(narrowed, available)
            if waited >= patience:
                raise NotEnoughSlots(
                    f"job {self._program.name!r} needs {needed} slots, but the cluster has {available} available slots after "
                    f"{int(waited)} s",
                    remedy="add workers, raise the slots per worker, lower the parallelism, or set jobmanager.scheduler: adaptive",
                )
            if not is_logged:
                is_logged = True
                report(_wait_reason(available, needed, is_early))
            pause(PAUSE_S)

    def _is_early(self, runner: Runner, waited: float, patience: float) -> bool:
        """Return whether to wait longer, because the slots of a machine with local copies of the state may come back soon."""
        return self._settings.keeps_local_copies and waited < min(HOME_S, patience) and runner.expects_returning_slots()

    def _settle(self, graph: JobGraph, limit: int | None) -> JobGraph:
        self.graph, self.parallelism, self._limit = graph, graph.parallelism, limit
        return graph

    def can_grow_to(self, runner: Runner) -> int | None:
        """Adaptive scheduler: return the highest parallelism that the available slots allow, at most the wanted parallelism.
        Return None if the job would not grow.
        """
        if self._limit is None:
            return None
        available = runner.available_slots()
        if available <= self._limit or self._build_graph(self.wanted, available).slots <= self.graph.slots:
            return None
        return min(available, self.wanted)

    def refuse(self, parallelism: int, runner: Runner) -> str | None:
        """Return the reason why the job cannot run with this parallelism, or None if it can."""
        refusal = self.refuse_graph(parallelism)
        if refusal is not None:
            return refusal
        available = runner.available_slots()
        if available < parallelism and parallelism > self.parallelism and not self.is_adaptive:
            return (
                f"parallelism {parallelism} needs {parallelism} slots, but the cluster has {available} available slots: add "
                "workers, or set jobmanager.scheduler to adaptive"
            )
        return None

    def refuse_graph(self, parallelism: int) -> str | None:
        """Return the reason why no job graph of this parallelism is possible on any cluster, or None. Any thread may call it."""
        if not 1 <= parallelism <= self.graph.max_parallelism:
            return f"parallelism {parallelism} is not in 1..{self.graph.max_parallelism} (the max parallelism)"
        try:
            self._build_graph(parallelism)
        except PenstockError as error:
            return str(error)
        return None

    def _build_graph(
        self, wanted: int, available: int | None = None, *, validates_connectors: bool = False
    ) -> JobGraph:
        """Build the job graph.

        Args:
            wanted: parallelism of operators that set no parallelism.
            available: maximum number of slots of an operator. None means no limit.
            validates_connectors: whether to validate sources and sinks. Only the start of the job validates them. Afterwards, a system that
                does not respond must neither delay the job's thread nor refuse a rescale. The connectors retry by themselves.

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
        ).build(validates_connectors=validates_connectors)


def _wait_reason(available: int, needed: int, is_early: bool) -> str:
    if is_early:
        return f"{available} slots are free; waiting for slots on the machines that have copies of the job's state"
    if available >= needed:
        return "another job took the free slots first; waiting for slots"
    return f"waiting for slots: {available} of {needed}"


def _hold(runner: Runner, slots: int) -> bool:
    """Hold the slots. Return False if another job took them first."""
    try:
        runner.place(slots)
    except NotEnoughSlots:
        return False
    return True
