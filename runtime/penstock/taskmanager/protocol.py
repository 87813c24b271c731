"""The messages between the JobMaster and the tasks: commands down, acks up, once per epoch and slot.

msgspec encodes the messages as msgpack. In the batched runner, the command of a slot is the input of its task on level
0. The command and the acks travel with the rows to the deeper levels, and the acks leave at the last level. In the
pipelined runner, acks and all commands after the first command use the control channel.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.common.logs.redaction import hide_own
from penstock.state.encoding.tagged import plain_scalar, type_name
from penstock.taskmanager.hardware import Hardware


class SplitAssignment(msgspec.Struct):
    """A split for a source subtask, with its start position."""

    id: str
    properties: dict[str, Any]
    size: int = 0
    position: Any = None
    watermark: int | None = None
    generator: Any = None
    files: list[dict[str, Any]] = []
    root: str = ""


class SubtaskRestore(msgspec.Struct):
    """The state that one operator of one subtask restores. `RestoreCommand.root` resolves the paths in `keyed`."""

    keyed: list[dict[str, Any]] = []
    operator: list[dict[str, Any]] = []
    meaning: dict[str, Any] = {}
    """Meaning of the state for the operator that wrote it (`penstock.graph.state_meaning`); empty if the snapshot does
    not have it.
    """


class RestoreCommand(msgspec.Struct):
    root: str
    """URL of the folder that the file paths of the handles are relative to; empty means to start without state."""
    subtasks: dict[str, SubtaskRestore] = {}
    """State by uid, for the subtask of this slot."""
    is_foreign: bool = False
    """The files belong to a savepoint or another job, so later checkpoints must not refer to them."""


class SnapshotCommand(msgspec.Struct):
    checkpoint_id: int
    root: str
    """URL of the job's checkpoint folder. Shared files are written there."""
    synchronous: bool = False
    """Wait for the uploads within this epoch (the last epoch of a job, or the savepoint that stops the job)."""


class EpochCommand(msgspec.Struct):
    attempt: int
    epoch: int
    is_first: bool = False
    """First epoch of the attempt: the task builds and restores the subtasks."""
    restore: RestoreCommand | None = None
    assignments: dict[str, list[SplitAssignment]] = {}
    """New splits by source uid, for the subtask of this slot."""
    aligned: dict[str, int] = {}
    """Source uid -> watermark (ms) after which a split waits for the other sources of its group."""
    ended: list[str] = []
    """Uids of sources whose subtasks end when they have no split left. A source that never ends is not in the list, even if its
    enumerator finds no more splits. A subtask of such a source is idle without splits."""
    max_ms: int = 100
    """How long sources read before they end the epoch. 0 means that they do not read, and the epoch is only a barrier."""
    max_records: int = 0
    """Maximum records per source subtask; 0 means no limit."""
    max_bytes: int = 0
    """Approximate maximum bytes of records in memory per source subtask; 0 means no limit."""
    snapshot: SnapshotCommand | None = None
    completed: list[int] = []
    aborted: list[int] = []
    committed: list[int] = []
    """Checkpoints that the JobManager has committed since the last command."""
    drain: bool = False
    """Stop reading and send the final watermark (stop --drain)."""
    finish: bool = False
    """All sources are done: flush and finish the operators (after the final watermark)."""
    aligns: bool = True
    """Pipelined runner: rows behind the barrier wait until all barriers have arrived.

    False means that these rows are processed immediately (at least once).
    """
    terminate: bool = False
    """Pipelined runner: the tasks end after this epoch."""
    only_notifies: bool = False
    """The command only delivers `completed`, `aborted` and `committed`, after the last snapshot of a job."""
    emits_watermarks: bool = False
    """The epoch ends with periodic watermarks, as if the auto-watermark interval had passed (tests on a manual clock)."""
    processing_time: int | None = None
    """Time of a manual clock (tests), or None for the machine's clock."""


class SourceProgress(msgspec.Struct, gc=False):
    positions: dict[str, Any] = {}
    watermarks: dict[str, int | None] = {}
    generators: dict[str, Any] = {}
    finished: list[str] = []
    lag: int | None = None
    lags: dict[str, int] = {}
    """Lags of the splits whose lag has changed."""
    exhausted: bool = False
    """All splits of this subtask were read to the end."""
    watermark: int | None = None
    """Watermark of the subtask in ms; None if the subtask is idle or has read everything."""
    next_record_at: int | None = None


class KeyCounts(msgspec.Struct, gc=False):
    """The most frequent keys and key groups that one sender has sent through an exchange, estimated from a sample."""

    total: int
    """Number of records that the sample stands for."""
    keys: list[tuple[str, int, int]] = []
    """Text of the key, its key group, and its records."""
    groups: list[tuple[int, int]] = []
    """Key group and its records."""


