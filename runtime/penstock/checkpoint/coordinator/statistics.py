"""Checkpoint statistics in the shapes of Flink's REST API: `/jobs/:id/checkpoints`, `…/details/:n`, `…/subtasks/:vertex`.

Times are in ms since the epoch, durations in ms, sizes in bytes. The coordinator writes the statistics, and REST
threads read them.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.checkpoint.coordinator.triggers import TriggerState
from penstock.checkpoint.files.codec import handle_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.checkpoint.events import Ack, JobDescription, SnapshotRequest

_SUMMARIZED = 10_000
_REMEMBERED = 500
"""Number of ended checkpoints that are kept in short form."""
_QUANTILES = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


@dataclass
class SubtaskStatistics:
    """Statistics of one subtask of one vertex, with the sums of its chained operators."""

    index: int
    ack_timestamp: int = 0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    checkpointed_size: int = 0
    state_size: int = 0
    answers: int = 0


@dataclass
class VertexStatistics:
    """Statistics of one vertex, by subtask. `operators`: number of its operators that answer for each subtask."""

    id: str
    operators: int = 0
    subtasks: list[SubtaskStatistics] = field(default_factory=list)

    def acknowledged(self) -> list[SubtaskStatistics]:
        return [subtask for subtask in self.subtasks if subtask.answers >= self.operators]


class CheckpointRow(NamedTuple):
    """A checkpoint in a timeline. `slowest`: vertex and subtask that answered last."""

    id: int
    kind: str
    status: str
    trigger_timestamp: int
    end_timestamp: int
    checkpointed_size: int
    state_size: int
    slowest: tuple[str, int]
    failure_message: str
    path: str


@dataclass
class CheckpointStatistics:
    """An entry of the history: one checkpoint."""

    id: int
    trigger_timestamp: int
    is_savepoint: bool
    is_final: bool
    vertices: dict[str, VertexStatistics]
    status: str = "IN_PROGRESS"
    latest_ack_timestamp: int = 0
    end_timestamp: int = 0
    failure_message: str = ""
    external_path: str = ""
    discarded: bool = False
    wall_offset_ms: int = 0
    """Offset from the monotonic clock to times since the epoch, measured at the trigger. All times of the entry use the
    same offset, so a change of the machine's clock does not affect durations.
    """

    def subtasks(self) -> list[SubtaskStatistics]:
        return [subtask for vertex in self.vertices.values() for subtask in vertex.subtasks]

    @property
    def checkpointed_size(self) -> int:
        return sum(subtask.checkpointed_size for subtask in self.subtasks())

    @property
    def state_size(self) -> int:
        return sum(subtask.state_size for subtask in self.subtasks())

    @property
    def duration(self) -> int:
        return max(
            0, (self.end_timestamp or self.latest_ack_timestamp or self.trigger_timestamp) - self.trigger_timestamp
        )

    def as_rest(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "className": {"COMPLETED": "completed", "FAILED": "failed"}.get(self.status, "in_progress"),
            "id": self.id,
            "status": self.status,
            "is_savepoint": self.is_savepoint,
            "savepointFormat": "native" if self.is_savepoint else None,
            "trigger_timestamp": self.trigger_timestamp,
            "latest_ack_timestamp": self.latest_ack_timestamp,
            "checkpointed_size": self.checkpointed_size,
            "state_size": self.state_size,
            "end_to_end_duration": self.duration,
            "alignment_buffered": 0,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": len(self.subtasks()),
            "num_acknowledged_subtasks": sum(len(vertex.acknowledged()) for vertex in self.vertices.values()),
            "checkpoint_type": self._type(),
            "tasks": {},
        }
        if self.status == "COMPLETED":
            result |= {"external_path": self.external_path, "discarded": self.discarded}
        if self.status == "FAILED":
            result |= {"failure_timestamp": self.end_timestamp, "failure_message": self.failure_message}
        return result

    def summary_row(self) -> CheckpointRow:
        slowest = ("", -1)
        latest = 0
        for vertex in self.vertices.values():
            for subtask in vertex.subtasks:
                if subtask.ack_timestamp > latest:
                    latest, slowest = subtask.ack_timestamp, (vertex.id, subtask.index)
        return CheckpointRow(
            self.id,
            self._type(),
            self.status,
            self.trigger_timestamp,
            self.end_timestamp,
            self.checkpointed_size,
            self.state_size,
            slowest,
            self.failure_message,
            self.external_path,
        )

    def _type(self) -> str:
        if not self.is_savepoint:
            return "CHECKPOINT"
        return "SYNC_SAVEPOINT" if self.is_final else "SAVEPOINT"


class CheckpointHistory:
    """All checkpoints of a job since this JobManager started. Thread-safe."""

    def __init__(self, size: int = 10) -> None:
        self._lock = threading.Lock()
        self._size = size
        self._entries: dict[int, CheckpointStatistics] = {}
        self._counts = {"restored": 0, "total": 0, "in_progress": 0, "completed": 0, "failed": 0}
        self._past: deque[CheckpointRow] = deque(maxlen=_REMEMBERED)
        self._latest: dict[str, CheckpointStatistics | None] = {"completed": None, "savepoint": None, "failed": None}
        self._restored: dict[str, Any] | None = None
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=_SUMMARIZED)
        self._trigger = (TriggerState.NO_ATTEMPT, 0)
        self._commits_left = (0, 0)
        self.wall_offset_ms: Callable[[], int] = lambda: 0
        """Offset in ms from the monotonic clock of incoming times to times since the epoch."""

    def triggered(self, request: SnapshotRequest, job: JobDescription) -> None:
        vertices: dict[str, VertexStatistics] = {}
        for info in job.operators:
            id = job.vertices.get(info.uid, info.uid)
            vertex = vertices.setdefault(id, VertexStatistics(id))
            vertex.operators += 1
            for index in range(len(vertex.subtasks), info.parallelism):
                vertex.subtasks.append(SubtaskStatistics(index))
        entry = CheckpointStatistics(
            request.checkpoint_id,
            request.timestamp + request.wall_offset_ms,
            request.is_savepoint,
            request.is_final,
            vertices,
            wall_offset_ms=request.wall_offset_ms,
        )
        with self._lock:
            self._entries[entry.id] = entry
            self._counts["total"] += 1
            self._counts["in_progress"] += 1
            self._forget()

    def acknowledged(self, ack: Ack, job: JobDescription, now: int) -> None:
        with self._lock:
            entry = self._entries.get(ack.checkpoint_id)
            if entry is None:
                return
            subtask = entry.vertices[job.vertices.get(ack.uid, ack.uid)].subtasks[ack.subtask]
            subtask.answers += 1
            subtask.ack_timestamp = entry.latest_ack_timestamp = now + entry.wall_offset_ms
            subtask.sync_ms += ack.sync_ms
            subtask.async_ms += ack.async_ms
            subtask.checkpointed_size += ack.bytes_uploaded
            subtask.state_size += sum(file.size for file in handle_files(ack.keyed or {}))

    def completed(self, checkpoint_id: int, now: int, path: str) -> None:
        """Record that a checkpoint is complete, or that a savepoint has been copied completely. `path`: its folder."""
        with self._lock:
            entry = self._end(checkpoint_id, "COMPLETED", now)
            if entry is None:
                return
            entry.external_path = path
            self._latest["savepoint" if entry.is_savepoint else "completed"] = entry
            self._samples.append((entry.checkpointed_size, entry.state_size, entry.duration))
            self._past.append(entry.summary_row())

    def failed(self, checkpoint_id: int, now: int, message: str) -> None:
        with self._lock:
            entry = self._end(checkpoint_id, "FAILED", now)
            if entry is not None:
                entry.failure_message = message
                self._past.append(entry.summary_row())
                self._latest["failed"] = entry

    def discarded(self, checkpoint_id: int) -> None:
        with self._lock:
            for entry in (self._entries.get(checkpoint_id), self._latest["completed"]):
                if entry is not None and entry.id == checkpoint_id and not entry.is_savepoint:
                    entry.discarded = True

    def restored(self, checkpoint_id: int, now: int, path: str, *, is_savepoint: bool) -> None:
        with self._lock:
            self._counts["restored"] += 1
            self._restored = {
                "id": checkpoint_id,
                "restore_timestamp": now + self.wall_offset_ms(),
                "is_savepoint": is_savepoint,
                "external_path": path,
            }

    def set_trigger_state(self, state: TriggerState, now: int) -> bool:
        """Record why the next checkpoint is, or is not, triggered. Return whether the reason has changed."""
        with self._lock:
            is_new = state is not self._trigger[0]
            if is_new:
                self._trigger = (state, now + self.wall_offset_ms())
            return is_new

    def commits_left(self, checkpoints: int, committables: int) -> None:
        """Record the number of complete checkpoints with unconfirmed commits, and the number of unconfirmed
        committables.
        """
        with self._lock:
            self._commits_left = (checkpoints, committables)

    def _trigger_statistics(self) -> dict[str, Any]:
        (state, since), (checkpoints, committables) = self._trigger, self._commits_left
        return {
            "state": state.name,
            "description": state.value,
            "since": since,
            "uncommitted_checkpoints": checkpoints,
            "pending_commits": committables,
        }

    def overview(self) -> dict[str, Any]:
        """Return `GET /jobs/:id/checkpoints`."""
        with self._lock:
            latest = {name: entry.as_rest() if entry else None for name, entry in self._latest.items()}
            return {
                "counts": dict(self._counts),
                "summary": self._summary(),
                "latest": {**latest, "restored": self._restored},
                "trigger": self._trigger_statistics(),
                "history": [entry.as_rest() for entry in sorted(self._entries.values(), key=lambda e: -e.id)],
            }

    def newest(self) -> CheckpointStatistics | None:
        """Return the newest complete checkpoint that is not a savepoint. This is faster than `overview`, which sums up
        thousands of entries.
        """
        with self._lock:
            return self._latest["completed"]

    def past(self) -> list[CheckpointRow]:
        """Return the ended checkpoints in short form, oldest first, then the checkpoints in progress. The history has
        fewer checkpoints.
        """
        with self._lock:
            running = [entry.summary_row() for entry in self._entries.values() if entry.status == "IN_PROGRESS"]
            return [*self._past, *running]

    def details(self, checkpoint_id: int) -> dict[str, Any] | None:
        """Return `GET /jobs/:id/checkpoints/details/:n`; None if the checkpoint is unknown or was dropped from the history."""
        with self._lock:
            entry = self._known(checkpoint_id)
            if entry is None:
                return None
            return entry.as_rest() | {"tasks": {id: _vertex(entry, vertex) for id, vertex in entry.vertices.items()}}

    def subtask_details(self, checkpoint_id: int, vertex_id: str) -> dict[str, Any] | None:
        """Return `GET /jobs/:id/checkpoints/details/:n/subtasks/:vertex`."""
        with self._lock:
            entry = self._known(checkpoint_id)
            vertex = entry.vertices.get(vertex_id) if entry else None
            if entry is None or vertex is None:
                return None
            done = vertex.acknowledged()
            return _vertex(entry, vertex) | {
                "summary": {
                    "checkpointed_size": summarize([s.checkpointed_size for s in done]),
                    "state_size": summarize([s.state_size for s in done]),
                    "end_to_end_duration": summarize([s.ack_timestamp - entry.trigger_timestamp for s in done]),
                    "checkpoint_duration": {
                        "sync": summarize([round(s.sync_ms) for s in done]),
                        "async": summarize([round(s.async_ms) for s in done]),
                    },
                    "alignment": {"buffered": summarize([]), "processed": summarize([]), "duration": summarize([])},
                    "start_delay": summarize([]),
                },
                "subtasks": [_subtask(entry, vertex, subtask) for subtask in vertex.subtasks],
            }

    def _known(self, checkpoint_id: int) -> CheckpointStatistics | None:
        found = self._entries.get(checkpoint_id)
        if found is not None:
            return found
        return next((entry for entry in self._latest.values() if entry and entry.id == checkpoint_id), None)

    def _end(self, checkpoint_id: int, status: str, now: int) -> CheckpointStatistics | None:
        entry = self._entries.get(checkpoint_id)
        if entry is None or entry.status != "IN_PROGRESS":
            return None
        entry.status = status
        entry.end_timestamp = now + entry.wall_offset_ms
        self._counts["in_progress"] -= 1
        self._counts["completed" if status == "COMPLETED" else "failed"] += 1
        return entry

    def _forget(self) -> None:
        ended = [id for id, entry in sorted(self._entries.items()) if entry.status != "IN_PROGRESS"]
        for id in ended[: max(0, len(self._entries) - self._size)]:
            del self._entries[id]

    def _summary(self) -> dict[str, Any]:
        sizes, states, durations = zip(*self._samples, strict=True) if self._samples else ((), (), ())
        return {
            "checkpointed_size": summarize(sizes),
            "state_size": summarize(states),
            "end_to_end_duration": summarize(durations),
            "alignment_buffered": summarize([]),
            "processed_data": summarize([]),
            "persisted_data": summarize([]),
        }


def summarize(values: Iterable[int]) -> dict[str, float]:
    """Return minimum, maximum, mean and quantiles (linear between ranks). Without values, all are zero.

    >>> summarize([10, 20, 30])["p50"], summarize([10, 20])["avg"], summarize([])["max"]
    (20.0, 15, 0)
    """
    ordered = sorted(values)
    if not ordered:
        return {"min": 0, "max": 0, "avg": 0, **{name: 0.0 for name, _ in _QUANTILES}}
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": sum(ordered) // len(ordered),
        **{name: _quantile(ordered, quantile) for name, quantile in _QUANTILES},
    }


def _quantile(ordered: Sequence[int], quantile: float) -> float:
    place = quantile * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 3)


def _vertex(entry: CheckpointStatistics, vertex: VertexStatistics) -> dict[str, Any]:
    done = vertex.acknowledged()
    latest = max((subtask.ack_timestamp for subtask in done), default=0)
    is_done = len(done) == len(vertex.subtasks)
    return {
        "id": entry.id,
        "status": "COMPLETED" if is_done else entry.status,
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(subtask.checkpointed_size for subtask in vertex.subtasks),
        "state_size": sum(subtask.state_size for subtask in vertex.subtasks),
        "end_to_end_duration": max(0, latest - entry.trigger_timestamp),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": len(vertex.subtasks),
        "num_acknowledged_subtasks": len(done),
    }


def _subtask(entry: CheckpointStatistics, vertex: VertexStatistics, subtask: SubtaskStatistics) -> dict[str, Any]:
    if subtask.answers < vertex.operators:
        return {"className": "pending", "index": subtask.index, "status": "pending_or_failed"}
    return {
        "className": "completed",
        "index": subtask.index,
        "status": "completed",
        "ack_timestamp": subtask.ack_timestamp,
        "end_to_end_duration": subtask.ack_timestamp - entry.trigger_timestamp,
        "checkpointed_size": subtask.checkpointed_size,
        "state_size": subtask.state_size,
        "checkpoint": {"sync": round(subtask.sync_ms), "async": round(subtask.async_ms)},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 0,
        "unaligned_checkpoint": False,
        "aborted": False,
    }
