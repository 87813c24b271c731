"""What the engine says of itself, in its own words. Times are ms since the epoch, durations ms, sizes bytes.

States of jobs and subtasks are Flink's names (`RUNNING`, `RESTARTING`, …); a subtask may be given its job's state. Ids of
vertices may be anything that is the same in the metric store; REST shows them as 32 hex digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # archives are read by these types
from dataclasses import dataclass, field
from typing import Literal

NOT_YET = -1
"""Flink's word for a time that has not come."""


@dataclass(frozen=True)
class Readiness:
    """Whether this JobManager can be talked to; `reason` is for people."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True)
class TaskManager:
    """A worker with its slots. 0: not known (yet).

    `host` and `port`: of its RPC. `cpu_cores`, `memory`, `memory_free`: of its machine or container. `memory_used`: by the Python
    processes of its slots, which have had `cpu_seconds` of CPU time. `heap`: of its executor's JVM. `slots_by_job`: job id -> slots in use. `memory_configuration`: how its
    memory is shared out, by Flink's names (`common.config.memory`).
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
    """What the cluster's JVMs read on their gauges now, by Flink's names. Who does not answer is not in it.

    `task_managers`: by their ids. `subtasks`: by job, vertex and index.
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
    """What user functions have added up. `value`: as text."""

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
    """An edge that comes in. `ship_strategy`: how records are distributed, such as `HASH` or `REBALANCE`."""

    vertex_id: str
    ship_strategy: str = "FORWARD"


@dataclass(frozen=True)
class Vertex:
    """A stage of the job graph. `operators`: uid -> name, in order. A vertex without inputs is a source."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: Sequence[Subtask] = ()
    inputs: Sequence[VertexInput] = ()
    operators: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """How the job gets on. `records`: read by the sources since the start of the attempt.

    `watermark`: the lowest of any subtask, None = none yet. `lag`: records or bytes that are there but not yet read;
    None = the sources do not know.
    """

    epoch: int = 0
    epoch_ms: float | None = None
    records_per_second: float = 0.0
    records: int = 0
    watermark: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class Failure:
    """One entry of the exception history. `timestamp`: ms; `location`: `file:line` of the user's code, where known."""

    timestamp: int
    name: str
    message: str
    traceback: str = ""
    task: str = ""
    location: str = ""
    host: str = ""


@dataclass(frozen=True)
class Rescale:
    """One entry of the rescale history. Times in ms. `trigger`: `request`, `slots`, …"""

    timestamp: int
    old_parallelism: int
    new_parallelism: int
    trigger: str = "request"
    duration_ms: int = 0
    outcome: str = "COMPLETED"


@dataclass(frozen=True)
class JobStart:
    """How an attempt came to run, or did not. Times in ms; `steps`: in words, each with when it began.

    `restored_from`: a checkpoint's or savepoint's folder, empty: no state. `failure`: empty if it runs.
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
    """One of the history, in short. `slowest`: vertex and subtask that answered last; empty and -1: not known."""

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
    """Samples of the last hour: times, and values by name; NaN: not known."""

    times: Sequence[int] = ()
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class SplitFacts:
    """A part of a source's input. `owner`: the subtask that reads it, -1: none; `position` in the source's own words; `lag`: records or
    bytes not read, None: not known."""

    id: str
    owner: int = -1
    position: str = ""
    size: int = 0
    watermark: int | None = None
    lag: int | None = None


@dataclass(frozen=True)
class SourceFacts:
    """`splits`: some of them; `split_count`: of those not read to their end; `lag`: records or bytes not read, None: not known."""

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
    """`committing`: what is being committed now, in words; empty: nothing."""

    sources: Sequence[SourceFacts] = ()
    sinks: Sequence[SinkFacts] = ()
    pending_commits: int = 0
    uncommitted_checkpoints: int = 0
    committing: str = ""


@dataclass(frozen=True)
class StateName:
    """A state of an operator in a checkpoint. `operator_bytes`: of all keyed state of the operator. `queryable`: the name it has for
    those outside, if any."""

    uid: str
    operator: str
    name: str
    kind: str
    operator_bytes: int = 0
    queryable: str = ""


@dataclass(frozen=True)
class StateEntries:
    """What a look into a state found; `entries`: columns by name, as JSON has them. `attempt`: whose task answered, with `checkpoint_id`
    0; 0: it is from a checkpoint."""

    checkpoint_id: int
    timestamp: int
    entries: Sequence[Mapping[str, object]] = ()
    is_truncated: bool = False
    """There are more."""
    attempt: int = 0


@dataclass(frozen=True)
class Job:
    """A job, running or ended. Lists of history have the oldest entry first."""

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
    """In words: what ends the attempt, and how far that has come; empty: nothing does."""
    start_step: str = ""
    """What it is doing, while it is not RUNNING yet."""
    timestamps: Mapping[str, int] = field(default_factory=dict)
    """State -> when the job last came into it."""
    vertices: Sequence[Vertex] = ()
    progress: Progress = field(default_factory=Progress)
    restart_strategy: str = ""
    configuration: Mapping[str, str] = field(default_factory=dict)
    failures: Sequence[Failure] = ()
    rescales: Sequence[Rescale] = ()
    """The last of them."""
    rescale_count: int = 0
    events: Sequence[Event] = ()
    accumulators: Sequence[Accumulator] = ()
    states: Sequence[StateChange] = ()
    bounded: bool = False
    end_of_input: bool = False
    """It has FINISHED because all of its input was read."""


@dataclass(frozen=True)
class CheckpointSettings:
    """`interval_ms` 0 = no periodic checkpoints. `externalized`: checkpoints may outlive the job."""

    interval_ms: int = 0
    timeout_ms: int = 600_000
    min_pause_ms: int = 0
    tolerable_failures: int = 0
    retained: int = 1
    externalized: bool = True
    delete_on_cancellation: bool = False
    state_backend: str = "hashmap"
    storage: str = ""


@dataclass(frozen=True)
class LogFile:
    """A log or what was printed, as far as it is kept: bytes, ms."""

    name: str
    size: int
    modified_at: int


OperationKind = Literal["savepoint", "checkpoint", "stop", "rescale", "dispose"]


@dataclass(frozen=True)
class Operation:
    """A long action that was asked for. `failure` empty = it succeeded, once it is done."""

    id: str
    kind: OperationKind
    job_id: str = ""
    is_done: bool = False
    location: str = ""
    checkpoint_id: int | None = None
    failure: str = ""
    failure_class: str = ""
