"""What sends metrics, traces and logs elsewhere: reporters, which users may write, too.

A package offers one by an entry point; `metrics.reporters`, `traces.reporters` and `logs.reporters` choose by its name ([metrics.md]):

    [project.entry-points."penstock.metrics.reporters"]
    graphite = "my_package:GraphiteReporter"

A reporter lives in the JobManager's process, and is called from one thread of its own: what it waits for keeps nobody else.
What it raises is logged, and the next report is tried as if nothing had happened.
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
    """What all kinds have in common."""

    def open(self, settings: Mapping[str, str]) -> None:
        """Called first.

        Args:
            settings: `metrics.reporter.<name>.*`, `traces.reporter.<name>.*` or `logs.reporter.<name>.*`, without that beginning.

        Raises:
            InvalidJob: a setting makes no sense; the job does not start. After another error it starts without this reporter.
        """

    def close(self) -> None:
        """Called last, after a report of how things ended."""


class MetricReporter(Reporter, ABC):
    """Gets all metrics every `metrics.reporter.<name>.interval` (10 s).

    >>> class Shown(MetricReporter):
    ...     def report(self, scopes):
    ...         for scope in scopes:
    ...             for name, value in scope.values().items():
    ...                 print(scope.labels.get("job_name", ""), name, value)
    """

    @abstractmethod
    def report(self, scopes: Sequence[ScopeReadings]) -> None:
        """
        Args:
            scopes: all there are at this moment: the JobManager's, those of TaskManagers, jobs and subtasks, each with its
                variables (`labels`) and readings.
        """


@dataclass(frozen=True)
class Span:
    """Something that took time. Times in ms since the epoch; `error`: empty, or what it failed with.

    `attributes` have Flink's names where Flink has the thing. `steps` are its parts, in order.
    """

    name: str
    start: int
    end: int
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    steps: Sequence[Span] = ()
    error: str = ""


class TraceReporter(Reporter, ABC):
    """Gets spans soon after they have ended: of checkpoints, starts of jobs (with what they restore), rescales."""

    @abstractmethod
    def report(self, spans: Sequence[Span]) -> None: ...


@dataclass(frozen=True)
class LogEntry:
    """A record of a log. `time`: ms since the epoch; `level` as logging or the JVM calls it; `details`: a traceback, or other lines below the
    message; `labels`: whose it is, under the names that metrics have: `tm_id` (none: the JobManager's), and where a job's code or
    the engine for it has logged, `job_id`, `job_name`, `task_attempt_num`, `operator_name`, `operator_id`, `subtask_index`."""

    time: int
    level: str
    logger: str
    message: str
    details: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class LogReporter(Reporter, ABC):
    """Gets what the JobManager's process and TaskManagers have logged since the last time. Secrets are masked already."""

    @abstractmethod
    def report(self, entries: Sequence[LogEntry]) -> None: ...
