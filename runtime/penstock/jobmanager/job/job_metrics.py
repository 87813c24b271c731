"""The progress of a job according to its acknowledgements, for REST, Prometheus and the live view."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.functions.accumulators import merge_accumulators
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.autoscaling.key_totals import KeyTotals
from penstock.jobmanager.job.metric_history import NOT_KNOWN, JobTotals, MetricHistory, VertexTotals
from penstock.metrics.reading import JobScope
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.state.encoding.tagged import unpack
from penstock.taskmanager.hardware import Hardware
from penstock.taskmanager.protocol import LevelAck


@dataclass
class SubtaskProgress:
    """Latest values of one subtask. Counters start with the attempt."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    busy_ratio: float = 0.0
    blocked_ms: float = 0.0
    watermark: int | None = None
    host: str = ""


@dataclass
class WorkerProgress:
    """Latest values of a Python worker, from its acknowledgements."""

    slot: int
    pid: int
    host: str
    rss_bytes: int
    hardware: Hardware | None = None
    cpu_seconds: float = 0.0
    levels: set[int] = field(default_factory=set)


class JobMetrics:
    """Metrics of a job. The JobMaster's thread writes them, and REST's threads read them."""

    def __init__(self, job_id: str, job_name: str, store: MetricStore | None = None) -> None:
        self.job_id = job_id
        self.job_name = job_name
        self.store = store or MetricStore()
        self.attempt = 0
        self.epochs = 0
        self.epoch = 0
        self.lag: int | None = None
        self.records_total = 0
        self.subtasks: dict[tuple[int, int], SubtaskProgress] = {}
        self.workers: dict[tuple[int, int], WorkerProgress] = {}
        self._keys: dict[int, KeyTotals] = {}
        """Frequent keys since the last sample of the autoscaler, by exchange."""
        self._accumulators: dict[str, tuple[str, dict[tuple[int, int], Any]]] = {}
        self._queryable: dict[str, set[tuple[str, str]]] = {}
        self._task_managers: list[str] = []
        self._graph: JobGraph | None = None
        self._durations: deque[float] = deque(maxlen=256)
        """Durations of the latest epochs in ms."""
        self.past = MetricHistory()
        self._lock = threading.Lock()

    def begin_attempt(self, graph: JobGraph, attempt: int, task_managers: Sequence[str]) -> None:
        """Reset the metrics for a new attempt.

        Args:
            task_managers: id of the TaskManager of every slot.
        """
        with self._lock:
            self._task_managers = list(task_managers)
            self._graph = graph
            self.attempt = attempt
            self.subtasks = {}
            self.workers = {}
            self._accumulators = {}
            self._keys = {}
        self.past.begin_attempt()
        self.store.describe_job(self.job_id, self.job_name, {str(s.id): (s.name, s.parallelism) for s in graph.stages})

    def on_epoch(self, epoch: int, acks: list[LevelAck], duration_ms: float, lag: int | None) -> None:
        graph = self._graph
        assert graph is not None
        records = 0
        with self._lock:
            self.epochs += 1
            self.epoch = epoch
            self.lag = lag
            for ack in acks:
                self.workers[ack.slot, ack.pid] = WorkerProgress(
                    ack.slot, ack.pid, ack.host, ack.rss_bytes, ack.hardware, ack.cpu_seconds
                )
                for stage_id, vertex in ack.vertices.items():
                    progress = self.subtasks.setdefault((stage_id, ack.slot), SubtaskProgress())
                    progress.records_in += vertex.records_in
                    progress.records_out += vertex.records_out
                    progress.bytes_in += vertex.bytes_in
                    progress.bytes_out += vertex.bytes_out
                    progress.busy_ms += vertex.busy_ms
                    progress.blocked_ms += vertex.blocked_ms
                    progress.busy_ratio = min(1.0, vertex.busy_ms / duration_ms) if duration_ms else 0.0
                    progress.watermark = vertex.watermark
                    progress.host = ack.host
                    for exchange, counts in vertex.keys.items():
                        self._keys.setdefault(exchange, KeyTotals()).add(counts)
                    for name, (uid, state) in vertex.queryable.items():
                        self._queryable.setdefault(name, set()).add((uid, state))
                    for name, (kind, parts) in vertex.accumulators.items():
                        _, by_subtask = self._accumulators.setdefault(name, (kind, {}))
                        by_subtask[stage_id, ack.slot] = unpack(parts)
                    if graph.stages[stage_id].level == 0:
                        records += vertex.records_in
            self.records_total += records
            self._durations.append(duration_ms)
        self._report(acks, duration_ms)
        self._remember(duration_ms)

    def _remember(self, duration_ms: float) -> None:
        now_ms = int(time.monotonic() * 1000)
        if self._graph is None or not self.past.is_due(now_ms):
            return
        vertices: dict[int, VertexTotals] = {}
        for (stage_id, _), progress in self.subtasks.items():
            vertices.setdefault(stage_id, VertexTotals()).add(
                progress.records_in, progress.records_out, progress.busy_ms, progress.blocked_ms, progress.watermark
            )
        job = JobTotals(self.records_total, NOT_KNOWN if self.lag is None else self.lag, duration_ms)
        offset = int(time.time() * 1000) - now_ms
        self.past.add_sample(now_ms, job, vertices, self._graph.parallelism, offset)

    def _report(self, acks: list[LevelAck], duration_ms: float) -> None:
        for ack in acks:
            for stage_id, vertex in ack.vertices.items():
                self.store.report(
                    SubtaskReport(
                        job_id=self.job_id,
                        vertex_id=str(stage_id),
                        subtask=ack.slot,
                        attempt=self.attempt,
                        io={
                            "numRecordsIn": vertex.records_in,
                            "numRecordsOut": vertex.records_out,
                            "numBytesIn": vertex.bytes_in,
                            "numBytesOut": vertex.bytes_out,
                            "busyTimeMs": vertex.busy_ms,
                            "backPressuredTimeMs": vertex.blocked_ms,
                            "idleTimeMs": vertex.idle_ms,
                        },
                        gauges={"currentInputWatermark": vertex.watermark} if vertex.watermark is not None else {},
                        user=vertex.user,
                        host=ack.host,
                        tm_id=self.task_manager_of(ack.slot),
                    )
                )
        facts: dict[str, float] = {"lastEpochDuration": duration_ms, "numEpochs": self.epochs}
        if self.lag is not None:
            facts["lag"] = self.lag
        self.store.set_facts(JobScope(self.job_id), facts)

    def take_keys(self) -> dict[int, KeyTotals]:
        """Return the frequent keys of each exchange since the last call."""
        with self._lock:
            keys, self._keys = self._keys, {}
            return keys

    def usage_by_slot(self) -> dict[int, tuple[int, Hardware | None, float]]:
        """Return for each slot the resident bytes of all Python workers, the hardware of their machine, and their CPU time (s)."""
        with self._lock:
            found: dict[int, tuple[int, Hardware | None, float]] = {}
            for worker in self.workers.values():
                rss, _, cpu = found.get(worker.slot, (0, None, 0.0))
                found[worker.slot] = (rss + worker.rss_bytes, worker.hardware, cpu + worker.cpu_seconds)
            return found

    def task_manager_of(self, slot: int) -> str:
        """Return the id of the slot's TaskManager at the start of the attempt, or an empty string if the slot does not exist."""
        return self._task_managers[slot] if slot < len(self._task_managers) else ""

    def queryable(self) -> dict[str, list[tuple[str, str]]]:
        """Return the operators (uids) and their states by queryable name, over all attempts."""
        with self._lock:
            return {name: sorted(owners) for name, owners in self._queryable.items()}

    def accumulators(self) -> dict[str, tuple[str, Any]]:
        """Return the kind and the total of each accumulator of this attempt, by name."""
        with self._lock:
            return {
                name: (kind, merge_accumulators(kind, by_subtask.values()))
                for name, (kind, by_subtask) in sorted(self._accumulators.items())
            }

    def accumulators_of(self, stage_id: int) -> dict[int, dict[str, tuple[str, Any]]]:
        """Return the accumulators of the subtasks of a stage, without subtasks that have none."""
        found: dict[int, dict[str, tuple[str, Any]]] = {}
        with self._lock:
            for name, (kind, by_subtask) in sorted(self._accumulators.items()):
                for (stage, slot), parts in by_subtask.items():
                    if stage == stage_id:
                        found.setdefault(slot, {})[name] = kind, merge_accumulators(kind, [parts])
        return found

    def of_stage(self, stage_id: int) -> dict[int, SubtaskProgress]:
        """Return the values of a stage by subtask."""
        with self._lock:
            return {slot: progress for (stage, slot), progress in self.subtasks.items() if stage == stage_id}

    def records_per_second(self) -> float:
        """Return the rate at which sources read records, over the same seconds as the rates of the vertices."""
        sources = [str(stage.id) for stage in self._graph.stages if stage.level == 0] if self._graph else []
        return self.store.rate(self.job_id, sources, "numRecordsIn")

    def epoch_ms(self) -> float | None:
        """Return the median duration of recent epochs."""
        with self._lock:
            durations = sorted(self._durations)
        return durations[len(durations) // 2] if durations else None

    def watermark(self) -> int | None:
        """Return the lowest watermark of all subtasks in ms, or None if no subtask has one."""
        with self._lock:
            marks = [p.watermark for p in self.subtasks.values() if p.watermark is not None]
        return min(marks, default=None)
