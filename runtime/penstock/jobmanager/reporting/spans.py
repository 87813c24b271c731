"""Spans of a job's history: checkpoints, starts and rescales. Each span is reported once, after its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.common.logs.redaction import Redaction
from penstock.jobmanager.job.job_master import JobMaster
from penstock.metrics.reporter import Span
from penstock.rest.facts import JobStart, Rescale

CHECKPOINT, START, RESCALE = "Checkpoint", "JobInitialization", "Rescale"
"""Names of spans. The first two names are Flink's."""
BEFORE_START = "last snapshot, and end of the attempt"
"""Name of a step of a rescale."""


class JobSpans:
    """Spans of one job that were not yet reported. Only one thread may use an object."""

    def __init__(self, job: JobMaster) -> None:
        self._job = job
        self._checkpoints: set[int] = set()
        self._starts: set[int] = set()
        self._rescales: set[int] = set()

    def new(self) -> list[Span]:
        """Return the new spans in order of their ends."""
        spans = [*self._new_checkpoints(), *self._new_starts(), *self._new_rescales()]
        return sorted(spans, key=lambda span: span.end)

    def _new_checkpoints(self) -> Iterator[Span]:
        history = self._job.checkpoints.coordinator.history
        ended = [entry for entry in history.past() if entry.status in ("COMPLETED", "FAILED")]
        for entry in ended:
            if entry.id in self._checkpoints:
                continue
            attributes: dict[str, str | int | float | bool] = {
                **self._of_job(),
                "checkpointId": entry.id,
                "checkpointType": entry.kind,
                "checkpointStatus": entry.status,
                "checkpointedSize": entry.checkpointed_size,
                "fullSize": entry.state_size,
            }
            details = history.details(entry.id)
            steps = [] if details is None else list(self._of_vertices(entry.trigger_timestamp, details))
            yield Span(
                CHECKPOINT,
                entry.trigger_timestamp,
                entry.end_timestamp,
                attributes,
                steps,
                self._clean(entry.failure_message),
            )
        self._checkpoints = {entry.id for entry in ended}

    def _of_vertices(self, trigger: int, details: Mapping[str, Any]) -> Iterator[Span]:
        """Yield a span for each vertex, from the trigger until the last of its subtasks has acknowledged."""
        names = {str(stage.id): stage.name for stage in self._job.graph.stages}
        for vertex_id, vertex in details["tasks"].items():
            if vertex["latest_ack_timestamp"]:
                attributes = {
                    "subtasks": vertex["num_acknowledged_subtasks"],
                    "checkpointedSize": vertex["checkpointed_size"],
                    "fullSize": vertex["state_size"],
                }
                yield Span(names.get(vertex_id, vertex_id), trigger, vertex["latest_ack_timestamp"], attributes)

    def _new_starts(self) -> Iterator[Span]:
        starts = list(self._job.history.starts)
        for start in starts:
            if start.began not in self._starts:
                yield Span(
                    START,
                    start.began,
                    start.ended,
                    {
                        **self._of_job(),
                        "attempt": start.attempt,
                        "initializationStatus": "FAILED" if start.failure else "COMPLETED",
                        "restoredFrom": start.restored_from,
                        "parallelism": start.parallelism,
                    },
                    _steps(start),
                    self._clean(start.failure),
                )
        self._starts = {start.began for start in starts}

    def _new_rescales(self) -> Iterator[Span]:
        rescales = list(self._job.history.rescales)
        for rescale in rescales:
            if rescale.timestamp not in self._rescales:
                began = rescale.timestamp - rescale.duration_ms
                attributes = {
                    **self._of_job(),
                    "oldParallelism": rescale.old_parallelism,
                    "newParallelism": rescale.new_parallelism,
                    "trigger": rescale.trigger,
                }
                yield Span(RESCALE, began, rescale.timestamp, attributes, list(self._of_rescale(rescale, began)))
        self._rescales = {rescale.timestamp for rescale in rescales}

    def _of_rescale(self, rescale: Rescale, began: int) -> Iterator[Span]:
        within = [s for s in self._job.history.starts if began <= s.began and s.ended <= rescale.timestamp]
        if within:
            yield Span(BEFORE_START, began, within[0].began)
        for start in within:
            yield from _steps(start)

    def _clean(self, failure: str) -> str:
        """Hide the secrets in the text of a failure, because the text leaves the process for a collector of traces."""
        return Redaction.of(self._job.settings.configuration).clean(failure) if failure else ""

    def _of_job(self) -> dict[str, str | int | float | bool]:
        return {"jobId": self._job.job_id, "jobName": self._job.program.name}


def _steps(start: JobStart) -> list[Span]:
    ends: Iterable[int] = [*(at for _, at in start.steps[1:]), start.ended]
    return [Span(name, at, end) for (name, at), end in zip(start.steps, ends, strict=True)]
