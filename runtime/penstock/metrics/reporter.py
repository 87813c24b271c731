"""Reporters, which send metrics, traces and logs to other systems. Users may write their own reporters.

A package offers a reporter as an entry point. The settings `metrics.reporters`, `traces.reporters` and `logs.reporters` select a reporter
by its name (`docs/metrics.md`):

    [project.entry-points."penstock.metrics.reporters"]
    graphite = "my_package:GraphiteReporter"

A reporter lives in the JobManager's process, and a separate thread calls it. So a reporter that waits does not delay other work.
An exception of the reporter is logged, and the next report runs as usual.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.metrics.store import ScopeReadings

METRICS_GROUP = "penstock.metrics.reporters"
TRACES_GROUP = "penstock.traces.reporters"
LOGS_GROUP = "penstock.logs.reporters"
"""Groups of entry points."""


class Reporter:
    """The base of all kinds of reporters."""

    def open(self, settings: Mapping[str, str]) -> None:
        """Start the reporter. This is the first call of a reporter.

        Args:
            settings: `metrics.reporter.<name>.*`, `traces.reporter.<name>.*` or `logs.reporter.<name>.*`, without this prefix.

        Raises:
            InvalidJob: a setting is not valid. The job does not start. After any other error, the job starts without this reporter.
        """

    def close(self) -> None:
        """Stop the reporter. This is the last call of a reporter, after a report of the final values."""


class MetricReporter(Reporter, ABC):
    """A reporter that gets all metrics every `metrics.reporter.<name>.interval` (10 s).

    >>> class Shown(MetricReporter):
    ...     def report(self, scopes):
    ...         for scope in scopes:
    ...             for name, value in scope.values().items():
    ...                 print(scope.labels.get("job_name", ""), name, value)
    """

    @abstractmethod
    def report(self, scopes: Sequence[ScopeReadings]) -> None:
        """Send all metrics.

        Args:
            scopes: all current scopes, of the JobManager, TaskManagers, jobs and subtasks. Each has its variables (`labels`) and readings.
        """


@dataclass(frozen=True)
class Span:
    """An operation with a duration. Times are in ms since the epoch. `error` is empty, or the reason of the failure.

    `attributes` have Flink's names if Flink has the attribute. `steps` are the parts of the operation, in order.
    """

    name: str
    start: int
    end: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    steps: Sequence[Span] = ()
    error: str = ""


class TraceReporter(Reporter, ABC):
    """A reporter that gets spans soon after their end: checkpoints, starts of jobs (with their restores), rescales."""

    @abstractmethod
    def report(self, spans: Sequence[Span]) -> None: ...


@dataclass(frozen=True)
class LogEntry:
    """A record of a log.

    `time`: ms since the epoch. `level`: the name in logging or in the JVM. `details`: a traceback, or other lines after the message.

    `labels`: the origin, with the names that metrics use. `tm_id` is missing for the JobManager. Records of a job's code, or of the
    engine for the job, also have `job_id`, `job_name`, `task_attempt_num`, `operator_name`, `operator_id`, `subtask_index`.
    """

    time: int
    level: str
    logger: str
    message: str
    details: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class LogReporter(Reporter, ABC):
    """A reporter that gets new log records of the JobManager's process and the TaskManagers. Secrets are already masked."""

    @abstractmethod
    def report(self, entries: Sequence[LogEntry]) -> None: ...
