"""What the JobMaster and the tasks say to each other: commands down, acks up, once per epoch and slot.

msgpack by msgspec. The command of a slot travels as the input of its task on level 0 and is handed on, with the rows, to
the deeper levels; acks travel down the same way and come out of the last level.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.state.encoding.tagged import plain_scalar, type_name
from penstock.taskmanager.hardware import Hardware


class SplitAssignment(msgspec.Struct):
    """A split given to a source subtask, with where to start."""

    id: str
    properties: dict[str, Any]
    size: int = 0
    position: Any = None
    watermark: int | None = None
    generator: Any = None
    files: list[dict[str, Any]] = []
    root: str = ""


class SubtaskRestore(msgspec.Struct):
    """What one operator of one subtask restores. Paths in `keyed` are resolved by `RestoreCommand.reader_root`."""

    keyed: list[dict[str, Any]] = []
    operator: list[dict[str, Any]] = []


class RestoreCommand(msgspec.Struct):
    root: str
    """URL under which the file paths of the handles are found; empty: start without state."""
    subtasks: dict[str, SubtaskRestore] = {}
    """By uid, for the subtask of this slot."""
    is_foreign: bool = False
    """The files belong to a savepoint or another job: no later checkpoint may refer to them."""


class SnapshotCommand(msgspec.Struct):
    checkpoint_id: int
    root: str
    """URL of the job's checkpoint folder: shared files are written under it."""
    synchronous: bool = False
    """Wait for the uploads within this epoch (the last one of a job, or a savepoint that stops it)."""


class EpochCommand(msgspec.Struct):
    attempt: int
    epoch: int
    is_first: bool = False
    """First epoch of the attempt: build the subtasks, restore."""
    restore: RestoreCommand | None = None
    assignments: dict[str, list[SplitAssignment]] = {}
    """New splits by source uid, for the subtask of this slot."""
    aligned: dict[str, int] = {}
    """Source uid -> watermark (ms) past which a split waits for the other sources of its group."""
    finished_discovery: list[str] = []
    """Uids of sources whose enumerator will find nothing more."""
    max_ms: int = 100
    """How long sources read before they end the epoch; 0: do not read at all (a barrier for its own sake)."""
    max_records: int = 0
    """Upper bound per source subtask; 0 = none."""
    max_bytes: int = 0
    """The same in bytes, of records as they are in memory; about."""
    snapshot: SnapshotCommand | None = None
    completed: list[int] = []
    aborted: list[int] = []
    committed: list[int] = []
    """Checkpoints whose commits the JobManager has carried out since the last command."""
    drain: bool = False
    """Stop reading and send the final watermark (stop --drain)."""
    finish: bool = False
    """All sources are done: flush and finish the operators (after the final watermark)."""
    aligns: bool = True
    """Pipelined runner: what comes behind the barrier waits until it has come from everywhere; False: it is processed (at least once)."""
    terminate: bool = False
    """Pipelined runner: the tasks end after this epoch."""
    tells: bool = False
    """Behind the last snapshot of a job: `completed`, `aborted` and `committed` are told, and nothing else is done."""
    processing_time: int | None = None
    """A manual clock's time (tests); None: the machine's."""


class SourceProgress(msgspec.Struct, gc=False):
    positions: dict[str, Any] = {}
    watermarks: dict[str, int | None] = {}
    generators: dict[str, Any] = {}
    finished: list[str] = []
    lag: int | None = None
    lags: dict[str, int] = {}
    """Of single splits; those that have changed."""
    exhausted: bool = False
    """Every split this subtask has was read to its end."""
    watermark: int | None = None
    """Of the subtask, ms; None: idle, or nothing left."""
    next_record_at: int | None = None


class VertexMetrics(msgspec.Struct, gc=False):
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    blocked_ms: float = 0.0
    """Waited for those behind to take what was made."""
    idle_ms: float = 0.0
    """The rest of the time since the ack before."""
    watermark: int | None = None
    user: dict[str, Any] = {}
    accumulators: dict[str, list[Any]] = {}
    """Name -> [kind, parts as state encodes values]; those of the subtask so far."""
    queryable: dict[str, list[str]] = {}
    """Names that states are looked up by from outside -> uid and state; those that are new."""


class SnapshotAck(msgspec.Struct, gc=False):
    """Answer of one subtask's operator for one checkpoint; `error` set: the checkpoint fails."""

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
    """Of a `PenstockError`."""


STEP_TIMEOUT = "StepTimeout"
"""Kind of the failure of a task that has been in one step for too long: it will not come back."""


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
    """Of a `PenstockError`; `USER_CODE` for whatever else was raised."""
    detail: str = ""
    """Message of a `PenstockError` without code, operator and remedy."""
    remedy: str = ""
    comes_again: bool = False
    """Another attempt would meet it, too: an import that failed."""


class Whereabouts(msgspec.Struct):
    """Where a task is that has not come back for a while (see `taskmanager.watching.watchdog`)."""

    step: str
    seconds: float
    """In the step so far."""
    operator: str = ""
    location: str = ""
    """`file:line` where the user's program made the operator."""
    line: str = ""
    """`file:line in function` of the innermost line of the user's."""
    stack: str = ""
    """As in a traceback, from the user's first frame on."""


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
    """Sent before the end of the epoch: only `failure`, `where`, `snapshots` and `waits` mean something."""
    waits: bool = False
    """The sources have read what they may until the next epoch."""
    works_off: bool = False
    """Operators of batch mode have not done yet what they do when their input has ended."""
    holds_records: bool = False
    """Operators have records whose results are still to come (requests that are under way)."""
    where: Whereabouts | None = None
    pid: int = 0
    rss_bytes: int = 0
    cpu_seconds: float = 0.0
    """Of the process, so far."""
    host: str = ""
    hardware: Hardware | None = None
    """Of the host."""

    @property
    def is_news(self) -> bool:
        """It brings what matters between two epochs: answers to snapshots, or that the task waits."""
        return self.is_brief and self.failure is None and self.where is None


def _plain(value: Any) -> Any:
    """What users count and where their readers stand may be numpy's numbers."""
    plain = plain_scalar(value)
    if plain is value:
        raise TypeError(f"a {type_name(type(value))} cannot be sent to the JobManager: {value!r}")
    return plain


encode_command = msgspec.msgpack.Encoder().encode
decode_command = msgspec.msgpack.Decoder(EpochCommand).decode
encode_ack = msgspec.msgpack.Encoder(enc_hook=_plain).encode
decode_ack = msgspec.msgpack.Decoder(LevelAck).decode
