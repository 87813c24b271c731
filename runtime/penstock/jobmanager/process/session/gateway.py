"""The Dispatcher as a gateway of REST (`rest.gateway.ClusterGateway`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.savepoint.savepoints import dispose
from penstock.common.config.memory import effective, task_manager_memory
from penstock.common.configuration import Configuration
from penstock.common.errors import PenstockError
from penstock.common.job_status import JobStatus
from penstock.common.logs.log_file import LogPart
from penstock.common.logs.redaction import Redaction, secrets_in
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.listener import Question
from penstock.common.stacks.sampling import Place, Sample, sample
from penstock.jobmanager.cluster.logs.files import ClusterLogs, LogFiles
from penstock.jobmanager.cluster.task_managers import SlotUse, Worker, describe_cluster, hardware_of
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.job.settings import object_store_options
from penstock.jobmanager.process.reading.job_insight import JobInsights
from penstock.jobmanager.process.reading.measurements import AskReadings, Measurements
from penstock.jobmanager.process.session.dispatcher import Dispatcher
from penstock.jobmanager.runners.in_process import TASK_MANAGER as IN_PROCESS
from penstock.metrics.store import MetricStore
from penstock.rest import facts
from penstock.rest.errors import Conflict, NotFound
from penstock.taskmanager.hardware import Hardware

if TYPE_CHECKING:
    from penstock.rest import models

AskStacks = Callable[[str, Question, Place], "list[Sample]"]
AskRecords = Callable[[str, EdgeQuestion], "list[EdgeRecord]"]


def no_stacks(task_manager: str, question: Question, of: Place) -> list[Sample]:
    """Raise an error. A process without TaskManagers uses this function."""
    return []


class DispatcherGateway:
    """Gateway to a Dispatcher. `ClusterGateway` describes the methods.

    Args:
        task_managers: function that returns the registered TaskManagers.
        shut_down: function that stops the process's cluster. It runs in a separate thread.
        logs: function that returns the logs of this process and of the TaskManagers.
        stacks: function that samples the Python workers of a TaskManager.
        records: function that waits for records on an edge in the Python workers of a TaskManager.
        readings: function that returns the metrics of a JVM.
        more_uses: function that returns the slots of jobs in other processes.
        more_jobs: function that returns the jobs in other processes. It must not wait.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        configuration: Mapping[str, str],
        task_managers: Callable[[], Sequence[Worker]],
        shut_down: Callable[[], None],
        logs: ClusterLogs | None = None,
        stacks: AskStacks = no_stacks,
        records: AskRecords = lambda task_manager, question: [],
        readings: AskReadings = lambda task_manager: "",
        more_uses: Callable[[], list[SlotUse]] = list,
        more_jobs: Callable[[], Sequence[facts.Job]] = list,
    ) -> None:
        self._dispatcher = dispatcher
        self._configuration = dict(configuration)
        self._object_store_options = object_store_options(Configuration(configuration))
        self._task_managers = task_managers
        self._machines: dict[str, Hardware] = {}
        self._shut_down = shut_down
        self._insight = JobInsights(self._job, self._clean)
        self._stacks = stacks
        self._records = records
        self._measurements = Measurements(readings, task_managers, dispatcher.jobs, more_jobs)
        self._logs = logs or ClusterLogs(LogFiles())
        self._redaction = Redaction.of(self._configuration)
        self._more_uses = more_uses

    @property
    def metrics(self) -> MetricStore:
        return self._dispatcher.metric_store

    @property
    def insight(self) -> JobInsights:
        return self._insight

    # --- the cluster ------------------------------------------------------------------------------------------

    def readiness(self) -> facts.Readiness:
        for job in self._dispatcher.jobs():
            status = job.history.status
            if status is JobStatus.SUSPENDED:  # users must be able to read why a failed job was suspended
                return facts.Readiness(False, f"job {job.program.name!r} is {status.value}")
        return facts.Readiness(True)

    def cluster(self) -> facts.Cluster:
        try:
            workers = self._task_managers()
        except Exception:  # the cluster is shutting down during the request
            workers = []
        uses = [*self.slot_uses(), *self._more_uses()]
        self._machines |= hardware_of(workers, uses)
        memory = task_manager_memory(self._job_configuration()).as_configuration()
        return describe_cluster(workers, uses, self._machines, memory)

    def slot_uses(self) -> list[SlotUse]:
        """Return the slots of the running jobs."""
        return [use for job in self._dispatcher.jobs() if not job.is_done for use in _slots_of(job)]

    def configuration(self) -> Mapping[str, str]:
        return {**effective(Configuration(self._configuration)), **self._configuration}

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        if task_manager is None:
            return self._logs.own.listing()
        self._check_task_manager(task_manager)
        return self._logs.of(task_manager).listing()

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        if task_manager is not None:
            self._check_task_manager(task_manager)
        source = self._logs.own if task_manager is None else self._logs.of(task_manager)
        part = source.read(name, start, most)
        # The process that wrote the log may not have known the secrets of every job's configuration.
        self._learn_secrets()
        return replace(part, data=self._redaction.clean_bytes(part.data))

    def _learn_secrets(self) -> None:
        """Add the secrets of every job's configuration to the redaction."""
        for job in self._dispatcher.jobs():
            for key, value in job.settings.configuration.items():
                self._redaction.add(secrets_in(key, str(value)))

    def _clean(self, text: str) -> str:
        self._learn_secrets()
        return self._redaction.clean(text)

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> list[Sample]:
        if task_manager is None:
            return sample(seconds, hertz)
        if task_manager != IN_PROCESS:
            self._check_task_manager(task_manager)
        return self._stacks(task_manager, Question(seconds, hertz), of)

    def edge_records(self, task_manager: str, question: EdgeQuestion) -> list[EdgeRecord]:
        if task_manager != IN_PROCESS:
            self._check_task_manager(task_manager)
        return [
            msgspec.structs.replace(
                record, text=self._clean(record.text), key=None if record.key is None else self._clean(record.key)
            )
            for record in self._records(task_manager, question)
        ]

    def measurements(self) -> facts.Measurements:
        return self._measurements.take()

    def _check_task_manager(self, task_manager: str) -> None:
        known = [worker.id for worker in self.cluster().task_managers]
        if task_manager not in known:
            remedy = f"registered TaskManagers: {', '.join(known)}" if known else "no TaskManager is registered"
            raise NotFound(f"TaskManager {task_manager} is not registered", remedy=remedy)

    def _job_configuration(self) -> Configuration:
        """Return the cluster's settings, overridden by the settings of the first running job. The job may have chosen the state backend."""
        live = next((job.settings.configuration for job in self._dispatcher.jobs() if not job.is_done), {})
        return Configuration({**self._configuration, **live})

    def shut_down(self) -> None:
        threading.Thread(target=self._shut_down, name="shut-down", daemon=True).start()

    # --- jobs -------------------------------------------------------------------------------------------------

    def jobs(self) -> Sequence[facts.Job]:
        return [self._without_secrets(_describe(job)) for job in self._dispatcher.jobs()]

    def job(self, job_id: str) -> facts.Job:
        return self._without_secrets(_describe(self._job(job_id)))

    def _without_secrets(self, job: facts.Job) -> facts.Job:
        """Hide secrets in texts that contain exception messages: failures and events."""
        self._learn_secrets()
        clean = self._redaction.clean
        return replace(
            job,
            failures=[
                replace(failure, message=clean(failure.message), traceback=clean(failure.traceback))
                for failure in job.failures
            ],
            events=[replace(event, text=clean(event.text)) for event in job.events],
        )

    def _job(self, job_id: str) -> JobMaster:
        job = self._dispatcher.job(job_id)
        if job is None:
            raise NotFound(f"job {job_id} does not exist")
        return job

    def _live(self, job_id: str) -> JobMaster:
        job = self._job(job_id)
        if job.is_done:
            raise Conflict(f"job {job_id} is {job.history.status.value}")
        return job

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        from penstock.rest import models  # a process without REST does not import pydantic

        return models.CheckpointingStatistics.model_validate(self.checkpoint_overview(job_id))

    def checkpoint_overview(self, job_id: str) -> dict[str, Any]:
        """Return the statistics of checkpoints as plain values."""
        overview: dict[str, Any] = self._job(job_id).checkpoints.coordinator.history.overview()
        return dict(self._with_clean_failures(overview))

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        from penstock.rest import models

        return models.CheckpointStatistics.model_validate(self.checkpoint_details(job_id, checkpoint_id))

    def checkpoint_details(self, job_id: str, checkpoint_id: int) -> dict[str, Any]:
        """Return a checkpoint as plain values."""
        details = self._job(job_id).checkpoints.coordinator.history.details(checkpoint_id)
        if details is None:
            raise NotFound(f"checkpoint {checkpoint_id} of job {job_id} is not in the history")
        return dict(self._with_clean_failures(details))

    def _with_clean_failures(self, value: Any) -> Any:
        """Return statistics of checkpoints without secrets in their failures, at any depth."""
        if isinstance(value, dict):
            return {
                key: self._clean(item) if key == "failure_message" and item else self._with_clean_failures(item)
                for key, item in value.items()
            }
        return list(map(self._with_clean_failures, value)) if isinstance(value, list) else value

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        from penstock.rest import models

        return models.TaskCheckpointDetails.model_validate(
            self.checkpoint_subtask_details(job_id, checkpoint_id, vertex_id)
        )

    def checkpoint_subtask_details(self, job_id: str, checkpoint_id: int, vertex_id: str) -> dict[str, Any]:
        """Return a vertex's part of a checkpoint as plain values."""
        details = self._job(job_id).checkpoints.coordinator.history.subtask_details(checkpoint_id, vertex_id)
        if details is None:
            raise NotFound(f"checkpoint {checkpoint_id} of job {job_id} has no vertex {vertex_id}")
        return details

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        job = self._job(job_id)
        settings = job.checkpoints.coordinator.settings
        return facts.CheckpointSettings(
            interval_ms=settings.interval_ms or 0,
            timeout_ms=settings.timeout_ms,
            min_pause_ms=settings.min_pause_ms,
            tolerable_failures=settings.tolerable_failures,
            retained=settings.retained,
            externalized=settings.retention != "NO_EXTERNALIZED_CHECKPOINTS",
            delete_on_cancellation=settings.retention != "RETAIN_ON_CANCELLATION",
            state_backend=job.settings.backend,
            storage=job.checkpoints.url,
            mode="exactly_once" if job.settings.aligns(batch=job.graph.is_batch) else "at_least_once",
        )

    # --- actions ----------------------------------------------------------------------------------------------

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        arguments: dict[str, Any] = {"directory": target_directory or "", "job": job_id}
        kind = "savepoint"
        if cancel_job:
            kind = "stop"
            arguments |= {"cancel": True, "shown": "savepoint"}
        return self._request(self._live(job_id), kind, arguments, trigger_id)

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        return self._request(self._live(job_id), "checkpoint", {"job": job_id}, trigger_id)

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        arguments = {"directory": target_directory or "", "drain": drain, "job": job_id}
        return self._request(self._live(job_id), "stop", arguments, trigger_id)

    def cancel(self, job_id: str) -> None:
        job = self._job(job_id)
        if job.is_done:
            if job.history.status is JobStatus.CANCELED:
                return
            raise Conflict(f"job {job_id} is {job.history.status.value}")
        self._dispatcher.request(job, Operation("cancel", {"job": job_id}))

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        return self._request(self._live(job_id), "rescale", {"parallelism": parallelism, "job": job_id}, trigger_id)

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, Any], configuration_id: str) -> None:
        self._live(job_id).autoscaler.configure(keys, configuration_id)

    def _request(self, job: JobMaster, kind: str, arguments: dict[str, Any], trigger_id: str | None) -> str:
        if trigger_id is not None and self._dispatcher.operation(trigger_id) is not None:
            return trigger_id
        operation = Operation(kind, arguments)
        if trigger_id is not None:
            operation.id = trigger_id
        return self._dispatcher.request(job, operation).id

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> str:
        operation = Operation("dispose", {"path": path})
        if trigger_id is not None:
            if self._dispatcher.operation(trigger_id) is not None:
                return trigger_id
            operation.id = trigger_id
        self._dispatcher.add_operation(operation)

        def work() -> None:
            try:
                dispose(path, self._object_store_options)
                operation.complete(location=path)
            except PenstockError as error:
                operation.fail(str(error))

        threading.Thread(target=work, name="dispose", daemon=True).start()
        return operation.id

    def operation(self, request_id: str) -> facts.Operation:
        operation = self._dispatcher.operation(request_id)
        if operation is None:
            raise NotFound(f"request {request_id} does not exist")
        return self._describe_operation(operation)

    def operations(self) -> list[facts.Operation]:
        """Return all actions whose status is still kept."""
        return list(map(self._describe_operation, self._dispatcher.operations()))

    def _describe_operation(self, operation: Operation) -> facts.Operation:
        return facts.Operation(
            id=operation.id,
            kind=operation.arguments.get("shown", operation.kind),
            job_id=operation.arguments.get("job", ""),
            is_done=operation.is_done,
            location=operation.location or "",
            checkpoint_id=operation.result if operation.kind == "checkpoint" else None,
            failure=self._clean(operation.failure or ""),
            failure_class="PenstockError" if operation.failure else "",
        )


