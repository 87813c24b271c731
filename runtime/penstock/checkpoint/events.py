"""Messages between the CheckpointCoordinator, the JobMaster and the subtasks. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest, OperatorInfo
    from penstock.common.errors import PenstockError

SubtaskKey = tuple[str, int]
"""(uid, subtask)."""


@dataclass(frozen=True)
class SnapshotRequest:
    """A request to take snapshot `checkpoint_id` after the last record of the next epoch.

    `is_savepoint`: a savepoint was requested. `is_final`: the job stops after it. If `drain` is set, the final
    watermark is sent first, so that windows and timers fire.
    """

    checkpoint_id: int
    timestamp: int
    """Time of the trigger in ms of the coordinator's monotonic clock."""
    is_savepoint: bool = False
    is_final: bool = False
    drain: bool = False
    wall_offset_ms: int = 0
    """Offset from the coordinator's clock to times since the epoch, for people and manifests."""


class Ack(Protocol):
    """The part of a subtask's answer that the coordinator reads: `SubtaskAck`, or the engine's message of the same shape."""

    @property
    def checkpoint_id(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def subtask(self) -> int: ...
    @property
    def keyed(self) -> dict[str, Any] | None: ...
    @property
    def operator(self) -> dict[str, Any]: ...
    @property
    def committables(self) -> list[Any]: ...
    @property
    def bytes_uploaded(self) -> int: ...
    @property
    def sync_ms(self) -> float: ...
    @property
    def async_ms(self) -> float: ...
    @property
    def error(self) -> str: ...
    @property
    def error_code(self) -> str: ...


class SubtaskAck(msgspec.Struct, frozen=True):
    """The answer of one operator in one subtask. Without an `error`, its part of the snapshot is durable. `error_code`
    is stable.

    `keyed`: the handle of `SnapshotUpload.run`, None without keyed state. `operator`:
    `OperatorStateBackend.snapshot()`. An answer with an error also has `committables`, because pre-committed output
    must not be lost. Durations in ms.
    """

    checkpoint_id: int
    uid: str
    subtask: int
    keyed: dict[str, Any] | None = None
    operator: dict[str, Any] = {}
    committables: list[Any] = []
    bytes_uploaded: int = 0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    error: str = ""
    error_code: str = ""


@dataclass(frozen=True)
class CheckpointCompleted:
    """The manifest is durable and this JobManager leads. Commit, call `on_committed`, and notify the subtasks.

    `commits`: by uid of the sink, all committables up to this checkpoint that were not handed out before, oldest first.
    """

    checkpoint_id: int
    manifest: Manifest
    commits: dict[str, list[Any]]
    is_savepoint: bool = False
    is_final: bool = False
    requests: tuple[str, ...] = ()
    """Ids of the `trigger_checkpoint` requests that this checkpoint answers."""


@dataclass(frozen=True)
class CheckpointAborted:
    """An abandoned checkpoint. Notify the subtasks (`notify_checkpoint_aborted`): the next snapshot must include the
    content of the abandoned one.

    `checkpoint_id` is 0 if the attempt ended before the `requests` were served, so no subtask needs a notification.
    """

    checkpoint_id: int
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavepointCompleted:
    """A savepoint that can be used. `url` is its folder."""

    request_id: str
    checkpoint_id: int
    url: str
    is_final: bool = False


@dataclass(frozen=True)
class SavepointFailed:
    """A failed savepoint. The job continues as without the request, even if the request was to stop the job after the
    savepoint.
    """

    request_id: str
    error: PenstockError
    is_final: bool = False


@dataclass(frozen=True)
class JobMustFail:
    """The job must fail: too many consecutive checkpoints failed, or this JobManager was fenced (`error` is `Fenced`)."""

    error: PenstockError


Event = CheckpointCompleted | CheckpointAborted | SavepointCompleted | SavepointFailed | JobMustFail


@dataclass(frozen=True)
class SavepointStatus:
    """The status that REST polls: IN_PROGRESS, COMPLETED or FAILED."""

    request_id: str
    status: str
    location: str | None = None
    failure: str | None = None
    target_directory: str = ""
    is_final: bool = False


@dataclass
class SavepointRequest:
    """A requested savepoint without an answer yet. The thread that copies reads `is_cancelled`."""

    request_id: str
    target_directory: str
    is_final: bool = False
    drain: bool = False
    is_cancelled: bool = False


@dataclass(frozen=True)
class JobDescription:
    """The coordinator's view of the running graph. `operators`: every operator whose subtasks answer.

    `vertices`: uid -> id of the vertex (chain) in which it runs, for the statistics. An operator that is not in the map
    is a vertex by itself.
    """

    job_id: str
    job_name: str
    parallelism: int
    max_parallelism: int
    graph_fingerprint: str
    operators: list[OperatorInfo]
    vertices: dict[str, str] = field(default_factory=dict)
    plans: dict[str, Any] = field(default_factory=dict)
    """See `Manifest.plans`."""

    def subtasks(self) -> frozenset[SubtaskKey]:
        """Return all subtasks that must answer a snapshot request."""
        return frozenset((info.uid, subtask) for info in self.operators for subtask in range(info.parallelism))
