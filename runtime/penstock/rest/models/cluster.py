"""The cluster: overview, configuration, TaskManagers."""

from __future__ import annotations

from pydantic import Field

from penstock.rest.models.base import Camel, Dashed, Shape


class ClusterOverview(Dashed):
    """`GET /overview`"""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class Features(Dashed):
    web_submit: bool = False
    web_cancel: bool = True
    web_rescale: bool = True
    web_history: bool = False


class DashboardConfiguration(Dashed):
    """`GET /config`. `timezone_offset` and `refresh_interval` are ms."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features = Field(default_factory=Features)


class ConfigurationEntry(Shape):
    """Entry of the list that `GET /jobmanager/config` returns."""

    key: str
    value: str


class JvmInfo(Shape):
    """Version and options of the JVM. Penstock returns the version of the Python interpreter."""

    version: str
    arch: str
    options: list[str] = []


class EnvironmentInfo(Shape):
    """`GET /jobmanager/environment`"""

    jvm: JvmInfo
    classpath: list[str] = []


class ResourceProfile(Camel):
    """Cores, and memory in MB. `task_heap_memory`: memory of the JVMs. `managed_memory`: memory of RocksDB."""

    cpu_cores: float = 0.0
    task_heap_memory: int = 0
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(Camel):
    """Hardware of the worker's machine, or the share of its container. Memory in bytes. `managed_memory`: RocksDB's memory, if it is
    limited.

    The values are zero until a job has run on the worker, because the tasks report them.
    """

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int = 0


class TaskManager(Camel):
    """Entry of `GET /taskmanagers`: a worker with the slots of all jobs.

    `path`: address of its RPC. `data_port`: port of this address. `time_since_last_heartbeat`: in spite of its name, the time of the last
    heartbeat in ms.
    `memory_configuration`: parts of the container's memory (bytes), under Flink's names, and `python`.
    `memory_used`: resident memory of the Python processes (bytes). Flink does not have this field.
    """

    id: str
    path: str
    data_port: int
    jmx_port: int = -1
    time_since_last_heartbeat: int
    slots_number: int
    free_slots: int
    total_resource: ResourceProfile
    free_resource: ResourceProfile
    hardware: Hardware
    memory_configuration: dict[str, int] = {}
    memory_used: int = 0


class AllocatedSlot(Camel):
    job_id: str
    resource: ResourceProfile = Field(default_factory=ResourceProfile)


class TaskManagerMetrics(Camel):
    """Metrics of a TaskManager. `heap_used`: resident memory of the Python workers in bytes. Values that only a JVM has are zero."""

    heap_used: int = 0
    heap_committed: int = 0
    heap_max: int = 0
    non_heap_used: int = 0
    non_heap_committed: int = 0
    non_heap_max: int = 0
    direct_count: int = 0
    direct_used: int = 0
    direct_max: int = 0
    mapped_count: int = 0
    mapped_used: int = 0
    mapped_max: int = 0
    garbage_collectors: list[dict[str, str | int]] = []


class TaskManagerDetails(TaskManager):
    """`GET /taskmanagers/:id`"""

    allocated_slots: list[AllocatedSlot] = []
    metrics: TaskManagerMetrics = Field(default_factory=TaskManagerMetrics)


class TaskManagers(Shape):
    """`GET /taskmanagers`"""

    taskmanagers: list[TaskManager]


class LogEntry(Shape):
    name: str
    size: int
    mtime: int


class LogList(Shape):
    """`GET /jobmanager/logs`, `/taskmanagers/:id/logs`"""

    logs: list[LogEntry]
