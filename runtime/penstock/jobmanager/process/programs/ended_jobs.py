"""The ended jobs of a session's programs, whose processes have ended too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.jobmanager.history.archive import Archives, JobArchive
from penstock.jobmanager.history.gateway import ArchiveGateway
from penstock.rest.errors import NotFound


class EndedJobs(ArchiveGateway):
    """Archives in memory. The oldest archives are removed first.

    Args:
        max_jobs: maximum number of jobs.
        ttl_s: time in seconds after which a job is removed.
        on_removed: function that is called with the id of each removed job.
    """

    def __init__(self, max_jobs: int, ttl_s: float, on_removed: Callable[[str], object] = str) -> None:
        super().__init__(Archives("file:///nonexistent"))
        self._max_jobs, self._ttl_s, self._on_removed = max_jobs, ttl_s, on_removed
        self._kept: dict[str, tuple[float, JobArchive]] = {}
        self._keeping = threading.Lock()

    def add(self, archive: JobArchive) -> None:
        """Keep a job, and remove the jobs that exceed the limits."""
        now = time.monotonic()
        with self._keeping:
            self._kept.pop(archive.job.id, None)
            self._kept[archive.job.id] = now, archive
            too_many = len(self._kept) - self._max_jobs
            removed = [
                job_id
                for number, (job_id, (at, _)) in enumerate(self._kept.items())
                if number < too_many or now - at > self._ttl_s
            ]
            for job_id in removed:
                del self._kept[job_id]
        for job_id in removed:
            self._on_removed(job_id)

    def has(self, job_id: str) -> bool:
        return job_id in self._kept

    def forget(self, job_id: str) -> None:
        """Remove a job that runs again."""
        with self._keeping:
            self._kept.pop(job_id, None)

    def _known(self) -> dict[str, JobArchive]:
        with self._keeping:
            return {job_id: archive for job_id, (_, archive) in self._kept.items()}

    def _find(self, job_id: str) -> JobArchive:
        _, archive = self._kept.get(job_id, (0.0, None))
        if archive is None:
            raise NotFound(f"job {job_id} does not exist")
        return archive