class VertexMetrics(msgspec.Struct, gc=False):
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    blocked_ms: float = 0.0
    """Time that the task waited for the next level to accept output."""
    idle_ms: float = 0.0
    """The remaining time since the last ack."""
    watermark: int | None = None
    user: dict[str, Any] = {}
    accumulators: dict[str, list[Any]] = {}
    """Name -> [kind, parts in the encoding of state]: the totals of the subtask."""
    queryable: dict[str, list[str]] = {}
    """Names of queryable states -> uid and state, only for new names."""
    keys: dict[int, KeyCounts] = {}
    """Frequent keys since the last report, by exchange."""


class SnapshotAck(msgspec.Struct, gc=False):
    """The answer of one subtask's operator for one checkpoint. The checkpoint fails if `error` is set."""

    checkpoint_id: int
    uid: str
    subtask: int
    keyed: dict[str, Any] | None = None
    operator: dict[str, Any] = {}
    committables: list[Any] = []
    sync_ms: float = 0.0
    async_ms: float = 0.0
    bytes_uploaded: int = 0
    state_bytes: int = 0
    error: str = ""
    error_code: str = ""
    """Code of a `PenstockError`."""


STEP_TIMEOUT = "StepTimeout"
"""Kind of the failure of a task that has exceeded the time limit of a step and cannot return."""


class TaskFailure(msgspec.Struct):
    kind: str
    """Class name of the error."""
    message: str
    traceback: str
    uid: str = ""
    name: str = ""
    location: str = ""
    recoverable: bool = True
    code: str = ""
    """Code of a `PenstockError`, or `USER_CODE` for any other exception."""
    detail: str = ""
    """Message of a `PenstockError` without code, operator and remedy."""
    remedy: str = ""
    recurs: bool = False
    """Another attempt would fail too, for example a failed import."""


class Whereabouts(msgspec.Struct):
    """The place of a task that has not returned for a while (see `taskmanager.watching.watchdog`)."""

    step: str
    seconds: float
    """Time in the step so far."""
    operator: str = ""
    location: str = ""
    """`file:line` at which the user's program created the operator."""
    line: str = ""
    """`file:line in function` of the innermost line of user code."""
    stack: str = ""
    """Stack in the form of a traceback, from the first frame of user code."""


class LevelAck(msgspec.Struct, gc=False):
    slot: int
    level: int
    attempt: int
    epoch: int
    sources: dict[str, SourceProgress] = {}
    vertices: dict[int, VertexMetrics] = {}
    snapshots: list[SnapshotAck] = []
    next_processing_timer: int | None = None
    results: dict[str, list[bytes]] = {}
    lines: list[str] = []
    failure: TaskFailure | None = None
    is_brief: bool = False
    """Sent before the end of the epoch. Only `failure`, `where`, `snapshots` and `waits` are valid."""
    waits: bool = False
    """The sources have read all that they may read before the next epoch."""
    has_remaining_work: bool = False
    """Operators of batch mode have work left that follows the end of their input."""
    holds_records: bool = False
    """Operators have records without results, such as running requests."""
    where: Whereabouts | None = None
    pid: int = 0
    rss_bytes: int = 0
    cpu_seconds: float = 0.0
    """CPU time of the process so far."""
    host: str = ""
    hardware: Hardware | None = None
    """Hardware of the host."""

    @property
    def is_news(self) -> bool:
        """Return whether the ack only has news between two epochs: answers to snapshots, or that the task waits."""
        return self.is_brief and self.failure is None and self.where is None


def _plain(value: Any) -> Any:
    """Return numpy's numbers as plain numbers. User metrics and reader positions may contain them."""
    plain = plain_scalar(value)
    if plain is value:
        raise TypeError(f"a {type_name(type(value))} cannot be sent to the JobManager: {value!r}")
    return plain


encode_command = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(EpochCommand).decode
_encode_ack = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode_ack = msgspec.msgpack.Decoder(LevelAck).decode


def encode_ack(ack: LevelAck) -> bytes:
    """Encode an ack. Secrets of this process's environment are removed from the texts of errors.

    Raises:
        TypeError: a value in the ack has a type that cannot be sent.
    """
    if ack.failure is not None or ack.where is not None or any(snapshot.error for snapshot in ack.snapshots):
        _hide_secrets(ack)
    try:
        return _encode_ack(ack)
    except TypeError as error:
        raise TypeError(hide_own(str(error))) from None


def _hide_secrets(ack: LevelAck) -> None:
    failure, where = ack.failure, ack.where
    if failure is not None:
        failure.message, failure.traceback = hide_own(failure.message), hide_own(failure.traceback)
        failure.detail, failure.remedy = hide_own(failure.detail), hide_own(failure.remedy)
    if where is not None:
        where.line, where.stack = hide_own(where.line), hide_own(where.stack)
    for snapshot in ack.snapshots:
        snapshot.error = hide_own(snapshot.error) if snapshot.error else ""
