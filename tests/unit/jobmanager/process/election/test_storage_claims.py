from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.errors import SnapshotTorn
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


def test_a_late_claim_of_a_deleted_term_fails(storage: CheckpointStorage) -> None:
    claims = StorageClaims(storage)
    for term in range(1, 6):
        assert claims.claim(Holder(f"p{term}", term=term), None)
    assert sorted(storage.list_names(FOLDER)) == ["4", "5"]
    assert not claims.claim(Holder("late", term=2), None)
    current = claims.current()
    assert current is not None
    assert current.id == "p5"


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
