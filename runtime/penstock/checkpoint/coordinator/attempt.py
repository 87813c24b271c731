"""The coordinator's data of one attempt, which is the execution between two restores. Not thread-safe; no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.checkpoint.coordinator.completed import CompletedCheckpoints
from penstock.checkpoint.coordinator.pending import PendingCheckpoint
from penstock.checkpoint.events import SavepointRequest, SnapshotRequest, SubtaskKey
from penstock.checkpoint.files.codec import handle_files, objects_of
from penstock.common.errors import StorageError

if TYPE_CHECKING:
    from penstock.checkpoint.coordinator.cleaner import Cleaner
    from penstock.checkpoint.events import Ack, JobDescription
    from penstock.checkpoint.recovery.takeover import Recovery


class Attempt:
    """The data of one attempt. `owed` maps each abandoned checkpoint to the subtasks that have not yet answered it."""

    def __init__(self, recovery: Recovery, job: JobDescription, cleaner: Cleaner, retained: int) -> None:
        self.recovery = recovery
        self.job = job
        self.cleaner = cleaner
        self.completed = CompletedCheckpoints(recovery.retained, retained)
        self.next_id = recovery.base.first_checkpoint_id
        self.pending: PendingCheckpoint | None = None
        self.owed: dict[int, set[SubtaskKey]] = {}
        self.is_stopping = False
        """Whether the final checkpoint was triggered. No other checkpoint follows unless the final one fails."""
        self.is_fenced = False
        foreign = recovery.snapshot if recovery.is_foreign else None
        self._foreign_files = frozenset(objects_of(foreign.manifest) if foreign is not None else ())

    @property
    def may_trigger(self) -> bool:
        return self.pending is None and not self.is_stopping and not self.is_fenced

    @property
    def has_doubts(self) -> bool:
        """Whether a manifest may be stored, or may still arrive, although no answer confirmed it."""
        return self.completed.has_doubts or (self.pending is not None and self.pending.is_storing)

    def start(
        self,
        savepoint: SavepointRequest | None,
        requests: tuple[str, ...],
        now: int,
        *,
        counts: bool,
        is_final: bool,
        wall_offset_ms: int = 0,
    ) -> SnapshotRequest:
        """Start a checkpoint with the next number. This checkpoint is then in progress."""
        request = SnapshotRequest(
            self.next_id,
            now,
            is_savepoint=savepoint is not None,
            is_final=is_final,
            drain=savepoint is not None and savepoint.drain,
            wall_offset_ms=wall_offset_ms,
        )
        self.next_id += 1
        self.pending = PendingCheckpoint(request, self.job, savepoint, requests, counts)
        self.is_stopping = is_final
        return request

    def make_final(self) -> bool:
        """Make the checkpoint in progress the last one of the job. Return False if it is not possible, because the
        barrier was already sent or the checkpoint is a savepoint.
        """
        pending = self.pending
        if self.is_fenced or pending is None or pending.is_handed_out or pending.savepoint is not None:
            return False
        pending.request = replace(pending.request, is_final=True)
        pending.counts = True
        self.is_stopping = True
        return True

    def take_files(self, pending: PendingCheckpoint, ack: Ack) -> str:
        """Count the references of an acknowledged handle. Return why the handle cannot be accepted, or an empty text."""
        paths = [file.path for file in handle_files(ack.keyed or {})]
        foreign = [path for path in paths if path in self._foreign_files]
        if foreign:
            return f"its handle refers to the file {foreign[0]} of the restored savepoint, and this job may not refer to files of another job"
        try:
            self.completed.registry.register(pending.holder, paths)
        except StorageError as error:
            return error.message
        return ""

    def abandon(self, *, keep_files: bool, will_ack: bool) -> PendingCheckpoint:
        """Give up the checkpoint in progress. Release its files unless its manifest may have been stored."""
        pending, self.pending = self.pending, None
        assert pending is not None
        self.is_stopping = False
        unanswered = set(pending.unanswered())
        if unanswered and will_ack:
            self.owed[pending.id] = unanswered
        if not keep_files:
            self.cleaner.discard_files(self.completed.registry.release(pending.holder))
        return pending

    def take_late_ack(self, ack: Ack) -> bool:
        """Take a late answer to an abandoned checkpoint and discard its files. Return whether the answer was still missing."""
        owed = self.owed.get(ack.checkpoint_id)
        key = (ack.uid, ack.subtask)
        if owed is None or key not in owed:
            return False
        owed.discard(key)
        if not owed:
            del self.owed[ack.checkpoint_id]
        paths = {file.path for file in handle_files(ack.keyed or {})}
        self.cleaner.discard_files(path for path in sorted(paths) if not self.completed.registry.is_needed(path))
        return True
