"""The calls of a program's process to the session. They use the session's cluster, and send the metrics of the program's jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.slots import ExecutorInfo
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.jobmanager.process.programs.rpc import Connection
from penstock.metrics.metricbase import Scalar
from penstock.metrics.reading import JobManagerScope, JobScope, TaskManagerScope
from penstock.metrics.store import MetricStore, SubtaskReport


class RemoteOwner:
    """`cluster.attached_cluster.ClusterOwner` over a connection to the session."""

    def __init__(self, session: Connection) -> None:
        self._session = session

    def executors(self) -> list[ExecutorInfo]:
        found: list[ExecutorInfo] = self._session.call("executors", result=list[ExecutorInfo])
        return found

    def workers(self) -> list[Worker]:
        found: list[Worker] = self._session.call("workers", result=list[Worker])
        return found

    def members(self) -> list[Member]:
        found: list[Member] = self._session.call("members", result=list[Member])
        return found

    def killed_on(self, host: str) -> MemoryKill | None:
        found: MemoryKill | None = self._session.call("killed_on", host, result=MemoryKill | None)
        return found

    def is_at(self, host: str) -> bool:
        return bool(self._session.call("is_at", host, result=bool))

    def available(self, job: int, slots: Sequence[str], wanted: int, priority: int) -> list[str]:
        found: list[str] = self._session.call("available", job, slots, wanted, priority, result=list[str])
        return found

    def place(self, job: int, count: int, slots: Sequence[str], machines: Mapping[str, str]) -> list[str]:
        found: list[str] = self._session.call("place", job, count, slots, machines, result=list[str])
        return found

    def release(self, job: int) -> None:
        self._session.notify("release", job)

    def ensure_slots(self, job: int, count: int) -> None:
        """Let the session start workers until the job can have that many slots, and wait for them."""
        self._session.call("ensure_slots", job, count)


class ForwardedMetrics(MetricStore):
    """Metric store of a program's process that also sends each entry to the session."""

    def __init__(self, session: Connection) -> None:
        super().__init__()
        self._session = session

    def describe_job(self, job_id: str, name: str, vertices: Mapping[str, tuple[str, int]]) -> None:
        super().describe_job(job_id, name, vertices)
        self._session.notify("describe_job", job_id, name, vertices)

    def report(self, report: SubtaskReport) -> None:
        super().report(report)
        self._session.notify("report", report)

    def set_facts(self, scope: JobManagerScope | TaskManagerScope | JobScope, facts: Mapping[str, Scalar]) -> None:
        super().set_facts(scope, facts)
        if isinstance(scope, JobScope):
            self._session.notify("set_facts", scope.job_id, facts)
