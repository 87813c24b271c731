"""What goes between the CheckpointCoordinator and the JobMaster, and on to the subtasks. Plain data."""

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
    """Take snapshot `checkpoint_id` after the last record of the next epoch.

    `is_savepoint`: a savepoint was asked for. `is_final`: the job stops after it; with `drain` the final watermark is sent
    first, so that windows and timers fire.
    """

    checkpoint_id: int
    timestamp: int
    is_savepoint: bool = False
    is_final: bool = False
    drain: bool = False


class Ack(Protocol):
    """What the coordinator reads of a subtask's answer: `SubtaskAck`, or the engine's own message of the same shape."""

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
    """The answer of one operator in one subtask: its part of the snapshot is durable, or why not (`error`, and its
    stable code if it has one).

    `keyed`: the handle of `SnapshotUpload.run`, None without keyed state. `operator`: `OperatorStateBackend.snapshot()`.
    `committables` come with an error as well: what was pre-committed must not be forgotten. Durations in ms.
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
    """The manifest is durable and this JobManager leads: commit, then `on_committed`; notify the subtasks.

    `commits`: by uid of the sink, everything pre-committed up to this checkpoint and not handed out before, oldest first.
    """

    checkpoint_id: int
    manifest: Manifest
    commits: dict[str, list[Any]]
    is_savepoint: bool = False
    is_final: bool = False
    requests: tuple[str, ...] = ()
    """Ids of `trigger_checkpoint` requests that this answers."""


@dataclass(frozen=True)
class CheckpointAborted:
    """Tell the subtasks (`notify_checkpoint_aborted`): what this snapshot held must be in the next one.

    `checkpoint_id` 0: the attempt ended before the `requests` were served; there is nobody to tell.
    """

    checkpoint_id: int
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavepointCompleted:
    """The savepoint can be used; `url` is its folder."""

    request_id: str
    checkpoint_id: int
    url: str
    is_final: bool = False


@dataclass(frozen=True)
class SavepointFailed:
    """The job goes on as if it had not been asked for (also when it was to stop after it)."""

    request_id: str
    error: PenstockError
    is_final: bool = False


@dataclass(frozen=True)
class JobMustFail:
    """More checkpoints in a row failed than is tolerated, or this JobManager was fenced (`error` is `Fenced`)."""

    error: PenstockError


Event = CheckpointCompleted | CheckpointAborted | SavepointCompleted | SavepointFailed | JobMustFail


@dataclass(frozen=True)
class SavepointStatus:
    """For REST's polling: `status` is IN_PROGRESS, COMPLETED or FAILED."""

    request_id: str
    status: str
    location: str | None = None
    failure: str | None = None
    target_directory: str = ""
    is_final: bool = False


@dataclass
class SavepointRequest:
    """A savepoint that was asked for and not yet answered; `is_cancelled` is seen by the thread that copies."""

    request_id: str
    target_directory: str
    is_final: bool = False
    drain: bool = False
    is_cancelled: bool = False


@dataclass(frozen=True)
class JobDescription:
    """What the coordinator must know of the running graph. `operators`: every operator whose subtasks answer.

    `vertices`: uid -> id of the vertex (chain) it runs in, for the statistics; an operator not in it is its own vertex.
    """

    job_id: str
    job_name: str
    parallelism: int
    max_parallelism: int
    graph_fingerprint: str
    operators: list[OperatorInfo]
    vertices: dict[str, str] = field(default_factory=dict)

    def subtasks(self) -> frozenset[SubtaskKey]:
        """Everybody who must answer a snapshot request."""
        return frozenset((info.uid, subtask) for info in self.operators for subtask in range(info.parallelism))
