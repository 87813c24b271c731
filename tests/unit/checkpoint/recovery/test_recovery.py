"""The takeover of a job: the snapshot from which it continues, and the decisions that are never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.leadership.fencing import read_bases
from penstock.checkpoint.leadership.lineage import ManifestId
from penstock.checkpoint.recovery.takeover import Recovery, preview_recovery, take_over
from penstock.checkpoint.savepoint.savepoints import dispose, newest_complete, write_savepoint
from penstock.common.errors import Fenced, SnapshotNotFound, SnapshotTorn, StorageError
from tests.unit.checkpoint.support import faulty_storage, handle, manifest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.store.faults import FaultyStore


def start(storage: CheckpointStorage, **options: str) -> Recovery:
    recovery = take_over(storage, **options)  # type: ignore[arg-type]
    recovery.begin()
    return recovery


def store(recovery: Recovery, checkpoint_id: int, *contents: bytes) -> None:
    keyed = [handle(recovery.storage, (0, 127), *contents)]
    recovery.leadership.publish(
        manifest(checkpoint_id, epoch=recovery.epoch, keyed=keyed, commits={"sink": [checkpoint_id]})
    )


def restored(recovery: Recovery) -> int | None:
    return recovery.snapshot.manifest.checkpoint_id if recovery.snapshot else None


def test_a_first_start_is_empty(storage: CheckpointStorage) -> None:
    recovery = start(storage)
    assert (recovery.snapshot, recovery.commits, recovery.epoch) == (None, {}, 1)
    assert recovery.base.first_checkpoint_id == 1


def test_the_newest_checkpoint_is_restored_with_its_commits(storage: CheckpointStorage) -> None:
    first = start(storage)
    store(first, 1, b"a")
    store(first, 2, b"b")
    second = start(storage)
    assert restored(second) == 2
    assert second.commits == {"sink": [2]}
    assert [m.checkpoint_id for m in second.retained] == [1, 2]
    assert second.base.first_checkpoint_id == 3
    assert not second.is_foreign


def test_planning_changes_only_the_claim(storage: CheckpointStorage) -> None:
    store(start(storage), 1, b"a")
    take_over(storage)
    assert sorted(read_bases(storage)) == [1]


def test_numbers_are_never_assigned_twice(storage: CheckpointStorage) -> None:
    for _ in range(3):
        start(storage)
    assert start(storage).base.first_checkpoint_id == 4


def test_a_failover_within_one_jobmanager_takes_the_next_epoch(storage: CheckpointStorage) -> None:
    first = start(storage)
    store(first, 1, b"a")
    second = take_over(storage, candidate=first.leadership.candidate)
    second.begin()
    assert second.epoch == 2
    assert restored(second) == 1


def test_the_failover_of_a_zombie_does_not_regain_the_leadership(storage: CheckpointStorage) -> None:
    zombie = start(storage)
    rightful = start(storage)
    with pytest.raises(Fenced):
        take_over(storage, candidate=zombie.leadership.candidate)
    rightful.leadership.check()


class TestNamedPaths:
    def savepoint(self, storage: CheckpointStorage, target: Path) -> str:
        recovery = start(storage)
        store(recovery, 1, b"a")
        return write_savepoint(storage.read_manifest(1), storage.url, str(target), storage.stores)

    def test_a_savepoint_is_restored(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        path = self.savepoint(storage, tmp_path / "savepoints")
        other, _ = faulty_storage(tmp_path / "elsewhere", "other-job")
        recovery = start(other, restore_path=path)
        assert recovery.snapshot is not None
        assert recovery.snapshot.is_savepoint
        assert recovery.is_foreign
        assert recovery.base.path == path

    def test_a_savepoint_is_restored_only_once(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        """A pod that restarts with the same arguments continues from its own checkpoints."""
        path = self.savepoint(storage, tmp_path / "savepoints")
        other, _ = faulty_storage(tmp_path / "elsewhere", "other-job")
        store(start(other, restore_path=path), 1, b"own")
        again = start(other, restore_path=path)
        assert again.snapshot is not None
        assert not again.snapshot.is_savepoint
        dispose(path, stores=storage.stores)
        assert restored(start(other, restore_path=path)) == 1

    def test_a_failover_before_the_first_checkpoint_restores_the_savepoint_again(
        self, storage: CheckpointStorage, tmp_path: Path
    ) -> None:
        path = self.savepoint(storage, tmp_path / "savepoints")
        other, _ = faulty_storage(tmp_path / "elsewhere", "other-job")
        start(other, restore_path=path)
        again = start(other)
        assert again.snapshot is not None
        assert again.snapshot.url == path

    def test_another_token_restores_the_savepoint_again(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        path = self.savepoint(storage, tmp_path / "savepoints")
        other, _ = faulty_storage(tmp_path / "elsewhere", "other-job")
        store(start(other, restore_path=path, restore_token="1"), 1, b"own")
        again = start(other, restore_path=path, restore_token="2")
        assert again.snapshot is not None
        assert again.snapshot.is_savepoint
        assert again.void_ids == [1]
        assert again.retained == []
        # after the number of the savepoint and the first number of the first start
        assert again.base.first_checkpoint_id == 3

    def test_a_return_to_an_older_checkpoint_voids_the_newer_ones(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        for id in (1, 2, 3):
            store(first, id, b"x")
        back = start(storage, restore_path=storage.url_of("chk-2"))
        assert restored(back) == 2
        assert back.base.checkpoint == ManifestId(1, 2)
        assert [m.checkpoint_id for m in back.retained] == [1, 2]
        assert back.void_ids == [3]
        assert restored(start(storage)) == 2

    def test_a_checkpoint_of_another_job_is_foreign(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        store(start(storage), 1, b"a")
        other, _ = faulty_storage(tmp_path / "root", "other-job")
        recovery = start(other, restore_path=storage.url_of("chk-1"))
        assert recovery.is_foreign
        assert recovery.base.path == storage.url_of("chk-1")
        assert restored(start(other)) == 1

    def test_a_wrong_path_fences_no_leader(self, storage: CheckpointStorage) -> None:
        running = start(storage)
        with pytest.raises(SnapshotNotFound):
            take_over(storage, restore_path=storage.url_of("chk-9"))
        running.leadership.check()


class TestForesight:
    """The preview of a start: the snapshot that it would restore, determined before any leader is fenced."""

    def test_a_preview_claims_nothing_and_sees_the_state_to_take_over(self, storage: CheckpointStorage) -> None:
        assert preview_recovery(storage) is None
        first = start(storage)
        store(first, 1, b"a")
        store(first, 2, b"b")
        claims = storage.list_names("leader")
        seen = preview_recovery(storage)
        assert storage.list_names("leader") == claims
        first.leadership.check()
        assert seen == take_over(storage).snapshot

    def test_a_named_path_counts_as_it_does_at_the_start(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        first = start(storage)
        store(first, 1, b"a")
        url = write_savepoint(storage.read_manifest(1), storage.url, str(tmp_path / "s"), storage.stores)
        seen = preview_recovery(storage, restore_path=url)
        assert seen is not None
        assert seen.is_savepoint
        second = start(storage, restore_path=url)
        store(second, 2, b"b")
        again = preview_recovery(storage, restore_path=url)
        assert again is not None
        assert again.manifest.checkpoint_id == 2

    def test_a_wrong_path_is_refused(self, storage: CheckpointStorage) -> None:
        with pytest.raises(SnapshotNotFound):
            preview_recovery(storage, restore_path=storage.url_of("chk-7"))
        assert storage.list_names("leader") == []

    def test_an_unreadable_checkpoint_is_left_to_the_leader(self, storage: CheckpointStorage) -> None:
        """The current leader may be deleting the checkpoint."""
        first = start(storage)
        store(first, 1, b"a")
        storage.put("chk-2/_metadata", b"{")
        assert preview_recovery(storage) is None
        with pytest.raises(SnapshotTorn):
            take_over(storage)


class TestNothingIsPassedOverSilently:
    def test_a_torn_newest_checkpoint_is_refused_and_others_are_suggested(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        store(first, 1, b"a")
        store(first, 2, b"b")
        path = storage.read_manifest(2).states["count"].keyed[0]["files"][0]["path"]
        storage.delete(path)
        with pytest.raises(SnapshotTorn) as caught:
            take_over(storage)
        assert path in caught.value.message
        assert storage.url_of("chk-1") in caught.value.remedy
        assert storage.url_of("chk-2") not in caught.value.remedy

    def test_the_suggested_remedy_works_permanently(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        store(first, 1, b"a")
        storage.put("chk-2/_metadata", b"{not json")
        with pytest.raises(SnapshotTorn, match="chk-2/_metadata is not a readable manifest"):
            take_over(storage)
        back = start(storage, restore_path=storage.url_of("chk-1"))
        assert back.base.first_checkpoint_id == 3
        again = start(storage)
        assert restored(again) == 1
        store(again, 4, b"c")
        assert restored(start(storage)) == 4

    def test_a_missing_base_is_refused(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        store(first, 1, b"a")
        store(first, 2, b"b")
        start(storage)
        storage.delete("chk-2/_metadata")
        with pytest.raises(SnapshotTorn, match="must continue from checkpoint 2, which no longer exists"):
            take_over(storage)

    def test_the_error_names_an_unreadable_base(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        store(first, 1, b"a")
        store(first, 2, b"b")
        start(storage)
        storage.put("chk-2/_metadata", b"")
        with pytest.raises(SnapshotTorn, match="chk-2/_metadata is not a readable manifest"):
            take_over(storage)

    def test_a_read_only_inspection_reports_the_checkpoints_that_it_skips(self, storage: CheckpointStorage) -> None:
        first = start(storage)
        store(first, 1, b"a")
        store(first, 2, b"b")
        storage.delete(storage.read_manifest(2).states["count"].keyed[0]["files"][0]["path"])
        storage.put("chk-3/_metadata", b"")
        found = newest_complete(storage.root_url, storage.job_id, stores=storage.stores)
        assert found.snapshot is not None
        assert found.snapshot.manifest.checkpoint_id == 1
        assert sorted(info.checkpoint_id or 0 for info in found.skipped) == [2, 3]
        assert all(info.problem for info in found.skipped)

    def test_storage_that_does_not_answer_is_not_a_torn_checkpoint(
        self, storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = start(storage)
        store(first, 1, b"a")
        whole, read = type(storage).read_manifest, []

        def once_forbidden(self: CheckpointStorage, checkpoint_id: int) -> object:
            read.append(checkpoint_id)
            if len(read) == 1:
                raise StorageError("403 Forbidden")
            return whole(self, checkpoint_id)

        monkeypatch.setattr(type(storage), "read_manifest", once_forbidden)
        with pytest.raises(StorageError, match="403"):
            newest_complete(storage.root_url, storage.job_id, stores=storage.stores)
        assert newest_complete(storage.root_url, storage.job_id, stores=storage.stores).snapshot is not None


def test_the_next_base_decides_a_put_with_unknown_outcome(storage: CheckpointStorage) -> None:
    first = start(storage)
    store(first, 1, b"a")
    second = take_over(storage, candidate=first.leadership.candidate)
    second.begin()
    storage.put("chk-2/_metadata", encode_manifest(manifest(2, epoch=1)))  # the put of the first attempt arrives now
    third = take_over(storage, candidate=second.leadership.candidate)
    assert restored(third) == 1
    assert third.void_ids == [2]
    assert third.base.first_checkpoint_id == 3


def test_old_bases_become_obsolete(storage: CheckpointStorage) -> None:
    for _ in range(3):
        start(storage)
    recovery = start(storage)
    store(recovery, 1, b"a")
    assert recovery.obsolete_epochs == [1, 2, 3]
    assert start(storage).obsolete_epochs == [1, 2, 3]


def test_an_unavailable_store_is_not_an_empty_job(pair: tuple[CheckpointStorage, FaultyStore]) -> None:
    storage, faulty = pair
    store(start(storage), 1, b"a")
    faulty.is_away = True
    with pytest.raises(StorageError):
        take_over(storage)
