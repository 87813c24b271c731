"""Every request of a job's life to the store and everything that may go wrong with it.

A JobManager takes a job over, checkpoints it, makes a savepoint, fails over once, takes the last checkpoint and ends. It is run once
without a fault to count its requests, and then once for each request and each fault. Afterwards, whatever was hit:

- the job has ended as FINISHED, or it has failed with storage's own words: it is never fenced off, for there is nobody else;
- every number is visible once, or the job has failed and a successor, started on a store that works, makes it so;
- nothing that the newest checkpoint or the savepoint names is missing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.coordinator import CheckpointCoordinator
from penstock.checkpoint.events import CheckpointCompleted, JobMustFail, SavepointCompleted, SavepointFailed
from penstock.checkpoint.faults import Fault, FaultyStore
from penstock.checkpoint.fencing import Candidate
from penstock.checkpoint.manifest import SourceState, SplitPosition
from penstock.checkpoint.recovery import take_over
from penstock.checkpoint.retrying_store import RetryingStore, RetryPolicy, Stores
from penstock.checkpoint.savepoint import verify
from penstock.checkpoint.settings import CheckpointSettings
from penstock.checkpoint.state_files import MergedFileWriter
from penstock.checkpoint.storage import CheckpointStorage
from penstock.common.errors import Fenced, StorageError
from tests.unit.checkpoint.support import DictStore, InlineExecutor, ack, job

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.state.backend import FileRef

NUMBERS = 12
PER_CHECKPOINT = 2
FAILS_AT = 6
"""The attempt fails when it has read so many, once."""
ATTEMPTS = 6
POLICY = RetryPolicy(retry_for=3, pause=1, max_pause=1)
"""By a clock that only pauses move, and pauses are half as long as this or more."""
TRIES = 8
"""More than a request is tried."""

ONCE = [
    Fault.TIMEOUT_BEFORE,
    Fault.TIMEOUT_AFTER,
    Fault.LATE,
    Fault.CONFLICT,
    Fault.EXISTS,
    Fault.INTERNAL_ERROR,
    Fault.UNAVAILABLE,
    Fault.DENIED,
    Fault.TRUNCATED,
]


@dataclass(frozen=True)
class Trouble:
    """What happens to request number `at`, and what to the tries of it that follow."""

    at: int
    fault: Fault
    then: Fault | None = None
    """To every further try of the same request until it is given up; None: it is answered."""
    is_away_after: bool = False
    """The store answers nothing for as long as a request is tried."""


class HitStore(FaultyStore):
    """Hits one request, by its number; `requests` counts them."""

    def __init__(self, inner: DictStore, trouble: Trouble | None) -> None:
        super().__init__(inner)
        self.requests = 0
        self._trouble = trouble
        self._place: tuple[str, str] | None = None
        self._left = 0

    def _take(self, operation: str, url: str) -> Fault | None:
        self.requests += 1
        trouble = self._trouble
        if trouble is None:
            return None
        if self.requests == trouble.at:
            self._place, self._left = (operation, url), TRIES
            return trouble.fault if operation in ("get", "put") or trouble.fault not in _PUTS_ONLY else Fault.DENIED
        if self._place is None or self._left <= 0:
            return None
        if trouble.is_away_after:
            self._left -= 1
            return Fault.TIMEOUT_BEFORE
        if trouble.then is not None and (operation, url) == self._place:
            self._left -= 1
            return trouble.then
        return None


_PUTS_ONLY = (Fault.EXISTS, Fault.TRUNCATED)


@dataclass
class Sink:
    """Pieces by name; committed ones are visible."""

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
    """One process: attempts, as the JobMaster makes them, until the job has ended or the attempts are used up."""

    def __init__(self, store: FaultyStore, sink: Sink, *, may_fail: bool = True) -> None:
        clock = [0.0]

        def sleep(seconds: float) -> None:
            clock[0] += seconds

        stores = Stores(policy=POLICY)
        stores.use("dict", RetryingStore(store, POLICY, sleep=sleep, clock=lambda: clock[0]))
        self.storage = CheckpointStorage("dict://root", "job", policy=POLICY, stores=stores)
        self.store = store
        self.sink = sink
        self.candidate = Candidate(self.storage)
        settings = CheckpointSettings(savepoint_directory="dict://root/savepoints", retention="RETAIN_ON_CANCELLATION")
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


def life(trouble: Trouble | None) -> tuple[JobManager, str]:
    manager = JobManager(HitStore(DictStore(), trouble), Sink())
    return manager, manager.run()


def requests() -> int:
    manager, status = life(None)
    assert status == "FINISHED"
    assert isinstance(manager.store, HitStore)
    return manager.store.requests


def check(manager: JobManager, status: str) -> None:
    manager.store.land_late()
    everything = Counter(range(NUMBERS))
    storage = JobManager(FaultyStore(manager.store.inner), Sink()).storage
    for url in manager.savepoints:
        assert verify(url, stores=storage.stores, checksums=True).is_complete
    if status == "FAILED":
        assert any(isinstance(error, StorageError) or "cannot" in str(error) for error in manager.errors)
        successor = JobManager(FaultyStore(manager.store.inner), manager.sink, may_fail=False)
        assert successor.run() == "FINISHED", successor.errors
    assert manager.sink.lost == []
    assert manager.sink.visible == everything


def every_request(make: Callable[[int], Trouble]) -> None:
    for at in range(1, requests() + 1):
        trouble = make(at)
        try:
            manager, status = life(trouble)
            check(manager, status)
        except BaseException as error:
            error.add_note(f"with {trouble}")
            raise


@pytest.mark.parametrize("fault", ONCE, ids=lambda fault: fault.name)
def test_a_request_that_is_hit_once(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault))


@pytest.mark.parametrize("then", [Fault.TIMEOUT_BEFORE, Fault.DENIED], ids=lambda fault: fault.name)
@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.LATE], ids=lambda fault: fault.name)
def test_a_request_whose_tries_are_used_up(fault: Fault, then: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, then))


@pytest.mark.parametrize("fault", [Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER, Fault.LATE], ids=lambda fault: fault.name)
def test_a_store_that_goes_away_with_a_request(fault: Fault) -> None:
    every_request(lambda at: Trouble(at, fault, is_away_after=True))


def test_the_life_has_every_step_of_the_protocol() -> None:
    """Else the tests above would not hit them."""
    manager, status = life(None)
    assert (status, len(manager.savepoints)) == ("FINISHED", 1)
    urls = {(operation, url.removeprefix("dict://root/job/")) for operation, url in manager.store.calls}
    for step in [
        *(("put", f"leader/{epoch}{part}") for epoch in (1, 2, 3) for part in ("", ".base")),
        ("put", "chk-1/_metadata"),
        ("put", "latest"),
        ("get", "leader/1.base"),
        ("list", "leader"),
        ("delete", "chk-1/_metadata"),
    ]:
        assert step in urls, step
    assert any(operation == "copy" for operation, _ in urls)
    assert any(operation == "put" and "savepoint-" in url for operation, url in urls)
