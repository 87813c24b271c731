"""Copies of state files on a TaskManager's disk: which ones are kept, found or refused, and when they are removed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.checkpoint.files.state_files import StateFileReader, StateFileWriter
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import SnapshotTorn
from penstock.state.files import FileRef
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange
from penstock.state.rocksdb.backend import RocksDBStateBackend
from penstock.taskmanager.code.payload import TaskSettings
from penstock.taskmanager.local_state.files import FORGET_S, LocalFilesSweeper, LocalStateFiles, sweep_local_files
from penstock.taskmanager.local_state.folders import sweep_state
from penstock.taskmanager.worker import ManualClock, _Slot
from tests.unit.state.support import VALUE, Clock, at, content

ALL = KeyGroupRange(0, 15)


class TaskManager:
    """A TaskManager with a disk, and a job's storage."""

    def __init__(self, folder: Path, disk: str = "disk") -> None:
        self.disk = folder / disk
        self.storage = folder / "storage"
        root = self.storage.as_uri()
        self.files = StateFileWriter(Stores().for_url(root), root)
        self.reader = StateFileReader(Stores(), root)
        self._created = 0

    def local(self, attempt: int = 1, job: str = "job", task: str = "0-0") -> LocalStateFiles:
        return LocalStateFiles([str(self.disk)], job, attempt, task)

    def backend(self, groups: KeyGroupRange = ALL) -> RocksDBStateBackend:
        self._created += 1
        work_dir = self.disk / f"state-{self._created}"
        return RocksDBStateBackend(
            key_group_range=groups,
            max_parallelism=16,
            key_context=KeyContext(),
            clock=Clock(),
            work_dir=str(work_dir),
            options={"compression": "none"},
        )

    def copies(self) -> list[Path]:
        return sorted(path for path in self.disk.glob("penstock-local-*/*/*") if path.name != "owner")

    def stored(self) -> list[Path]:
        return [path for path in (self.storage / "shared").iterdir() if path.stat().st_size > 10_000]


@pytest.fixture
def manager(tmp_path: Path) -> TaskManager:
    return TaskManager(tmp_path)


def put(backend: Any, keys: range, text: str = "value") -> None:
    state = backend.get_state(VALUE)
    for key in keys:
        at(backend, key)
        state.update(f"{text} {key}" * 20)


def snapshot(manager: TaskManager, backend: Any, local: LocalStateFiles, number: int) -> dict[str, Any]:
    handle: dict[str, Any] = backend.snapshot(number).run(local.writer(manager.files, number))
    local.note(number, handle)
    backend.notify_checkpoint_complete(number)
    local.completed(number)
    return handle


