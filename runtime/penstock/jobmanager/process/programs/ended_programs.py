"""The data of ended programs that a session keeps: REST data of their jobs, results, outputs, and outcomes of actions."""

from __future__ import annotations

import logging
from typing import Any

from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.process.programs.actions import ProgramActions
from penstock.jobmanager.process.programs.ended_jobs import EndedJobs
from penstock.jobmanager.process.programs.messages import ProgramEnd
from penstock.jobmanager.process.programs.outputs import ProgramOutputs
from penstock.jobmanager.process.programs.running_program import RunningProgram
from penstock.metrics.store import MetricStore

logger = logging.getLogger(__name__)


class EndedPrograms:
    """Data of the last ended programs. It is removed together with the job that it belongs to.

    Args:
        max_jobs, ttl_s: limits for ended jobs (see `EndedJobs`).
    """

    def __init__(
        self, max_jobs: int, ttl_s: float, outputs: ProgramOutputs, metrics: MetricStore, actions: ProgramActions
    ) -> None:
        self._outputs, self._metrics, self._actions = outputs, metrics, actions
        self.jobs = EndedJobs(max_jobs, ttl_s, self.forget)
        self.outcomes: dict[str, dict[str, Any]] = {}
        """Results of jobs of sent graphs, in the shape of REST."""

    def forget(self, job_id: str) -> None:
        """Delete the data of an ended job."""
        self._outputs.forget(job_id)
        self.outcomes.pop(job_id, None)
        self._metrics.remove_job(job_id)

    def keep(self, program: RunningProgram, end: ProgramEnd) -> None:
        """Keep the data of a program whose process still answers."""
        gateway = program.gateway
        for job_id in list(program.jobs):
            self._outputs.keep(job_id, program.output)
            if end.outcome is not None:
                self.outcomes[job_id] = end.outcome
            try:
                assert gateway is not None
                archive = gateway.archive(job_id, self._metrics)
                program.known = program.known | {job_id: archive.job}
            except Exception:
                logger.exception("a part of the data of job %s is lost", job_id)
                archive = program.lost_job(job_id, JobStatus.FAILED if end.code else JobStatus.FINISHED, end)
            self.jobs.add(archive)
        try:
            assert gateway is not None
            self._actions.keep(gateway.operations())
        except PenstockError as error:
            logger.warning("the outcomes of actions are lost: %s", error)

    def keep_lost(self, program: RunningProgram, status: JobStatus, end: ProgramEnd | None) -> None:
        """Keep the data of a program that is not started again, and whose process does not answer."""
        for job_id in list(program.jobs):
            self._outputs.keep(job_id, program.output)
            self.jobs.add(program.lost_job(job_id, status, end))
            self.outcomes[job_id] = program.lost_outcome(status)
