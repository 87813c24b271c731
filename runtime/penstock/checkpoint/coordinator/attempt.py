"""What the coordinator knows of one attempt: the execution between two restores. Not thread-safe; no I/O."""

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
    """`owed`: of abandoned checkpoints, the subtasks that have not answered yet."""

    def __init__(self, recovery: Recovery, job: JobDescription, cleaner: Cleaner, retained: int) -> None:
        self.recovery = recovery
        self.job = job
        self.cleaner = cleaner
        self.completed = CompletedCheckpoints(recovery.retained, retained)
        self.next_id = recovery.base.first_checkpoint_id
        self.pending: PendingCheckpoint | None = None
        self.owed: dict[int, set[SubtaskKey]] = {}
        self.is_stopping = False
        """The final checkpoint was triggered; nothing comes after it unless it fails."""
        self.is_fenced = False
        foreign = recovery.snapshot if recovery.is_foreign else None
        self._foreign_files = frozenset(objects_of(foreign.manifest) if foreign is not None else ())

    @property
    def may_trigger(self) -> bool:
        return self.pending is None and not self.is_stopping and not self.is_fenced

    @property
    def has_doubts(self) -> bool:
        """A manifest may be stored, or arrive yet, of which nobody has heard that it was."""
        return self.completed.has_doubts or (self.pending is not None and self.pending.is_storing)

    def start(
        self,
        savepoint: SavepointRequest | None,
        requests: tuple[str, ...],
        now: int,
        *,
        counts: bool,
        is_final: bool,
    ) -> SnapshotRequest:
        """The next number is taken; there is a checkpoint in progress from here on."""
        request = SnapshotRequest(
            self.next_id,
            now,
            is_savepoint=savepoint is not None,
            is_final=is_final,
            drain=savepoint is not None and savepoint.drain,
        )
        self.next_id += 1
        self.pending = PendingCheckpoint(request, self.job, savepoint, requests, counts)
        self.is_stopping = is_final
        return request

    def make_final(self) -> bool:
        """The checkpoint in progress becomes the last one of the job. False: its barrier is on its way, or it is a savepoint."""
        pending = self.pending
        if self.is_fenced or pending is None or pending.is_handed_out or pending.savepoint is not None:
            return False
        pending.request = replace(pending.request, is_final=True)
        pending.counts = True
        self.is_stopping = True
        return True

    def take_files(self, pending: PendingCheckpoint, ack: Ack) -> str:
        """Count the references of an acknowledged handle. Returns why the handle cannot be accepted, or nothing."""
        paths = [file.path for file in handle_files(ack.keyed or {})]
        foreign = [path for path in paths if path in self._foreign_files]
        if foreign:
            return f"its handle refers to {foreign[0]} of the restored savepoint, which is not this job's"
        try:
            self.completed.registry.register(pending.holder, paths)
        except StorageError as error:
            return error.message
        return ""

    def abandon(self, *, keep_files: bool, will_answer: bool) -> PendingCheckpoint:
        """Give up the checkpoint in progress; its files are released unless its manifest may have been stored."""
        pending, self.pending = self.pending, None
        assert pending is not None
        self.is_stopping = False
        unanswered = set(pending.unanswered())
        if unanswered and will_answer:
            self.owed[pending.id] = unanswered
        if not keep_files:
            self.cleaner.discard_files(self.completed.registry.release(pending.holder))
        return pending

    def take_late_answer(self, ack: Ack) -> bool:
        """An answer to an abandoned checkpoint: whether it was owed; its files are nobody's."""
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