def killed(manager: TaskManager) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Return a checkpoint of a killed task, and its state."""
    backend, local = manager.backend(), manager.local()
    put(backend, range(500))
    handle = snapshot(manager, backend, local, 1)
    values = content([backend], VALUE)
    backend.close()
    local.close()
    return handle, values


def restored(manager: TaskManager, handle: dict[str, Any], groups: KeyGroupRange = ALL) -> Any:
    backend, local = manager.backend(groups), manager.local(2)
    backend.restore([handle], local.reader(manager.reader), owned=True)
    return backend, local


def test_a_restore_reads_no_large_file_from_storage(manager: TaskManager) -> None:
    handle, values = killed(manager)
    for path in manager.stored():
        path.unlink()
    backend, local = restored(manager, handle)
    assert content([backend], VALUE) == values
    assert (local.used, local.fetched) == (1, 0)
    backend.close()


def test_a_part_of_the_key_groups_is_restored_from_copies(manager: TaskManager) -> None:
    handle, values = killed(manager)
    for path in manager.stored():
        path.unlink()
    found: dict[Any, Any] = {}
    for groups in (KeyGroupRange(0, 7), KeyGroupRange(8, 15)):
        backend, _ = restored(manager, handle, groups)
        found |= content([backend], VALUE)
        backend.close()
    assert found == values


def _cut(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1])


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)


def _swap_for_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("harm", [_cut, _change, Path.unlink, _swap_for_a_folder])
def test_a_changed_copy_is_fetched_from_storage(manager: TaskManager, harm: Callable[[Path], None]) -> None:
    handle, values = killed(manager)
    for path in manager.copies():
        harm(path)
    backend, local = restored(manager, handle)
    assert content([backend], VALUE) == values
    assert (local.used, local.fetched) == (0, 1)
    backend.close()


def test_a_file_that_exists_nowhere_is_an_error(manager: TaskManager) -> None:
    handle, _ = killed(manager)
    for path in [*manager.copies(), *manager.stored()]:
        path.unlink()
    with pytest.raises(SnapshotTorn, match="does not exist"):
        restored(manager, handle)


def test_another_disk_fetches_files_and_keeps_copies(manager: TaskManager, tmp_path: Path) -> None:
    handle, values = killed(manager)
    other = TaskManager(tmp_path, "other-disk")
    backend, local = restored(other, handle)
    assert (local.used, local.fetched) == (0, 1)
    assert len(other.copies()) == 1
    backend.close()
    local.close()
    for path in manager.stored():
        path.unlink()
    backend, local = restored(other, handle)
    assert content([backend], VALUE) == values
    backend.close()


def test_copies_of_the_newest_complete_checkpoint_and_later_ones_are_kept(manager: TaskManager) -> None:
    backend, local = manager.backend(), manager.local()
    for number in range(1, 12):
        put(backend, range(0, 500, number), f"round {number}")
        handle = snapshot(manager, backend, local, number)
        named = {Path(file["path"]).name for file in handle["files"] if file["name"].endswith(".sst")}
        assert {path.name for path in manager.copies()} == named
    put(backend, range(10), "abandoned")
    abandoned = backend.snapshot(12).run(local.writer(manager.files, 12))
    local.note(12, abandoned)
    assert len(manager.copies()) > len(named)
    local.completed(11)
    assert len(manager.copies()) > len(named), "checkpoint 12 may still complete"
    local.aborted(12)
    local.completed(11)
    assert {path.name for path in manager.copies()} == named
    backend.close()


def test_copies_of_the_previous_attempt_are_removed_with_the_first_checkpoint(manager: TaskManager) -> None:
    handle, _ = killed(manager)
    backend, local = restored(manager, handle)
    folders = list(manager.disk.glob("penstock-local-*/*"))
    assert len(folders) == 2
    snapshot(manager, backend, local, 2)
    assert len(list(manager.disk.glob("penstock-local-*/*"))) == 1
    backend.close()


def test_a_process_that_outlives_a_killed_task_keeps_its_copies(manager: TaskManager) -> None:
    beside = manager.local(task="0-1")
    handle, values = killed(manager)
    beside.completed(1)
    for path in manager.stored():
        path.unlink()
    backend, local = restored(manager, handle)
    assert content([backend], VALUE) == values
    assert (local.used, local.fetched) == (1, 0)
    backend.close()
    beside.close()


def grow_old(manager: TaskManager) -> None:
    long_ago = time.time() - FORGET_S - 1
    for folder in [*manager.disk.glob("penstock-local-*/*"), *manager.disk.glob("penstock-local-*")]:
        os.utime(folder, (long_ago, long_ago))


def test_copies_of_other_jobs_are_kept_for_some_time(manager: TaskManager) -> None:
    killed(manager)
    sweep_local_files(str(manager.disk))
    assert manager.copies()
    live = manager.local(job="lives")
    grow_old(manager)
    sweep_local_files(str(manager.disk))
    assert [path.name for path in manager.disk.glob("penstock-local-*")] == ["penstock-local-lives"]
    live.close()
    sweep_state(str(manager.disk))
    assert not list(manager.disk.glob("penstock-local-*"))


def test_the_next_attempt_finds_copies_of_any_age(manager: TaskManager) -> None:
    handle, values = killed(manager)
    grow_old(manager)
    settings = TaskSettings(
        "job", "name", 2, "rocksdb", {"localdir": str(manager.disk)}, from_local=True, work_dir=str(manager.disk)
    )
    slot = _Slot(cloudpickle.dumps(None), settings, 0, ManualClock())
    backend, local = restored(manager, handle)
    assert content([backend], VALUE) == values
    assert (local.used, local.fetched) == (1, 0)
    backend.close()
    slot.close()


def test_the_age_of_copies_starts_when_their_task_was_last_active(manager: TaskManager) -> None:
    backend, local = manager.backend(), manager.local()
    put(backend, range(100))
    snapshot(manager, backend, local, 1)
    backend.close()
    grow_old(manager)
    sweep_local_files(str(manager.disk))
    assert local._folder is not None
    local._folder.release_lock()  # as if its process is killed
    sweep_local_files(str(manager.disk))
    assert manager.copies()


def test_copies_of_a_task_that_ends_normally_are_kept_for_some_time(manager: TaskManager) -> None:
    killed(manager)
    local = manager.local(2)
    grow_old(manager)
    local.close()
    sweep_local_files(str(manager.disk))
    assert manager.copies()


def test_copies_of_the_last_job_are_removed_even_if_no_slot_starts(manager: TaskManager) -> None:
    killed(manager)
    sweeper = LocalFilesSweeper([str(manager.disk)], every_s=0.01, older_than_s=0.0).start()
    deadline = time.monotonic() + 20
    while list(manager.disk.glob("penstock-local-*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    sweeper.stop()


def test_removed_folders_cause_no_failure(manager: TaskManager, tmp_path: Path) -> None:
    local = manager.local()
    (tmp_path / "a").write_bytes(b"first")
    shutil.rmtree(manager.disk)
    local.keep(FileRef("shared/x", 5, "crc32:7f3aeb7d"), str(tmp_path / "a"), 1)
    local.completed(1)
    local.close()


def test_a_disk_without_write_access_keeps_no_copies(manager: TaskManager, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"first")
    manager.disk.write_bytes(b"a file")
    local = manager.local()
    ref = FileRef("shared/x", 5, "crc32:7f3aeb7d")
    local.keep(ref, str(tmp_path / "a"), 1)
    local.completed(1)
    assert not local.find(ref, str(tmp_path / "b"))
    local.close()


def test_a_folder_is_created_even_if_another_slot_removes_its_parent(
    manager: TaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdtemp = tempfile.mkdtemp
    swept: list[str] = []

    def after_a_sweep(prefix: str, dir: str) -> str:
        if not swept:
            swept.append(dir)
            sweep_local_files(str(manager.disk), older_than_s=0.0)
        return mkdtemp(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", after_a_sweep)
    local = manager.local()
    assert local._folder is not None
    assert os.path.isdir(local._folder.path)


def test_a_full_disk_keeps_no_copies(manager: TaskManager, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, local = manager.backend(), manager.local()
    put(backend, range(100))
    snapshot(manager, backend, local, 1)
    assert manager.copies()
    monkeypatch.setattr("penstock.taskmanager.local_state.files._MIN_FREE", 2.0)
    put(backend, range(100, 200))
    snapshot(manager, backend, local, 2)
    assert not manager.copies()
    backend.close()


def test_a_small_file_within_an_object_has_a_separate_name(manager: TaskManager, tmp_path: Path) -> None:
    local = manager.local()
    (tmp_path / "a").write_bytes(b"first")
    first = FileRef("shared/x", 5, "crc32:7f3aeb7d", offset=0)
    local.keep(first, str(tmp_path / "a"), 1)
    assert not local.find(FileRef("shared/x", 5, "crc32:7f3aeb7d", offset=5), str(tmp_path / "b"))
    assert [path.name for path in manager.copies()] == ["x@0"]
