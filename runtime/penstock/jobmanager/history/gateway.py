"""A folder of archives as REST sees it (`rest.gateway.ClusterGateway`): jobs that have ended, and nothing to be done with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from penstock.common.errors import StorageError
from penstock.common.logs.log_file import LogPart
from penstock.common.stacks.sampling import Place, Sample
from penstock.jobmanager.history.archive import Archives, JobArchive, Plots
from penstock.metrics.reading import JobScope
from penstock.metrics.series import PER_SECOND
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.rest import facts, models
from penstock.rest.errors import Conflict, NotFound

LOOK_S = 10.0
"""Between two looks into the folder, while somebody asks."""
MOST_JOBS = 10_000
"""The newest ones; the pages of more could not be read."""

logger = logging.getLogger(__name__)


class ArchiveGateway:
    """See `ClusterGateway` for what each method promises. Of several archives of one job id the newest counts."""

    def __init__(self, archives: Archives) -> None:
        self._archives = archives
        self._metrics = MetricStore()
        self._jobs: dict[str, JobArchive] = {}
        self._read: dict[str, str] = {}
        """Job ids by the name of the archive; empty: it cannot be read."""
        self._looked_at = float("-inf")
        self._lock = threading.Lock()

    def _known(self) -> dict[str, JobArchive]:
        """With what has come, and without what has gone, since the last look."""
        with self._lock:
            if time.monotonic() - self._looked_at > LOOK_S:
                self._looked_at = time.monotonic()
                try:
                    self._look(self._archives.names()[:MOST_JOBS])
                except StorageError as error:
                    if not self._jobs:
                        raise
                    logger.warning("%s; what was read before is shown", error.message)
            return dict(self._jobs)

    def _look(self, names: Sequence[str]) -> None:
        for gone in set(self._read) - set(names):
            job_id = self._read.pop(gone)
            if job_id not in self._read.values():
                self._jobs.pop(job_id, None)
                self._metrics.remove_job(job_id)
        for name in reversed(names):  # the newest of a job id is taken last
            if name in self._read:
                continue
            try:
                archive = self._archives.read(name)
            except StorageError as error:
                logger.warning("%s", error.message)
                self._read[name] = ""
                continue
            self._read[name] = archive.job.id
            self._jobs[archive.job.id] = archive
            self._take_metrics(archive)

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
            raise NotFound(f"there is no archive of job {job_id} in {self._archives.url}")
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
        raise NotFound("logs are not archived", remedy="look where your pods' logs are collected")

    def measurements(self) -> facts.Measurements:
        return facts.Measurements()

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> list[Sample]:
        return []

    def shut_down(self) -> NoReturn:
        raise Conflict("this is the history of jobs, and no cluster", remedy="end its process")

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
        raise NotFound(f"what the subtasks had of checkpoint {checkpoint_id} is not archived")

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        return self._find(job_id).settings

    # --- for the dashboard ------------------------------------------------------------------------------------

    def past_checkpoints(self, job_id: str) -> list[facts.PastCheckpoint]:
        return self._find(job_id).past

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        return self._find(job_id).metrics.get(vertex_id or "", Plots()).history()

    def connectors(self, job_id: str) -> facts.Connectors:
        return self._find(job_id).connectors

    def states(self, job_id: str) -> NoReturn:
        raise NotFound("state is not archived", remedy="read it in a savepoint: penstock state read")

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> NoReturn:
        raise NotFound("state is not archived", remedy="read it in a savepoint: penstock state read")

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> NoReturn:
        raise NotFound("the job has ended, and has no tasks", remedy="read it in a savepoint: penstock state read")

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

    def _refuse(self, job_id: str) -> NoReturn:
        raise Conflict(f"job {job_id} is {self._find(job_id).job.state}, and this is its history")

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> NoReturn:
        raise Conflict(
            "this is the history of jobs, and no cluster", remedy="penstock savepoint -d, with -m of a JobManager"
        )

    def operation(self, request_id: str) -> NoReturn:
        raise NotFound(f"nothing is known of request {request_id}")
