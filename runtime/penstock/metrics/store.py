"""The JobManager's side of metrics: the metrics of all jobs, for REST and Prometheus.

The store has two kinds of input. Each epoch's ack has a subtask's *report*: the engine's counts since the last report
(`io`), and the changes of the user's metrics (`task.TaskMetrics.snapshot`). *Facts* are plain values of the JobManager, a
TaskManager or a job, which other components set. Counts add up from the start of an attempt, as in Flink. The first
report of a newer attempt starts at zero.

Rates and percentiles cover the recent past. A subtask keeps a copy of its counts every few seconds, for about one minute. A rate is the
difference to an old copy. So rates are computed only when they are read.

The store is thread-safe: the job's thread writes, and REST's threads read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping  # reports are decoded with these types at run time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.metrics.key import MetricKey
from penstock.metrics.loads import SubtaskLoad
from penstock.metrics.metricbase import Scalar
from penstock.metrics.reading import (
    AnyReading,
    JobManagerScope,
    JobScope,
    Reading,
    Scope,
    SubtaskScope,
    TaskManagerScope,
    values_of,
)
from penstock.metrics.series import RECENT_SECONDS, SubtaskSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


@dataclass(frozen=True)
class SubtaskReport:
    """One subtask's part of an epoch's ack.

    `io`: the counts of this epoch, with the names of `series.PER_SECOND` and others. The store adds up the counts.
    `gauges`: the engine's other values, such as `currentInputWatermark` (ms, None means no watermark yet).
    `user`: the result of `TaskMetrics.snapshot()`.
    """

    job_id: str
    vertex_id: str
    subtask: int
    attempt: int
    io: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, Scalar] = field(default_factory=dict)
    user: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    host: str = ""
    tm_id: str = ""


@dataclass(frozen=True)
class ScopeReadings:
    """All readings of one scope at a moment. `labels` are the values of its scope variables."""

    scope: Scope
    labels: Mapping[str, str]
    readings: tuple[AnyReading, ...]
    operator_names: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, Scalar]:
        """Return the values by their REST names."""
        return values_of(self.readings, self.operator_names)


@dataclass
class _Job:
    name: str = ""
    vertices: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Scalar] = field(default_factory=dict)
    subtasks: dict[tuple[str, int], SubtaskSeries] = field(default_factory=dict)


class MetricStore:
    """All metrics by their scope.

    >>> now = 100.0
    >>> store = MetricStore(clock=lambda: now)
    >>> store.report(SubtaskReport("j", "v", 0, attempt=1, io={"numRecordsOut": 40}))
    >>> now = 105.0
    >>> store.report(SubtaskReport("j", "v", 0, attempt=1, io={"numRecordsOut": 500}))
    >>> values = store.values(SubtaskScope("j", "v", 0))
    >>> values["numRecordsOut"], values["numRecordsOutPerSecond"]
    (540, 100.0)
    """

    def __init__(self, *, host: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.host = host
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}
        self._job_manager: dict[str, Scalar] = {}
        self._task_managers: dict[str, dict[str, Scalar]] = {}

    # writing

    def describe_job(self, job_id: str, name: str, vertices: Mapping[str, tuple[str, int]]) -> None:
        """Set the vertices of a job: vertex id -> (name, parallelism). Call this method again after a rescale.

        The values of subtasks and vertices that no longer exist are dropped.
        """
        with self._lock:
            job = self._jobs.setdefault(job_id, _Job())
            job.name = name
            job.vertices = {vertex_id: vertex for vertex_id, (vertex, _) in vertices.items()}
            for vertex_id, subtask in list(job.subtasks):
                if subtask >= vertices.get(vertex_id, ("", 0))[1]:
                    del job.subtasks[vertex_id, subtask]

    def remove_job(self, job_id: str) -> None:
        """Drop the values of a job."""
        with self._lock:
            self._jobs.pop(job_id, None)

    def report(self, report: SubtaskReport) -> None:
        """Add a subtask's report. A report of an attempt that is older than the newest attempt is ignored."""
        now = self._clock()
        with self._lock:
            subtasks = self._jobs.setdefault(report.job_id, _Job()).subtasks
            key = (report.vertex_id, report.subtask)
            series = subtasks.get(key)
            if series is None or report.attempt > series.attempt:
                series = subtasks[key] = SubtaskSeries(report.attempt, report.host, report.tm_id)
            if report.attempt == series.attempt:
                series.take(now, report.io, report.gauges, report.user)

    def set_facts(self, scope: JobManagerScope | TaskManagerScope | JobScope, facts: Mapping[str, Scalar]) -> None:
        """Set values of the JobManager, a TaskManager or a job. Other values remain unchanged."""
        with self._lock:
            if isinstance(scope, JobManagerScope):
                self._job_manager.update(facts)
            elif isinstance(scope, TaskManagerScope):
                self._task_managers.setdefault(scope.tm_id, {}).update(facts)
            else:
                self._jobs.setdefault(scope.job_id, _Job()).facts.update(facts)

    def set_gauges(self, scope: SubtaskScope, values: Mapping[str, Scalar]) -> None:
        """Set values of a subtask that are not part of its reports. Values of a subtask without a report are ignored."""
        with self._lock:
            job = self._jobs.get(scope.job_id, _Job())
            series = job.subtasks.get((scope.vertex_id, scope.subtask))
            if series is not None:
                series.set_gauges(values)

    def keep_task_managers(self, tm_ids: Collection[str]) -> None:
        """Drop the facts of all other TaskManagers."""
        with self._lock:
            self._task_managers = {tm_id: facts for tm_id, facts in self._task_managers.items() if tm_id in tm_ids}

    # reading

    def values(self, scope: Scope) -> dict[str, Scalar]:
        """Return the values by their REST names. The result is empty for an unknown scope."""
        with self._lock:
            found = self._find(scope)
        return {} if found is None else found.values()

    def subtasks(self, job_id: str, vertex_id: str) -> list[SubtaskScope]:
        """Return the subtasks of a vertex that have reported, in order."""
        with self._lock:
            job = self._jobs.get(job_id, _Job())
            return [SubtaskScope(job_id, v, s) for v, s in sorted(job.subtasks) if v == vertex_id]

    def loads(self, job_id: str, vertex_id: str) -> list[SubtaskLoad]:
        """Return the current loads of the subtasks of a vertex that have reported, in order."""
        now = self._clock()
        with self._lock:
            job = self._jobs.get(job_id, _Job())
            return [
                series.load(s, now) for (v, s), series in sorted(job.subtasks.items(), key=_place) if v == vertex_id
            ]

    def total(self, job_id: str, vertices: Iterable[str], counter: str) -> float:
        """Return the sum of an engine counter, such as `numRecordsOut`, over all subtasks of some vertices."""
        wanted = set(vertices)
        with self._lock:
            job = self._jobs.get(job_id, _Job())
            return sum(s.io_total(counter) for (v, _), s in job.subtasks.items() if v in wanted)

    def rate(self, job_id: str, vertices: Iterable[str], counter: str, *, seconds: float = RECENT_SECONDS) -> float:
        """Return the rate per second of an engine counter over the last `seconds`, summed over all subtasks of some vertices."""
        wanted = set(vertices)
        now = self._clock()
        with self._lock:
            job = self._jobs.get(job_id, _Job())
            return sum(s.io_rate(counter, now, seconds) for (v, _), s in job.subtasks.items() if v in wanted)

    def collect(self) -> list[ScopeReadings]:
        """Return all readings, for Prometheus."""
        with self._lock:
            scopes: list[Scope] = [JobManagerScope(), *map(TaskManagerScope, self._task_managers)]
            for job_id, job in self._jobs.items():
                scopes.append(JobScope(job_id))
                scopes += (SubtaskScope(job_id, vertex_id, subtask) for vertex_id, subtask in sorted(job.subtasks))
            found = map(self._find, scopes)
            return [readings for readings in found if readings is not None]

    def _find(self, scope: Scope) -> ScopeReadings | None:
        host = {"host": self.host} if self.host else {}
        if isinstance(scope, JobManagerScope):
            return ScopeReadings(scope, host, _facts(self._job_manager))
        if isinstance(scope, TaskManagerScope):
            return ScopeReadings(scope, {"tm_id": scope.tm_id}, _facts(self._task_managers.get(scope.tm_id, {})))
        job = self._jobs.get(scope.job_id)
        if job is None:
            return None
        labels = {"job_id": scope.job_id, "job_name": job.name}
        if isinstance(scope, JobScope):
            return ScopeReadings(scope, host | labels, _facts(job.facts))
        series = job.subtasks.get((scope.vertex_id, scope.subtask))
        if series is None:
            return None
        labels |= {
            "host": series.host,
            "tm_id": series.tm_id,
            "task_id": scope.vertex_id,
            "task_name": job.vertices.get(scope.vertex_id, scope.vertex_id),
            "subtask_index": str(scope.subtask),
        }
        return ScopeReadings(scope, labels, tuple(series.readings(self._clock())), dict(series.operator_names))


def _place(entry: tuple[tuple[str, int], SubtaskSeries]) -> tuple[str, int]:
    return entry[0]


def _facts(facts: Mapping[str, Scalar]) -> tuple[AnyReading, ...]:
    """Return the facts as readings. Dots in a fact's name separate groups: `Status.Process.CPU.Time`."""
    readings: list[AnyReading] = []
    for text, value in facts.items():
        *groups, name = text.split(".")
        readings.append(Reading(MetricKey("", tuple((group, None) for group in groups), name), value))
    return tuple(readings)
