"""The autoscaler of a job: its newest decision, and earlier decisions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from penstock.rest.models.base import Camel


class HotKey(Camel):
    """Key with more records than an even share of a subtask. `key` is null if all keys of the key group together have the share."""

    vertex: str
    name: str
    key: str | None
    key_group: int
    subtask: int
    share: float


class AutoscalerDecision(Camel):
    """Decision. Consecutive equal decisions are one entry, with the measurements of the last decision.

    `timestamp` is the time of the last decision, and `since` is the time of the first decision, in ms.
    """

    timestamp: int
    since: int
    count: int
    current: int
    wanted: int
    next: int
    """Parallelism to request now. It is lower than `wanted` if slots are missing."""
    rescales: bool
    """Whether the decision is to rescale the job now. An active autoscaler then requests the rescale."""
    reason: str
    message: str
    slots_available: int
    inputs: list[dict[str, Any]]
    gain: dict[str, Any] | None = None
    cost: dict[str, Any] | None = None
    hot_key: HotKey | None = None
    failure: str = ""


class PartAdvice(Camel):
    """Advice for a part of a slot's memory. Sizes in bytes. null means no limit, or unknown."""

    advice: str
    """`ENOUGH`, `MORE`, `LESS` or `UNKNOWN`."""
    message: str
    size: int | None
    used: int | None
    recommended: int | None


class MemoryAdvice(Camel):
    """Advice on the memory of TaskManagers. `process_size`: `taskmanager.memory.process.size`. `rocksdb` is null for other backends."""

    python: PartAdvice
    rocksdb: PartAdvice | None = None
    process_size: int | None = None
    recommended_process_size: int | None = None


class AutoscalerConfiguration(Camel):
    """`PUT /jobs/:id/autoscaler/configuration`: all keys of the autoscaler. A key that is missing has its default."""

    configuration: dict[str, str | bool | int | float] = Field(max_length=100)
    configuration_id: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,64}$")
    """Id of these keys. `GET /jobs/:id/autoscaler` returns it as long as the keys are in effect."""


class AutoscalerStatus(Camel):
    """`GET /jobs/:id/autoscaler`"""

    mode: str
    """`active`, `recommend` or `disabled`."""
    configuration: dict[str, str] = {}
    """The configuration keys of the autoscaler that are set. Other keys have their defaults."""
    configuration_id: str = ""
    """Id that a client gave to these keys. It is empty if they are those of the job's configuration."""
    current: int
    requested: int
    """Parallelism that the last rescale requested. It is higher than `current` while slots are missing."""
    wanted: int
    """Parallelism that the load needs. The manager of the workers provides this number of slots."""
    slots_available: int
    """Slots that the job has, and free slots that it could use now."""
    min_parallelism: int
    max_parallelism: int
    reason: str
    message: str
    hot_key: HotKey | None = None
    memory: MemoryAdvice | None = None
    decisions: list[AutoscalerDecision]
    """The newest first."""
