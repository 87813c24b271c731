"""The coordinator with failures: late, lost and failing acknowledgements, unavailable storage, another leader."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.coordinator.outcomes import MAX_IN_DOUBT
from penstock.checkpoint.events import CheckpointAborted, CheckpointCompleted, JobMustFail
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.store.faults import Fault
from penstock.common.errors import Fenced
from penstock.state.files import FileRef
from tests.unit.checkpoint.bench import Bench, bench_with, only
from tests.unit.checkpoint.support import ack, faulty_storage, handle, job

if TYPE_CHECKING:
    from pathlib import Path


class TestFailure:
    def test_a_declined_checkpoint_is_abandoned_and_its_files_are_removed(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, job(2), tolerable_failures=1)
        request = bench.trigger()
        bench.coordinator.on_ack(ack(request, subtask=0, keyed=handle(bench.storage, (0, 63), b"a")), 0)
        assert len(bench.files()) == 1
        bench.coordinator.on_ack(ack(request, subtask=1, error="no answer from s3://…"), 0)
        aborted = only(bench.settle(), CheckpointAborted)
        assert aborted.reason == "count (1) declined: no answer from s3://…"
        assert bench.files() == []
        assert not bench.coordinator.is_in_progress

    def test_consecutive_failures_are_counted(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=2, timeout_ms=10)
        for expected in (False, False):
            bench.answer(bench.trigger(), error="x")
            assert any(isinstance(event, JobMustFail) for event in bench.settle()) is expected
        bench.complete(b"good")
        for expected in (False, False, True):
            bench.answer(bench.trigger(), error="disk full")
            events = bench.settle()
            assert any(isinstance(event, JobMustFail) for event in events) is expected
        error = only(events, JobMustFail).error
        assert "3 checkpoints failed in a row, 2 are tolerated" in str(error)
        assert error.code == "EPOCH_FAILED"
        assert "disk full" in str(error)

    def test_values_that_cannot_be_encoded_are_reported_as_such(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=1)
        for expected in (False, True):
            bench.answer(bench.trigger(), error="StateTypeError: an Opaque", error_code="STATE_TYPE")
            events = bench.settle()
            assert any(isinstance(event, JobMustFail) for event in events) is expected
        assert only(events, JobMustFail).error.code == "STATE_TYPE"

    def test_an_abandoned_incremental_checkpoint_keeps_its_base(self, bench: Bench) -> None:
        base = bench.complete(b"a").manifest.states["count"].keyed[0]["files"]
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"b", reuse=base), error="late")
        bench.settle()
        assert bench.storage.reader().read(ref_of(base[0])) == b"a"

    def test_a_manifest_in_doubt_keeps_its_files_until_the_next_is_complete(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        bench.faulty.inject("put", Fault.LATE, match="chk-1")
        bench.faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-1", times=10**9)
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"), committables=["p1"])
        assert "it is unknown whether its manifest is stored" in only(bench.settle(), CheckpointAborted).reason
        assert len(bench.files()) == 1
        assert bench.coordinator.latest is None
        bench.faulty.land_late()
        assert take_over(bench.storage, candidate=None).snapshot is not None, "a crash now would go on from it"

    def test_a_checkpoint_in_doubt_is_subsumed_by_the_next(self, tmp_path: Path) -> None:
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

    def test_a_refused_manifest_is_not_in_doubt(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=9)
        bench.faulty.inject("put", Fault.DENIED, match="chk-")
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        assert "is not stored: cannot put" in only(bench.settle(), CheckpointAborted).reason
        bench.settle()
        assert bench.files() == []

    @pytest.mark.parametrize(
        ("operation", "fault", "skip"),
        [("put", Fault.TIMEOUT_BEFORE, 0), ("list", Fault.DENIED, 1), ("list", Fault.TIMEOUT_BEFORE, 1)],
        ids=["the put is not answered", "the look behind it is refused", "the look behind it is not answered"],
    )
    def test_the_number_of_manifests_in_doubt_is_bounded(
        self, tmp_path: Path, operation: str, fault: Fault, skip: int
    ) -> None:
        bench = bench_with(tmp_path, tolerable_failures=10**6)
        for number in range(1, MAX_IN_DOUBT + 1):
            bench.faulty.heal()
            bench.faulty.inject(
                operation, fault, match="chk-" if operation == "put" else "leader", skip=skip, times=10**9
            )
            bench.answer(bench.trigger(after=20_000), keyed=handle(bench.storage, (0, 127), b"a"))
            events = bench.settle()
            assert any(isinstance(event, JobMustFail) for event in events) is (number == MAX_IN_DOUBT)
        error = only(events, JobMustFail).error
        assert error.code == "EPOCH_FAILED"
        assert f"of {MAX_IN_DOUBT} checkpoints are stored" in str(error)

    def test_the_last_checkpoint_of_a_bounded_job_counts_failures_and_waits_between_retries(
        self, tmp_path: Path
    ) -> None:
        bench = bench_with(tmp_path, tolerable_failures=2)
        bench.faulty.inject("put", Fault.DENIED, match="chk-", times=10**9)
        pauses = []
        for expected in (False, False, True):
            request = bench.coordinator.final_checkpoint(bench.now)
            assert request is not None
            bench.answer(request)
            events = bench.settle()
            assert any(isinstance(event, JobMustFail) for event in events) is expected
            pauses.append(bench.coordinator.final_checkpoint_at() - bench.now)
            assert bench.coordinator.final_checkpoint(bench.now) is None
            bench.now += pauses[-1]
        assert pauses == [100, 200, 400]
        assert "403 AccessDenied" in str(only(events, JobMustFail).error)

    def test_the_last_checkpoint_respects_the_minimum_pause(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, tolerable_failures=2, min_pause_ms=7_000)
        bench.faulty.inject("put", Fault.DENIED, match="chk-", times=10**9)
        request = bench.coordinator.final_checkpoint(bench.now)
        assert request is not None
        bench.answer(request)
        bench.settle()
        assert bench.coordinator.final_checkpoint_at() == bench.now + 7_000

    def test_a_final_checkpoint_fails_the_job_permanently_when_storage_refuses_it_in_two_attempts(
        self, tmp_path: Path
    ) -> None:
        bench = bench_with(tmp_path)
        codes = []
        for _ in range(2):
            bench.faulty.inject("put", Fault.DENIED, match="chk-")
            request = bench.coordinator.final_checkpoint(bench.now)
            assert request is not None
            bench.answer(request)
            codes.append(only(bench.settle(), JobMustFail).error.code)
            bench.coordinator.end_attempt("failed", bench.now)
            bench.begin(candidate=bench.recovery.leadership.candidate)
        assert codes == ["EPOCH_FAILED", "FINAL_CHECKPOINT_REFUSED"]

    def test_refused_uploads_of_the_final_checkpoint_count_as_well(self, tmp_path: Path) -> None:
        bench = bench_with(tmp_path, description=job(1))
        for code in ("EPOCH_FAILED", "FINAL_CHECKPOINT_REFUSED"):
            request = bench.coordinator.final_checkpoint(bench.now)
            assert request is not None
            bench.answer(request, error="StorageRefused: cannot put", error_code="STORAGE_REFUSED")
            assert only(bench.settle(), JobMustFail).error.code == code
            bench.coordinator.end_attempt("failed", bench.now)
            bench.begin(candidate=bench.recovery.leadership.candidate)

    def test_periodic_checkpoints_that_keep_failing_are_taken_less_often(self, tmp_path: Path) -> None:
        """Each failed checkpoint leaves commits that the next manifest must name."""
        bench = bench_with(tmp_path, tolerable_failures=10**6, interval_ms=10)
        bench.faulty.inject("put", Fault.DENIED, match="chk-", times=10**9)
        taken = []
        for _ in range(6_000):
            bench.now += 10
            request = bench.coordinator.next_trigger(bench.now)
            if request is not None:
                taken.append(bench.now)
                bench.answer(request)
                bench.settle()
        pauses = [after - before for before, after in itertools.pairwise(taken)]
        assert pauses == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000, 10_000, 10_000]
        trigger = bench.coordinator.history.overview()["trigger"]["state"]
        assert trigger == "WAITING_AFTER_FAILURE"

    def test_a_requested_checkpoint_that_failed_is_not_retried_immediately(self, tmp_path: Path) -> None:
        """Slots that return request a checkpoint in each epoch."""
        bench = bench_with(tmp_path, tolerable_failures=9, interval_ms=None)
        bench.faulty.inject("put", Fault.DENIED, match="chk-", times=10**9)
        taken = 0
        for _ in range(1000):
            bench.coordinator.trigger_checkpoint()
            bench.now += 10
            request = bench.coordinator.next_trigger(bench.now)
            if request is not None:
                taken += 1
                bench.answer(request)
                bench.settle()
        assert taken <= 8

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

    def test_a_number_in_use_is_skipped(self, bench: Bench) -> None:
        from penstock.checkpoint.files.codec import encode_manifest
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

    def test_an_outcome_of_the_former_attempt_is_ignored(self, bench: Bench) -> None:
        bench.answer(bench.trigger(), keyed=handle(bench.storage, (0, 127), b"a"))
        bench.coordinator.tick(bench.now)
        bench.coordinator.end_attempt("a worker was lost", bench.now)
        bench.executor.run_all()
        bench.begin(candidate=bench.recovery.leadership.candidate)
        assert bench.settle() == []
        assert bench.recovery.snapshot is not None, "its put landed before the new attempt looked"
        assert bench.complete(b"b").checkpoint_id == 2

    def test_requests_of_an_attempt_that_ends_receive_an_answer(self, bench: Bench) -> None:
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
