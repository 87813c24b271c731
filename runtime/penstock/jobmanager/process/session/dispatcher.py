"""The Dispatcher: the jobs of this JobManager by id, and REST's requests to them.

An ended job is kept with its REST data (about 70 KB). It is removed when another job starts, if it is too old or if too many jobs have
ended. So the JobManager of a single job keeps this job until the process ends.
"""

from __future__ import annotations

import threading
import time

from penstock.common.config import options
from penstock.common.errors import InvalidJob
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.request_journal import RequestJournal
from penstock.metrics.store import MetricStore

MAX_OPERATIONS = 1_000


class Dispatcher:
    """Registry of jobs and of the operations that were requested on them. Thread-safe."""

    def __init__(self) -> None:
        self.max_ended_jobs: int = options.JOBSTORE_CAPACITY.default
        self.ended_jobs_ttl_s: float = options.JOBSTORE_EXPIRATION.default.total_seconds()
        """Age limit of ended jobs in seconds. The session sets this limit and `max_ended_jobs` from the configuration of each new job."""
        self.metric_store = MetricStore()
        self.started_at = int(time.time() * 1000)
        self._jobs: dict[str, JobMaster] = {}
        self._operations: dict[str, Operation] = {}
        self._storing: dict[str, threading.Event] = {}
        """Requests that are being stored, by id. The event is set when this has ended."""
        self.journals: dict[str, RequestJournal] = {}
        """Journal of each job whose masters elect a leader."""
        self._lock = threading.Lock()

    def check_free(self, job_id: str) -> None:
        """Check that the id is free.

        Raises:
            InvalidJob: a job with this id is running.
        """
        with self._lock:
            if job_id in self._jobs and not self._jobs[job_id].is_done:
                raise InvalidJob(f"job {job_id} is running already", remedy="cancel it first, or use another job id")

    def add(self, job: JobMaster) -> None:
        """Add a job.

        Raises:
            InvalidJob: a job with this id is running.
        """
        self.check_free(job.job_id)
        with self._lock:
            self._jobs[job.job_id] = job
            gone = self._outdated()
            for job_id in gone:
                del self._jobs[job_id]
        for job_id in gone:
            self.metric_store.remove_job(job_id)

    def _outdated(self) -> list[str]:
        """Return the ended jobs that exceed the limits of age or number."""
        ended = sorted((job.ended_at_s, job_id) for job_id, job in self._jobs.items() if job.is_done)
        oldest = time.monotonic() - self.ended_jobs_ttl_s
        too_many = max(0, len(ended) - self.max_ended_jobs)
        return [job_id for number, (at, job_id) in enumerate(ended) if at < oldest or number < too_many]

    def jobs(self) -> list[JobMaster]:
        with self._lock:
            return list(self._jobs.values())

    def job(self, job_id: str) -> JobMaster | None:
        with self._lock:
            return self._jobs.get(job_id)

    def request(self, job: JobMaster, operation: Operation) -> Operation:
        """Pass an operation to the job and keep it, so that clients can poll it.

        A client repeats a request if it receives no response in time. The request may still be in progress then. If an operation with this
        id exists, return it and do nothing.

        Raises:
            StorageError: masters elect a leader, and the request cannot be stored for the next leader.
        """
        stored = threading.Event()
        while True:
            with self._lock:
                earlier = self._operations.get(operation.id)
                if earlier is not None:
                    return earlier
                storing = self._storing.setdefault(operation.id, stored)
            if storing is stored:
                break
            storing.wait()
        try:
            journal = self.journals.get(job.job_id)
            if journal is not None:
                journal.accept(operation, job)
            self.add_operation(operation)
        finally:
            with self._lock:
                del self._storing[operation.id]
            stored.set()
        return job.request(operation)

    def add_operation(self, operation: Operation) -> None:
        with self._lock:
            self._operations[operation.id] = operation
            while len(self._operations) > MAX_OPERATIONS:
                del self._operations[next(iter(self._operations))]

    @property
    def has_operations(self) -> bool:
        """Return whether a client has requested an operation. Such a client may still poll the outcome."""
        with self._lock:
            return bool(self._operations)

    def operation(self, operation_id: str) -> Operation | None:
        with self._lock:
            return self._operations.get(operation_id)

    def operations(self) -> list[Operation]:
        with self._lock:
            return list(self._operations.values())
