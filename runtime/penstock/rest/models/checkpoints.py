"""Checkpoints: statistics, configuration, details. Times and durations in ms, sizes in bytes."""

from __future__ import annotations

from pydantic import Field

from penstock.rest.models.base import Shape


class CheckpointCounts(Shape):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class StatsSummary(Shape):
    """Summary of the completed checkpoints in the history."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


class CheckpointSummary(Shape):
    checkpointed_size: StatsSummary
    state_size: StatsSummary
    end_to_end_duration: StatsSummary
    alignment_buffered: StatsSummary = Field(default_factory=StatsSummary)
    processed_data: StatsSummary = Field(default_factory=StatsSummary)
    persisted_data: StatsSummary = Field(default_factory=StatsSummary)


class TaskCheckpoint(Shape):
    """One vertex's part of a checkpoint."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int


class CheckpointStatistics(Shape):
    """Checkpoint or savepoint in any state. `class_name`: `in_progress`, `completed` or `failed`.

    `checkpointed_size`: size of its uploads; `state_size`: size of all files that the checkpoint references.
    """

    class_name: str = Field(validation_alias="className", serialization_alias="className")
    id: int
    status: str
    is_savepoint: bool
    savepoint_format: str | None = Field(
        default=None, validation_alias="savepointFormat", serialization_alias="savepointFormat"
    )
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int = 0
    processed_data: int = 0
    persisted_data: int = 0
    num_subtasks: int
    num_acknowledged_subtasks: int
    checkpoint_type: str
    tasks: dict[str, TaskCheckpoint] = {}
    external_path: str | None = None
    discarded: bool | None = None
    failure_timestamp: int | None = None
    failure_message: str | None = None


class RestoredCheckpoint(Shape):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class LatestCheckpoints(Shape):
    completed: CheckpointStatistics | None = None
    savepoint: CheckpointStatistics | None = None
    failed: CheckpointStatistics | None = None
    restored: RestoredCheckpoint | None = None


class CheckpointTrigger(Shape):
    """Reason why the next checkpoint is or is not triggered. `state`: name of a `TriggerState`. `since`: time at which the state began.

    `uncommitted_checkpoints`: number of complete checkpoints with pending commits. `pending_commits`: number of these commits.
    """

    state: str
    description: str
    since: int
    uncommitted_checkpoints: int = 0
    pending_commits: int = 0


class CheckpointingStatistics(Shape):
    """`GET /jobs/:id/checkpoints`. The history has the newest checkpoint first."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[CheckpointStatistics]
    trigger: CheckpointTrigger | None = None


class Externalization(Shape):
    """Externalization of checkpoints. `enabled`: checkpoints may outlive the job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(Shape):
    """`GET /jobs/:id/checkpoints/config`. If `interval` is 0, there are no periodic checkpoints.

    `mode`: `exactly_once` or `at_least_once`, as configured. A job in batch mode is always `exactly_once`. Fields with a default
    are the same for every job: only one checkpoint is in progress at a time, regardless of the configuration.
    """

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int = 1
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool = False
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int = 0
    checkpoints_after_tasks_finish: bool = True
    retained_checkpoints: int


class CheckpointTimes(Shape):
    sync: int
    async_: int = Field(validation_alias="async", serialization_alias="async")


class AlignmentTimes(Shape):
    """Alignment times. All are zero, because Penstock does not measure them."""

    buffered: int = 0
    processed: int = 0
    persisted: int = 0
    duration: int = 0


class SubtaskCheckpoint(Shape):
    """One subtask's part of a checkpoint. `status`: `completed` or `pending`."""

    class_name: str = Field(validation_alias="className", serialization_alias="className")
    index: int
    status: str
    ack_timestamp: int | None = None
    end_to_end_duration: int | None = None
    checkpointed_size: int | None = None
    state_size: int | None = None
    checkpoint: CheckpointTimes | None = None
    alignment: AlignmentTimes | None = None
    start_delay: int | None = None
    unaligned_checkpoint: bool | None = None
    aborted: bool | None = None


class SubtaskCheckpointTimes(Shape):
    sync: StatsSummary
    async_: StatsSummary = Field(validation_alias="async", serialization_alias="async")


class AlignmentSummary(Shape):
    """Alignment summary. All values are zero, because Penstock does not measure them."""

    buffered: StatsSummary = Field(default_factory=StatsSummary)
    processed: StatsSummary = Field(default_factory=StatsSummary)
    persisted: StatsSummary = Field(default_factory=StatsSummary)
    duration: StatsSummary = Field(default_factory=StatsSummary)


class TaskCheckpointSummary(Shape):
    checkpointed_size: StatsSummary
    state_size: StatsSummary
    end_to_end_duration: StatsSummary
    checkpoint_duration: SubtaskCheckpointTimes
    alignment: AlignmentSummary = Field(default_factory=AlignmentSummary)
    start_delay: StatsSummary = Field(default_factory=StatsSummary)


class TaskCheckpointDetails(TaskCheckpoint):
    """`GET /jobs/:id/checkpoints/details/:cid/subtasks/:vid`"""

    summary: TaskCheckpointSummary
    subtasks: list[SubtaskCheckpoint]
