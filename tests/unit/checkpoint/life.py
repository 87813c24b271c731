"""The checkpoints of a job's whole life, for tests that inject a fault into each request of its JobManager.

A JobManager takes a job over, takes a checkpoint and a savepoint, and fails over once. It then takes the last
checkpoint and ends. The job reads the numbers 0 to N-1 and writes them in pieces through a two-phase commit sink.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail, SavepointCompleted, SavepointFailed
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.files.state_files import MergedFileWriter
from penstock.checkpoint.leadership.fencing import Candidate
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import verify
from penstock.common.errors import Fenced, StorageError
from tests.unit.checkpoint.support import InlineExecutor, ack, job

if TYPE_CHECKING:
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.state.files import FileRef

NUMBERS = 12
PER_CHECKPOINT = 2
FAILS_AT = 6
"""The position at which the first attempt fails."""
ATTEMPTS = 6


@dataclass
class Sink:
    """A sink that stores pieces by name. Committed pieces are visible."""

    pieces: dict[str, list[int]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)

    def commit(self, names: list[str]) -> None:
        self.lost += [name for name in names if name in self.removed]
        self.committed.update(names)

    def discard(self, epoch: int, kept: set[str]) -> None:
        for name, written in self.epochs.items():
            if written < epoch and name not in kept and name not in self.committed:
                self.removed.add(name)

    @property
    def visible(self) -> Counter[int]:
        return Counter(number for name in self.committed for number in self.pieces[name])


class JobManager:
    """A JobManager process. Like the JobMaster, it starts attempts until the job ends or no attempts are left."""

    def __init__(self, storage: CheckpointStorage, sink: Sink, *, may_fail: bool = True) -> None:
        self.storage = storage
        self.sink = sink
        self.candidate = Candidate(self.storage)
        savepoints = f"{storage.root_url}/savepoints"
        settings = CheckpointSettings(savepoint_directory=savepoints, retention="RETAIN_ON_CANCELLATION")
        self.coordinator = CheckpointCoordinator(self.storage, settings, InlineExecutor())
        self.now = 0
        self.errors: list[Exception] = []
        self.savepoints: list[str] = []
        self._may_fail = may_fail

    def run(self) -> str:
        for _ in range(ATTEMPTS):
            try:
                self._attempt()
            except Fenced:
                raise
            except Exception as error:
                self.errors.append(error)
                self.coordinator.end_attempt(str(error), self.now)
                self.coordinator.tick(self.now)
                continue
            self.coordinator.shutdown("FINISHED", self.now)
            return "FINISHED"
        return "FAILED"

    def _attempt(self) -> None:
        recovery = take_over(self.storage, candidate=self.candidate)
        recovery.begin()
        position, self.files = 0, list[Any]()
        if recovery.snapshot is not None:
            manifest = recovery.snapshot.manifest
            position = manifest.sources["numbers"].splits[0].position
            self.files = list(manifest.states["count"].keyed[0]["files"])
        promised = [name for names in recovery.commits.values() for name in names]
        self.sink.commit(promised)
        self.sink.discard(recovery.epoch, set(promised))
        self.coordinator.begin(recovery, job(), self.now)
        piece = 0
        while position < NUMBERS:
            name = f"{recovery.epoch}-{piece}"
            numbers = list(range(position, position + PER_CHECKPOINT))
            self.sink.pieces[name], self.sink.epochs[name] = numbers, recovery.epoch
            position, piece = numbers[-1] + 1, piece + 1
            if position == NUMBERS // 2 and not self.savepoints:
                self.coordinator.trigger_savepoint()
            self._checkpoint(position, [name], is_final=False)
            if position >= FAILS_AT and self._may_fail:
                self._may_fail = False
                raise RuntimeError("the user's function")
        while not self._checkpoint(position, [], is_final=True):
            pass

    def _checkpoint(self, position: int, pieces: list[str], *, is_final: bool) -> bool:
        self.now += 60_000
        if is_final:
            request = self.coordinator.final_checkpoint(self.now)
        else:
            self.coordinator.trigger_checkpoint()
            request = self.coordinator.next_trigger(self.now)
        assert request is not None
        self.coordinator.on_barrier(
            request.checkpoint_id, {"numbers": SourceState([SplitPosition("numbers", {}, position)])}
        )
        files, error = [], ""
        try:
            files = [*self.files[-2:], self._write(position).to_json()]
        except StorageError as failure:
            error = str(failure)
        keyed = {"key_groups": [0, 127], "files": files, "states": {}} if files else None
        self.coordinator.on_ack(ack(request, keyed=keyed, committables=pieces, error=error), self.now)
        is_complete = False
        for _ in range(4):
            for event in self.coordinator.tick(self.now):
                match event:
                    case JobMustFail():
                        raise event.error
                    case CheckpointCompleted():
                        is_complete, self.files = True, files
                        self.sink.commit([name for names in event.commits.values() for name in names])
                        self.coordinator.on_committed(event.checkpoint_id)
                    case SavepointCompleted():
                        self.savepoints.append(event.url)
                    case SavepointFailed():
                        pass
        return is_complete

    def _write(self, position: int) -> FileRef:
        writer = MergedFileWriter(self.storage.writer(), 1 << 20)
        ref = writer.write(b"up to %d" % position)
        writer.finish()
        return ref


def check(manager: JobManager, status: str, storage: CheckpointStorage) -> None:
    """Check that no record is lost or repeated, that no file is missing, and that a failed job can be resumed.

    Args:
        storage: the same folder, without faults.
    """
    for url in manager.savepoints:
        assert verify(url, stores=storage.stores, checksums=True).is_complete
    if status == "FAILED":
        assert any(isinstance(error, StorageError) or "cannot" in str(error) for error in manager.errors)
        successor = JobManager(storage, manager.sink, may_fail=False)
        assert successor.run() == "FINISHED", successor.errors
    assert manager.sink.lost == []
    assert manager.sink.visible == Counter(range(NUMBERS))
