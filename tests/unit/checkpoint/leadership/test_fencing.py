"""Leadership: numbered claims, and manifests of superseded leaders."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.layout import base_path, claim_path
from penstock.checkpoint.leadership.fencing import (
    Candidate,
    ClaimRecord,
    Leadership,
    PublishOutcome,
    list_leader_folder,
    read_bases,
)
from penstock.checkpoint.leadership.lineage import Base, ManifestId
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import list_checkpoints, newest_complete
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.common.errors import Fenced, SnapshotTorn, StorageError
from tests.unit.checkpoint.support import JOB_ID, delayed_put, manifest

if TYPE_CHECKING:
    from penstock.checkpoint.files.storage import CheckpointStorage


def lead(storage: CheckpointStorage) -> Leadership:
    recovery = take_over(storage)
    recovery.begin()
    return recovery.leadership


def newest_id(storage: CheckpointStorage) -> int | None:
    found = newest_complete(storage.root_url, storage.job_id, stores=storage.stores).snapshot
    return found.manifest.checkpoint_id if found else None


class TestClaims:
    def test_numbers_increase(self, storage: CheckpointStorage) -> None:
        assert [Leadership.take(storage).epoch for _ in range(3)] == [1, 2, 3]

    def test_the_former_leader_is_fenced(self, storage: CheckpointStorage) -> None:
        old = Leadership.take(storage)
        old.check()
        Leadership.take(storage)
        with pytest.raises(Fenced, match=r"leader 1 of .* was superseded by 2"):
            old.check()

    def test_twelve_concurrent_claims_get_twelve_numbers_and_one_leads(self, storage: CheckpointStorage) -> None:
        def take(_: int) -> Leadership | None:
            try:
                return Leadership.take(storage)
            except Fenced:
                return None

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            taken = [leadership for leadership in pool.map(take, range(12)) if leadership]
        epochs = [leadership.epoch for leadership in taken]
        assert len(set(epochs)) == len(epochs)
        leading = []
        for leadership in taken:
            try:
                leadership.check()
                leading.append(leadership.epoch)
            except Fenced:
                pass
        assert leading == [max(list_leader_folder(storage).claims)]

    def test_a_number_whose_claim_was_deleted_cannot_lead_again(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        """Create-if-absent cannot detect this case.

        The delayed claimant creates `leader/1` after that claim was deleted, and must see leader 3.
        """
        with delayed_put(faulty, "leader/1", lambda: Leadership.take(storage)) as outcome:
            for _ in range(3):
                Leadership.take(storage)
            storage.delete(claim_path(1))
            storage.delete(claim_path(2))
        assert 1 in list_leader_folder(storage).claims, "it did win the forgotten number"
        assert isinstance(outcome[0], Fenced)

    def test_a_claim_whose_answer_was_lost_is_valid(self, storage: CheckpointStorage, faulty: FaultyStore) -> None:
        faulty.inject("put", Fault.TIMEOUT_AFTER, match="leader/")
        leadership = Leadership.take(storage)
        assert leadership.epoch == 1
        leadership.check()

    def test_an_unreachable_store_grants_no_leadership(self, storage: CheckpointStorage, faulty: FaultyStore) -> None:
        faulty.is_away = True
        with pytest.raises(StorageError, match="no answer"):
            Leadership.take(storage)

    def test_renewal_takes_the_next_number_but_never_from_another_leader(self, storage: CheckpointStorage) -> None:
        first = Leadership.take(storage)
        second = first.renew()
        assert second.epoch == 2
        with pytest.raises(Fenced):
            first.check()
        Leadership.take(storage)
        with pytest.raises(Fenced):
            second.renew()

    @pytest.mark.parametrize("kept", [0, 1], ids=["first", "renewed"])
    @pytest.mark.parametrize("fault", [Fault.TIMEOUT_AFTER, Fault.TIMEOUT_BEFORE, Fault.LATE, Fault.DENIED])
    def test_a_claim_without_an_answer_belongs_to_its_candidate(
        self, storage: CheckpointStorage, faulty: FaultyStore, kept: int, fault: Fault
    ) -> None:
        candidate = Candidate(storage)
        for _ in range(kept):
            candidate.claim()
        lost = claim_path(kept + 1)
        faulty.inject("put", fault, match=lost)
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match=lost, times=10**9)
        with pytest.raises(StorageError):
            candidate.claim()
        faulty.heal()
        faulty.land_late()
        leadership = candidate.claim()
        assert leadership.epoch == (kept + 1 if fault in (Fault.TIMEOUT_BEFORE, Fault.DENIED) else kept + 2)
        leadership.begin(Base(leadership.epoch, 1))
        assert leadership.publish(manifest(1, epoch=leadership.epoch)) is PublishOutcome.COMPLETE

    def test_a_claim_that_arrives_during_its_retry_belongs_to_its_candidate(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        candidate = Candidate(storage)
        candidate.claim()
        faulty.inject("put", Fault.LATE, match="leader/2")
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match="leader/2", times=10**9)
        with pytest.raises(StorageError):
            candidate.claim()
        faulty.heal()
        with delayed_put(faulty, "leader/2", candidate.claim) as outcome:
            faulty.land_late()
        assert isinstance(outcome[0], Leadership), outcome
        assert outcome[0].epoch == 3

    @pytest.mark.parametrize("fault", [Fault.TIMEOUT_AFTER, Fault.DENIED])
    def test_a_failed_listing_after_the_claim_is_retried(
        self, storage: CheckpointStorage, faulty: FaultyStore, fault: Fault
    ) -> None:
        candidate = Candidate(storage)
        candidate.claim()
        faulty.inject("list", fault, skip=1, times=10**9)
        with pytest.raises(StorageError):
            candidate.claim()
        faulty.heal()
        assert candidate.claim().epoch == 3

    def test_a_claim_without_an_answer_does_not_hide_a_successor(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        candidate = Candidate(storage)
        candidate.claim()
        faulty.inject("put", Fault.TIMEOUT_AFTER, match="leader/2")
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match="leader/2", times=10**9)
        with pytest.raises(StorageError):
            candidate.claim()
        faulty.heal()
        Leadership.take(storage, "successor")
        with pytest.raises(Fenced, match=r"superseded by 3: another JobManager has taken over \(successor/"):
            candidate.claim()

    def test_a_successor_that_takes_a_number_whose_put_was_lost_fences_the_candidate(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        candidate = Candidate(storage)
        candidate.claim()
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match="leader/2", times=10**9)
        with pytest.raises(StorageError):
            candidate.claim()
        faulty.heal()
        assert Leadership.take(storage).epoch == 2
        with pytest.raises(Fenced):
            candidate.claim()

    def test_a_zombie_that_renews_at_the_same_moment_is_fenced(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        zombie = Leadership.take(storage)
        with delayed_put(faulty, "leader/2", zombie.renew) as outcome:
            rightful = Leadership.take(storage)
        assert isinstance(outcome[0], Fenced)
        rightful.check()


class TestBases:
    def test_a_base_is_read_back(self, storage: CheckpointStorage) -> None:
        leadership = Leadership.take(storage)
        base = Base(1, 5, ManifestId(3, 4), None, "nonce")
        leadership.begin(base)
        assert read_bases(storage) == {1: base}

    def test_a_leader_superseded_before_it_writes_its_base_is_fenced(self, storage: CheckpointStorage) -> None:
        old = take_over(storage)
        lead(storage)
        with pytest.raises(Fenced):
            old.begin()

    def test_the_error_names_an_unreadable_base(self, storage: CheckpointStorage) -> None:
        storage.put(base_path(1), b"{")
        with pytest.raises(SnapshotTorn, match=r"leader/1\.base is not a readable record"):
            read_bases(storage)


class TestPublish:
    def test_a_published_checkpoint_is_complete(self, storage: CheckpointStorage) -> None:
        leader = lead(storage)
        assert leader.publish(manifest(1)) is PublishOutcome.COMPLETE
        assert newest_id(storage) == 1

    def test_a_checkpoint_whose_answer_was_lost_is_complete(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        leader = lead(storage)
        faulty.inject("put", Fault.TIMEOUT_AFTER, match="chk-1")
        assert leader.publish(manifest(1)) is PublishOutcome.COMPLETE

    def test_a_superseded_leader_stores_no_manifest(self, storage: CheckpointStorage, faulty: FaultyStore) -> None:
        old = lead(storage)
        lead(storage)
        with pytest.raises(Fenced):
            old.publish(manifest(1))
        assert storage.checkpoint_ids() == []

    def test_a_zombie_between_check_and_put_is_fenced(self, storage: CheckpointStorage, faulty: FaultyStore) -> None:
        """Stop a leader between its check and its put.

        The successor continues from checkpoint 1, then the leader resumes.
        """
        zombie = lead(storage)
        zombie.publish(manifest(1))
        with delayed_put(faulty, "chk-2", lambda: zombie.publish(manifest(2))) as outcome:
            successor = take_over(storage)
            successor.begin()
        assert isinstance(outcome[0], Fenced), "the zombie must not commit"
        assert storage.checkpoint_ids() == [1, 2], "its put did land"
        assert newest_id(storage) == 1, "but it does not count"
        third = take_over(storage)
        assert third.snapshot is not None
        assert third.snapshot.manifest.checkpoint_id == 1
        assert third.void_ids == [2]

    def test_a_put_of_a_zombie_that_arrives_after_the_successors_is_refused(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        zombie = lead(storage)
        zombie.publish(manifest(1))
        with delayed_put(faulty, "chk-2", lambda: zombie.publish(manifest(2))) as outcome:
            successor = take_over(storage)
            successor.begin()
            assert successor.base.first_checkpoint_id == 2
            assert successor.leadership.publish(manifest(2, epoch=2)) is PublishOutcome.COMPLETE
        assert isinstance(outcome[0], Fenced)
        assert storage.read_manifest(2).leader_epoch == 2

    def test_a_put_that_arrives_before_the_successor_lists_becomes_its_base(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        zombie = lead(storage)
        zombie.publish(manifest(1))
        faulty.inject("list", Fault.DENIED, match="leader")
        with pytest.raises(StorageError):
            zombie.publish(manifest(2))  # its first check fails: it stored nothing
        assert storage.checkpoint_ids() == [1]
        faulty.inject("put", Fault.LATE, match="chk-2")
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match="chk-2", times=10**9)
        with pytest.raises(StorageError):
            zombie.publish(manifest(2))
        assert faulty.land_late() == [None]
        successor = take_over(storage)
        successor.begin()
        assert successor.snapshot is not None
        assert successor.snapshot.manifest.checkpoint_id == 2

    def test_the_number_of_a_late_manifest_is_skipped_and_not_overwritten(self, storage: CheckpointStorage) -> None:
        old = lead(storage)
        successor = lead(storage)
        storage.put("chk-1/_metadata", encode_manifest(manifest(1, epoch=old.epoch)))  # arrives only now
        assert successor.publish(manifest(1, epoch=2)) is PublishOutcome.NUMBER_TAKEN
        assert storage.read_manifest(1).leader_epoch == 1
        assert successor.publish(manifest(2, epoch=2)) is PublishOutcome.COMPLETE
        assert newest_id(storage) == 2
        problems = {
            info.checkpoint_id: info.problem
            for info in list_checkpoints(storage.root_url, JOB_ID, stores=storage.stores)
        }
        assert problems[2] == ""
        assert "superseded" in problems[1]

    def test_two_writers_with_one_number_stop(self, storage: CheckpointStorage) -> None:
        """A store without conditional puts granted the claim to both of them."""
        leader = lead(storage)
        storage.put(claim_path(1), msgspec.json.encode(ClaimRecord(1, "the other one", 0)))
        leader.publish(manifest(1))
        with pytest.raises(Fenced, match="another writer with the same number"):
            leader.publish(manifest(1, trigger_timestamp=99))

    def test_a_leader_is_not_fenced_by_its_own_manifest(self, storage: CheckpointStorage) -> None:
        leader = lead(storage)
        leader.publish(manifest(1))
        assert leader.publish(manifest(1)) is PublishOutcome.COMPLETE
        with pytest.raises(StorageError, match="another manifest of the same leader"):
            leader.publish(manifest(1, trigger_timestamp=99))

    @pytest.mark.parametrize("description", ["leader/1.base", "chk-1"])
    def test_an_answer_that_a_missing_object_exists_does_not_fence(
        self, storage: CheckpointStorage, faulty: FaultyStore, description: str
    ) -> None:
        faulty.inject("put", Fault.EXISTS, match=description)
        with pytest.raises(StorageError, match="the store reports that it exists") as raised:
            lead(storage).publish(manifest(1))
        assert not isinstance(raised.value, Fenced)

    @pytest.mark.parametrize("description", ["leader/1", "leader/1.base", "chk-1"])
    def test_a_truncated_read_of_the_manifest_is_not_mistaken_for_another_object(
        self, storage: CheckpointStorage, faulty: FaultyStore, description: str
    ) -> None:
        faulty.inject("put", Fault.TIMEOUT_AFTER, match=description)
        faulty.inject("get", Fault.TRUNCATED, match=description, times=2)
        assert lead(storage).publish(manifest(1)) is PublishOutcome.COMPLETE

    def test_a_failed_second_check_leaves_the_checkpoint_in_doubt(
        self, storage: CheckpointStorage, faulty: FaultyStore
    ) -> None:
        leader = lead(storage)
        real_put = faulty.inner.put

        def put_then_fail(url: str, content: bytes, *, if_absent: bool = False) -> None:
            real_put(url, content, if_absent=if_absent)
            faulty.is_away = True

        faulty.inner.put = put_then_fail  # type: ignore[method-assign]
        with pytest.raises(StorageError, match="no answer"):
            leader.publish(manifest(1))
        faulty.is_away = False
        assert storage.checkpoint_ids() == [1]
