"""The engine's description of itself, in its own terms. Times are ms since the epoch, durations ms, sizes bytes.

States of jobs and subtasks are Flink's names (`RUNNING`, `RESTARTING`, …). A subtask may have its job's state. Ids of vertices may have any
form that is the same in the metric store. REST shows these ids as 32 hex digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # archives are parsed with these types at run time
from dataclasses import dataclass, field
from typing import Literal

NOT_YET = -1
"""Flink's value for a time that has not come."""


@dataclass(frozen=True)
class Readiness:
    """Whether this JobManager accepts requests. `reason` is an explanation for users."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True)
class TaskManager:
    """Worker with its slots. 0 means that a value is not known (yet).

    `host` and `port`: address of its RPC. `cpu_cores`, `memory`, `memory_free`: resources of its machine or container. `memory_used` and
    `cpu_seconds`: memory and CPU time of the Python processes in its slots. `heap`: heap of its executor's JVM. `slots_by_job`: job id ->
    slots in use. `memory_configuration`: parts of its memory, under Flink's names (`common.config.memory`).
    """

    id: str
    host: str
    slots: int
    free_slots: int
    port: int = 0
    last_heartbeat: int = 0
    cpu_cores: int = 0
    memory: int = 0
    memory_free: int = 0
    memory_used: int = 0
    cpu_seconds: float = 0.0
    heap: int = 0
    slots_by_job: Mapping[str, int] = field(default_factory=dict)
    memory_configuration: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurements:
    """Current metrics of the cluster's JVMs, under Flink's names. JVMs that do not respond are left out.

    `task_managers`: metrics by id. `subtasks`: metrics by job, vertex and index.
    """

    job_manager: Mapping[str, float] = field(default_factory=dict)
    task_managers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    subtasks: Mapping[tuple[str, str, int], Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    slots_total: int
    slots_available: int
    task_managers: Sequence[TaskManager] = ()


@dataclass(frozen=True)
class Accumulator:
    """Accumulator of user functions. `value` is its value as text."""

    name: str
    type: str
    value: str


@dataclass(frozen=True)
class Subtask:
    index: int
    state: str
    attempt: int = 0
    host: str = ""
    tm_id: str = ""
    start: int = NOT_YET
    end: int = NOT_YET
    accumulators: Sequence[Accumulator] = ()


@dataclass(frozen=True)
class VertexInput:
    """Input edge of a vertex. `ship_strategy`: distribution of records, such as `HASH` or `REBALANCE`."""

    vertex_id: str
    ship_strategy: str = "FORWARD"


@dataclass(frozen=True)
class HotKey:
    """Key with more records than an even share of a subtask. `key` is None if all keys of the key group together have the share."""

    key: str | None
    key_group: int
    subtask: int
    share: float


@dataclass(frozen=True)
class Vertex:
    """Stage of the job graph. `operators`: uid -> name, in order. A vertex without inputs is a source. `level`: see `graph.job_graph`."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: Sequence[Subtask] = ()
    inputs: Sequence[VertexInput] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    hot_key: HotKey | None = None
    level: int = 0


@dataclass(frozen=True)
class Edge:
    """Edge from an operator to the next operator. `is_chained`: both are in the same vertex. `vertex_id`: vertex of the operator that
    emits.

    `side_tag`: the side output that the edge carries. None means the main output.
    """

    uid: str
    source: str
    side_tag: str | None
    target_uid: str
    target: str
    vertex_id: str
    is_chained: bool


@dataclass(frozen=True)
class Progress:
    """Progress of the job. `records`: number of records that sources have read since the start of the attempt.

    `watermark`: lowest watermark of all subtasks. None means no watermark yet. `lag`: available records or bytes that are not yet read.
    None means that the sources do not know the lag.
    """

    epoch: int = 0
    epoch_ms: float | None = None
    records_per_second: float = 0.0
    records: int = 0
    watermark: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class Failure:
    """Entry of the exception history. `timestamp`: ms. `location`: `file:line` at which the program creates the operator, if known."""

    timestamp: int
    name: str
    message: str
    traceback: str = ""
    task: str = ""
    location: str = ""
    host: str = ""


@dataclass(frozen=True)
class Rescale:
    """Entry of the rescale history. Times in ms. `trigger`: `request`, `slots`, …"""

    timestamp: int
    old_parallelism: int
    new_parallelism: int
    trigger: str = "request"
    duration_ms: int = 0
    outcome: str = "COMPLETED"


@dataclass(frozen=True)
class JobStart:
    """Start of an attempt, successful or failed. Times in ms. `steps`: descriptions, each with its start time.

    `restored_from`: directory of a checkpoint or savepoint, empty means no state. `failure`: empty if the attempt runs.
    """

    began: int
    ended: int
    attempt: int
    parallelism: int
    steps: Sequence[tuple[str, int]] = ()
    restored_from: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Event:
    timestamp: int
    text: str


@dataclass(frozen=True)
class StateChange:
    timestamp: int
    state: str


@dataclass(frozen=True)
class PastCheckpoint:
    """Short entry of the checkpoint history. `slowest`: vertex and subtask with the last acknowledgement; empty and -1 mean unknown."""

    id: int
    kind: str
    status: str
    trigger: int
    end: int = NOT_YET
    size: int = 0
    state_size: int = 0
    slowest: tuple[str, int] = ("", -1)
    failure: str = ""
    path: str = ""


