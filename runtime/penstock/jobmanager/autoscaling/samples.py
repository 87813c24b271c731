"""Measurements of a job at a moment, as the autoscaler records them. They are plain data, so that a decision can be replayed.

A sample covers the time since the previous sample of the same attempt. Rates are records per second, shares are from 0 to 1, and
times are in ms. `at_ms` is a time of the monotonic clock, so a change of the wall clock has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

BUSIEST = 4
"""Number of subtasks of a vertex that a sample names."""


@dataclass(frozen=True)
class KeyShare:
    """Share of a vertex's input that one key has, or all keys of a key group."""

    key: str | None
    """Text of the key. None means all keys of the key group together."""
    group: int
    subtask: int
    """Subtask that processes the key group."""
    share: float


@dataclass(frozen=True)
class VertexSample:
    """Measurements of a vertex. Shares are means of its subtasks."""

    id: str
    name: str
    level: int
    """Vertices of a level share the threads of their slots."""
    parallelism: int
    inputs: tuple[str, ...] = ()
    """Vertices that it reads from. Empty: it is a source."""
    rate_in: float = 0.0
    rate_out: float = 0.0
    busy: float = 0.0
    back_pressured: float = 0.0
    idle: float = 0.0
    busiest: tuple[tuple[int, float], ...] = ()
    """The busiest subtasks with their busy shares."""
    is_fixed: bool = False
    """Whether the program sets its parallelism, so that a rescale does not change it."""
    lag: float | None = None
    """Unread records of a source. None means that the source does not know them."""
    splits: int | None = None
    """Number of splits of a source that are not read to their end."""
    keys: tuple[KeyShare, ...] = ()
    """The largest shares, estimated from a sample of the records. Empty: the input has no keys, or too few records were sampled."""


@dataclass(frozen=True)
class MemorySample:
    """Memory of the slot that uses the most, and reads of RocksDB's cache by all subtasks since the start of the attempt."""

    python: int = 0
    """Resident bytes of the Python processes of the slot."""
    state: int = 0
    """Bytes of keyed state of the slot in the newest checkpoint."""
    cache_hits: int | None = None
    """None means that they are not counted."""
    cache_misses: int | None = None


@dataclass(frozen=True)
class Sample:
    """Measurements of a job."""

    at_ms: int
    time_ms: int
    """Wall-clock time, only for people."""
    interval_ms: int
    """Time that the rates cover."""
    attempt: int
    parallelism: int
    requested: int
    """Parallelism that was last requested. The job can have less if slots are missing."""
    max_parallelism: int
    """Number of key groups."""
    slots: int
    """Slots that the job has or could have now."""
    status: str = "RUNNING"
    levels_take_turns: bool = False
    """Whether the levels of a slot run one after the other (batched runner)."""
    vertices: tuple[VertexSample, ...] = ()
    memory: MemorySample | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Sample:
        """Create a sample from JSON values.

        Raises:
            KeyError, TypeError, ValueError: the values are not a sample.
        """
        vertices = tuple(
            VertexSample(
                **{
                    **vertex,
                    "inputs": tuple(vertex["inputs"]),
                    "busiest": tuple((int(subtask), busy) for subtask, busy in vertex["busiest"]),
                    "keys": tuple(KeyShare(**share) for share in vertex.get("keys", ())),
                }
            )
            for vertex in values["vertices"]
        )
        memory = values.get("memory")
        return Sample(**{**values, "vertices": vertices, "memory": None if memory is None else MemorySample(**memory)})


@dataclass(frozen=True)
class PastRescale:
    """Completed rescale, with the records per second that each vertex could process before it and after it, by vertex id."""

    at_ms: int
    old: int
    new: int
    pause_ms: int
    trigger: str = "request"
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] | None = None
    """None means that the effect is not yet measured."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> PastRescale:
        """Create a rescale from JSON values.

        Raises:
            TypeError: the values are not a rescale.
        """
        return PastRescale(**values)
