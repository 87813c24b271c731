"""Metrics of a job and its vertices over the last hour, for plots: a sample every few seconds, taken at the end of an epoch.

The size is limited to the samples of an hour, with a few numbers for each vertex. The values of subtasks are added up. No separate
thread takes the samples: an idle job takes none, and its plots have a gap.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

SAMPLE_MS = 5_000
SAMPLES = 720
"""Samples of an hour."""
NOT_KNOWN = float("nan")


@dataclass
class VertexTotals:
    """Totals of all subtasks of a vertex since the attempt began: counts and ms. `watermark` is the lowest watermark of the subtasks, in ms
    since the epoch.
    """

    records_in: float = 0.0
    records_out: float = 0.0
    busy_ms: float = 0.0
    busiest_ms: float = 0.0
    """Busy time in ms of the busiest subtask."""
    blocked_ms: float = 0.0
    subtasks: int = 0
    watermark: float = NOT_KNOWN

    def add(self, records_in: int, records_out: int, busy_ms: float, blocked_ms: float, watermark: int | None) -> None:
        """Add a subtask."""
        self.records_in += records_in
        self.records_out += records_out
        self.busy_ms += busy_ms
        self.busiest_ms = max(self.busiest_ms, busy_ms)
        self.blocked_ms += blocked_ms
        self.subtasks += 1
        if watermark is not None and not self.watermark <= watermark:
            self.watermark = watermark


@dataclass
class JobTotals:
    """Totals of the job: records read since its start, records not yet read, and the duration of an epoch in ms."""

    records: float = 0.0
    lag: float = NOT_KNOWN
    epoch_ms: float = NOT_KNOWN


VERTEX_SERIES = ("recordsInPerSecond", "recordsOutPerSecond", "busy", "busiest", "backPressured", "watermarkLag")
JOB_SERIES = ("recordsPerSecond", "lag", "epochDuration", "watermarkLag", "parallelism")
_JOB = -1


class MetricHistory:
    """History of metrics. The JobMaster's thread writes it, and REST's threads read it.

    >>> history = MetricHistory()
    >>> history.add_sample(0, JobTotals(), {0: VertexTotals()}, 1)
    >>> history.add_sample(10_000, JobTotals(records=500), {0: VertexTotals(records_in=500, busy_ms=2_500)}, 1)
    >>> history.of_job()[1]["recordsPerSecond"], history.of_vertex(0)[1]["busy"]
    ([50.0], [0.25])
    """

    def __init__(self, sample_ms: int = SAMPLE_MS, samples: int = SAMPLES) -> None:
        self._sample_ms = sample_ms
        self._samples = samples
        self._before: tuple[int, JobTotals, Mapping[int, VertexTotals]] | None = None
        self._times: dict[int, array[float]] = {}
        self._columns: dict[int, dict[str, array[float]]] = {}
        self._lock = threading.Lock()

    def begin_attempt(self) -> None:
        """Reset the counters and keep the samples. Vertices keep their numbers, because the program is the same."""
        self._before = None

    def is_due(self, now_ms: int) -> bool:
        """Return whether a sample is due.

        Args:
            now_ms: time on the monotonic clock.
        """
        return self._before is None or now_ms - self._before[0] >= self._sample_ms

    def add_sample(
        self,
        now_ms: int,
        job: JobTotals,
        vertices: Mapping[int, VertexTotals],
        parallelism: int,
        wall_offset_ms: int = 0,
    ) -> None:
        """Add a sample of the counters. The first sample of an attempt is only the base of the next sample.

        Args:
            now_ms: time on the monotonic clock.
            wall_offset_ms: difference between the time since the epoch, which samples show, and `now_ms`.
        """
        before, self._before = self._before, (now_ms, job, vertices)
        if before is None or now_ms <= before[0]:
            return
        at, job_before, vertices_before = before
        seconds = (now_ms - at) / 1e3
        now_ms += wall_offset_ms
        lags = []
        with self._lock:
            for vertex, totals in vertices.items():
                was = vertices_before.get(vertex, VertexTotals())
                ms = max(1, totals.subtasks) * seconds * 1e3
                lag = now_ms - totals.watermark
                if lag == lag:
                    lags.append(lag)
                row = (
                    (totals.records_in - was.records_in) / seconds,
                    (totals.records_out - was.records_out) / seconds,
                    min(1.0, (totals.busy_ms - was.busy_ms) / ms),
                    min(1.0, (totals.busiest_ms - was.busiest_ms) / (seconds * 1e3)),
                    min(1.0, (totals.blocked_ms - was.blocked_ms) / ms),
                    lag,
                )
                self._add(vertex, now_ms, VERTEX_SERIES, row)
            rate = (job.records - job_before.records) / seconds
            lag = max(lags, default=NOT_KNOWN)
            self._add(_JOB, now_ms, JOB_SERIES, (rate, job.lag, job.epoch_ms, lag, parallelism))

    def _add(self, vertex: int, now_ms: int, names: tuple[str, ...], row: tuple[float, ...]) -> None:
        times = self._times.setdefault(vertex, array("d"))
        columns = self._columns.setdefault(vertex, {name: array("d") for name in names})
        times.append(now_ms)
        for name, value in zip(names, row, strict=True):
            columns[name].append(value)
        if len(times) > self._samples:
            del times[0]
            for column in columns.values():
                del column[0]

    def of_job(self) -> tuple[list[int], dict[str, list[float]]]:
        """Return the times (ms) and the series by name. NaN means unknown."""
        return self._of(_JOB)

    def of_vertex(self, stage_id: int) -> tuple[list[int], dict[str, list[float]]]:
        return self._of(stage_id)

    def _of(self, vertex: int) -> tuple[list[int], dict[str, list[float]]]:
        with self._lock:
            times = self._times.get(vertex, array("d"))
            columns = self._columns.get(vertex, {})
            return [int(at) for at in times], {name: list(column) for name, column in columns.items()}
