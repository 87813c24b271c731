"""A checkpoint coordinator together with the objects around it, all accessible to tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings
from penstock.checkpoint.events import CheckpointCompleted, Event, JobDescription, SnapshotRequest
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.store.faults import FaultyStore
from tests.unit.checkpoint.support import SOURCES, ManualExecutor, ack, faulty_storage, handle, job

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.checkpoint.files.storage import CheckpointStorage


E = TypeVar("E")


@dataclass
class Bench:
    """A checkpoint coordinator together with the objects around it, all accessible to tests."""

    storage: CheckpointStorage
    faulty: FaultyStore
    settings: CheckpointSettings = field(default_factory=lambda: CheckpointSettings(interval_ms=1000, retained=2))
    description: JobDescription = field(default_factory=job)
    now: int = 0

    def __post_init__(self) -> None:
        self.executor = ManualExecutor()
        self.coordinator = CheckpointCoordinator(self.storage, self.settings, self.executor)
        self.begin()
        self.executor.run_all()  # clean up the leftovers of an earlier JobManager

    def begin(self, **options: Any) -> None:
        recovery = take_over(self.storage, **options)
        recovery.begin()
        self.recovery = recovery
        self.coordinator.begin(recovery, self.description, self.now)

    def trigger(self, after: int = 1000) -> SnapshotRequest:
        self.now += after
        request = self.coordinator.next_trigger(self.now)
        assert request is not None
        return request

    def answer(self, request: SnapshotRequest, **fields: Any) -> None:
        self.coordinator.on_barrier(request.checkpoint_id, SOURCES)
        for info in self.description.operators:
            for subtask in range(info.parallelism):
                self.coordinator.on_ack(ack(request, info.uid, subtask, **fields), self.now)

    def settle(self) -> list[Event]:
        """Tick and run the background work until neither changes anything."""
        events = self.coordinator.tick(self.now)
        while self.executor.waiting:
            self.executor.run_all()
            events += self.coordinator.tick(self.now)
        return events

    def complete(self, *contents: bytes, reuse: list[Any] | None = None, **fields: Any) -> CheckpointCompleted:
        request = self.trigger()
        groups = (0, self.description.max_parallelism - 1)
        self.answer(request, keyed=handle(self.storage, groups, *contents, reuse=reuse or []), **fields)
        return only(self.settle(), CheckpointCompleted)

    def files(self) -> list[str]:
        return [f"shared/{name}" for name in self.storage.list_names("shared")]


def only(events: list[Event], kind: type[E]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


def bench_with(tmp_path: Path, description: JobDescription | None = None, **settings: Any) -> Bench:
    options: dict[str, Any] = {"interval_ms": 1000, "retained": 1, **settings}
    return Bench(*faulty_storage(tmp_path / "root"), CheckpointSettings(**options), description or job())
