"""A local disk that cannot be written: errors have a code and name the folder, and no state is lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common.errors import ClusterError, CorruptStateFile, LocalDiskError
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.decoding import decoding
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.files import download
from penstock.testing import JobHarness
from tests.unit.state.support import LIST, MAP, VALUE, Backends, at, content

SMALL = {"state.backend.rocksdb.writebuffer.size": "64kb"}


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("rocksdb", tmp_path)
    yield made
    made.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the files of this process to 4 KB. RocksDB then gets a write error, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def fill(backend: Any, keys: int = 4000) -> None:
    state = backend.get_state(VALUE)
    for key in range(keys):
        at(backend, key)
        state.update(os.urandom(100).hex())


def writes(backend: Any) -> dict[str, Callable[[], Any]]:
    """Return every write of a state handle."""
    at(backend, "a")
    value, items, entries = (backend.get_state(descriptor) for descriptor in (VALUE, LIST, MAP))
    items.add(1)
    entries.put(1, 1)
    return {
        "update": lambda: value.update("a"),
        "clear": value.clear,
        "add": lambda: items.add(2),
        "update list": lambda: items.update([3]),
        "clear list": items.clear,
        "put": lambda: entries.put(2, 2),
        "remove": lambda: entries.remove(1),
        "clear map": entries.clear,
        "snapshot": lambda: backend.snapshot(7),
    }


def broken(backends: Backends) -> tuple[Any, dict[str, Callable[[], Any]]]:
    backend = backends.create(options=SMALL)
    actions = writes(backend)
    with full_disk(), pytest.raises(LocalDiskError) as caught:
        fill(backend)
    assert caught.value.code == "LOCAL_DISK"
    assert str(backends.work_dir) in caught.value.message
    assert "state.backend.rocksdb.localdir" in caught.value.remedy
    return backend, actions


def test_every_write_to_a_full_disk_raises_a_coded_error_with_the_folder_and_the_remedy(backends: Backends) -> None:
    backend, actions = broken(backends)
    at(backend, "a")
    raised = {}
    for name, action in actions.items():
        try:
            action()
        except LocalDiskError as error:
            raised[name] = str(backends.work_dir) in error.message
    assert raised == dict.fromkeys(actions, True)


def test_a_backend_whose_disk_is_full_closes_and_frees_its_folder(backends: Backends) -> None:
    backend, _ = broken(backends)
    backend.close()
    assert list(backends.work_dir.iterdir()) == []


def test_state_of_the_last_checkpoint_before_the_disk_was_full_is_restored(backends: Backends) -> None:
    backend = backends.create(options=SMALL)
    fill(backend, 50)
    before, handle = content([backend], VALUE), backends.snapshot(backend)
    with full_disk(), pytest.raises(LocalDiskError):
        fill(backend)
    backend.close()
    assert content(backends.restored([handle]), VALUE) == before


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_restore_onto_a_full_disk_is_not_reported_as_damage_and_can_be_repeated(
    backends: Backends, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage ends a job permanently, but a full disk does not."""
    backend = backends.create(options=SMALL)
    fill(backend, 400)
    before, handle = content([backend], VALUE), backends.snapshot(backend)
    with full_disk(), pytest.raises(LocalDiskError):
        backends.restored([handle], parallelism)[0].get_state(VALUE)
    assert content(backends.restored([handle], parallelism), VALUE) == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_folder_that_cannot_be_written_is_named(
    backends: Backends, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number), str(backends.work_dir))

    backend = backends.create()
    fill(backend, 5)
    handle = backends.snapshot(backend)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", refuse)
        with pytest.raises(LocalDiskError, match=str(backends.work_dir)):
            backends.create()
        with pytest.raises(LocalDiskError, match=str(backends.work_dir)):
            backend.snapshot(2)
    with monkeypatch.context() as patched:
        patched.setattr(download, "_fill", refuse)
        with pytest.raises(LocalDiskError, match="on the local disk"):
            backends.restored([handle])
    assert len(content(backends.restored([handle]), VALUE)) == 5


def test_a_folder_that_was_deleted_fails_the_checkpoint_with_the_coded_error(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, 5)
    shutil.rmtree(backends.work_dir)
    with pytest.raises(LocalDiskError, match=str(backends.work_dir)):
        backend.snapshot(1).run(backends.storage)


def test_damage_is_still_reported_as_damage() -> None:
    with pytest.raises(CorruptStateFile), decoding("a file"):
        raise ValueError("bad bytes")
    with pytest.raises(CorruptStateFile), decoding("a file"):
        raise OSError("no errno")


class Counts(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: str, ctx: Any) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def test_a_job_whose_disk_fails_once_names_the_folder_and_continues_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, failures = Database.write, list[LocalDiskError]()
    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "0 s"}
    with JobHarness(backend="rocksdb", configuration=restarts) as harness:
        harness.collect(harness.source("words").key_by(lambda word: word).process(Counts()), "counts")
        harness.push("words", "a", "b", "a")
        harness.snapshot()

        def refuse(self: Database, batch: Any) -> None:
            database, self._db = self._db, _Refusing()
            try:
                written(self, batch)
            except LocalDiskError as error:
                failures.append(error)
                raise
            finally:
                self._db = database
                monkeypatch.undo()

        monkeypatch.setattr(Database, "write", refuse)
        harness.push("words", "a")
        with pytest.raises(ClusterError, match=r"the job failed before the operation was complete: \[LOCAL_DISK\]"):
            harness.snapshot()
        assert harness.outputs("counts") == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    assert ["No space left on device" in failure.message for failure in failures] == [True]


class _Refusing:
    """A database that refuses every write."""

    def write(self, batch: Any, options: Any) -> None:
        raise Exception("IO error: No space left on device: While appending to file: /disk/db/000012.sst")


@dataclass
class Connected:
    """A value whose class runs code when it is decoded."""

    server: str
    error: ClassVar[Exception | None] = None

    def __post_init__(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [ConnectionRefusedError(errno.ECONNREFUSED, "no server"), Exception("no server")])
@pytest.mark.parametrize("operation", ["value", "list", "map"])
def test_an_error_of_a_decoded_class_is_not_a_disk_error(
    backends: Backends, error: Exception, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashmap backend raises the same error code. The operator would wait for the end of a disk error."""
    backend = backends.create()
    at(backend, "a")
    if operation == "value":
        value = backend.get_state(ValueStateDescriptor("connected", Connected))
        value.update(Connected("db"))
        read: Callable[[], Any] = value.value
    elif operation == "list":
        items = backend.get_state(ListStateDescriptor("connected", Connected))
        items.add(Connected("db"))
        read = items.get
    else:
        entries = backend.get_state(MapStateDescriptor("connected", int, Connected))
        entries.put(1, Connected("db"))
        read = lambda: list(entries.items())  # noqa: E731
    monkeypatch.setattr(Connected, "error", error)
    with pytest.raises(CorruptStateFile, match="no server"):
        read()
