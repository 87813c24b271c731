"""The files of one checkpoint are acknowledged when all of them are durable."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.local_store import LocalStore
from penstock.checkpoint.store.retrying_store import RetryingStore, RetryPolicy, Stores
from penstock.state.files import FileRef
from penstock.taskmanager.protocol import SnapshotAck
from penstock.taskmanager.uploads import SnapshotUploads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGEST = 1 << 20


class Task:
    """The uploads of operators that each write one small file."""

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        policy = RetryPolicy(retry_for=0.05, pause=0.001, max_pause=0.002)
        self.faulty = FaultyStore(LocalStore(fsync=False))
        stores = Stores(policy=policy)
        stores.use("file", RetryingStore(self.faulty, policy, sleep=lambda _: None))
        self.storage = CheckpointStorage(f"file://{folder}", "job", policy=policy, stores=stores)
        self.executor = ThreadPoolExecutor(2)
        self.uploads = SnapshotUploads(self.executor, self.storage.writer(), largest)

    def write(self, uid: str, content: bytes) -> Callable[[], SnapshotAck]:
        def work() -> SnapshotAck:
            assert self.uploads.files is not None
            ref = self.uploads.files.write(content)
            return SnapshotAck(checkpoint_id=1, uid=uid, subtask=0, keyed={"files": [ref.to_json()]})

        return work


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path)
    yield made
    made.executor.shutdown()


def content(task: Task, ack: SnapshotAck) -> bytes:
    assert ack.keyed is not None
    return task.storage.reader().read(FileRef.of_json(ack.keyed["files"][0]))


def test_small_files_of_all_operators_are_one_object(task: Task) -> None:
    futures = [task.uploads.submit(task.write(f"op{number}", b"%d" % number)) for number in range(10)]
    task.uploads.seal()
    acks = [future.result(10) for future in futures]
    assert [content(task, ack) for ack in acks] == [b"%d" % number for number in range(10)]
    assert len(task.storage.list_objects("shared")) == 1


def test_no_operator_is_acknowledged_before_the_object_exists(task: Task) -> None:
    with task.faulty.blocked("put", match="shared/") as put:
        futures = [task.uploads.submit(task.write(f"op{number}", b"x")) for number in range(3)]
        task.uploads.seal()
        put.wait_until_reached()
        assert not any(future.done() for future in futures)
        put.release()
        assert [future.result(10).error for future in futures] == ["", "", ""]


def test_no_operator_is_acknowledged_before_all_have_written(task: Task) -> None:
    slow = threading.Event()

    def work() -> SnapshotAck:
        slow.wait(10)
        return SnapshotAck(checkpoint_id=1, uid="slow", subtask=0)

    quick, late = task.uploads.submit(task.write("quick", b"x")), task.uploads.submit(work)
    task.uploads.seal()
    assert not quick.done()
    slow.set()
    assert late.result(10).uid == "slow"
    assert content(task, quick.result(10)) == b"x"


def test_all_operators_with_state_decline_if_the_object_cannot_be_put(task: Task) -> None:
    task.faulty.inject("put", Fault.DENIED, match="shared/", times=10**6)
    stateful = task.uploads.submit(task.write("count", b"x"))
    stateless = task.uploads.submit(lambda: SnapshotAck(checkpoint_id=1, uid="map", subtask=0, committables=["c"]))
    task.uploads.seal()
    declined = stateful.result(10)
    assert (declined.keyed, declined.error_code) == (None, "STORAGE_REFUSED")
    assert "403 AccessDenied" in declined.error
    assert (stateless.result(10).error, stateless.result(10).committables) == ("", ["c"])


def test_an_error_of_one_operator_is_reported_by_that_operator(task: Task) -> None:
    def work() -> SnapshotAck:
        raise MemoryError("one too many")

    good, bad = task.uploads.submit(task.write("good", b"x")), task.uploads.submit(work)
    task.uploads.seal()
    with pytest.raises(MemoryError):
        bad.result(10)
    assert content(task, good.result(10)) == b"x"


def test_a_seal_without_files_does_nothing(task: Task) -> None:
    task.uploads.seal()
    assert task.storage.list_objects("shared") == []


def test_every_file_is_an_object_without_merging(tmp_path: Path) -> None:
    task = Task(tmp_path, largest=0)
    futures = [task.uploads.submit(task.write(f"op{number}", b"x")) for number in range(3)]
    assert [content(task, future.result(10)) for future in futures] == [b"x"] * 3
    task.uploads.seal()
    assert len(task.storage.list_objects("shared")) == 3
    task.executor.shutdown()
