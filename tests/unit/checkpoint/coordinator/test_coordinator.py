"""The coordinator: triggers, acknowledgements, completion and commits, and the events that it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.coordinator import cleaner
from penstock.checkpoint.events import CheckpointAborted, CheckpointCompleted, SavepointCompleted, SnapshotRequest
from penstock.checkpoint.files.manifest import SourceState, SplitPosition
from penstock.checkpoint.savepoint.savepoints import resolve
from penstock.checkpoint.store.faults import Fault
from tests.unit.checkpoint.bench import Bench, bench_with, only
from tests.unit.checkpoint.support import SOURCES, ack, handle, job

if TYPE_CHECKING:
    from pathlib import Path


class TestCommitsThatAreSlow:
    """Checkpoints whose commits are slow. The interval is 1 s and each checkpoint promises a commit."""

    def test_periodic_checkpoints_wait_for_the_commits(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, max_uncommitted=2)
        first, second = bench.complete(committables=["a"]), bench.complete(committables=["b"])
        bench.now += 10_000
        assert bench.coordinator.next_trigger(bench.now) is None
        assert bench.coordinator.next_action_at() is None, "nothing is due: a commit must be carried out first"
        trigger = bench.coordinator.history.overview()["trigger"]
        assert (trigger["state"], trigger["uncommitted_checkpoints"], trigger["pending_commits"]) == (
            "WAITING_FOR_COMMITS",
            2,
            2,
        )
        bench.coordinator.on_committed(first.checkpoint_id)
        third = bench.complete(committables=["c"])
        assert third.manifest.commits == {"count": ["b", "c"]}
        bench.coordinator.on_committed(second.checkpoint_id)
        bench.coordinator.on_committed(third.checkpoint_id)
        assert bench.coordinator.history.overview()["trigger"]["uncommitted_checkpoints"] == 0

    def test_requested_checkpoints_and_the_final_one_do_not_wait(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, max_uncommitted=1, savepoint_directory=str(tmp_path / "savepoints"))
        bench.complete(committables=["a"])
        assert bench.coordinator.next_trigger(bench.now + 10_000) is None
        bench.coordinator.trigger_savepoint()
        assert bench.coordinator.next_action_at() is not None
        bench.complete(committables=["b"])
        bench.coordinator.trigger_checkpoint()
        bench.complete(committables=["c"])
        assert bench.coordinator.next_trigger(bench.now + 10_000) is None
        assert bench.coordinator.final_checkpoint(bench.now + 10_000) is not None

    def test_checkpoints_without_commits_do_not_wait(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, max_uncommitted=1)
        assert [bench.complete().checkpoint_id for _ in range(5)] == [1, 2, 3, 4, 5]


class TestTriggers:
    def test_the_first_checkpoint_is_due_after_an_interval(self, bench: Bench) -> None:
        assert bench.coordinator.next_trigger(999) is None
        assert bench.coordinator.next_action_at() == 1000
        assert bench.coordinator.next_trigger(1000) == SnapshotRequest(1, 1000)

    def test_only_one_checkpoint_is_in_progress(self, bench: Bench) -> None:
        bench.trigger()
        assert bench.coordinator.is_in_progress
        assert bench.coordinator.next_trigger(50_000) is None

    def test_a_delayed_checkpoint_starts_as_soon_as_possible_and_none_accumulate(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.now = 5500
        bench.answer(request)
        bench.settle()
        assert bench.coordinator.next_trigger(5500) == SnapshotRequest(2, 5500)

    def test_the_pause_starts_at_the_end_of_a_checkpoint(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, min_pause_ms=700)
        request = bench.trigger()
        bench.now = 1900
        bench.answer(request)
        bench.settle()
        assert bench.coordinator.next_trigger(2599) is None
        assert bench.coordinator.next_trigger(2600) is not None

    def test_without_an_interval_only_requested_checkpoints_are_due(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, interval_ms=None)
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None
        id = bench.coordinator.trigger_checkpoint()
        request = bench.coordinator.next_trigger(10**9)
        assert request is not None
        bench.answer(request)
        assert only(bench.settle(), CheckpointCompleted).requests == (id,)

    def test_no_checkpoint_is_due_between_attempts(self, bench: Bench) -> None:
        bench.coordinator.end_attempt("failed", 0)
        assert bench.coordinator.next_trigger(10**9) is None
        assert bench.coordinator.next_action_at() is None


class TestCompletion:
    def test_all_acknowledgements_and_the_barrier_complete_a_checkpoint(self, tmp_path: Path) -> None:
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

    def test_the_coordinator_does_not_block_its_caller(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.answer(request)
        calls = len(bench.faulty.calls)
        assert bench.coordinator.tick(bench.now) == []
        assert len(bench.faulty.calls) == calls, "the manifest is stored by the executor"

    def test_the_base_counts_references_and_the_newest_checkpoint_is_retained(self, bench: Bench) -> None:
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

    def test_a_manifest_is_deleted_before_the_files_that_only_it_names(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path)
        path = bench.complete(b"a").manifest.states["count"].keyed[0]["files"][0]["path"]
        bench.complete(b"b")
        bench.settle()
        deletes = [url for operation, url in bench.faulty.calls if operation == "delete"]
        assert deletes == [bench.storage.url_of("chk-1/_metadata"), bench.storage.url_of(path)]

    def test_a_failed_deletion_is_retried(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cleaner, "FIRST_PAUSE", 0.0)
        bench.faulty.inject("delete", Fault.DENIED, match="chk-1", times=2)
        for content in (b"a", b"b", b"c"):
            bench.complete(content)
        bench.settle()
        for _ in range(3):
            bench.settle()
        assert bench.storage.checkpoint_ids() == [2, 3]
        assert len(bench.files()) == 2

    def test_a_hint_that_cannot_be_written_does_not_fail_the_checkpoint(self, bench: Bench) -> None:
        bench.faulty.inject("put", Fault.DENIED, match="latest")
        bench.complete(b"a")
        assert bench.coordinator.latest is not None

    def test_an_unexpected_acknowledgement_changes_nothing(self, bench: Bench) -> None:
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, "nobody"), 0)
        bench.coordinator.on_ack(ack(request), 0)
        bench.coordinator.on_ack(ack(request, committables=["twice"]), 0)
        bench.coordinator.on_barrier(1, SOURCES)
        assert only(bench.settle(), CheckpointCompleted).commits == {}

    def test_a_handle_to_a_deleted_file_is_declined(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=5)
        old = bench.complete(b"a").manifest.states["count"].keyed[0]["files"]
        bench.complete(b"b")
        request = bench.trigger()
        bench.answer(request, keyed=handle(bench.storage, (0, 127), reuse=old))
        assert "which was deleted" in only(bench.settle(), CheckpointAborted).reason

    def test_a_handle_to_a_file_of_a_savepoint_is_declined(self, bench: Bench, tmp_path: Path) -> None:
        bench.complete(b"a")
        bench.coordinator.trigger_savepoint(str(tmp_path / "savepoints"))
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b"))
        url = only(bench.settle(), SavepointCompleted).url
        bench.coordinator.end_attempt("redeployed", bench.now)
        bench.begin(restore_path=url)
        foreign = resolve(url, stores=bench.storage.stores).manifest.states["count"].keyed[0]["files"]
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), reuse=foreign))
        assert "may not refer to files of another job" in only(bench.settle(), CheckpointAborted).reason


class TestCommits:
    def test_a_checkpoint_commits_the_committables_that_it_covers(self, bench: Bench) -> None:
        done = bench.complete(b"a", committables=["p1"])
        assert done.commits == {"count": ["p1"]}
        assert done.manifest.commits == {"count": ["p1"]}

    def test_every_manifest_names_a_committable_until_its_commit_is_confirmed(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        second = bench.complete(b"b", committables=["p2"])
        assert second.manifest.commits == {"count": ["p1", "p2"]}
        assert second.commits == {"count": ["p2"]}, "p1 is being committed already"
        bench.coordinator.on_committed(1)
        bench.coordinator.on_committed(2)
        assert bench.complete(b"c").manifest.commits == {}

    def test_committables_of_an_abandoned_checkpoint_are_committed_with_the_next(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=9)
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, subtask=0, committables=["p1"]), 0)
        bench.coordinator.on_ack(ack(request, subtask=1, committables=["p2"], error="disk full"), 0)
        assert only(bench.settle(), CheckpointAborted).checkpoint_id == 1
        assert bench.complete(b"x").commits == {"count": ["p1", "p2"]}

    def test_the_next_checkpoint_waits_for_late_acknowledgements_of_an_abandoned_one(self, tmp_path: Path) -> None:
        """The state says that the records behind p2 were processed, so the manifest must name p2."""
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
        assert bench.files() == [], "no checkpoint refers to the late files"

    def test_the_message_names_the_missing_acknowledgement(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=9, timeout_ms=5000)
        bench.trigger()
        bench.now += 5000
        assert "count 0/2 answered" in only(bench.settle(), CheckpointAborted).reason
        bench.answer(bench.trigger())
        bench.now += 5000
        assert (
            "not every subtask has acknowledged earlier checkpoints (1)"
            in only(bench.settle(), CheckpointAborted).reason
        )

    def test_a_request_that_no_subtask_received_is_not_awaited(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        request = bench.trigger()
        bench.coordinator.on_failed(request.checkpoint_id, "the epoch was not run", bench.now, was_taken=False)
        bench.settle()
        bench.complete(b"x")

    def test_the_end_of_an_attempt_abandons_unconfirmed_commits(self, bench: Bench) -> None:
        bench.complete(b"a", committables=["p1"])
        bench.answer(bench.trigger(), committables=["p2"])
        assert bench.coordinator.end_attempt("failed", bench.now) == {"count": ["p1", "p2"]}
        bench.begin()
        assert bench.recovery.commits == {"count": ["p1"]}
        assert bench.complete(b"b").manifest.commits == {}


def test_the_positions_are_those_at_the_barrier(bench: Bench) -> None:
    request = bench.trigger()
    positions = {"readings": SourceState([SplitPosition("a", {}, 5), SplitPosition("b", {}, 7, finished=True)])}
    bench.coordinator.on_ack(ack(request), 0)
    bench.coordinator.on_barrier(1, positions)
    only(bench.settle(), CheckpointCompleted)
    assert bench.storage.read_manifest(1).sources == positions


def test_counts_and_latest_checkpoints_have_the_shape_of_flinks_rest_api(bench: Bench, tmp_path: Path) -> None:
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