@dataclass(frozen=True)
class MetricHistory:
    """Samples of the last hour: times, and values by name. NaN means unknown."""

    times: Sequence[int] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class SplitFacts:
    """Split of a source. `owner`: subtask that reads the split, -1 means no subtask. `position`: text in the source's format. `lag`:
    records or bytes that are not read, None means unknown.
    """

    id: str
    owner: int = -1
    position: str = ""
    size: int = 0
    watermark: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class SourceFacts:
    """Source of a job. `splits`: some of its splits. `split_count`: number of splits that are not read to their end.
    `lag`: records or bytes that are not read, None means unknown.
    """

    uid: str
    name: str
    split_count: int = 0
    unassigned: int = 0
    lag: int | None = None
    splits: Sequence[SplitFacts] = ()


@dataclass(frozen=True)
class SinkFacts:
    uid: str
    name: str


@dataclass(frozen=True)
class Connectors:
    """Sources and sinks of a job. `committing`: description of the running commit, or empty."""

    sources: Sequence[SourceFacts] = ()
    sinks: Sequence[SinkFacts] = ()
    pending_commits: int = 0
    uncommitted_checkpoints: int = 0
    committing: str = ""


@dataclass(frozen=True)
class StateName:
    """State of an operator in a checkpoint. `operator_bytes`: size of all keyed state of the operator. `queryable`: name for queryable
    state, if it has one.
    """

    uid: str
    operator: str
    name: str
    kind: str
    operator_bytes: int = 0
    queryable: str = ""


@dataclass(frozen=True)
class StateEntries:
    """Result of a state lookup. `entries`: columns by name, as JSON values.

    `attempt`: attempt of the task that responded. In this case, `checkpoint_id` is 0. If `attempt` is 0, the result comes from a
    checkpoint.
    """

    checkpoint_id: int
    timestamp: int
    entries: Sequence[Mapping[str, object]] = ()
    is_truncated: bool = False
    """Whether more entries exist."""
    attempt: int = 0


@dataclass(frozen=True)
class Job:
    """Job, running or ended. Lists of history have the oldest entry first."""

    id: str
    name: str
    state: str
    start: int
    parallelism: int
    max_parallelism: int
    end: int = NOT_YET
    attempt: int = 0
    restarts: int = 0
    end_step: str = ""
    """Description of the cause and the stage of the attempt's end, or empty."""
    start_step: str = ""
    """Description of the current step while the job is not yet RUNNING."""
    timestamps: Mapping[str, int] = field(default_factory=dict)
    """State -> time at which the job last entered this state."""
    vertices: Sequence[Vertex] = ()
    progress: Progress = field(default_factory=Progress)
    restart_strategy: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)
    failures: Sequence[Failure] = ()
    rescales: Sequence[Rescale] = ()
    """Latest rescales."""
    rescale_count: int = 0
    events: Sequence[Event] = ()
    accumulators: Sequence[Accumulator] = ()
    states: Sequence[StateChange] = ()
    bounded: bool = False
    can_add_slots: bool = False
    """Whether a rescale may exceed the available slots, because the cluster starts more slots, or the scheduler is adaptive."""
    slot_limit: int | None = None
    """Maximum number of slots of the cluster. None means no limit."""
    is_batch: bool = False
    """Whether the job runs in batch mode, which `execution.runtime-mode: AUTOMATIC` selects for bounded sources."""
    end_of_input: bool = False
    """Whether the job has FINISHED because all of its input was read."""


@dataclass(frozen=True)
class CheckpointSettings:
    """Checkpoint settings. `interval_ms` is 0 without periodic checkpoints. `externalized`: checkpoints may outlive the job."""

    interval_ms: int = 0
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    tolerable_failures: int = 0
    retained: int = 1
    externalized: bool = True
    delete_on_cancellation: bool = False
    state_backend: str = "hashmap"
    storage: str = ""
    mode: str = "exactly_once"
    """`exactly_once` or `at_least_once`."""


@dataclass(frozen=True)
class LogFile:
    """Log or standard output, as far as it is kept. Size in bytes, time in ms."""

    name: str
    size: int
    modified_at: int


OperationKind = Literal["savepoint", "checkpoint", "stop", "cancel", "rescale", "dispose"]


@dataclass(frozen=True)
class Operation:
    """Long action that was requested. After the action is done, an empty `failure` means success."""

    id: str
    kind: OperationKind
    job_id: str = ""
    is_done: bool = False
    location: str = ""
    checkpoint_id: int | None = None
    failure: str = ""
    failure_class: str = ""


@dataclass(frozen=True)
class Jar:
    """Program that a client has uploaded to a session cluster. `uploaded`: ms since the epoch."""

    id: str
    name: str
    uploaded: int


@dataclass(frozen=True)
class Application:
    """Program of a session cluster. It can have several jobs. Times: ms since the epoch.

    `state`: CREATED until its first job is accepted, RUNNING, CANCELING, FINISHED, FAILED or CANCELED. `jobs`: ids in the order of their
    start. `exit_code`: exit code of the program, None until its end.
    """

    id: str
    name: str
    state: str
    start: int
    end: int = NOT_YET
    jobs: Sequence[str] = ()
    exit_code: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class RunRequest:
    """Start of an uploaded program.

    `entry`: `FILE.py` or `module:function`. Empty means the only module, `job.py` or `main.py`. `allow_non_restored`: uids of operators whose
    state may be dropped, or True for any.
    """

    entry: str = ""
    args: Sequence[str] = ()
    parallelism: int | None = None
    savepoint_path: str = ""
    allow_non_restored: bool | list[str] = False
    job_id: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FetchRequest:
    """Program that the session fetches: a file with this checksum, or a commit of a git repository, with its packages.

    `path`: folder in the repository. `username`, `password`: access to the git server.
    """

    name: str
    url: str
    sha256: str = ""
    commit: str = ""
    path: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    requirements: Sequence[str] = ()
