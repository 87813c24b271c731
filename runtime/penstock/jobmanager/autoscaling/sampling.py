"""Samples of a running job: rates and shares between two reads of its counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.autoscaling.key_totals import key_shares
from penstock.jobmanager.autoscaling.samples import BUSIEST, KeyShare, MemorySample, Sample, VertexSample
from penstock.taskmanager.subtask import STATE_SIZE

if TYPE_CHECKING:
    from penstock.functions.operator_context import Clock
    from penstock.graph.job_graph import JobGraph, Stage
    from penstock.graph.program import Program
    from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
    from penstock.jobmanager.job.job_history import JobHistory
    from penstock.jobmanager.job.job_metrics import JobMetrics
    from penstock.jobmanager.job.job_parts import JobParts
    from penstock.jobmanager.job.requests import Operation
    from penstock.jobmanager.job.scheduler import JobScheduler
    from penstock.jobmanager.job.settings import JobSettings
    from penstock.jobmanager.runners.runner import Runner


class MeasuredJob(Protocol):
    """The parts of a `JobMaster` that the autoscaler reads, and the requests that it makes."""

    program: Program
    job_id: str
    attempt: int
    runner: Runner
    settings: JobSettings
    clock: Clock
    history: JobHistory
    scheduler: JobScheduler
    parts: JobParts

    @property
    def metrics(self) -> JobMetrics: ...

    @property
    def graph(self) -> JobGraph: ...

    @property
    def parallelism(self) -> int: ...

    def request(self, operation: Operation) -> Operation: ...


@dataclass(frozen=True)
class Counters:
    """Counters of a subtask since the attempt began."""

    records_in: int
    records_out: int
    busy_ms: float
    blocked_ms: float


CACHE_HIT, CACHE_MISS = "block-cache-hit", "block-cache-miss"
"""Names of the metrics of RocksDB's cache."""
HIDDEN = "(hidden)"
"""Text of each key if texts of keys are not shown."""


class Sampler:
    """Sampler of one job, in the job's thread. The first read of an attempt is only the base of the next one."""

    def __init__(self, shows_keys: bool = True) -> None:
        self.shows_keys = shows_keys
        self._attempt = -1
        self._at_ms = 0
        self._before: dict[tuple[int, int], Counters] = {}

    def is_due(self, attempt: int, now_ms: int, interval_ms: int) -> bool:
        """Return whether the interval has passed, or a new attempt has started."""
        return attempt != self._attempt or not 0 <= now_ms - self._at_ms < interval_ms

    def take(self, job: MeasuredJob, now_ms: int) -> Sample | None:
        """Return the sample since the last call, or None if this is the first call in an attempt.

        Args:
            now_ms: time on the monotonic clock.
        """
        now = {
            key: Counters(one.records_in, one.records_out, one.busy_ms, one.blocked_ms)
            for key, one in job.metrics.subtasks.items()
        }
        keys = job.metrics.take_keys()
        before, elapsed, attempt = self._before, now_ms - self._at_ms, self._attempt
        self._before, self._at_ms, self._attempt = now, now_ms, job.attempt
        if attempt != job.attempt or elapsed <= 0:
            return None
        graph = job.graph
        adds_slots = job.runner.can_add_slots
        redaction = Redaction.of(job.settings.configuration)
        clean = redaction.clean if self.shows_keys else lambda text: HIDDEN
        own = {operator.max_parallelism for operator in graph.operators if not operator.has_own_parallelism}
        return Sample(
            at_ms=now_ms,
            time_ms=job.clock.now_ms(),
            interval_ms=elapsed,
            attempt=job.attempt,
            parallelism=job.parallelism,
            requested=job.scheduler.wanted,
            max_parallelism=min({graph.max_parallelism, *own}),
            slots=graph.max_parallelism if adds_slots else job.runner.available_slots(),
            status=job.history.status.value,
            levels_take_turns=not job.runner.streaming,
            vertices=tuple(
                _vertex(
                    graph,
                    stage,
                    job.parts.sources,
                    _of(stage.id, before),
                    _of(stage.id, now),
                    elapsed,
                    key_shares(keys, graph, stage, clean),
                )
                for stage in graph.stages
            ),
            memory=_memory(job),
        )


def _memory(job: MeasuredJob) -> MemorySample:
    python = max((rss for rss, _, _ in job.metrics.usage_by_slot().values()), default=0)
    if job.settings.backend != "rocksdb":
        return MemorySample(python)
    state: dict[int, int] = {}
    counts: dict[str, int] = {}
    store = job.metrics.store
    for stage in job.graph.stages:
        for scope in store.subtasks(job.job_id, str(stage.id)):
            for name, value in store.values(scope).items():
                last = name.rpartition(".")[2]
                if last == STATE_SIZE:
                    state[scope.subtask] = state.get(scope.subtask, 0) + int(value or 0)
                elif last in (CACHE_HIT, CACHE_MISS):
                    counts[last] = counts.get(last, 0) + int(value or 0)
    return MemorySample(python, max(state.values(), default=0), counts.get(CACHE_HIT), counts.get(CACHE_MISS))


def _of(stage: int, counters: Mapping[tuple[int, int], Counters]) -> dict[int, Counters]:
    return {slot: one for (of, slot), one in counters.items() if of == stage}


def _vertex(
    graph: JobGraph,
    stage: Stage,
    sources: Mapping[str, SourceCoordinator],
    before: Mapping[int, Counters],
    now: Mapping[int, Counters],
    elapsed_ms: int,
    keys: tuple[KeyShare, ...],
) -> VertexSample:
    zero = Counters(0, 0, 0.0, 0.0)
    records_in = records_out = 0
    busy: dict[int, float] = {}
    blocked = 0.0
    for slot, after in now.items():
        was = before.get(slot, zero)
        records_in += after.records_in - was.records_in
        records_out += after.records_out - was.records_out
        busy[slot] = min(1.0, (after.busy_ms - was.busy_ms) / elapsed_ms)
        blocked += min(1.0, (after.blocked_ms - was.blocked_ms) / elapsed_ms)
    count = max(1, stage.parallelism)
    mean, blocked = sum(busy.values()) / count, blocked / count
    busiest = sorted(busy.items(), key=lambda one: one[1], reverse=True)[:BUSIEST]
    operators = [graph.operators[index] for index in stage.operators]
    lag, splits = _source([sources[one.uid] for one in operators if one.source is not None and one.uid in sources])
    return VertexSample(
        id=str(stage.id),
        name=stage.name,
        level=stage.level,
        parallelism=stage.parallelism,
        inputs=tuple(str(graph.exchanges[exchange].source_stage) for exchange in stage.inputs),
        rate_in=records_in / elapsed_ms * 1e3,
        rate_out=records_out / elapsed_ms * 1e3,
        busy=mean,
        back_pressured=blocked,
        idle=max(0.0, 1 - mean - blocked),
        busiest=tuple((slot, round(share, 4)) for slot, share in busiest),
        is_fixed=any(one.has_own_parallelism for one in operators),
        lag=lag,
        splits=splits,
        keys=keys,
    )


def _source(sources: list[SourceCoordinator]) -> tuple[float | None, int | None]:
    """Return the lag in records and the number of splits of the source of a vertex."""
    if not sources:
        return None, None
    [source] = sources
    found = source.describe(0)
    lag = found.lag if source.source.counts_lag_in_records else None
    return None if lag is None else float(lag), found.split_count
