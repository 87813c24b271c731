"""Deletion in the background, and leftovers of attempts that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.coordinator.cleaner import Cleaner, find_orphans, obsolete_leader_files
from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.registry import SharedStateRegistry
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.store.faults import Fault
from penstock.checkpoint.store.object_store import relative_url
from penstock.common.errors import Fenced
from tests.unit.checkpoint.support import (
    InlineExecutor,
    ManualExecutor,
    faulty_storage,
    handle,
    manifest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.store.object_store import StoreFailure


def put_manifest(storage: CheckpointStorage, id: int, *contents: bytes) -> list[str]:
    stored = manifest(id, keyed=[handle(storage, (0, 127), *contents)])
    storage.put(f"chk-{id}/_metadata", encode_manifest(stored))
    return [file["path"] for file in stored.states["count"].keyed[0]["files"]]


def never_needed(_: str) -> bool:
    return False


def test_the_cleaner_works_in_the_background_one_task_at_a_time() -> None:
    storage, _ = faulty_storage("dict://root")
    paths = put_manifest(storage, 1, b"a", b"b")
    executor = ManualExecutor()
    cleaner = Cleaner(storage, executor)
    cleaner.discard_checkpoint(1, paths)
    cleaner.start()
    cleaner.start()
    assert len(executor.waiting) == 1
    assert cleaner.pending == 3
    executor.run_all()
    assert (cleaner.pending, cleaner.deleted) == (0, 3)
    assert storage.list_objects() == []


def test_files_are_kept_while_their_manifest_cannot_be_deleted() -> None:
    storage, faulty = faulty_storage("dict://root")
    paths = put_manifest(storage, 1, b"a")
    now = [0.0]
    cleaner = Cleaner(storage, InlineExecutor(), clock=lambda: now[0])
    faulty.inject("delete", Fault.DENIED, match="chk-1", times=2)
    cleaner.discard_checkpoint(1, paths)
    for seconds, left in ((0, 2), (1, 2), (3, 0)):
        now[0] = seconds
        cleaner.start()
        assert cleaner.pending == left
    assert storage.list_objects() == []


def test_a_failed_deletion_is_retried_after_a_growing_pause() -> None:
    storage, faulty = faulty_storage("dict://root")
    now = [0.0]
    cleaner = Cleaner(storage, InlineExecutor(), clock=lambda: now[0])
    faulty.inject("delete", Fault.DENIED, times=10**6)
    cleaner.discard_files(["shared/a"])
    tried = []
    for second in range(300):
        now[0] = second
        before = len(faulty.calls)
        cleaner.start()
        if len(faulty.calls) > before:
            tried.append(second)
    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_all_queued_deletions_take_two_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request deletes manifests, the second files, for any number of checkpoints."""
    storage, faulty = faulty_storage("dict://root")
    requests: list[list[str]] = []
    delete_many = faulty.delete_many

    def noted(urls: Sequence[str]) -> dict[str, StoreFailure]:
        requests.append([relative_url(url, storage.url) for url in urls])
        return delete_many(urls)

    monkeypatch.setattr(faulty, "delete_many", noted)
    cleaner = Cleaner(storage, InlineExecutor())
    for id in range(1, 31):
        cleaner.discard_checkpoint(id, put_manifest(storage, id, b"a", b"b"))
    cleaner.start()
    assert storage.list_objects() == []
    assert [len(paths) for paths in requests] == [30, 60]
    assert all(path.endswith("_metadata") for path in requests[0])


