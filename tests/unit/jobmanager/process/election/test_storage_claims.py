from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.faults import FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, Stores
from penstock.common.errors import SnapshotTorn, StorageError
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.storage_claims import FOLDER, StorageClaims


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(f"file://{tmp_path}", "cluster")


def test_one_of_many_claims_of_a_term_succeeds(storage: CheckpointStorage) -> None:
    won = []
    start = threading.Barrier(8)

    def claim(name: str) -> None:
        claims = StorageClaims(storage)
        start.wait()
        if claims.claim(Holder(name, term=1), None):
            won.append(name)

    threads = [threading.Thread(target=claim, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    current = StorageClaims(storage).current()
    assert current is not None
    assert won == [current.id]


def test_a_holder_learns_from_its_renewal_that_a_higher_term_was_claimed(storage: CheckpointStorage) -> None:
    first, second = StorageClaims(storage), StorageClaims(storage)
    mine = Holder("a", term=1)
    assert first.claim(mine, None)
    assert first.renew(mine)
    assert second.claim(Holder("b", term=2), mine)
    assert not first.renew(mine)
    assert second.current() == Holder("b", term=2)


def claim_terms(claims: StorageClaims, terms: range) -> None:
    for term in terms:
        assert claims.claim(Holder(f"p{term}", term=term), None)


def test_a_late_claim_of_a_deleted_term_fails(storage: CheckpointStorage, few_terms: None) -> None:
    claims = StorageClaims(storage)
    claim_terms(claims, range(1, 6))
    assert sorted(storage.list_names(FOLDER)) == ["4", "5"]
    assert not claims.claim(Holder("late", term=2), None)
    current = claims.current()
    assert current is not None
    assert current.id == "p5"


@pytest.fixture
def few_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobmanager.process.election.storage_claims._KEPT", 2)


def test_a_process_that_was_paused_while_terms_were_claimed_and_deleted_sees_the_highest_one(
    storage: CheckpointStorage, few_terms: None
) -> None:
    waiting, leader = StorageClaims(storage), StorageClaims(storage)
    claim_terms(leader, range(1, 2))
    assert waiting.current() == Holder("p1", term=1)
    claim_terms(StorageClaims(storage), range(2, 8))
    assert waiting.current() == Holder("p7", term=7)


def test_a_paused_holder_whose_next_terms_were_deleted_learns_it_from_a_listing(
    storage: CheckpointStorage, few_terms: None
) -> None:
    holder = Holder("a", term=1)
    claims = StorageClaims(storage)
    assert claims.claim(holder, None)
    claim_terms(StorageClaims(storage), range(2, 8))
    lost_after = next(beat for beat in range(1, 200) if not claims.renew(msgspec.structs.replace(holder, beat=beat)))
    assert lost_after <= 60


def test_a_late_heartbeat_of_a_deleted_term_misleads_no_process_for_long(
    storage: CheckpointStorage, few_terms: None
) -> None:
    waiting = StorageClaims(storage)
    claim_terms(StorageClaims(storage), range(1, 2))
    assert waiting.current() == Holder("p1", term=1)
    claim_terms(StorageClaims(storage), range(2, 8))
    storage.put(f"{FOLDER}/1.beat", msgspec.json.encode(Holder("p1", term=1, beat=3)))
    assert waiting.current() == Holder("p1", term=1, beat=3)
    assert not waiting.claim(Holder("b", term=2), Holder("p1", term=1))
    assert waiting.current() == Holder("p7", term=7)


def test_a_heartbeat_costs_one_put_and_one_get_and_an_observation_two_gets(tmp_path: Path) -> None:
    stores = Stores()
    faulty = FaultyStore(LocalStore(fsync=False))
    stores.use("file", RetryingStore(faulty))
    storage = CheckpointStorage(f"file://{tmp_path}", "cluster", stores=stores)
    leader, standby, mine = StorageClaims(storage), StorageClaims(storage), Holder("a", term=1)
    leader.claim(mine, None)
    leader.renew(mine)
    standby.current()
    faulty.calls.clear()
    for beat in range(1, 60):
        assert leader.renew(msgspec.structs.replace(mine, beat=beat))
    assert Counter(operation for operation, _ in faulty.calls) == {"put": 59, "get": 59}
    faulty.calls.clear()
    for _ in range(60):
        standby.current()
    assert Counter(operation for operation, _ in faulty.calls) == {"get": 120}


def test_a_release_is_visible_to_the_others(storage: CheckpointStorage) -> None:
    claims, mine = StorageClaims(storage), Holder("a", term=1, rest="http://a")
    claims.claim(mine, None)
    claims.release(mine)
    current = StorageClaims(storage).current()
    assert current is not None
    assert current.released


def test_a_damaged_record_names_the_file_and_the_remedy(storage: CheckpointStorage) -> None:
    storage.put(f"{FOLDER}/1", b"{")
    with pytest.raises(SnapshotTorn, match="election/1") as caught:
        StorageClaims(storage).current()
    assert "no JobManager runs" in caught.value.remedy


def test_the_record_has_the_addresses_of_the_leader(storage: CheckpointStorage) -> None:
    StorageClaims(storage).claim(Holder("a", term=1, rest="http://10.0.0.1:8081", link="10.0.0.1:4711"), None)
    found = msgspec.json.decode(storage.read(f"{FOLDER}/1"), type=Holder)
    assert (found.rest, found.link) == ("http://10.0.0.1:8081", "10.0.0.1:4711")


@pytest.mark.parametrize("name", ["007", "\u0667", "0", "9" * 19, "9" * 200, "7.writing", "7.txt", "x/8"])
def test_a_foreign_file_in_the_folder_is_no_claim(storage: CheckpointStorage, name: str) -> None:
    claims = StorageClaims(storage)
    storage.put(f"{FOLDER}/{name}", b"{}")
    assert claims.current() is None
    assert claims.claim(Holder("a", term=1), None)
    assert StorageClaims(storage).current() == Holder("a", term=1)


def test_a_listed_claim_that_cannot_be_read_is_an_error(
    storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointStorage, "list_names", lambda self, folder: ["3"])
    with pytest.raises(StorageError, match="election/3 is listed, but cannot be read"):
        StorageClaims(storage).current()
