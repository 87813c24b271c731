"""The parts of a job in the JobManager, and the parts that outlive its attempts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.common.logs.redaction import secrets_in
from penstock.connectors.core.source import EnumeratorContext, SparkAccess
from penstock.functions.operator_context import Clock
from penstock.graph import operations
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.job_metrics import JobMetrics
from penstock.jobmanager.job.pending_results import PendingResults
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.job.starting.start_steps import StartSteps
from penstock.jobmanager.runners.runner import Runner
from penstock.taskmanager.code.payload import TaskSettings


@dataclass
class ResultSink:
    """Receiver of the results of `execute_and_collect` and of printed lines."""

    on_results: Callable[[str, list[bytes]], None] | None = None
    on_line: Callable[[str], None] | None = None


@dataclass
class JobParts:
    """Parts of a job that outlive its attempts."""

    settings: JobSettings
    clock: Clock
    metrics: JobMetrics
    checkpoints: JobCheckpoints
    commits: SinkCommits
    results: PendingResults
    sink: ResultSink
    steps: StartSteps
    sources: dict[str, SourceCoordinator] = field(default_factory=dict)
    wake: threading.Event = field(default_factory=threading.Event)

    def begin_sources(self, graph: JobGraph, restored_root: str, spark: SparkAccess | None) -> None:
        """Start an attempt of the graph's sources from their states in the restored snapshot."""
        states = self.checkpoints.source_states()
        for node in graph.operators:
            if isinstance(node.operation, operations.Source):
                coordinator = self.sources.get(node.uid)
                if coordinator is None:
                    coordinator = self.sources[node.uid] = SourceCoordinator(
                        node.uid,
                        node.operation.source,
                        self.settings.object_store_options,
                        name=node.name,
                        location=node.user_location,
                        alignment=node.operation.alignment,
                        call_limit_s=self.settings.enumerator_timeout_s,
                    )
                context = EnumeratorContext(node.uid, self.checkpoints.storage, self.checkpoints.coordinator, spark)
                coordinator.start_attempt(node.parallelism, states.get(node.uid), context, restored_root)

    def task_settings(self, job_id: str, job_name: str, attempt: int, runner: Runner) -> TaskSettings:
        """Return the settings of the attempt's tasks."""
        settings = self.settings
        return TaskSettings(
            job_id=job_id,
            job_name=job_name,
            attempt=attempt,
            backend=settings.backend,
            backend_options=settings.backend_options_of_slot,
            object_store_options=settings.object_store_options,
            merged_file_bytes=settings.merged_file_bytes,
            work_dir=settings.work_dir,
            from_local=settings.from_local,
            metric_scopes=settings.metric_scopes,
            latency_interval_ms=settings.latency_interval_ms,
            latency_granularity=settings.latency_granularity,
            buffer_timeout_s=settings.buffer_timeout_s,
            collect_lines=self.sink.on_line is not None,
            task_managers=runner.task_managers,
            step_limits=settings.step_limits,
            memory_limit=settings.worker_memory_limit,
            python_path=settings.python_path,
            working_folder=settings.working_folder,
            bundle=settings.bundle,
            log=settings.log,
            secrets=[secret for key, value in settings.configuration.items() for secret in secrets_in(key, value)],
            **runner.task_settings,
        )


@dataclass
class JobMasterOptions:
    """Options of a job's start, in addition to its program and its settings."""

    restore_path: str = ""
    """Savepoint or checkpoint of the first start."""
    fresh: bool = False
    """Whether to refuse the start if this job id has checkpoints, so that a stateful job does not accidentally start empty."""
    allow_non_restored: bool | list[str] = False
    parallelism: int | None = None
    slot_timeout_s: float | None = None
    """Timeout for slots in seconds. None means the timeout in the settings."""
    stabilization_s: float = 3.0
    """Time in seconds that the adaptive scheduler waits for lost slots before it continues with fewer slots."""
    sink: ResultSink = field(default_factory=ResultSink)
    awaits_release: bool = False
    """Whether to prepare everything and then wait for a record with the starting point (`checkpoint.leadership.release`)."""
    keep_result: bool = False
    """Whether to store the result beside the checkpoints, and never to run a job that has a result (`job_result`)."""
    waits_to_lead: Callable[[float], bool] | None = None
    """Function that waits for the given seconds until this process leads, and returns whether it leads. The job touches nothing before."""
