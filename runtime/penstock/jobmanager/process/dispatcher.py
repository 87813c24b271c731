"""The Dispatcher: the jobs of this JobManager, by id, and what REST asks of them.

An ended job stays, with all that REST tells of it (some 70 KB), until another job comes and finds it too old, or too many
ended ones before it. So a JobManager of a single job keeps it until it ends itself.
"""

from __future__ import annotations

import threading
import time

from penstock.common.config import options
from penstock.common.errors import InvalidJob
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.metrics.store import MetricStore

KEPT_OPERATIONS = 1_000


class Dispatcher:
    """Thread-safe registry of jobs and of the operations requested on them."""

    def __init__(self) -> None:
        self.kept_jobs: int = options.JOBSTORE_CAPACITY.default
        self.kept_for_s: float = options.JOBSTORE_EXPIRATION.default.total_seconds()
        """What is kept of ended jobs; the session sets both by the configuration of the job that comes."""
        self.metric_store = MetricStore()
        self.started_at = int(time.time() * 1000)
        self._jobs: dict[str, JobMaster] = {}
        self._operations: dict[str, Operation] = {}
        self._lock = threading.Lock()

    def check_free(self, job_id: str) -> None:
        """
        Raises:
            InvalidJob: a job of that id runs.
        """
        with self._lock:
            if job_id in self._jobs and not self._jobs[job_id].is_done:
                raise InvalidJob(f"job {job_id} is running already", remedy="cancel it first, or use another job id")

    def add(self, job: JobMaster) -> None:
        """Raises as `check_free`."""
        self.check_free(job.job_id)
        with self._lock:
            self._jobs[job.job_id] = job
            gone = self._outdated()
            for job_id in gone:
                del self._jobs[job_id]
        for job_id in gone:
            self.metric_store.remove_job(job_id)

    def _outdated(self) -> list[str]:
        """Ended jobs to forget, by their age and their number."""
        ended = sorted((job.ended_at, job_id) for job_id, job in self._jobs.items() if job.is_done)
        oldest = time.time() * 1000 - self.kept_for_s * 1000
        too_many = max(0, len(ended) - self.kept_jobs)
        return [job_id for number, (at, job_id) in enumerate(ended) if at < oldest or number < too_many]

    def jobs(self) -> list[JobMaster]:
        with self._lock:
            return list(self._jobs.values())

    def job(self, job_id: str) -> JobMaster | None:
        with self._lock:
            return self._jobs.get(job_id)

    def request(self, job: JobMaster, operation: Operation) -> Operation:
        """Hand an operation to the job and keep it for polling."""
        self.keep(operation)
        return job.request(operation)

    def keep(self, operation: Operation) -> None:
        with self._lock:
            self._operations[operation.id] = operation
            while len(self._operations) > KEPT_OPERATIONS:
                del self._operations[next(iter(self._operations))]

    def operation(self, operation_id: str) -> Operation | None:
        with self._lock:
            return self._operations.get(operation_id)