def test_more_names_than_fit_into_one_request_take_several(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, faulty = faulty_storage("dict://root")
    sizes: list[int] = []
    monkeypatch.setattr(faulty, "delete_many", lambda urls: sizes.append(len(urls)) or {})
    cleaner = Cleaner(storage, InlineExecutor())
    cleaner.discard_files(f"shared/{number}" for number in range(2_500))
    cleaner.start()
    assert (sizes, cleaner.pending) == ([1000, 1000, 500], 0)


def test_a_manifest_that_cannot_be_deleted_keeps_only_its_own_files() -> None:
    storage, faulty = faulty_storage("dict://root")
    kept, gone = put_manifest(storage, 1, b"a"), put_manifest(storage, 2, b"b")
    faulty.inject("delete", Fault.DENIED, match="chk-1/")
    cleaner = Cleaner(storage, InlineExecutor())
    cleaner.discard_checkpoint(1, kept)
    cleaner.discard_checkpoint(2, gone)
    cleaner.start()
    assert storage.checkpoint_ids() == [1]
    assert [f"shared/{name}" for name in storage.list_names("shared")] == kept


def test_deletions_of_single_objects_without_an_answer_are_retried_immediately() -> None:
    storage, faulty = faulty_storage("dict://root")
    paths = put_manifest(storage, 1, b"a", b"b", b"c")
    faulty.inject("delete", Fault.UNAVAILABLE, match=paths[1], times=3)
    assert storage.delete_many(paths) == {}
    assert [call for call in faulty.calls if call[1].endswith(paths[0])][-1:] == [("delete", storage.url_of(paths[0]))]
    assert len([call for call in faulty.calls if call[0] == "delete"]) == 3 + 3


def test_a_failing_deletion_does_not_block_the_others_forever() -> None:
    storage, faulty = faulty_storage("dict://root")
    stuck = put_manifest(storage, 1, b"a")
    fine = put_manifest(storage, 2, b"b")
    faulty.inject("delete", Fault.DENIED, match=stuck[0], times=10**6)
    cleaner = Cleaner(storage, InlineExecutor())
    cleaner.discard_files(stuck)
    cleaner.discard_files(fine)
    cleaner.start()
    cleaner.start()
    assert cleaner.pending == 1
    assert storage.list_names("shared") == [stuck[0].removeprefix("shared/")]


def test_a_fenced_leader_deletes_nothing() -> None:
    storage, _ = faulty_storage("dict://root")
    paths = put_manifest(storage, 1, b"a")

    def check() -> None:
        raise Fenced("superseded")

    cleaner = Cleaner(storage, InlineExecutor(), check)
    cleaner.discard_checkpoint(1, paths)
    cleaner.start()
    assert storage.checkpoint_ids() == [1]


def test_a_closed_cleaner_does_nothing() -> None:
    storage, _ = faulty_storage("dict://root")
    cleaner = Cleaner(storage, InlineExecutor())
    cleaner.discard_files(put_manifest(storage, 1, b"a"))
    cleaner.close()
    cleaner.start()
    assert cleaner.deleted == 0


class TestOrphans:
    def test_old_files_without_a_manifest_are_orphans(self) -> None:
        storage, _ = faulty_storage("dict://root")
        orphan = storage.writer().write(b"orphan").path
        put_manifest(storage, 1, b"a")
        put_manifest(storage, 2, b"b")
        assert find_orphans(storage, 2, never_needed) == [orphan]

    def test_newer_files_belong_to_the_checkpoint_in_progress(self) -> None:
        storage, _ = faulty_storage("dict://root")
        put_manifest(storage, 1, b"a")
        storage.writer().write(b"being uploaded")
        assert find_orphans(storage, 1, never_needed) == []

    def test_files_in_use_are_not_orphans(self) -> None:
        storage, _ = faulty_storage("dict://root")
        used = storage.writer().write(b"held").path
        put_manifest(storage, 1, b"a")
        assert find_orphans(storage, 1, lambda path: path == used) == []

    def test_a_manifest_deleted_after_the_listing_names_no_files(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        storage, _ = faulty_storage("dict://root")
        orphan = storage.writer().write(b"orphan").path
        put_manifest(storage, 2, b"b")
        monkeypatch.setattr(storage, "checkpoint_ids", lambda: [1, 2])
        assert find_orphans(storage, 2, never_needed) == [orphan]
        assert not caplog.records

    def test_an_unreadable_manifest_could_name_any_file(self, caplog: pytest.LogCaptureFixture) -> None:
        storage, _ = faulty_storage("dict://root")
        storage.writer().write(b"whose?")
        put_manifest(storage, 1, b"a")
        storage.put("chk-2/_metadata", b"{")
        assert find_orphans(storage, 1, never_needed) == []
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "checkpoint 2 cannot be read" in caplog.text

    @pytest.mark.parametrize("fault", [Fault.DENIED, Fault.TIMEOUT_BEFORE])
    def test_a_store_that_does_not_answer_yields_no_orphans(self, fault: Fault) -> None:
        storage, faulty = faulty_storage("dict://root")
        storage.writer().write(b"orphan")
        put_manifest(storage, 1, b"a")
        faulty.inject("get", fault, match="_metadata", times=10**9)
        assert find_orphans(storage, 1, never_needed) == []


class TestAfterAZombieWasReplaced:
    """A replaced leader. Its successor has subsumed its leftovers, so it logs nothing."""

    def test_the_cleaner_searches_leftovers_without_a_log_message(self, caplog: pytest.LogCaptureFixture) -> None:
        storage, _ = faulty_storage("dict://root")
        recovery = take_over(storage)
        recovery.begin()
        orphan = storage.writer().write(b"orphan").path
        cleaner = Cleaner(storage, InlineExecutor(), recovery.leadership.check)
        cleaner.find_leftovers(recovery, 1, SharedStateRegistry())
        assert cleaner.pending == 0
        assert [f"shared/{name}" for name in storage.list_names("shared")] == [orphan]
        assert not caplog.records

    def test_it_deletes_nothing_and_logs_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        storage, _ = faulty_storage("dict://root")
        recovery = take_over(storage)
        recovery.begin()
        paths = put_manifest(storage, 1, b"a")
        cleaner = Cleaner(storage, InlineExecutor(), recovery.leadership.check)
        take_over(storage).begin()
        cleaner.discard_checkpoint(1, paths)
        cleaner.start()
        assert storage.checkpoint_ids() == [1]
        assert not caplog.records

    def test_a_store_that_refuses_the_listing_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        storage, faulty = faulty_storage("dict://root")
        recovery = take_over(storage)
        recovery.begin()
        put_manifest(storage, 1, b"a")
        faulty.inject("list", Fault.DENIED, times=10**6)
        Cleaner(storage, InlineExecutor()).find_leftovers(recovery, 1, SharedStateRegistry())
        assert "leftovers of earlier attempts could not be deleted yet" in caplog.text


def test_old_claims_and_bases_are_obsolete_and_the_newest_are_kept() -> None:
    storage, _ = faulty_storage("dict://root")
    for _ in range(3):
        take_over(storage).begin()
    recovery = take_over(storage)
    recovery.begin()
    paths = obsolete_leader_files(storage, recovery.epoch, recovery.obsolete_epochs)
    assert sorted(paths) == ["leader/1", "leader/1.base", "leader/2", "leader/2.base", "leader/3", "leader/3.base"]
