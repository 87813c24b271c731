"""The coordinator and savepoints: how they are taken, copied and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.events import CheckpointCompleted, JobMustFail, SavepointCompleted, SavepointFailed
from penstock.checkpoint.files.codec import files_of
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import list_savepoints, resolve, verify
from penstock.checkpoint.store.faults import Fault
from penstock.common.errors import InvalidJob
from tests.unit.checkpoint.bench import Bench, bench_with, only
from tests.unit.checkpoint.support import SOURCES, ack, faulty_storage, handle

if TYPE_CHECKING:
    from pathlib import Path


class TestSavepoints:
    def test_a_savepoint_is_a_copied_checkpoint(self, bench: Bench, tmp_path: Path) -> None:
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

    def test_files_of_a_savepoint_are_kept_while_they_are_copied(self, tmp_path: Path) -> None:
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

    def test_a_missing_directory_is_an_immediate_error(self, bench: Bench) -> None:
        with pytest.raises(InvalidJob, match="no target directory"):
            bench.coordinator.trigger_savepoint()

    def test_the_configured_directory_is_used(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, savepoint_directory=str(tmp_path / "default"))
        bench.coordinator.trigger_savepoint()
        bench.answer(bench.trigger())
        assert f"{tmp_path}/default/savepoint-" in only(bench.settle(), SavepointCompleted).url

    def test_several_savepoints_wait_for_each_other(self, bench: Bench, tmp_path: Path) -> None:
        ids = [bench.coordinator.trigger_savepoint(str(tmp_path / "s")) for _ in range(2)]
        urls = []
        for id in ids:
            bench.answer(bench.trigger(after=1))
            done = only(bench.settle(), SavepointCompleted)
            assert done.request_id == id
            urls.append(done.url)
        assert len(set(urls)) == 2

    def test_a_failed_savepoint_does_not_count_against_the_job(self, bench: Bench, tmp_path: Path) -> None:
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

    def test_a_failed_copy_keeps_the_checkpoint(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.faulty.inject("copy", Fault.DENIED, times=1)
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        events = bench.settle()
        assert "403" in only(events, SavepointFailed).error.message
        assert only(events, CheckpointCompleted).checkpoint_id == 1
        assert bench.storage.checkpoint_ids() == [1]
        bench.complete(b"b")

    def test_a_failover_fails_the_savepoint_at_every_stage(self, bench: Bench, tmp_path: Path) -> None:
        waiting, taken = (bench.coordinator.trigger_savepoint(str(tmp_path / "s")) for _ in range(2))
        bench.trigger()
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        failed = [event for event in bench.settle() if isinstance(event, SavepointFailed)]
        assert {event.request_id for event in failed} == {waiting, taken}
        for id in (waiting, taken):
            status = bench.coordinator.savepoint_status(id)
            assert status is not None
            assert "a worker was lost" in (status.failure or "")

    def test_a_failover_during_the_copy_fails_the_savepoint(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        bench.coordinator.tick(bench.now)
        bench.executor.run_one()
        bench.coordinator.tick(bench.now)
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        only(bench.settle(), SavepointFailed)
        assert list((tmp_path / "s").rglob("_metadata")) == []
        assert bench.coordinator.history.overview()["counts"]["in_progress"] == 0

    def test_nothing_is_triggered_after_the_final_checkpoint(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"), is_final=True, drain=True)
        request = bench.trigger()
        assert (request.is_final, request.drain) == (True, True)
        bench.answer(request)
        events = bench.settle()
        assert only(events, SavepointCompleted).is_final
        assert only(events, CheckpointCompleted).manifest.is_final
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None


class TestAJobManagerThatDiesInADrain:
    """A JobManager that dies while it drains the job. Its successor knows only the savepoints in storage."""

    @staticmethod
    def drained(bench: Bench, target: Path, works: int) -> None:
        """End the JobManager after all subtasks have acknowledged and `works` tasks have run in the background."""
        bench.settle()
        bench.coordinator.trigger_savepoint(str(target), is_final=True, drain=True)
        bench.answer(bench.trigger())
        bench.coordinator.tick(bench.now)
        for _ in range(works):
            bench.executor.run_one()
            bench.coordinator.tick(bench.now)

    @staticmethod
    def taken_over(bench: Bench) -> Bench:
        successor = Bench(bench.storage, bench.faulty, bench.settings)
        successor.settle()
        return successor

    def test_its_savepoint_is_disposed_of_if_the_stop_was_not_decided(self, bench: Bench, tmp_path: Path) -> None:
        self.drained(bench, tmp_path / "s", works=1)
        (info,) = list_savepoints(str(tmp_path / "s"))
        assert info.is_usable
        assert self.taken_over(bench).recovery.snapshot is None
        assert not [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
        assert bench.storage.list_names("drain") == []

    def test_its_savepoint_is_kept_if_the_stop_was_decided(self, bench: Bench, tmp_path: Path) -> None:
        self.drained(bench, tmp_path / "s", works=2)
        assert self.taken_over(bench).recovery.is_drained
        (info,) = list_savepoints(str(tmp_path / "s"))
        assert info.is_usable
        assert bench.storage.list_names("drain") == []

    def test_a_successful_stop_leaves_no_note(self, bench: Bench, tmp_path: Path) -> None:
        self.drained(bench, tmp_path / "s", works=0)
        bench.settle()
        assert bench.storage.list_names("drain") == []


class TestForeignFiles:
    """Files that splits and committables name.

    The coordinator keeps them as long as they are needed, as state files.
    """

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

    def test_files_that_are_being_written_are_not_deleted(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        bench.coordinator.expect_files("shared/batch-")
        registry = bench.coordinator._attempt.completed.registry
        assert registry.is_needed("shared/batch-0-1")
        assert not registry.is_needed("shared/other")


def test_checkpoint_numbers_continue_after_the_number_of_a_savepoint(tmp_path: Path) -> None:
    first = bench_with(tmp_path / "first")
    for _ in range(3):
        completed = first.complete()
    url = first.storage.url_of(f"chk-{completed.checkpoint_id}")
    storage, _ = faulty_storage(tmp_path / "second")
    recovery = take_over(storage, restore_path=url)
    assert recovery.base.first_checkpoint_id == completed.checkpoint_id + 1
