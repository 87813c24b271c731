"""A simulated master: the real election, the real leader epochs, checkpoints and record of the end. Only the tasks and the sink are simulated.

The job reads the numbers 0 to N-1 and writes them in pieces through a two-phase commit sink, like the job in
`tests/unit/checkpoint/test_protocol_simulation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.recovery.takeover import Recovery
from penstock.checkpoint.store.object_store import TransientFailure
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores
from penstock.common.errors import CorruptStateFile, Fenced, PenstockError, SnapshotNotFound, SnapshotTorn, StorageError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.checkpoints import JobCheckpoints
from penstock.jobmanager.job.ending.job_result import ResultRecord
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.elector import ElectionTimes, Elector, Role
from penstock.jobmanager.process.election.storage_claims import StorageClaims
from penstock.state.files import FileRef
from tests.unit.checkpoint.simulated_sink import Piece, SimulatedSink
from tests.unit.checkpoint.support import InlineExecutor, ack, job
from tests.unit.jobmanager.process.election.lives.world import Host, Network, World, strand

JOB = "1" * 32
TIMES = ElectionTimes(lease_s=5.0, interval_s=1.0, deadline_s=60.0)
NUMBERS, PER_EPOCH = 60, 3
EPOCH_S = 0.8
NO_SLOTS_S = 6.0
CONFIRM_POLL_S = 0.05
_GONE = (SnapshotTorn, SnapshotNotFound, CorruptStateFile)


@dataclass(kw_only=True)
class Record(SimulatedSink):
    """The output of the job, and everything that the masters have announced."""

    fails_at: int | None
    """Position at which the user's function fails. None means never. A failure is final."""
    lacks_slots: bool = False
    """Whether some masters get no slots."""
    ends: list[tuple[float, str, JobStatus]] = field(default_factory=list)
    """Time, master and status of each end that a master has announced."""
    acted: dict[int, int] = field(default_factory=dict)
    """Leader epoch by the number of each checkpoint on which a leader has acted."""
    leaders: int = 0
    fenced: int = 0

    def act(self, checkpoint_id: int, epoch: int) -> None:
        if self.acted.setdefault(checkpoint_id, epoch) != epoch:
            self.violations.append(
                f"leaders {self.acted[checkpoint_id]} and {epoch} acted on checkpoint {checkpoint_id}"
            )

    def announce(self, world: World, name: str, status: JobStatus) -> None:
        if self.ends and self.ends[0][2] is not status:
            self.violations.append(
                f"{name} announces {status.value} after {self.ends[0][1]} announced {self.ends[0][2]}"
            )
        self.ends.append((world.now_s, name, status))
        world.note(f"{name} announces {status.value}")


class Failed(Exception):
    """The failure of the user's function."""


