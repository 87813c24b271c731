"""A checkpoint in progress: its acknowledgements, and the manifest made from them. No I/O. Times are in ms."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.files.codec import handle_files
from penstock.checkpoint.files.manifest import FORMAT_VERSION, Manifest, OperatorInfo, OperatorState, SourceState

if TYPE_CHECKING:
    from penstock.checkpoint.events import Ack, JobDescription, SavepointRequest, SnapshotRequest, SubtaskKey


@dataclass
class PendingCheckpoint:
    """A checkpoint from its trigger until its manifest is stored or the checkpoint is abandoned."""

    request: SnapshotRequest
    job: JobDescription
    savepoint: SavepointRequest | None = None
    requests: tuple[str, ...] = ()
    """Ids of the `trigger_checkpoint` requests that this checkpoint answers."""
    counts: bool = True
    """Whether a failure counts for `tolerable_failures`. A failure counts if no request waits for this checkpoint, or
    if the checkpoint is final.
    """
    sources: dict[str, SourceState] | None = None
    acks: dict[SubtaskKey, Ack] = field(default_factory=dict)
    answered: set[SubtaskKey] = field(default_factory=set)
    is_storing: bool = False
    drained: Manifest | None = None
    """The manifest of the checkpoint of a `stop --drain`. It is stored after the savepoint of the stop is complete."""
    exported: str = ""
    """URL of the complete savepoint of a `stop --drain`."""
    is_handed_out: bool = False
    """Whether an epoch has received the barrier of this checkpoint. Before that, no subtask knows the checkpoint."""

    @property
    def id(self) -> int:
        return self.request.checkpoint_id

    @property
    def has_background_work(self) -> bool:
        """Whether background work with a separate timeout is running for this checkpoint."""
        return self.is_storing or self.drained is not None

    @property
    def holder(self) -> str:
        """Name of this checkpoint in the registry."""
        return f"chk-{self.id}"

    def is_expected(self, key: SubtaskKey) -> bool:
        return key in self._expected and key not in self.answered

    def unanswered(self) -> frozenset[SubtaskKey]:
        return self._expected - self.answered

    @property
    def is_ready(self) -> bool:
        """Whether every subtask has acknowledged and the positions at the barrier are known."""
        return self.sources is not None and len(self.acks) == len(self._expected)

    def describe_missing(self) -> str:
        """Return the text about missing answers for the message of a timeout.

        >>> from penstock.checkpoint.events import JobDescription, SnapshotRequest
        >>> job = JobDescription("j", "job", 1, 128, "", [OperatorInfo("count", "Count", 2, 128)])
        >>> PendingCheckpoint(SnapshotRequest(1, 0), job, is_handed_out=True).describe_missing()
        "count 0/2 answered; the epoch's barrier has not been reached"
        """
        missing = self.unanswered()
        parts = []
        for info in self.job.operators:
            unanswered = sum(1 for uid, _ in missing if uid == info.uid)
            if unanswered:
                parts.append(f"{info.uid} {info.parallelism - unanswered}/{info.parallelism} answered")
        if not self.is_handed_out:
            parts.append("the previous epoch has not ended, so the checkpoint's barrier was not sent")
        elif self.sources is None:
            parts.append("the epoch's barrier has not been reached")
        return "; ".join(parts) or "all subtasks have acknowledged"

    def manifest(self, leader_epoch: int, now: int, commits: dict[str, list[Any]], version: str) -> Manifest:
        """Return the manifest. The acknowledgements of each operator are in the order of their subtasks."""
        states = {info.uid: self._state_of(info) for info in self.job.operators}
        sizes = {
            (file.path, file.offset): file.size
            for state in states.values()
            for handle in state.keyed
            for file in handle_files(handle)
        }
        return Manifest(
            format_version=FORMAT_VERSION,
            kind="checkpoint",
            job_id=self.job.job_id,
            job_name=self.job.job_name,
            checkpoint_id=self.id,
            leader_epoch=leader_epoch,
            trigger_timestamp=self.request.timestamp + self.request.wall_offset_ms,
            complete_timestamp=now + self.request.wall_offset_ms,
            parallelism=self.job.parallelism,
            max_parallelism=self.job.max_parallelism,
            graph_fingerprint=self.job.graph_fingerprint,
            operators=[self._with_states(info) for info in self.job.operators],
            sources=dict(self.sources or {}),
            states=states,
            commits=commits,
            state_bytes=sum(sizes.values()),
            uploaded_bytes=sum(ack.bytes_uploaded for ack in self.acks.values()),
            penstock_version=version,
            is_final=self.request.is_final,
            is_drained=self.request.drain,
            plans=self.job.plans,
        )

    def _state_of(self, info: OperatorInfo) -> OperatorState:
        acks = [self.acks[info.uid, subtask] for subtask in range(info.parallelism)]
        keyed = [ack.keyed for ack in acks if ack.keyed is not None]
        operator = [dict(ack.operator) for ack in acks]
        return OperatorState(keyed=keyed, operator=operator if any(operator) else [])

    def _with_states(self, info: OperatorInfo) -> OperatorInfo:
        """Return the operator with the states of all subtasks' handles, so that a listing need not open a file."""
        states = dict(info.states)
        for subtask in range(info.parallelism):
            keyed = self.acks[info.uid, subtask].keyed
            states.update((keyed or {}).get("states", {}))
        return msgspec.structs.replace(info, states=states)

    @cached_property
    def _expected(self) -> frozenset[SubtaskKey]:
        return self.job.subtasks()
