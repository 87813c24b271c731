"""The coordinator: triggers, answers, completion, failure, savepoints, the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from penstock.checkpoint.codec import files_of
from penstock.checkpoint.coordinator import CheckpointCoordinator
from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    JobDescription,
    JobMustFail,
    SavepointCompleted,
    SavepointFailed,
    SnapshotRequest,
)
from penstock.checkpoint.faults import Fault, FaultyStore
from penstock.checkpoint.manifest import SourceState, SplitPosition
from penstock.checkpoint.recovery import take_over
from penstock.checkpoint.savepoint import resolve, verify
from penstock.checkpoint.settings import CheckpointSettings
from penstock.common.errors import Fenced, InvalidJob
from penstock.state.backend import FileRef
from tests.unit.checkpoint.support import SOURCES, ManualExecutor, ack, faulty_storage, handle, job

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.checkpoint.storage import CheckpointStorage

E = TypeVar("E")


@dataclass
class Bench:
    """A coordinator with everything around it in reach."""

    storage: CheckpointStorage
    faulty: FaultyStore
    settings: CheckpointSettings = field(default_factory=lambda: CheckpointSettings(interval_ms=1000, retained=2))
    description: JobDescription = field(default_factory=job)
    now: int = 0

    def __post_init__(self) -> None:
        self.executor = ManualExecutor()
        self.coordinator = CheckpointCoordinator(self.storage, self.settings, self.executor)
        self.begin()

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
        """Tick and let the background work until nothing moves."""
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


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(*faulty_storage(tmp_path / "root"))


def bench_with(tmp_path: Path, description: JobDescription | None = None, **settings: Any) -> Bench:
    options: dict[str, Any] = {"interval_ms": 1000, "retained": 1, **settings}
    return Bench(*faulty_storage(tmp_path / "root"), CheckpointSettings(**options), description or job())


class TestTriggers:
    def test_the_first_one_is_due_after_an_interval(self, bench: Bench) -> None:
        assert bench.coordinator.next_trigger(999) is None
        assert bench.coordinator.next_action_at() == 1000
        assert bench.coordinator.next_trigger(1000) == SnapshotRequest(1, 1000)

    def test_one_at_a_time(self, bench: Bench) -> None:
        bench.trigger()
        assert bench.coordinator.is_in_progress
        assert bench.coordinator.next_trigger(50_000) is None

    def test_a_late_one_starts_as_soon_as_it_can_and_they_do_not_pile_up(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.now = 5500
        bench.answer(request)
        bench.settle()
        assert bench.coordinator.next_trigger(5500) == SnapshotRequest(2, 5500)

    def test_the_pause_counts_from_the_end(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, min_pause_ms=700)
        request = bench.trigger()
        bench.now = 1900
        bench.answer(request)
        bench.settle()
        assert bench.coordinator.next_trigger(2599) is None
        assert bench.coordinator.next_trigger(2600) is not None

    def test_without_an_interval_only_what_is_asked_for(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, interval_ms=None)
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None
        id = bench.coordinator.trigger_checkpoint()
        request = bench.coordinator.next_trigger(10**9)
        assert request is not None
        bench.answer(request)
        assert only(bench.settle(), CheckpointCompleted).requests == (id,)

    def test_nothing_is_due_between_attempts(self, bench: Bench) -> None:
        bench.coordinator.end_attempt("failed", 0)
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None


class TestCompletion:
    def test_all_answers_and_the_barrier_make_a_checkpoint(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2, ("count", "alert")))
        request = bench.trigger()
        for uid in ("count", "alert"):
            for subtask in range(2):
                assert bench.settle() == []
                groups = (0, 63) if subtask == 0 else (64, 127)
                keyed = handle(bench.storage, groups, b"%d" % subtask)
                bench.coordinator.on_ack(ack(request, uid, subtask, keyed=keyed, operator={"x": [subtask]}), bench.now)
        assert bench.settle() == [], "the positions at the barrier are not known yet"
        bench.coordinator.on_barrier(1, SOURCES)
        done = only(bench.settle(), CheckpointCompleted)
        stored = bench.storage.read_manifest(1)
        assert stored == done.manifest
        assert [entry["key_groups"] for entry in stored.states["count"].keyed] == [[0, 63], [64, 127]]
        assert stored.states["alert"].operator == [{"x": [0]}, {"x": [1]}]
        assert stored.sources == SOURCES
        assert (stored.leader_epoch, stored.checkpoint_id, stored.trigger_timestamp) == (1, 1, 1000)
        assert stored.operators[0].states == {"count": {"kind": "value", "schema": "int"}}
        assert stored.state_bytes == 4
        assert bench.storage.read("latest") == b"chk-1\n"

    def test_nothing_blocks_the_caller(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.answer(request)
        calls = len(bench.faulty.calls)
        assert bench.coordinator.tick(bench.now) == []
        assert len(bench.faulty.calls) == calls, "the manifest is stored by the executor"

    def test_the_base_counts_references_and_the_last_one_is_retained(self, bench: Bench) -> None:
        first = bench.complete(b"1", b"2").manifest.states["count"].keyed[0]["files"]
        second = bench.complete(b"3", reuse=first).manifest.states["count"].keyed[0]["files"]
        bench.complete(b"123")
        bench.settle()
        assert bench.storage.checkpoint_ids() == [2, 3]
        assert len(bench.files()) == 4
        bench.complete(b"456")
        bench.settle()
        assert bench.storage.checkpoint_ids() == [3, 4]
        assert len(bench.files()) == 2
        assert not {entry["path"] for entry in second} & set(bench.files())
        assert [m.checkpoint_id for m in bench.coordinator.retained] == [3, 4]

    def test_a_manifest_goes_before_the_files_only_it_names(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        path = bench.complete(b"a").manifest.states["count"].keyed[0]["files"][0]["path"]
        bench.complete(b"b")
        bench.settle()
        deletes = [url for operation, url in bench.faulty.calls if operation == "delete"]
        assert deletes == [bench.storage.url_of("chk-1/_metadata"), bench.storage.url_of(path)]

    def test_deleting_is_tried_again(self, bench: Bench) -> None:
        bench.faulty.inject("delete", Fault.DENIED, match="chk-1", times=2)
        for content in (b"a", b"b", b"c"):
            bench.complete(content)
        bench.settle()
        for _ in range(3):
            bench.settle()
        assert bench.storage.checkpoint_ids() == [2, 3]
        assert len(bench.files()) == 2

    def test_a_hint_that_cannot_be_written_is_no_failure(self, bench: Bench) -> None:
        bench.faulty.inject("put", Fault.DENIED, match="latest")
        bench.complete(b"a")
        assert bench.coordinator.latest is not None

    def test_an_answer_that_was_not_asked_for_changes_nothing(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, "nobody"), 0)
        bench.coordinator.on_ack(ack(request), 0)
        bench.coordinator.on_ack(ack(request, committables=["twice"]), 0)
        bench.coordinator.on_barrier(1, SOURCES)
        assert only(bench.settle(), CheckpointCompleted).commits == {}

    def test_a_handle_on_a_deleted_file_is_declined(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=5)
        old = bench.complete(b"a").manifest.states["count"].keyed[0]["files"]
        bench.complete(b"b")
        request = bench.trigger()
        bench.answer(request, keyed=handle(bench.storage, (0, 127), reuse=old))
        assert "which was deleted" in only(bench.settle(), CheckpointAborted).reason

    def test_a_handle_on_a_savepoints_file_is_declined(self, bench: Bench, tmp_path: Path) -> None:
        bench.complete(b"a")
        bench.coordinator.trigger_savepoint(str(tmp_path / "savepoints"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b"))
        url = only(bench.settle(), SavepointCompleted).url
        bench.coordinator.end_attempt("redeployed", bench.now)
        bench.begin(restore_path=url)
        foreign = resolve(url, stores=bench.storage.stores).manifest.states["count"].keyed[0]["files"]
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), reuse=foreign))
        assert "is not this job's" in only(bench.settle(), CheckpointAborted).reason


class TestCommits:
    def test_what_a_checkpoint_covers_is_committed_with_it(self, bench: Bench) -> None:
        done = bench.complete(b"a", committables=["p1"])
        assert done.commits == {"count": ["p1"]}
        assert done.manifest.commits == {"count": ["p1"]}

    def test_until_it_is_confirmed_every_manifest_names_it(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        second = bench.complete(b"b", committables=["p2"])
        assert second.manifest.commits == {"count": ["p1", "p2"]}
        assert second.commits == {"count": ["p2"]}, "p1 is being committed already"
        bench.coordinator.on_committed(1)
        bench.coordinator.on_committed(2)
        assert bench.complete(b"c").manifest.commits == {}

    def test_what_an_abandoned_one_pre_committed_goes_with_the_next(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=9)
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, subtask=0, committables=["p1"]), 0)
        bench.coordinator.on_ack(ack(request, subtask=1, committables=["p2"], error="disk full"), 0)
        assert only(bench.settle(), CheckpointAborted).checkpoint_id == 1
        assert bench.complete(b"x").commits == {"count": ["p1", "p2"]}

    def test_the_next_one_waits_for_late_answers_of_an_abandoned_one(self, tmp_path: Path) -> None:
        """Its state says that the records behind p2 were processed, so its manifest must name p2."""
        bench = bench_with(tmp_path, job(2), tolerable_failures=9, timeout_ms=5000)
        first = bench.trigger()
        bench.coordinator.on_ack(ack(first, subtask=0, committables=["p1"]), 0)
        bench.now += 5000
        only(bench.settle(), CheckpointAborted)
        second = bench.trigger()
        bench.answer(second)
        assert bench.settle() == []
        late = handle(bench.storage, (64, 127), b"late")
        bench.coordinator.on_ack(ack(first, subtask=1, committables=["p2"], keyed=late), bench.now)
        assert only(bench.settle(), CheckpointCompleted).commits == {"count": ["p1", "p2"]}
        bench.settle()
        assert bench.files() == [], "the late files are nobody's"

    def test_if_the_late_answer_never_comes_the_message_says_what_is_missing(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=9, timeout_ms=5000)
        bench.trigger()
        bench.now += 5000
        assert "count 0/2 answered" in only(bench.settle(), CheckpointAborted).reason
        bench.answer(bench.trigger())
        bench.now += 5000
        assert "earlier checkpoints (1) were not answered" in only(bench.settle(), CheckpointAborted).reason

    def test_a_request_nobody_saw_is_not_waited_for(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        request = bench.trigger()
        bench.coordinator.on_failed(request.checkpoint_id, "the epoch was not run", bench.now, was_taken=False)
        bench.settle()
        bench.complete(b"x")

    def test_the_end_of_an_attempt_gives_up_what_was_not_confirmed(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        bench.answer(bench.trigger(), committables=["p2"])
        assert bench.coordinator.end_attempt("failed", bench.now) == {"count": ["p1", "p2"]}
        bench.begin()
        assert bench.recovery.commits == {"count": ["p1"]}
        assert bench.complete(b"b").manifest.commits == {}


class TestFailure:
    def test_a_decline_abandons_it_and_its_files_are_removed(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=1)
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, subtask=0, keyed=handle(bench.storage, (0, 63), b"a")), 0)
        assert len(bench.files()) == 1
        bench.coordinator.on_ack(ack(request, subtask=1, error="no answer from s3://…"), 0)
        aborted = only(bench.settle(), CheckpointAborted)
        assert aborted.reason == "count (1) declined: no answer from s3://…"
        assert bench.files() == []
        assert not bench.coordinator.is_in_progress

    def test_failures_in_a_row_are_counted(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=2, timeout_ms=10)
        for expected in (False, False):
            bench.answer(bench.trigger(), error="x")
            assert any(isinstance(event, JobMustFail) for event in bench.settle()) is expected
        bench.complete(b"good")
        for expected in (False, False, True):
            bench.answer(bench.trigger(), error="disk full")
            events = bench.settle()
            assert any(isinstance(event, JobMustFail) for event in events) is expected
        message = str(only(events, JobMustFail).error)
        assert "3 checkpoints failed in a row, 2 are tolerated" in message
        assert "disk full" in message

    def test_an_abandoned_increment_does_not_take_the_base_with_it(self, bench: Bench) -> None:
        base = bench.complete(b"a").manifest.states["count"].keyed[0]["files"]
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b", reuse=base), error="late")
        bench.settle()
        assert bench.storage.reader().read(ref_of(base[0])) == b"a"

    def test_a_manifest_in_doubt_keeps_its_files_until_the_next_is_complete(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        bench.faulty.inject("put", Fault.LATE, match="chk-1")
        bench.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-1", times=10**9)
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"), committables=["p1"])
        assert "may not be stored" in only(bench.settle(), CheckpointAborted).reason
        assert len(bench.files()) == 1
        assert bench.coordinator.latest is None
        bench.faulty.land_late()
        assert take_over(bench.storage, previous=None).snapshot is not None, "a crash now would go on from it"

    def test_one_in_doubt_is_subsumed_by_the_next(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        bench.faulty.inject("put", Fault.TIMEOUT_AFTER, match="chk-1", times=1)
        bench.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-1", times=10**9)
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"), committables=["p1"])
        only(bench.settle(), CheckpointAborted)
        done = bench.complete(b"b", committables=["p2"])
        assert done.commits == {"count": ["p1", "p2"]}
        bench.settle()
        assert bench.storage.checkpoint_ids() == [2]
        assert len(bench.files()) == 1

    def test_a_fenced_leader_stops_and_deletes_nothing(self, bench: Bench) -> None:
        bench.complete(b"a")
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b"))
        successor = take_over(bench.storage)
        successor.begin()
        deletes = [call for call in bench.faulty.calls if call[0] == "delete"]
        error = only(bench.settle(), JobMustFail).error
        assert isinstance(error, Fenced)
        assert [call for call in bench.faulty.calls if call[0] == "delete"] == deletes
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.shutdown("CANCELED").kept

    def test_a_taken_number_costs_nothing(self, bench: Bench) -> None:
        from penstock.checkpoint.codec import encode_manifest
        from tests.unit.checkpoint.support import manifest

        bench.coordinator.end_attempt("failed", 0)
        bench.begin()
        assert bench.recovery.epoch == 2
        taken = bench.recovery.base.first_checkpoint_id
        bench.storage.put(f"chk-{taken}/_metadata", encode_manifest(manifest(taken, epoch=1)))
        id = bench.coordinator.trigger_checkpoint()
        bench.answer(bench.trigger(), committables=["p1"])
        events = bench.settle()
        assert only(events, CheckpointAborted).requests == ()
        assert not any(isinstance(event, JobMustFail) for event in events)
        request = bench.trigger(after=0)
        assert request.checkpoint_id == taken + 1
        bench.answer(request)
        done = only(bench.settle(), CheckpointCompleted)
        assert done.requests == (id,)
        assert done.commits == {"count": ["p1"]}

    def test_an_outcome_of_the_former_attempt_is_not_taken_for_this_ones(self, bench: Bench) -> None:
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        bench.coordinator.tick(bench.now)
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        bench.executor.run_all()
        bench.begin(previous=bench.recovery.leadership)
        assert bench.settle() == []
        assert bench.recovery.snapshot is not None, "its put landed before the new attempt looked"
        assert bench.complete(b"b").checkpoint_id == 2

    def test_requests_of_an_attempt_that_ends_are_answered(self, bench: Bench) -> None:
        waiting = bench.coordinator.trigger_checkpoint()
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        aborted = only(bench.settle(), CheckpointAborted)
        assert (aborted.checkpoint_id, aborted.requests) == (0, (waiting,))

    def test_leftovers_of_earlier_attempts_are_removed_after_the_first_checkpoint(self, tmp_path: Path) -> None:
        storage, faulty = faulty_storage("dict://root")
        orphan = storage.writer().write(b"of an attempt that died").path
        bench = Bench(storage, faulty)
        bench.complete(b"a")
        bench.settle()
        assert orphan not in bench.files()
        assert len(bench.files()) == 1


def ref_of(file: dict[str, Any]) -> FileRef:
    return FileRef(file["path"], file["size"], file["checksum"])


class TestSavepoints:
    def test_a_savepoint_is_a_checkpoint_that_is_copied(self, bench: Bench, tmp_path: Path) -> None:
        id = bench.coordinator.trigger_savepoint(str(tmp_path / "savepoints"))
        status = bench.coordinator.savepoint_status(id)
        assert status is not None
        assert status.status == "IN_PROGRESS"
        request = bench.trigger(after=1)
        assert request.is_savepoint
        bench.answer(request, keyed=handle(bench.storage, (0, 127), b"a"), committables=["p1"])
        events = bench.settle()
        assert only(events, CheckpointCompleted).commits == {"count": ["p1"]}
        done = only(events, SavepointCompleted)
        assert done.request_id == id
        status = bench.coordinator.savepoint_status(id)
        assert status is not None
        assert (status.status, status.location) == ("COMPLETED", done.url)
        assert verify(done.url, checksums=True).is_complete
        assert bench.coordinator.latest is not None

    def test_its_files_are_held_while_they_are_copied(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        bench.coordinator.trigger_savepoint(str(tmp_path / "savepoints"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        bench.coordinator.tick(bench.now)
        bench.executor.run_one()  # the manifest
        bench.coordinator.tick(bench.now)
        copy = bench.executor.waiting.pop(0)
        assert bench.coordinator.is_copying
        bench.complete(b"b")
        bench.settle()
        assert len(bench.files()) == 2
        bench.executor.waiting.append(copy)
        url = only(bench.settle(), SavepointCompleted).url
        bench.settle()
        assert len(bench.files()) == 1
        assert resolve(url).manifest.checkpoint_id == 1
        assert not bench.coordinator.is_copying

    def test_no_directory_is_an_error_at_once(self, bench: Bench) -> None:
        with pytest.raises(InvalidJob, match="no directory"):
            bench.coordinator.trigger_savepoint()

    def test_the_configured_directory_is_used(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, savepoint_directory=str(tmp_path / "default"))
        bench.coordinator.trigger_savepoint()
        bench.answer(bench.trigger())
        assert f"{tmp_path}/default/savepoint-" in only(bench.settle(), SavepointCompleted).url

    def test_several_wait_for_each_other(self, bench: Bench, tmp_path: Path) -> None:
        ids = [bench.coordinator.trigger_savepoint(str(tmp_path / "s")) for _ in range(2)]
        urls = []
        for id in ids:
            bench.answer(bench.trigger(after=1))
            done = only(bench.settle(), SavepointCompleted)
            assert done.request_id == id
            urls.append(done.url)
        assert len(set(urls)) == 2

    def test_a_failed_one_is_not_counted_against_the_job(self, bench: Bench, tmp_path: Path) -> None:
        id = bench.coordinator.trigger_savepoint(str(tmp_path / "s"), is_final=True)
        request = bench.trigger()
        assert request.is_final
        bench.answer(request, error="disk full")
        events = bench.settle()
        assert not any(isinstance(event, JobMustFail) for event in events)
        failed = only(events, SavepointFailed)
        assert (failed.request_id, failed.is_final) == (id, True)
        assert "disk full" in failed.error.message
        bench.complete(b"goes on")

    def test_a_copy_that_fails_leaves_the_checkpoint(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.faulty.inject("copy", Fault.DENIED, times=1)
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        events = bench.settle()
        assert "403" in only(events, SavepointFailed).error.message
        assert only(events, CheckpointCompleted).checkpoint_id == 1
        assert bench.storage.checkpoint_ids() == [1]
        bench.complete(b"b")

    def test_a_failover_fails_it_wherever_it_stands(self, bench: Bench, tmp_path: Path) -> None:
        waiting, taken = (bench.coordinator.trigger_savepoint(str(tmp_path / "s")) for _ in range(2))
        bench.trigger()
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        failed = [event for event in bench.settle() if isinstance(event, SavepointFailed)]
        assert {event.request_id for event in failed} == {waiting, taken}
        for id in (waiting, taken):
            status = bench.coordinator.savepoint_status(id)
            assert status is not None
            assert "a worker was lost" in (status.failure or "")

    def test_a_failover_while_it_is_copied_fails_it(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        bench.coordinator.tick(bench.now)
        bench.executor.run_one()
        bench.coordinator.tick(bench.now)
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        only(bench.settle(), SavepointFailed)
        assert list((tmp_path / "s").rglob("_metadata")) == []
        assert bench.coordinator.history.overview()["counts"]["in_progress"] == 0

    def test_after_the_final_one_nothing_is_triggered(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"), is_final=True, drain=True)
        request = bench.trigger()
        assert (request.is_final, request.drain) == (True, True)
        bench.answer(request)
        events = bench.settle()
        assert only(events, SavepointCompleted).is_final
        assert only(events, CheckpointCompleted).manifest.is_final
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None


class TestTheEnd:
    def finish(self, bench: Bench) -> None:
        bench.now += 1
        request = bench.coordinator.final_checkpoint(bench.now)
        assert request is not None
        assert request.is_final
        bench.answer(request, keyed=handle(bench.storage, (0, 127), b"end"))
        done = only(bench.settle(), CheckpointCompleted)
        assert done.manifest.is_final
        bench.coordinator.on_committed(done.checkpoint_id)

    def test_a_final_checkpoint_waits_for_the_one_in_progress(self, bench: Bench) -> None:
        request = bench.trigger()
        assert bench.coordinator.final_checkpoint(bench.now) is None
        bench.answer(request)
        bench.settle()
        self.finish(bench)

    def test_a_final_checkpoint_serves_a_waiting_savepoint(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"), is_final=True, drain=True)
        request = bench.coordinator.final_checkpoint(1)
        assert request is not None
        bench.answer(request)
        url = only(bench.settle(), SavepointCompleted).url
        assert resolve(url).manifest.is_final

    @pytest.mark.parametrize(
        ("retention", "state", "kept"),
        [
            ("NO_EXTERNALIZED_CHECKPOINTS", "FINISHED", False),
            ("NO_EXTERNALIZED_CHECKPOINTS", "CANCELED", False),
            ("NO_EXTERNALIZED_CHECKPOINTS", "FAILED", False),
            ("NO_EXTERNALIZED_CHECKPOINTS", "SUSPENDED", True),
            ("DELETE_ON_CANCELLATION", "FINISHED", False),
            ("DELETE_ON_CANCELLATION", "CANCELED", False),
            ("DELETE_ON_CANCELLATION", "FAILED", True),
            ("RETAIN_ON_CANCELLATION", "FINISHED", False),
            ("RETAIN_ON_CANCELLATION", "CANCELED", True),
            ("RETAIN_ON_CANCELLATION", "FAILED", True),
            ("RETAIN_ON_CANCELLATION", "SUSPENDED", True),
        ],
    )
    def test_retention(self, tmp_path: Path, retention: str, state: Any, kept: bool) -> None:
        bench = bench_with(tmp_path, retention=retention)
        bench.complete(b"a")
        self.finish(bench)
        report = bench.coordinator.shutdown(state)
        assert report.kept is kept
        assert bool(bench.storage.checkpoint_ids()) is kept
        assert bool(bench.files()) is kept
        assert bench.storage.list_names("leader"), "the boundary stays"

    def test_nothing_is_deleted_while_a_commit_is_unconfirmed(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        report = bench.coordinator.shutdown("FINISHED")
        assert report.kept
        assert "1 commits" in report.reason
        assert bench.storage.checkpoint_ids() == [1]

    def test_what_no_completed_checkpoint_promised_keeps_nothing(self, bench: Bench) -> None:
        bench.complete(b"a")
        bench.answer(bench.trigger(), committables=["p1"])
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert bench.storage.checkpoint_ids() == []

    def test_a_manifest_that_arrives_after_the_end_counts_for_nobody(self, bench: Bench) -> None:
        bench.complete(b"a")
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b"))
        bench.coordinator.tick(bench.now)
        bench.coordinator.shutdown("CANCELED")
        bench.executor.run_all()
        again = take_over(bench.storage)
        assert again.snapshot is None
        assert again.base.first_checkpoint_id > 2

    def test_a_job_that_ended_and_starts_again_is_empty_and_numbers_go_on(self, bench: Bench) -> None:
        bench.complete(b"a")
        self.finish(bench)
        assert not bench.coordinator.shutdown("FINISHED").kept
        again = take_over(bench.storage)
        assert again.snapshot is None
        assert again.base.first_checkpoint_id > 2

    def test_savepoints_outlive_everything(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        url = only(bench.settle(), SavepointCompleted).url
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert verify(url, checksums=True).is_complete


class TestWhatIsStillNeededAtTheEnd:
    """Which committables somebody may still ask for: what is not among them, sinks remove."""

    def savepoint(self, bench: Bench, directory: Path, **fields: Any) -> None:
        bench.coordinator.trigger_savepoint(str(directory))
        bench.answer(bench.trigger(), **fields)
        only(bench.settle(), SavepointCompleted)
        bench.coordinator.on_committed(bench.recovery.base.first_checkpoint_id)

    def test_nothing_when_all_is_deleted(self, bench: Bench) -> None:
        bench.coordinator.on_committed(bench.complete(committables=["p1"]).checkpoint_id)
        bench.answer(bench.trigger(), committables=["p2"])
        report = bench.coordinator.shutdown("CANCELED")
        assert report.needed == {}
        assert report.unconfirmed == {"count": ["p2"]}

    def test_what_retained_checkpoints_name(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION")
        bench.complete(committables=["p1"])
        report = bench.coordinator.shutdown("CANCELED")
        assert report.needed is not None
        assert set(report.needed["count"]) == {"p1"}

    def test_what_the_newest_savepoint_names(self, bench: Bench, tmp_path: Path) -> None:
        self.savepoint(bench, tmp_path / "s", committables=["open"])
        report = bench.coordinator.shutdown("CANCELED")
        assert not report.kept
        assert report.needed is not None
        assert set(report.needed["count"]) == {"open"}

    def test_what_was_there_when_this_jobmanager_took_over(self, bench: Bench) -> None:
        """The one before may have taken savepoints that this one knows nothing of."""
        bench.coordinator.on_committed(bench.complete(committables=["old"]).checkpoint_id)
        other = Bench(bench.storage, bench.faulty)
        report = other.coordinator.shutdown("CANCELED")
        assert report.needed is not None
        assert set(report.needed["count"]) == {"old"}

    def test_is_unknown_while_a_checkpoint_is_in_doubt(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION", tolerable_failures=1)
        bench.complete()
        bench.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-2", times=10**9)
        bench.answer(bench.trigger(), committables=["p2"])
        only(bench.settle(), CheckpointAborted)
        assert bench.coordinator.shutdown("CANCELED").needed is None

    def test_is_unknown_while_a_manifest_is_being_stored(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION")
        bench.answer(bench.trigger())
        bench.coordinator.tick(bench.now)
        assert bench.coordinator.shutdown("FAILED").needed is None

    @pytest.mark.parametrize("state", ["SUSPENDED", "CANCELED"])
    def test_is_the_successors_business(self, bench: Bench, state: Any) -> None:
        bench.complete()
        if state == "CANCELED":
            take_over(bench.storage).begin()
        assert bench.coordinator.shutdown(state).needed is None

    def test_checkpoints_go_also_between_two_attempts(self, bench: Bench) -> None:
        bench.coordinator.on_committed(bench.complete(b"a").checkpoint_id)
        bench.coordinator.end_attempt("failed", bench.now)
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert bench.storage.checkpoint_ids() == []

    def test_but_not_if_commits_were_promised(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        bench.coordinator.end_attempt("failed", bench.now)
        report = bench.coordinator.shutdown("CANCELED")
        assert report.kept
        assert report.needed is not None
        assert set(report.needed["count"]) == {"p1"}


def test_positions_are_those_of_the_barrier(bench: Bench) -> None:
    request = bench.trigger()
    positions = {"readings": SourceState([SplitPosition("a", {}, 5), SplitPosition("b", {}, 7, finished=True)])}
    bench.coordinator.on_ack(ack(request), 0)
    bench.coordinator.on_barrier(1, positions)
    only(bench.settle(), CheckpointCompleted)
    assert bench.storage.read_manifest(1).sources == positions


def test_counts_and_latest_in_the_shape_of_flinks_rest_api(bench: Bench, tmp_path: Path) -> None:
    bench.complete(b"abc", bytes_uploaded=3, sync_ms=2, async_ms=40)
    bench.answer(bench.trigger(), error="x")
    bench.settle()
    bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
    bench.answer(bench.trigger())
    bench.settle()
    bench.trigger()
    overview = bench.coordinator.history.overview()
    assert overview["counts"] == {"restored": 0, "total": 4, "in_progress": 1, "completed": 2, "failed": 1}
    assert overview["latest"]["completed"]["id"] == 1
    assert overview["latest"]["completed"]["external_path"] == bench.storage.url_of("chk-1")
    assert overview["latest"]["failed"]["failure_message"] == "count (0) declined: x"
    assert overview["latest"]["savepoint"]["checkpoint_type"] == "SAVEPOINT"
    assert [entry["status"] for entry in overview["history"]] == ["IN_PROGRESS", "COMPLETED", "FAILED", "COMPLETED"]
    assert overview["summary"]["state_size"]["max"] == 3


class TestFilesOfOthers:
    """Files that splits and committables name are kept as state files are, for as long as somebody needs them."""

    @staticmethod
    def written(bench: Bench) -> dict[str, Any]:
        ref = bench.storage.writer().write(b"rows")
        return {"path": ref.path, "size": ref.size, "checksum": ref.checksum}

    def test_a_staged_commit_keeps_its_file_until_it_is_confirmed(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        file = self.written(bench)
        request = bench.trigger()
        bench.coordinator.on_barrier(request.checkpoint_id, SOURCES)
        committables = [{"checkpoint": 1, "staged_file": file}]
        info = bench.description.operators[0]
        bench.coordinator.on_ack(ack(request, info.uid, 0, committables=committables), bench.now)
        bench.coordinator.on_failed(request.checkpoint_id, "a subtask declined", bench.now)
        bench.settle()
        assert bench.files() == [file["path"]], "an abandoned checkpoint's rows belong to the next one"
        for other in bench.description.operators:
            for subtask in range(other.parallelism):
                if (other.uid, subtask) != (info.uid, 0):
                    bench.coordinator.on_ack(ack(request, other.uid, subtask), bench.now)
        second = bench.complete()
        assert second.commits == {info.uid: committables}
        bench.coordinator.on_committed(second.checkpoint_id)
        bench.settle()
        assert bench.files() == [file["path"]], "the retained manifest promises it"
        bench.complete()
        bench.settle()
        assert bench.files() == []

    def test_a_split_keeps_its_file_while_a_checkpoint_names_it(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        file = self.written(bench)
        bench.coordinator.hold_files("batch-1", [file["path"]])
        request = bench.trigger()
        sources = {"in": SourceState([SplitPosition("1-0", {}, files=[file])])}
        for info in bench.description.operators:
            for subtask in range(info.parallelism):
                bench.coordinator.on_ack(ack(request, info.uid, subtask), bench.now)
        bench.coordinator.on_barrier(request.checkpoint_id, sources)
        bench.coordinator.release_files("batch-1")
        url = only(bench.settle(), CheckpointCompleted).manifest
        assert [named.path for named in files_of(url)] == [file["path"]]
        assert bench.files() == [file["path"]]
        bench.complete()
        bench.settle()
        assert bench.files() == []

    def test_files_that_are_being_written_are_left_alone(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        bench.coordinator.expect_files("shared/batch-")
        registry = bench.coordinator._attempt.completed.registry  # type: ignore[union-attr]
        assert registry.is_needed("shared/batch-0-1")
        assert not registry.is_needed("shared/other")


def test_numbers_go_on_behind_a_savepoints(tmp_path: Path) -> None:
    first = bench_with(tmp_path / "first")
    for _ in range(3):
        completed = first.complete()
    url = first.storage.url_of(f"chk-{completed.checkpoint_id}")
    storage, _ = faulty_storage(tmp_path / "second")
    recovery = take_over(storage, restore_path=url)
    assert recovery.base.first_checkpoint_id == completed.checkpoint_id + 1