def _slots_of(job: JobMaster) -> list[SlotUse]:
    usage = job.metrics.usage_by_slot()
    return [
        SlotUse(job.job_id, task_manager, *usage.get(slot, ()))
        for slot, task_manager in enumerate(job.runner.task_managers)
    ]


def _describe(job: JobMaster) -> facts.Job:
    history, metrics = job.history, job.metrics
    times = history.timestamps
    terminal = history.status.is_globally_terminal_state() or history.status is JobStatus.SUSPENDED
    return facts.Job(
        id=job.job_id,
        name=job.program.name,
        state=history.status.value,
        start=history.started_at,
        end=times.get(history.status.value, facts.NOT_YET) if terminal else facts.NOT_YET,
        parallelism=job.parallelism,
        max_parallelism=job.graph.max_parallelism,
        attempt=job.attempt,
        restarts=history.restarts,
        start_step=job.parts.steps.step,
        end_step=job.end_step,
        timestamps=dict(times),
        vertices=[_vertex(job, stage.id) for stage in job.graph.stages],
        progress=facts.Progress(
            epoch=metrics.epochs,
            epoch_ms=metrics.epoch_ms(),
            records_per_second=metrics.records_per_second(),
            records=metrics.records_total,
            watermark=metrics.watermark(),
            lag=metrics.lag,
        ),
        restart_strategy=job.restart_strategy,
        configuration=job.settings.configuration,
        failures=list(history.failures),
        rescales=list(history.rescales),
        rescale_count=history.rescale_count,
        events=list(history.events),
        accumulators=_accumulators(metrics.accumulators()),
        states=list(history.states),
        bounded=job.graph.bounded,
        can_add_slots=job.runner.can_add_slots or job.settings.scheduler == "adaptive",
        slot_limit=job.runner.slot_limit,
        is_batch=job.graph.is_batch,
        end_of_input=history.end_of_input,
    )


