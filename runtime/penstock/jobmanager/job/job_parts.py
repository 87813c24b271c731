"""What a job consists of in the JobManager, and what outlives its attempts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.functions.operator_context import Clock
from penstock.jobmanager.coordinators.sink_commits import SinkCommits
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.held_results import HeldResults
from penstock.jobmanager.job.job_metrics import JobMetrics
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.job.start_steps import StartSteps


@dataclass
class ResultSink:
    """Where values of `execute_and_collect` and printed lines go."""

    on_results: Callable[[str, list[bytes]], None] | None = None
    on_line: Callable[[str], None] | None = None


@dataclass
class JobParts:
    """What outlives the attempts of a job."""

    settings: JobSettings
    clock: Clock
    metrics: JobMetrics
    checkpoints: JobCheckpoints
    commits: SinkCommits
    results: HeldResults
    sink: ResultSink
    steps: StartSteps
    sources: dict[str, SourceCoordinator] = field(default_factory=dict)
    wake: threading.Event = field(default_factory=threading.Event)


@dataclass
class JobMasterOptions:
    """How a job is started, beyond its program and its settings."""

    restore_path: str = ""
    """Savepoint or checkpoint of the first start."""
    fresh: bool = False
    """Refuse to start if this job id has checkpoints: a stateful job must not start empty by accident."""
    allow_non_restored: bool | list[str] = False
    parallelism: int | None = None
    slot_timeout_s: float | None = None
    """None: as the settings say."""
    stabilization_s: float = 3.0
    """How long the adaptive scheduler waits for lost slots before it goes on with fewer."""
    sink: ResultSink = field(default_factory=ResultSink)
    awaits_release: bool = False
    """Prepare everything, then wait for a record that says where the state comes from (`checkpoint.leadership.release`)."""
    keep_result: bool = False
    """Note how the job ended beside its checkpoints, and never run one that has ended (`job_result`)."""