class Master:
    """A process with an election thread and the thread of the job."""

    def __init__(self, host: Host, record: Record) -> None:
        self.host, self.record, self.world = host, record, host.world
        self.elector = Elector(
            StorageClaims(self._storage("election", retry_for=1.0)), Holder(host.name), TIMES, host.monotonic
        )
        self.checkpoints = JobCheckpoints(
            JOB, JobSettings.from_configuration({"execution.checkpointing.dir": "dict://root"})
        )
        self.storage = self.checkpoints.storage = self._storage("root", retry_for=6.0)
        settings = CheckpointSettings(retained=1 + self.world.random.randrange(2), tolerable_failures=10**6)
        self.checkpoints.coordinator = CheckpointCoordinator(self.storage, settings, InlineExecutor())
        self.checkpoints._candidate.storage = self.storage
        self.leaves = False
        self.gets_no_slots = record.lacks_slots and self.world.random.random() < 0.5
        host.start(self._elect)
        host.start(self._run)

    @property
    def leads(self) -> bool:
        return not self.host.is_dead and self.elector.role is Role.LEADING

    def _storage(self, root: str, *, retry_for: float) -> CheckpointStorage:
        policy = RetryPolicy(retry_for=retry_for, pause=0.1, max_pause=1.0)
        stores = Stores(policy=policy)
        network = Network(self.world.store)
        pause = lambda seconds: strand().pause(seconds)  # noqa: E731
        stores.use("dict", RetryingStore(network, policy, sleep=pause, clock=self.host.monotonic))
        return CheckpointStorage(f"dict://{root}", JOB, policy=policy, stores=stores)

    # --- the election, as in `Member` ---------------------------------------------------------------------------

    def _elect(self) -> None:
        while not self.leaves:
            began, before = self.host.monotonic(), self.elector.role
            try:
                role = self.elector.step()
            except StorageError:
                role = self.elector.role
            if role is Role.LOST:
                self.world.note(f"{self.host.name} has lost: {self.elector.reason}")
                self.host.kill()
                return
            if role is Role.LEADING and before is Role.WAITING:
                self.record.leaders += 1
                self.world.note(f"{self.host.name} leads")
            strand().pause(max(0.01, began + TIMES.interval_s - self.host.monotonic()))
        try:
            self.elector.release()
        except StorageError:
            pass  # the lease ends anyway
        self.host.kill()

    def confirm(self, timeout_s: float, since_s: float | None) -> bool:
        earliest = self.host.monotonic() - TIMES.lease_s / 2 if since_s is None else since_s
        deadline = self.host.monotonic() + timeout_s
        while not (self.leads and self.elector.renewed_at >= earliest):
            if self.host.monotonic() > deadline:
                return False
            strand().pause(CONFIRM_POLL_S)
        return True

    # --- the job ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.leads:
            strand().pause(0.1)
        while True:
            try:
                self.checkpoints.begin_lead(self.confirm)
                break
            except StorageError:
                strand().pause(0.5)
        try:
            self._run_attempts()
        except Fenced:
            self.record.fenced += 1
            self.world.note(f"{self.host.name} is fenced")
            strand().pause(10.0)
            self.leaves = True

    def _run_attempts(self) -> None:
        """Run attempts until the job ends here, or has ended elsewhere."""
        while not self._has_ended():
            try:
                self._place()
                is_finished = self._attempt()
            except Failed:
                self._end(JobStatus.FAILED)
                return
            except Fenced:
                raise
            except PenstockError as error:
                self.world.note(f"{self.host.name} fails over: {error.message}")
                self.checkpoints.end_attempt("failed", self._now_ms())
                strand().pause(0.5)
            else:
                if is_finished:
                    self._end(JobStatus.FINISHED)
                    return

    def _has_ended(self) -> bool:
        try:
            result = self.checkpoints.result()
        except StorageError:
            strand().pause(0.5)
            return False
        if result is not None:
            self.record.announce(self.world, self.host.name, result.status)
        return result is not None

    def _place(self) -> None:
        """Wait for slots. If this master gets none, the job fails without an attempt."""
        strand().pause(self.world.random.choice([0.0, 0.1, 3.0]))
        if self.gets_no_slots:
            strand().pause(NO_SLOTS_S)
        if self.gets_no_slots:
            raise Failed

    def _attempt(self) -> bool:
        """Run an attempt. Return True at the end of the input, and False if the job has ended before."""
        try:
            recovery = self.checkpoints.take_over()
        except _GONE as error:  # `take_over` has checked that this process leads
            self.record.violations.append(f"{self.host.name} cannot restore: {error}")
            raise
        if self.checkpoints.result() is not None:
            return False
        ended = bool(self.record.ends)
        recovery.begin()
        if ended:
            self.record.violations.append(f"{self.host.name} runs a job that has ended: {self.record.ends}")
        position, files = self._restore(recovery)
        self.checkpoints.coordinator.begin(recovery, job(), self._now_ms())
        rounds = 0
        while position < NUMBERS:
            strand().pause(EPOCH_S)
            rounds += 1
            if self.record.fails_at is not None and position >= self.record.fails_at:
                raise Failed
            numbers = list(range(position, min(position + PER_EPOCH, NUMBERS)))
            name = f"{recovery.epoch}-{self.host.name}-{rounds}"
            self.record.pieces[name] = Piece(recovery.epoch, numbers)
            position = numbers[-1] + 1
            new_files = [*files[-2:], self._write(position)]
            if self._checkpoint(recovery, position, new_files, name):
                files = new_files
        while not self._checkpoint(recovery, position, [*files[-2:], self._write(position)], None):
            strand().pause(EPOCH_S)
        return True

    def _restore(self, recovery: Recovery) -> tuple[int, list[dict[str, Any]]]:
        commits = [name for names in recovery.commits.values() for name in names]
        self._at_sink(lambda: self.record.commit(commits))
        self._at_sink(lambda: self.record.discard(recovery.epoch, set(commits)))
        if recovery.snapshot is None:
            return 0, []
        stored = recovery.snapshot.manifest
        files = list(stored.states["count"].keyed[0]["files"])
        try:
            contents = [recovery.storage.reader().read(FileRef(f["path"], f["size"], f["checksum"])) for f in files]
        except _GONE as error:
            recovery.leadership.check()
            self.record.violations.append(f"{self.host.name} cannot read its state: {error}")
            raise
        position = stored.sources["numbers"].splits[0].position
        if contents[-1] != b"up to %d" % position:
            self.record.violations.append(f"state and position differ: {contents[-1]!r}, {position}")
        return position, files

    def _at_sink(self, action: Callable[[], None]) -> None:
        try:
            strand().request("sink", action)
        except TransientFailure as failure:
            raise StorageError(f"the sink did not answer: {failure}") from failure

    def _now_ms(self) -> int:
        return int(self.host.monotonic() * 1000)

    def _write(self, position: int) -> dict[str, Any]:
        while True:
            try:
                ref = self.storage.writer().write(b"up to %d" % position)
            except StorageError:
                continue
            return {"path": ref.path, "size": ref.size, "checksum": ref.checksum}

    def _checkpoint(self, recovery: Recovery, position: int, files: list[dict[str, Any]], piece: str | None) -> bool:
        coordinator = self.checkpoints.coordinator
        coordinator.trigger_checkpoint()
        while (request := coordinator.next_trigger(self._now_ms())) is None:
            for event in coordinator.tick(self._now_ms()):
                if isinstance(event, JobMustFail):
                    raise event.error
            strand().pause(EPOCH_S)
        splits = [SplitPosition("numbers", {}, position)]
        coordinator.on_barrier(request.checkpoint_id, {"numbers": SourceState(splits)})
        keyed = {"key_groups": [0, 127], "files": files, "states": {}}
        coordinator.on_ack(ack(request, keyed=keyed, committables=[piece] if piece else []), self._now_ms())
        is_complete = False
        while coordinator.is_in_progress or not is_complete:
            for event in coordinator.tick(self._now_ms()):
                if isinstance(event, JobMustFail):
                    raise event.error
                if isinstance(event, CheckpointCompleted):
                    is_complete = True
                    names = [name for names in event.commits.values() for name in names]
                    self.record.act(event.checkpoint_id, recovery.epoch)
                    self._at_sink(partial(self.record.commit, names))
                    coordinator.on_committed(event.checkpoint_id)
            if not coordinator.is_in_progress and not is_complete:
                return False
        return True

    def _end(self, status: JobStatus) -> None:
        """Record the end, then announce it, then delete the checkpoints, as `JobMaster.shutdown` does."""
        failure = "broken" if status is JobStatus.FAILED else ""
        while True:
            try:
                self.checkpoints.store_result(ResultRecord(status, 1, failure=failure))
                break
            except StorageError:
                strand().pause(1.0)
        state: Any = status.value
        self.record.announce(self.world, self.host.name, status)
        self.checkpoints.coordinator.shutdown(state, self._now_ms())