def _accumulators(found: Mapping[str, tuple[str, Any]]) -> list[facts.Accumulator]:
    return [facts.Accumulator(name, kind, str(value)) for name, (kind, value) in found.items()]


def _vertex(job: JobMaster, stage_id: int) -> facts.Vertex:
    graph = job.graph
    stage = graph.stages[stage_id]
    progress, accumulators = job.metrics.of_stage(stage_id), job.metrics.accumulators_of(stage_id)
    start = job.history.timestamps.get("RUNNING", facts.NOT_YET)
    return facts.Vertex(
        id=str(stage.id),
        name=stage.name,
        parallelism=stage.parallelism,
        level=stage.level,
        max_parallelism=graph.operators[stage.operators[0]].max_parallelism,
        subtasks=[
            facts.Subtask(
                index,
                job.history.status.value,
                attempt=job.attempt,
                host=progress[index].host if index in progress else "",
                tm_id=job.metrics.task_manager_of(index),
                start=start,
                accumulators=_accumulators(accumulators.get(index, {})),
            )
            for index in range(stage.parallelism)
        ],
        inputs=[
            facts.VertexInput(
                str(graph.exchanges[e].source_stage),
                "HASH"
                if graph.exchanges[e].partitioning.exchange.value == "key-group"
                else graph.exchanges[e].partitioning.exchange.value.upper(),
            )
            for e in stage.inputs
        ],
        operators={graph.operators[o].uid: graph.operators[o].name for o in stage.operators},
        hot_key=job.autoscaler.hot_key_of(str(stage.id)),
    )
