"""The condition of a job: exceptions, accumulators, metrics and progress."""

from __future__ import annotations

from pydantic import Field

from penstock.rest.models.base import Camel, Dashed, Shape


class ExceptionEntry(Camel):
    """Entry of the exception history. `stacktrace` begins with the user's frame. `location`: host, as in Flink."""

    exception_name: str
    stacktrace: str
    timestamp: int
    task_name: str | None = None
    location: str | None = None
    endpoint: str | None = None
    task_manager_id: str | None = None
    failure_labels: dict[str, str] = {}
    concurrent_exceptions: list[ExceptionEntry] = []


class ExceptionHistory(Shape):
    entries: list[ExceptionEntry]
    truncated: bool


class OlderException(Shape):
    exception: str
    task: str
    location: str
    timestamp: int


class JobExceptions(Dashed):
    """`GET /jobs/:id/exceptions`, the newest first. All fields except the history are for older clients."""

    root_exception: str | None = None
    timestamp: int | None = None
    all_exceptions: list[OlderException] = []
    truncated: bool = False
    exception_history: ExceptionHistory = Field(
        validation_alias="exceptionHistory", serialization_alias="exceptionHistory"
    )


class UserAccumulator(Shape):
    name: str
    type: str
    value: str


class JobAccumulators(Dashed):
    """`GET /jobs/:id/accumulators`"""

    job_accumulators: list[UserAccumulator] = []
    user_task_accumulators: list[UserAccumulator]
    serialized_user_task_accumulators: dict[str, str] = {}


class SubtaskAccumulators(Dashed):
    """`GET /jobs/:id/vertices/:id/subtasks/:n/attempts/:n/accumulators`. In the response for all subtasks, `id` is missing."""

    subtask: int
    attempt: int
    id: str | None = None
    host: str | None = None
    user_accumulators: list[UserAccumulator]


class VertexAccumulators(Dashed):
    """`GET /jobs/:id/vertices/:id/subtasks/accumulators`"""

    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulators]


class Metric(Shape):
    """Metric. Without `?get=`, the response has only the names."""

    id: str
    value: str | None = None


class AggregatedMetric(Shape):
    id: str
    min: float | None = None
    max: float | None = None
    avg: float | None = None
    sum: float | None = None
    skew: float | None = None


class ProgressCheckpoint(Dashed):
    id: int
    kind: str
    status: str
    trigger_timestamp: int
    duration: int
    checkpointed_size: int
    state_size: int
    external_path: str = ""


class ProgressCheckpoints(Dashed):
    """Checkpoints of a job. `last`: newest completed checkpoint; `running`: checkpoint in progress."""

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    last: ProgressCheckpoint | None = None


class ProgressVertex(Dashed):
    """Progress of a vertex. Rates per second over all subtasks; `busy` is the busiest subtask's share of the time, 0 to 1."""

    id: str
    name: str
    parallelism: int
    status: str
    records_in: int
    records_in_per_second: float
    records_out_per_second: float
    busy: float
    watermark: int | None = None


class ProgressEvent(Shape):
    timestamp: int
    text: str


class ProgressRescale(Dashed):
    timestamp: int
    old_parallelism: int
    new_parallelism: int
    trigger: str
    duration: int
    outcome: str


class JobProgress(Dashed):
    """`GET /jobs/:id/progress`: all data of a live view in one response. Flink does not have this path.

    `watermark`: lowest watermark of all subtasks in ms. `lag`: records or bytes that are not yet read; null = unknown.
    """

    jid: str
    name: str
    state: str
    start_step: str = ""
    end_step: str = ""
    now: int
    start_time: int
    end_time: int
    attempt: int
    restarts: int
    parallelism: int
    max_parallelism: int
    epoch: int
    epoch_duration: float | None = None
    records: int
    records_per_second: float
    watermark: int | None = None
    lag: int | None = None
    checkpoints: ProgressCheckpoints
    vertices: list[ProgressVertex]
    events: list[ProgressEvent]
    rescales: list[ProgressRescale] = []
    slots_total: int
    slots_available: int
    taskmanagers: int
    last_exception: str | None = None


class SummaryCheckpoint(Dashed):
    """Checkpoint in a summary. `time`: time of its completion."""

    id: int
    external_path: str
    time: int


class SummaryCheckpoints(Dashed):
    """Checkpoints in a summary. `last`: newest completed checkpoint without savepoints; `failure`: failure of the last failed checkpoint."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    last: SummaryCheckpoint | None = None
    failure: str = ""


class JobGlance(Dashed):
    """`GET /jobs/:id/summary`: a few hundred bytes for a client that polls every few seconds. Flink does not have this path.

    `last_rescale`: last completed rescale. `exception`: last failure, while the job is not RUNNING. `end_of_input`: whether the job has
    FINISHED because all of its input was read, and not because of a stop.
    """

    jid: str
    state: str
    parallelism: int
    restarts: int
    checkpoints: SummaryCheckpoints
    last_rescale: ProgressRescale | None = None
    exception: str = ""
    end_of_input: bool = False
