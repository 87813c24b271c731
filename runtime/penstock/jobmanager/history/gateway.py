"""A folder of archives as a `rest.gateway.ClusterGateway`: it shows ended jobs and refuses actions on them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from penstock.common.errors import StorageError
from penstock.common.logs.log_file import LogPart
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.history.archive import (
    Archives,
    ArchiveTooLarge,
    JobArchive,
    Plots,
    SizedArchive,
    start_of,
)
from penstock.metrics.reading import JobScope
from penstock.metrics.series import PER_SECOND
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.rest import facts, models
from penstock.rest.errors import Conflict, NotFound

SCAN_INTERVAL_S = 10.0
"""Interval between two scans of the folder while clients send requests, in seconds."""
MAX_JOBS = 10_000
"""Maximum number of jobs. The newest jobs are shown, because pages with more jobs would be unreadable."""
SCAN_BUDGET_S = 2.0
"""Time in seconds after which a scan reads no further archive. The next request continues with the small archives, and
the next scan continues with the large archives.
"""
SMALL_BYTES, SMALL_VALUES = 2**20, 50_000
"""Unpacked size up to which archives are read first. The archive of a typical job has tens of kilobytes."""
MAX_MEMORY = 512 * 2**20
"""Maximum memory of all archives, in bytes. If they need more, the largest archives are left out."""

logger = logging.getLogger(__name__)


class ArchiveGateway:
    """Gateway to archives. `ClusterGateway` describes the methods. If several archives have the same job id, the newest is used."""

    def __init__(self, archives: Archives) -> None:
        self._archives = archives
        self._metrics = MetricStore()
        self._jobs: dict[str, JobArchive] = {}
        self._shown: dict[str, str] = {}
        """Name of the archive that is shown, by job id."""
        self._read: dict[str, str] = {}
        """Job ids by the name of the archive. Empty means that the archive cannot be read."""
        self._large: dict[str, None] = {}
        """Names of large archives, which are read after all small archives, in order."""
        self._sizes: dict[str, int] = {}
        """Memory of the archives that are shown, by job id."""
        self._scanned_at = float("-inf")
        self._lock = threading.Lock()

    def _known(self) -> dict[str, JobArchive]:
        """Return the archives. Scan the folder for added and removed archives first if the interval has passed."""
        with self._lock:
            if time.monotonic() - self._scanned_at > SCAN_INTERVAL_S:
                self._scanned_at = time.monotonic()
                try:
                    is_whole = self._scan(self._archives.names()[:MAX_JOBS])
                except StorageError as error:
                    if not self._jobs:
                        raise
                    logger.warning("%s; the archives that were read before are shown", error.message)
                else:
                    if not is_whole:
                        self._scanned_at = float("-inf")
            return dict(self._jobs)

    def _scan(self, names: Sequence[str]) -> bool:
        """Read new archives for a limited time: first the small archives, the newest first. Return whether all small archives are read."""
        dropped = set()
        for gone in (self._read.keys() | self._large.keys()) - set(names):
            self._large.pop(gone, None)
            job_id = self._read.pop(gone, "")
            if self._shown.get(job_id) == gone:
                self._drop(job_id)
                dropped.add(job_id)
        for name in [name for name, job_id in self._read.items() if job_id in dropped]:
            del self._read[name]  # an older archive of the job is shown instead
        end = time.monotonic() + SCAN_BUDGET_S
        for name in names:
            if name in self._read or name in self._large:
                continue
            if time.monotonic() > end:
                return False
            try:
                self._take(name, self._archives.read_sized(name, SMALL_BYTES, SMALL_VALUES))
            except ArchiveTooLarge:
                self._large[name] = None
            except StorageError as error:
                self._refuse_archive(name, error)
        for name in [name for name in names if name in self._large]:
            if time.monotonic() > end:
                break
            try:
                self._take(name, self._archives.read_sized(name))
            except StorageError as error:
                self._refuse_archive(name, error)
        return True

    def _take(self, name: str, found: SizedArchive) -> None:
        archive, size = found
        self._large.pop(name, None)
        job_id = archive.job.id
        self._read[name] = job_id
        if job_id in self._shown and start_of(name) <= start_of(self._shown[job_id]):
            return
        self._jobs[job_id], self._shown[job_id], self._sizes[job_id] = archive, name, size
        self._take_metrics(archive)
        while sum(self._sizes.values()) > MAX_MEMORY:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            logger.warning(
                "the archives take more than %d MiB; the largest, %s, is not shown",
                MAX_MEMORY >> 20,
                self._shown[largest],
            )
            self._drop(largest)

    def _refuse_archive(self, name: str, error: StorageError) -> None:
        logger.warning("%s", error.message)
        self._large.pop(name, None)
        self._read[name] = ""

    def _drop(self, job_id: str) -> None:
        for of_jobs in (self._jobs, self._shown, self._sizes):
            of_jobs.pop(job_id, None)
        self._metrics.remove_job(job_id)

    def _take_metrics(self, archive: JobArchive) -> None:
        job = archive.job
        self._metrics.remove_job(job.id)
        self._metrics.describe_job(job.id, job.name, {one.id: (one.name, one.parallelism) for one in job.vertices})
        for of in archive.subtasks:
            io = {
                name: value
                for name, value in of.values.items()
                if name in PER_SECOND and isinstance(value, int | float)
            }
            gauges = {
                name: value
                for name, value in of.values.items()
                if name not in PER_SECOND and name not in PER_SECOND.values()
            }
            self._metrics.report(SubtaskReport(job.id, of.vertex, of.subtask, job.attempt, io, gauges))
        self._metrics.set_facts(JobScope(job.id), archive.facts_of_job)

    def _find(self, job_id: str) -> JobArchive:
        found = self._known().get(job_id)
        if found is None:
            raise NotFound(f"{self._archives.url} has no archive of job {job_id}")
        return found

    # --- the cluster ------------------------------------------------------------------------------------------

    @property
    def metrics(self) -> MetricStore:
        return self._metrics

    @property
    def insight(self) -> ArchiveGateway:
        return self

    def readiness(self) -> facts.Readiness:
        return facts.Readiness(True)

    def cluster(self) -> facts.Cluster:
        return facts.Cluster(0, 0)

    def configuration(self) -> Mapping[str, str]:
        return {"jobmanager.archive.fs.dir": self._archives.url}

    def logs(self, task_manager: str | None) -> list[facts.LogFile]:
        return []

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        raise NotFound(
            "logs are not archived", remedy="read the logs in the system that collects the logs of your pods"
        )

    def measurements(self) -> facts.Measurements:
        return facts.Measurements()

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> list[Sample]:
        return []

    def edge_records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        return []

    def edges(self, job_id: str) -> list[facts.Edge]:
        self._find(job_id)
        return []

    def shut_down(self) -> NoReturn:
        raise Conflict(
            "this server shows the history of jobs and is not a cluster",
            remedy="stop the process of the history server",
        )

    # --- jobs -------------------------------------------------------------------------------------------------

    def jobs(self) -> list[facts.Job]:
        return [archive.job for archive in self._known().values()]

    def job(self, job_id: str) -> facts.Job:
        return self._find(job_id).job

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        return models.CheckpointingStatistics.model_validate(self._find(job_id).checkpoints)

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        details = self._find(job_id).details.get(checkpoint_id)
        if details is None:
            raise NotFound(f"checkpoint {checkpoint_id} of job {job_id} is not in its archive")
        return models.CheckpointStatistics.model_validate(details)

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        raise NotFound(f"the subtasks' part of checkpoint {checkpoint_id} is not archived")

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        return self._find(job_id).settings

    # --- for the dashboard ------------------------------------------------------------------------------------

    def past_checkpoints(self, job_id: str) -> list[facts.PastCheckpoint]:
        return self._find(job_id).past

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        return self._find(job_id).metrics.get(vertex_id or "", Plots()).history()

    def connectors(self, job_id: str) -> facts.Connectors:
        return self._find(job_id).connectors

    def autoscaler(self, job_id: str) -> NoReturn:
        raise NotFound(
            "decisions of the autoscaler are not archived", remedy="download the recording while the job runs"
        )

    def autoscaler_recording(self, job_id: str) -> NoReturn:
        self.autoscaler(job_id)

    def states(self, job_id: str) -> NoReturn:
        raise NotFound("state is not archived", remedy="read the state in a savepoint with `penstock state read`")

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> NoReturn:
        raise NotFound("state is not archived", remedy="read the state in a savepoint with `penstock state read`")

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> NoReturn:
        raise NotFound(
            "the job has ended and has no tasks", remedy="read the state in a savepoint with `penstock state read`"
        )

    # --- actions ----------------------------------------------------------------------------------------------

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> NoReturn:
        self._refuse(job_id)

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> NoReturn:
        self._refuse(job_id)

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> NoReturn:
        self._refuse(job_id)

    def cancel(self, job_id: str) -> NoReturn:
        self._refuse(job_id)

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> NoReturn:
        self._refuse(job_id)

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, Any], configuration_id: str) -> NoReturn:
        self._refuse(job_id)

    def _refuse(self, job_id: str) -> NoReturn:
        raise Conflict(f"job {job_id} is {self._find(job_id).job.state}, and this is its history")

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> NoReturn:
        raise Conflict(
            "this server shows the history of jobs and is not a cluster",
            remedy="penstock savepoint -d, with -m of a JobManager",
        )

    def operation(self, request_id: str) -> NoReturn:
        raise NotFound(f"request {request_id} does not exist")
