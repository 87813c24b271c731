"""Reference counts of shared files, and the files that must never be deleted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.coordinator.completed import CompletedCheckpoints
from penstock.checkpoint.files.registry import SharedStateRegistry
from penstock.common.errors import StorageError
from tests.unit.checkpoint.support import manifest

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest


def tables(*names: str) -> list[dict[str, object]]:
    files = [{"path": f"shared/{name}", "size": 1, "checksum": ""} for name in names]
    return [{"backend": "rocksdb", "format": 1, "key_groups": [0, 127], "files": files, "states": {}}]


def checkpoint(id: int, *names: str) -> Manifest:
    return manifest(id, keyed=tables(*names))


def counts(completed: CompletedCheckpoints) -> dict[str, int]:
    return {path.removeprefix("shared/"): count for path, count in completed.registry.counts().items()}


def test_counts_follow_an_incremental_job_through_four_checkpoints() -> None:
    """Compare the counts after each checkpoint of one keyed subtask with two retained checkpoints.

    The files 1, 2 and 3 are merged before checkpoint 3; the files 4, 5 and 6 before checkpoint 4.
    """
    completed = CompletedCheckpoints([], retained=2)

    assert completed.add(checkpoint(1, "1", "2")) == []
    assert counts(completed) == {"1": 1, "2": 1}

    assert completed.add(checkpoint(2, "1", "2", "3", "4")) == []
    assert counts(completed) == {"1": 2, "2": 2, "3": 1, "4": 1}

    assert completed.add(checkpoint(3, "123", "4", "5")) == [(1, [])]
    assert counts(completed) == {"1": 1, "2": 1, "3": 1, "4": 2, "123": 1, "5": 1}

    assert completed.add(checkpoint(4, "123", "456")) == [(2, ["shared/1", "shared/2", "shared/3"])]
    assert counts(completed) == {"123": 2, "456": 1, "4": 1, "5": 1}


def test_counts_are_rebuilt_from_the_manifests_at_the_start() -> None:
    completed = CompletedCheckpoints([checkpoint(2, "1", "2", "3", "4"), checkpoint(3, "123", "4", "5")], retained=2)
    assert counts(completed) == {"1": 1, "2": 1, "3": 1, "4": 2, "123": 1, "5": 1}
    assert completed.add(checkpoint(4, "123", "456")) == [(2, ["shared/1", "shared/2", "shared/3"])]


def test_fewer_checkpoints_are_retained_after_the_limit_was_lowered() -> None:
    found = [checkpoint(id, str(id)) for id in range(1, 5)]
    completed = CompletedCheckpoints(found, retained=1)
    assert [id for id, _ in completed.add(checkpoint(5, "5"))] == [1, 2, 3, 4]
    assert counts(completed) == {"5": 1}


def test_a_checkpoint_in_doubt_keeps_its_files_until_a_later_one_is_complete() -> None:
    completed = CompletedCheckpoints([checkpoint(1, "a")], retained=2)
    completed.add_in_doubt(checkpoint(2, "a", "b"))
    assert completed.newest == checkpoint(1, "a")
    assert counts(completed) == {"a": 2, "b": 1}
    assert completed.add(checkpoint(3, "a", "c")) == [(2, ["shared/b"])]
    assert counts(completed) == {"a": 2, "c": 1}


def test_a_file_that_several_subtasks_name_is_one_file() -> None:
    completed = CompletedCheckpoints([], retained=1)
    completed.add(manifest(1, keyed=[*tables("1"), *tables("1", "2")]))
    assert counts(completed) == {"1": 1, "2": 1}


def test_a_savepoint_in_progress_keeps_files_that_its_checkpoint_has_lost() -> None:
    completed = CompletedCheckpoints([], retained=1)
    completed.add(checkpoint(1, "a"))
    completed.registry.register("savepoint-x", ["shared/a"])
    assert completed.add(checkpoint(2, "b")) == [(1, [])]
    assert completed.registry.is_needed("shared/a")
    assert completed.registry.release("savepoint-x") == ["shared/a"]


def test_a_snapshot_that_builds_on_a_deleted_file_is_refused() -> None:
    registry = SharedStateRegistry()
    registry.register("chk-1", ["shared/a"])
    registry.release("chk-1")
    with pytest.raises(StorageError, match="chk-2 refers to shared/a, which was deleted"):
        registry.register("chk-2", ["shared/b", "shared/a"])
    assert registry.counts() == {}


def test_a_second_registration_counts_once_and_a_second_release_is_harmless() -> None:
    registry = SharedStateRegistry()
    registry.register("chk-1", ["shared/a"])
    registry.register("chk-1", ["shared/a", "shared/b"])
    assert registry.counts() == {"shared/a": 1, "shared/b": 1}
    assert registry.holders() == ["chk-1"]
    assert registry.release("chk-1") == ["shared/a", "shared/b"]
    assert registry.release("chk-1") == []


@given(
    st.lists(st.lists(st.integers(0, 8), max_size=5, unique=True), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sets(st.integers(0, 11)),
)
def test_files_of_a_retained_checkpoint_are_never_released(
    increments: list[list[int]], retained: int, doubtful: set[int]
) -> None:
    """Reuse some files of the newest complete checkpoint and add a new file, as a state backend does."""
    completed = CompletedCheckpoints([], retained)
    deleted: set[str] = set()
    uploaded: set[str] = set()
    base: list[str] = []
    for index, picks in enumerate(increments):
        names = [base[pick % len(base)] for pick in picks] if base else []
        names = sorted({*names, f"new-{index}"})
        uploaded.add(f"shared/new-{index}")
        if index in doubtful:
            completed.add_in_doubt(checkpoint(index + 1, *names))
            continue
        base = names
        for _, garbage in completed.add(checkpoint(index + 1, *names)):
            assert not deleted & set(garbage)
            deleted |= set(garbage)
        needed = {file["path"] for m in completed.manifests for file in m.states["count"].keyed[0]["files"]}
        assert not deleted & needed
        assert deleted | set(completed.registry.counts()) == uploaded
        assert len(completed.manifests) <= retained


def test_many_threads_count_together() -> None:
    registry = SharedStateRegistry()

    def work(number: int) -> None:
        for round in range(200):
            registry.register(f"{number}-{round}", ["shared/common", f"shared/{number}-{round}"])
            if round % 2:
                registry.release(f"{number}-{round}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.counts()["shared/common"] == 400
    assert len(registry.counts()) == 401
