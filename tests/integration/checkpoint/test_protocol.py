"""Leadership, checkpoints and savepoints on a directory and on a real S3 server."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.checkpoint.coordinator.settings import CheckpointSettings
from penstock.checkpoint.events import (
    CheckpointAborted,
    CheckpointCompleted,
    Event,
    SavepointCompleted,
)
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.leadership.fencing import Leadership, list_leader_folder
from penstock.checkpoint.leadership.probe import probe
from penstock.checkpoint.recovery.takeover import take_over
from penstock.checkpoint.savepoint.savepoints import (
    dispose,
    list_savepoints,
    newest_complete,
    resolve,
    verify,
    write_savepoint,
)
from penstock.checkpoint.store.faults import FaultyStore
from penstock.checkpoint.store.object_store import scheme_of
from penstock.checkpoint.store.retrying_store import RetryingStore, Stores
from penstock.checkpoint.store.schemes import open_store
from penstock.common.errors import Fenced, SnapshotNotFound
from penstock.state.files import FileRef
from tests.integration.checkpoint.conftest import QUICK, REQUEST_TIMEOUT
from tests.unit.checkpoint.support import SOURCES, ack, delayed_put, handle, job, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tools.servers.s3 import S3Server


@pytest.fixture
def executor() -> Iterator[concurrent.futures.Executor]:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


def behind_faults(storage: CheckpointStorage) -> tuple[CheckpointStorage, FaultyStore]:
    """Return the same folder through a separate client that can be stopped."""
    faulty = FaultyStore(open_store(storage.root_url, storage.options))
    stores = Stores(storage.options, QUICK)
    stores.use(scheme_of(storage.url), RetryingStore(faulty, QUICK))
    return CheckpointStorage(storage.root_url, storage.job_id, storage.options, stores=stores), faulty


def run_until(coordinator: CheckpointCoordinator, kind: type[Event], now: int = 0) -> tuple[Any, list[Event]]:
    seen: list[Event] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        seen += coordinator.tick(now)
        for event in seen:
            if isinstance(event, kind):
                return event, seen
        time.sleep(0.01)
    raise AssertionError(f"no {kind.__name__} came: {seen}")


def test_the_store_supports_conditional_writes(storage: CheckpointStorage) -> None:
    assert probe(storage, high_availability=True).conditional_writes
    assert storage.list_objects() == []


def claim(storage: CheckpointStorage) -> int | None:
    try:
        return Leadership.take(storage).epoch
    except Fenced:
        return None


def test_one_of_the_jobmanagers_in_twelve_processes_leads(storage: CheckpointStorage) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        epochs = [epoch for epoch in pool.map(claim, [storage] * 12) if epoch is not None]
    assert len(set(epochs)) == len(epochs)
    assert max(epochs) == list_leader_folder(storage).highest_claim


@contextmanager
def a_zombies_delayed_put(storage: CheckpointStorage) -> Iterator[list[object]]:
    """Store 1 with a leader and stop it between its read and its put of 2. It continues after the block."""
    old_storage, faulty = behind_faults(storage)
    zombie = take_over(old_storage)
    zombie.begin()
    zombie.leadership.publish(manifest(1, epoch=1, job_id=storage.job_id))
    second = manifest(2, epoch=1, job_id=storage.job_id)
    with delayed_put(faulty, "chk-2", lambda: zombie.leadership.publish(second)) as outcome:
        yield outcome


def test_the_delayed_put_of_a_zombie_loses(storage: CheckpointStorage) -> None:
    """Stop the leader between its read and its put. Its successor restores and stores. Then the zombie continues."""
    with a_zombies_delayed_put(storage) as outcome:
        successor = take_over(storage)
        successor.begin()
        assert successor.snapshot is not None
        assert successor.snapshot.manifest.checkpoint_id == 1
        successor.leadership.publish(manifest(2, epoch=2, job_id=storage.job_id))
    assert isinstance(outcome[0], Fenced)
    newest = newest_complete(storage.root_url, storage.job_id, stores=storage.stores).snapshot
    assert newest is not None
    assert newest.manifest.leader_epoch == 2


def test_a_late_put_that_succeeds_has_no_effect(storage: CheckpointStorage) -> None:
    with a_zombies_delayed_put(storage) as outcome:
        take_over(storage).begin()
    assert isinstance(outcome[0], Fenced)
    assert storage.checkpoint_ids() == [1, 2]
    third = take_over(storage)
    assert third.snapshot is not None
    assert third.snapshot.manifest.checkpoint_id == 1


def test_a_job_takes_checkpoints_fails_over_and_ends(
    storage: CheckpointStorage, target: str, executor: concurrent.futures.Executor
) -> None:
    settings = CheckpointSettings(interval_ms=1, retained=2, savepoint_directory=target)
    coordinator = CheckpointCoordinator(storage, settings, executor)
    recovery = take_over(storage)
    recovery.begin()
    coordinator.begin(recovery, job(2), 0)
    base: list[dict[str, Any]] = []
    for number in range(1, 5):
        request = coordinator.next_trigger(number * 10)
        assert request is not None
        coordinator.on_barrier(request.checkpoint_id, SOURCES)
        for subtask, groups in enumerate([(0, 63), (64, 127)]):
            keyed = handle(storage, groups, b"%d of %d" % (subtask, number), reuse=base[subtask * 1 : subtask * 1 + 1])
            coordinator.on_ack(ack(request, subtask=subtask, keyed=keyed, committables=[f"{number}-{subtask}"]), 0)
        done, _ = run_until(coordinator, CheckpointCompleted)
        assert done.commits == {"count": [f"{number}-0", f"{number}-1"]}
        coordinator.on_committed(number)
        base = [entry["files"][-1] for entry in done.manifest.states["count"].keyed]
    deadline = time.monotonic() + 30
    while storage.checkpoint_ids() != [3, 4] and time.monotonic() < deadline:
        coordinator.tick(0)
        time.sleep(0.02)
    assert storage.checkpoint_ids() == [3, 4]

    coordinator.trigger_savepoint()
    request = coordinator.next_trigger(100)
    assert request is not None
    coordinator.on_barrier(request.checkpoint_id, SOURCES)
    for subtask, groups in enumerate([(0, 63), (64, 127)]):
        coordinator.on_ack(ack(request, subtask=subtask, keyed=handle(storage, groups, b"sp")), 0)
    savepoint, _ = run_until(coordinator, SavepointCompleted)
    assert verify(savepoint.url, stores=storage.stores, checksums=True).is_complete

    coordinator.end_attempt("a worker was lost", 200)
    again = take_over(storage, candidate=recovery.leadership.candidate)
    again.begin()
    assert again.snapshot is not None
    assert again.snapshot.manifest.checkpoint_id == 5
    coordinator.begin(again, job(2), 200)
    for handle_ in again.snapshot.manifest.states["count"].keyed:
        for file in handle_["files"]:
            assert storage.reader().read(FileRef(file["path"], file["size"], file["checksum"])) == b"sp"
    report = coordinator.shutdown("FINISHED")
    assert (report.kept, report.undeleted) == (False, 0)
    assert storage.checkpoint_ids() == []
    assert storage.list_names("shared") == []
    assert take_over(storage).snapshot is None
    assert [info.url for info in list_savepoints(target, stores=storage.stores)] == [savepoint.url]


def test_a_moved_savepoint_is_restored(storage: CheckpointStorage, target: str, tmp_path: Path) -> None:
    recovery = take_over(storage)
    recovery.begin()
    stored = manifest(1, job_id=storage.job_id, keyed=[handle(storage, (0, 127), b"one", b"two")])
    recovery.leadership.publish(stored)
    url = write_savepoint(stored, storage.url, target, storage.stores)
    store = storage.stores.for_url(url)
    moved = f"{storage.root_url}-moved/anywhere"
    if moved.startswith("s3://"):
        moved = "s3://elsewhere/" + moved.removeprefix("s3://")
    for info in store.list_objects(url):
        store.copy(info.url, info.url.replace(url, moved))
    dispose(url, stores=storage.stores)
    with pytest.raises(SnapshotNotFound):
        resolve(url, stores=storage.stores)
    snapshot = resolve(moved, stores=storage.stores)
    reader = storage.reader(snapshot.base_url)
    files = snapshot.manifest.states["count"].keyed[0]["files"]
    assert [reader.read(FileRef(f["path"], f["size"], f["checksum"])) for f in files] == [b"one", b"two"]
    reader.download(FileRef(files[0]["path"], files[0]["size"], files[0]["checksum"]), str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"one"


@pytest.mark.s3
def test_a_savepoint_is_copied_from_s3_to_a_directory_and_back(s3_options: dict[str, Any], tmp_path: Path) -> None:
    storage = CheckpointStorage("s3://checkpoints/cross", "job", s3_options, policy=QUICK)
    stored = manifest(1, job_id="job", keyed=[handle(storage, (0, 127), b"content")])
    url = write_savepoint(stored, storage.url, str(tmp_path / "savepoints"), storage.stores)
    assert verify(url, stores=storage.stores, checksums=True).is_complete
    back = write_savepoint(stored, url, "s3://checkpoints/back", storage.stores)
    assert verify(back, stores=storage.stores, checksums=True).is_complete


@pytest.mark.s3
def test_a_manifest_is_stored_although_the_store_is_down_for_a_while(
    s3: S3Server, impatient: dict[str, Any], executor: concurrent.futures.Executor
) -> None:
    """The checkpoint waits for the store, and completes when the store is back."""
    storage = CheckpointStorage("s3://checkpoints/outage", "job", impatient, policy=QUICK)
    coordinator = CheckpointCoordinator(storage, CheckpointSettings(interval_ms=1), executor)
    recovery = take_over(storage)
    recovery.begin()
    coordinator.begin(recovery, job(), 0)
    request = coordinator.next_trigger(10)
    assert request is not None
    keyed = handle(storage, (0, 127), b"a")
    s3.pause()
    timer = threading.Timer(2.5 * REQUEST_TIMEOUT, s3.resume)
    timer.start()
    try:
        coordinator.on_barrier(1, SOURCES)
        coordinator.on_ack(ack(request, keyed=keyed), 0)
        done, events = run_until(coordinator, CheckpointCompleted)
    finally:
        timer.join()
    assert not any(isinstance(event, CheckpointAborted) for event in events)
    assert verify(storage.url_of("chk-1"), stores=storage.stores, checksums=True).is_complete
    assert storage.read_manifest(1) == done.manifest
