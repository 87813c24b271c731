"""Jobs: lists, details, plan, vertices, subtasks."""

from __future__ import annotations

from pydantic import Field

from penstock.rest.models.base import Camel, Dashed, Shape


class JobId(Shape):
    id: str
    status: str


class JobIds(Shape):
    """`GET /jobs`"""

    jobs: list[JobId]


class JobStatus(Shape):
    """`GET /jobs/:id/status`"""

    status: str


class JobSummary(Dashed):
    """Entry of `GET /jobs/overview`. `tasks`: number of subtasks by state in lower case, and `total`."""

    jid: str
    name: str
    state: str
    start_time: int
    end_time: int
    duration: int
    last_modification: int
    tasks: dict[str, int]


class JobsOverview(Shape):
    """`GET /jobs/overview`"""

    jobs: list[JobSummary]


class IoMetrics(Dashed):
    """Counters since the start of the attempt. Times in ms."""

    read_bytes: int = 0
    read_bytes_complete: bool = True
    write_bytes: int = 0
    write_bytes_complete: bool = True
    read_records: int = 0
    read_records_complete: bool = True
    write_records: int = 0
    write_records_complete: bool = True
    accumulated_backpressured_time: int = 0
    accumulated_idle_time: int = 0
    accumulated_busy_time: float = 0.0


class JobVertex(Dashed):
    """Vertex in `GET /jobs/:id`. `tasks`: number of subtasks by state."""

    id: str
    name: str
    max_parallelism: int = Field(validation_alias="maxParallelism", serialization_alias="maxParallelism")
    parallelism: int
    status: str
    start_time: int
    end_time: int
    duration: int
    tasks: dict[str, int]
    metrics: IoMetrics


class PlanInput(Shape):
    num: int
    id: str
    ship_strategy: str
    exchange: str = "pipelined_bounded"


class PlanOperator(Shape):
    uid: str
    name: str


class PlanNode(Shape):
    """Node of a plan. `operators` is an addition to Flink: the operators that are chained into the vertex, with the uids of their state."""

    id: str
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str
    inputs: list[PlanInput] = []
    optimizer_properties: dict[str, str] = {}
    operators: list[PlanOperator] = []


class Plan(Shape):
    jid: str
    name: str
    type: str = "STREAMING"
    nodes: list[PlanNode]


class JobPlan(Shape):
    """`GET /jobs/:id/plan`"""

    plan: Plan


class JobDetails(Dashed):
    """`GET /jobs/:id`. Two fields are additions to Flink.

    `start_step`: current step of a job that is not yet RUNNING; empty once it runs. `end_step`: cause and stage of the attempt's end
    (`stop: copying the savepoint`), or empty.
    """

    jid: str
    name: str
    is_stoppable: bool = Field(validation_alias="isStoppable", serialization_alias="isStoppable")
    state: str
    start_step: str = ""
    end_step: str = ""
    job_type: str
    start_time: int
    end_time: int
    duration: int
    max_parallelism: int = Field(validation_alias="maxParallelism", serialization_alias="maxParallelism")
    now: int
    timestamps: dict[str, int]
    vertices: list[JobVertex]
    status_counts: dict[str, int]
    plan: Plan


class ExecutionConfig(Dashed):
    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool = True
    user_config: dict[str, str]


class JobConfig(Dashed):
    """`GET /jobs/:id/config`"""

    jid: str
    name: str
    execution_config: ExecutionConfig


class SubtaskAttempt(Dashed):
    """Latest attempt of a subtask. The start time is under both of Flink's names."""

    subtask: int
    status: str
    attempt: int
    host: str
    endpoint: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    taskmanager_id: str
    start_time_again: int = Field(validation_alias="start_time", serialization_alias="start_time")


class VertexDetails(Camel):
    """`GET /jobs/:id/vertices/:vid`"""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    now: int
    subtasks: list[SubtaskAttempt]


class SubtaskTime(Shape):
    subtask: int
    host: str
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class SubtaskTimes(Shape):
    """`GET /jobs/:id/vertices/:vid/subtasktimes`"""

    id: str
    name: str
    now: int
    subtasks: list[SubtaskTime]


class VertexTaskManager(Dashed):
    host: str
    endpoint: str
    status: str
    start_time: int
    end_time: int
    duration: int
    metrics: IoMetrics
    status_counts: dict[str, int]
    taskmanager_id: str


class VertexTaskManagers(Shape):
    """`GET /jobs/:id/vertices/:vid/taskmanagers`"""

    id: str
    name: str
    now: int
    taskmanagers: list[VertexTaskManager]


class SubtaskBackPressure(Dashed):
    subtask: int
    attempt_number: int
    backpressure_level: str
    ratio: float
    idle_ratio: float = Field(validation_alias="idleRatio", serialization_alias="idleRatio")
    busy_ratio: float = Field(validation_alias="busyRatio", serialization_alias="busyRatio")


class BackPressure(Dashed):
    """`GET /jobs/:id/vertices/:vid/backpressure`"""

    status: str = "ok"
    backpressure_level: str
    end_timestamp: int
    subtasks: list[SubtaskBackPressure]
