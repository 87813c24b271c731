"""The gateway of a session: the jobs of its programs, the jobs of clients' environments, and ended jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.coordinator.statistics import CheckpointHistory
from penstock.jobmanager.process.programs.ended_jobs import EndedJobs
from penstock.jobmanager.process.programs.programs import ProgramRunner
from penstock.jobmanager.process.programs.remote_gateway import RemoteGateway
from penstock.jobmanager.process.session.gateway import DispatcherGateway
from penstock.rest import facts, models
from penstock.rest.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from penstock.common.logs.log_file import LogPart
    from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
    from penstock.common.stacks.sampling import Place, Sample
    from penstock.metrics.store import MetricStore


class SessionGateway:
    """Gateway to all jobs of a session. `rest.gateway.ClusterGateway` and `rest.insight.JobInsight` describe the methods.

    Args:
        own: gateway to the jobs that run in this process, and to the cluster.
    """

    def __init__(self, own: DispatcherGateway, programs: ProgramRunner, ended: EndedJobs) -> None:
        self._own, self._programs, self._ended = own, programs, ended

    @property
    def metrics(self) -> MetricStore:
        return self._own.metrics

    @property
    def insight(self) -> SessionGateway:
        return self

    def _of(self, job_id: str) -> RemoteGateway | EndedJobs | DispatcherGateway:
        """Return the gateway to a job."""
        program = self._programs.program_of(job_id)
        if program is not None:
            return program.answering_gateway()
        return self._ended if self._ended.has(job_id) else self._own

    def _insight_of(self, job_id: str) -> Any:
        found = self._of(job_id)
        return found.insight if found is self._own else found

    # --- the cluster ------------------------------------------------------------------------------------------

    def readiness(self) -> facts.Readiness:
        return self._own.readiness()

    def cluster(self) -> facts.Cluster:
        return self._own.cluster()

    def configuration(self) -> Mapping[str, str]:
        return self._own.configuration()

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        found = list(self._own.logs(task_manager))
        if task_manager is None:
            for program in self._programs.programs():
                found += program.output.files.listing()
        return found

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        for program in self._programs.programs() if task_manager is None else ():
            if any(file.name == name for file in program.output.files.listing()):
                return program.output.files.read(name, start, most)
        return self._own.read_log(task_manager, name, start, most)

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> Sequence[Sample]:
        if task_manager is None and of.job_id:
            program = self._programs.program_of(of.job_id) or self._programs.starting_with(of.job_id)
            if program is not None:
                return program.answering_gateway().stacks(seconds, hertz)
        return self._own.stacks(task_manager, seconds, hertz, of)

    def edge_records(self, task_manager: str, question: EdgeQuestion) -> Sequence[EdgeRecord]:
        return self._own.edge_records(task_manager, question)

    def measurements(self) -> facts.Measurements:
        return self._own.measurements()

    def shut_down(self) -> None:
        self._own.shut_down()

    # --- jobs -------------------------------------------------------------------------------------------------

    def jobs(self) -> list[facts.Job]:
        return [*self._own.jobs(), *self._programs.jobs(), *self._ended.jobs()]

    def job(self, job_id: str) -> facts.Job:
        starting = self._programs.starting_with(job_id)
        if starting is not None:
            return starting.starting_job()
        program = self._programs.program_of(job_id)
        try:
            return self._of(job_id).job(job_id)
        except (Unavailable, NotFound):  # its process does not answer, or it has not started the job again
            if program is not None and job_id in program.known:
                return program.known[job_id]
            raise

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        if self._programs.starting_with(job_id) is not None:
            return models.CheckpointingStatistics.model_validate(CheckpointHistory().overview())
        return self._of(job_id).checkpoints(job_id)

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        return self._of(job_id).checkpoint(job_id, checkpoint_id)

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        return self._of(job_id).checkpoint_subtasks(job_id, checkpoint_id, vertex_id)

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        return self._of(job_id).checkpoint_settings(job_id)

    # --- insight ----------------------------------------------------------------------------------------------

    def past_checkpoints(self, job_id: str) -> list[facts.PastCheckpoint]:
        return list(self._insight_of(job_id).past_checkpoints(job_id))

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        found: facts.MetricHistory = self._insight_of(job_id).metric_history(job_id, vertex_id)
        return found

    def connectors(self, job_id: str) -> facts.Connectors:
        found: facts.Connectors = self._insight_of(job_id).connectors(job_id)
        return found

    def autoscaler(self, job_id: str) -> models.AutoscalerStatus:
        found: models.AutoscalerStatus = self._insight_of(job_id).autoscaler(job_id)
        return found

    def autoscaler_recording(self, job_id: str) -> list[str]:
        return list(self._insight_of(job_id).autoscaler_recording(job_id))

    def edges(self, job_id: str) -> list[facts.Edge]:
        return list(self._insight_of(job_id).edges(job_id))

    def states(self, job_id: str) -> list[facts.StateName]:
        return list(self._insight_of(job_id).states(job_id))

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        found: facts.StateEntries = self._insight_of(job_id).state_entries(job_id, name, uid, key, limit)
        return found

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        found: facts.StateEntries = self._insight_of(job_id).live_entries(job_id, name, uid, key)
        return found

    # --- actions ----------------------------------------------------------------------------------------------

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        of = self._of(job_id)
        request = of.trigger_savepoint(job_id, target_directory, cancel_job=cancel_job, trigger_id=trigger_id)
        return self._programs.actions.note(job_id, request)

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        request = self._of(job_id).trigger_checkpoint(job_id, trigger_id=trigger_id)
        return self._programs.actions.note(job_id, request)

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        request = self._of(job_id).stop(job_id, target_directory, drain=drain, trigger_id=trigger_id)
        return self._programs.actions.note(job_id, request)

    def cancel(self, job_id: str) -> None:
        program = self._programs.program_of(job_id) or self._programs.starting_with(job_id)
        if program is None:
            self._of(job_id).cancel(job_id)
        else:
            self._programs.cancel(program, job_id)

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        request = self._of(job_id).rescale(job_id, parallelism, trigger_id=trigger_id)
        return self._programs.actions.note(job_id, request)

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, Any], configuration_id: str) -> None:
        self._of(job_id).configure_autoscaler(job_id, keys, configuration_id)

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> str:
        return self._own.dispose_savepoint(path, trigger_id=trigger_id)

    def operation(self, request_id: str) -> facts.Operation:
        return self._programs.actions.status(request_id) or self._own.operation(request_id)
