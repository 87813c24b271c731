"""The coordinator at the end of a job: the files that it keeps or deletes, and the committables still in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.events import CheckpointAborted, CheckpointCompleted, SavepointCompleted
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import resolve, verify
from penstock.checkpoint.store.faults import Fault
from tests.unit.checkpoint.bench import Bench, bench_with, only
from tests.unit.checkpoint.support import handle

if TYPE_CHECKING:
    from pathlib import Path


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

    def test_a_checkpoint_that_no_subtask_has_received_becomes_the_final_one(self, bench: Bench) -> None:
        bench.now += bench.coordinator.settings.interval_ms or 0
        bench.coordinator.trigger_due(bench.now)
        assert bench.coordinator.is_in_progress
        self.finish(bench)
        assert bench.coordinator.next_trigger(bench.now + 1_000_000) is None

    def test_a_savepoint_that_no_subtask_has_received_is_not_the_final_checkpoint(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.coordinator.trigger_due(bench.now)
        assert bench.coordinator.final_checkpoint(bench.now) is None

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
    def test_retention_decides_which_checkpoints_remain(
        self, tmp_path: Path, retention: str, state: Any, kept: bool
    ) -> None:
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
        assert "1 sink commits" in report.reason
        assert bench.storage.checkpoint_ids() == [1]

    def test_a_committable_that_no_complete_checkpoint_promised_keeps_nothing(self, bench: Bench) -> None:
        bench.complete(b"a")
        bench.answer(bench.trigger(), committables=["p1"])
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert bench.storage.checkpoint_ids() == []

    def test_a_manifest_that_arrives_after_the_end_is_ignored(self, bench: Bench) -> None:
        bench.complete(b"a")
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b"))
        bench.coordinator.tick(bench.now)
        bench.coordinator.shutdown("CANCELED")
        bench.executor.run_all()
        again = take_over(bench.storage)
        assert again.snapshot is None
        assert again.base.first_checkpoint_id > 2

    def test_a_job_that_ended_and_starts_again_is_empty_and_continues_the_numbering(self, bench: Bench) -> None:
        bench.complete(b"a")
        self.finish(bench)
        assert not bench.coordinator.shutdown("FINISHED").kept
        again = take_over(bench.storage)
        assert again.snapshot is None
        assert again.base.first_checkpoint_id > 2

    def test_savepoints_are_kept_after_every_end(self, bench: Bench, tmp_path: Path) -> None:
        bench.coordinator.trigger_savepoint(str(tmp_path / "s"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        url = only(bench.settle(), SavepointCompleted).url
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert verify(url, checksums=True).is_complete


class TestFilesNeededAfterTheEnd:
    """The committables that a later restore may need. Sinks remove all others."""

    def savepoint(self, bench: Bench, directory: Path, **fields: Any) -> None:
        bench.coordinator.trigger_savepoint(str(directory))
        bench.answer(bench.trigger(), **fields)
        only(bench.settle(), SavepointCompleted)
        bench.coordinator.on_committed(bench.recovery.base.first_checkpoint_id)

    def test_no_committable_is_needed_when_all_checkpoints_are_deleted(self, bench: Bench) -> None:
        bench.coordinator.on_committed(bench.complete(committables=["p1"]).checkpoint_id)
        bench.answer(bench.trigger(), committables=["p2"])
        report = bench.coordinator.shutdown("CANCELED")
        assert report.needed == {}
        assert report.unconfirmed == {"count": ["p2"]}

    def test_committables_of_retained_checkpoints_are_needed(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION")
        bench.complete(committables=["p1"])
        report = bench.coordinator.shutdown("CANCELED")
        assert report.needed is not None
        assert set(report.needed["count"]) == {"p1"}

    def test_committables_of_the_newest_savepoint_are_needed(self, bench: Bench, tmp_path: Path) -> None:
        self.savepoint(bench, tmp_path / "s", committables=["open"])
        report = bench.coordinator.shutdown("CANCELED")
        assert not report.kept
        assert report.needed is not None
        assert set(report.needed["count"]) == {"open"}

    def test_committables_found_at_the_takeover_are_needed(self, bench: Bench) -> None:
        """The former JobManager may have taken savepoints that are unknown to this one."""
        bench.coordinator.on_committed(bench.complete(committables=["old"]).checkpoint_id)
        other = Bench(bench.storage, bench.faulty)
        report = other.coordinator.shutdown("CANCELED")
        assert report.needed is not None
        assert set(report.needed["count"]) == {"old"}

    def test_the_set_is_unknown_while_a_checkpoint_is_in_doubt(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION", tolerable_failures=1)
        bench.complete()
        bench.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-2", times=10**9)
        bench.answer(bench.trigger(), committables=["p2"])
        only(bench.settle(), CheckpointAborted)
        assert bench.coordinator.shutdown("CANCELED").needed is None

    def test_the_set_is_unknown_while_a_manifest_is_being_stored(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, retention="RETAIN_ON_CANCELLATION")
        bench.answer(bench.trigger())
        bench.coordinator.tick(bench.now)
        assert bench.coordinator.shutdown("FAILED").needed is None

    @pytest.mark.parametrize("state", ["SUSPENDED", "CANCELED"])
    def test_the_set_is_unknown_if_a_successor_decides_it(self, bench: Bench, state: Any) -> None:
        bench.complete()
        if state == "CANCELED":
            take_over(bench.storage).begin()
        assert bench.coordinator.shutdown(state).needed is None

    def test_checkpoints_are_deleted_also_between_two_attempts(self, bench: Bench) -> None:
        bench.coordinator.on_committed(bench.complete(b"a").checkpoint_id)
        bench.coordinator.end_attempt("failed", bench.now)
        assert not bench.coordinator.shutdown("CANCELED").kept
        assert bench.storage.checkpoint_ids() == []

    def test_checkpoints_with_promised_commits_are_kept_between_two_attempts(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        bench.coordinator.end_attempt("failed", bench.now)
        report = bench.coordinator.shutdown("CANCELED")
        assert report.kept
        assert report.needed is not None
        assert set(report.needed["count"]) == {"p1"}
