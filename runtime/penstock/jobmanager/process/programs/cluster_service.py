"""The functions that a process calls in the process that has started its cluster: the cluster, its slots, and the reports of its jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.common.errors import ClusterError, InvalidJob
from penstock.jobmanager.cluster.members.registry import Member
from penstock.jobmanager.cluster.slots import ExecutorInfo
from penstock.jobmanager.cluster.spark_cluster import SharedCluster
from penstock.jobmanager.cluster.task_managers import Worker
from penstock.jobmanager.failover.crash import MemoryKill
from penstock.jobmanager.process.programs.messages import ProgramSpec
from penstock.metrics.metricbase import Scalar
from penstock.metrics.reading import JobScope
from penstock.metrics.store import MetricStore, SubtaskReport

MAX_JOBS = 1_000
"""Maximum number of jobs of a program."""

logger = logging.getLogger(__name__)


class _JobKey:
    """Identity of a job in the slot pool."""


class SlotService:
    """Functions for one process that shares the cluster. They assign slots only to its own jobs."""

    def __init__(self, cluster: SharedCluster) -> None:
        self._cluster = cluster
        self._keys: dict[int, _JobKey] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        return {
            function.__name__: function
            for function in (
                *(self.executors, self.workers, self.members, self.killed_on, self.is_at),
                *(self.available, self.place, self.release, self.ensure_slots),
            )
        }

    # --- the cluster ------------------------------------------------------------------------------------------

    def executors(self) -> list[ExecutorInfo]:
        return self._cluster.spark.executors()

    def workers(self) -> list[Worker]:
        return self._cluster.spark.workers()

    def members(self) -> list[Member]:
        return self._cluster.spark.registry.members()

    def killed_on(self, host: str) -> MemoryKill | None:
        return self._cluster.spark.registry.killed_on(host)

    def is_at(self, host: str) -> bool:
        return self._cluster.spark.registry.is_at(host)

    # --- slots ------------------------------------------------------------------------------------------------

    def _key(self, job: int) -> _JobKey:
        with self._lock:
            if self._is_closed:
                raise ClusterError("the process that asks for slots has ended")
            return self._keys.setdefault(job, _JobKey())

    def available(self, job: int, slots: list[str], wanted: int = 0, priority: int = 0) -> list[str]:
        return self._cluster.spark.slots.available(self._key(job), slots, wanted, priority)

    def place(self, job: int, count: int, slots: list[str], machines: dict[str, str]) -> list[str]:
        key = self._key(job)
        placed = self._cluster.spark.slots.place(key, count, slots, machines)
        if self._is_closed:  # `release_all` ran at the same time
            self._cluster.spark.slots.release(key)
        return placed

    def release(self, job: int) -> None:
        with self._lock:
            key = self._keys.pop(job, None)
        if key is not None:
            self._cluster.spark.slots.release(key)

    def ensure_slots(self, job: int, count: int) -> None:
        if self._cluster.more_slots is None:
            return
        slots, key = self._cluster.spark.slots, self._key(job)
        try:
            self._cluster.more_slots(slots.need(key, count))
        except BaseException:
            slots.cancel_request(key)
            raise

    def release_all(self) -> None:
        """Release the slots of a process that has ended. Its calls that still run get no slots."""
        self._is_closed = True
        for job in list(self._keys):
            self.release(job)


class ClusterService(SlotService):
    """Functions for one program. A program can use only its own slots, and report only on its own jobs."""

    def __init__(self, cluster: SharedCluster, metrics: MetricStore, program: ProgramSpec) -> None:
        super().__init__(cluster)
        self._metrics = metrics
        self._program = program
        self._job_ids: dict[str, int] = {}
        """Known ids of jobs. Most programs have one job, so further ids are computed only when they are needed."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name."""
        own = (self.describe_job, self.report, self.set_facts)
        return super().functions() | {function.__name__: function for function in own}

    def check_job(self, job_id: str) -> None:
        """Check that the job belongs to the program.

        Raises:
            InvalidJob: the job belongs to another program, or the program has too many jobs.
        """
        if not self.has_job(job_id):
            raise InvalidJob(f"job {job_id} does not belong to this program, or the program has over {MAX_JOBS} jobs")

    def has_job(self, job_id: str) -> bool:
        """Return whether the program can have a job with this id."""
        with self._lock:
            while job_id not in self._job_ids and len(self._job_ids) < MAX_JOBS:
                number = len(self._job_ids)
                self._job_ids[self._program.job_id_of(number)] = number
            return job_id in self._job_ids

    def release_workers(self, job_ids: Iterable[str]) -> None:
        """Let executors end the Python workers of jobs that a killed process has left."""
        try:
            locations = [executor.location for executor in self._cluster.spark.executors()]
            for job_id in job_ids:
                self._cluster.spark.release_workers(job_id, locations)
        except Exception as error:  # the driver may have ended
            logger.warning("workers of an ended program were not released: %s", error)

    # --- metrics ----------------------------------------------------------------------------------------------

    def describe_job(self, job_id: str, name: str, vertices: Mapping[str, tuple[str, int]]) -> None:
        self.check_job(job_id)
        self._metrics.describe_job(job_id, name, vertices)

    def report(self, report: SubtaskReport) -> None:
        self.check_job(report.job_id)
        self._metrics.report(report)

    def set_facts(self, job_id: str, facts: Mapping[str, Scalar]) -> None:
        self.check_job(job_id)
        self._metrics.set_facts(JobScope(job_id), facts)
