"""A snapshot contains the database at the barrier, and processing does not wait until the snapshot is on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options

from penstock.common.errors import StorageError
from penstock.state.rocksdb.database import Database
from penstock.state.rocksdb.files import manifest
from penstock.state.rocksdb.files.frozen import FrozenDatabase
from penstock.state.rocksdb.files.manifest_tail import ManifestTail
from penstock.state.rocksdb.options import read_options
from tests.unit.state.support import VALUE, Backends, at, content


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("rocksdb", tmp_path)
    yield made
    made.close()


def put(backend: Any, keys: Any, text: str) -> None:
    state = backend.get_state(VALUE)
    for key in keys:
        at(backend, key)
        state.update(f"{text} {key}" * 10)


def test_processing_continues_before_memory_is_on_disk(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Database._make_options

    def slow_disk(self: Database) -> Options:
        options = make(self)
        options.set_ratelimiter(100_000, 100_000, 10)
        return options

    monkeypatch.setattr(Database, "_make_options", slow_disk)
    backend = backends.create(options={"compression": "none"})
    put(backend, range(2_000), "before")
    upload = backend.snapshot(1)
    assert not backend._database.is_flushed(), "the first snapshot waited for the disk"
    put(backend, range(1_000, 3_000), "after")
    handle = upload.run(backends.storage)
    backend.notify_checkpoint_complete(1)
    found = content(backends.restored([handle]), VALUE)
    assert found == {(None, key): f"before {key}" * 10 for key in range(2_000)}


def test_the_first_barrier_creates_no_column_family(backends: Backends) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    families = set(backend._database.families)
    backend.snapshot(1)
    assert set(backend._database.families) == families


def test_writes_after_the_barrier_are_not_in_the_snapshot(backends: Backends) -> None:
    """The buffers are so small that later writes are flushed and compacted all the time."""
    backend = backends.create(options={"writebuffer.size": "64kb"})
    put(backend, range(500), "round 0")
    for number in range(1, 8):
        upload = backend.snapshot(number)
        put(backend, range(0, 500, number), f"round {number}")
        handle = upload.run(backends.storage)
        backend.notify_checkpoint_complete(number)
        expected = {(None, key): f"round {_last_round(key, number - 1)} {key}" * 10 for key in range(500)}
        assert content(backends.restored([handle]), VALUE) == expected


def tables_of(backend: Any) -> list[Path]:
    return list(Path(backend._database.path).glob("*.sst"))


@pytest.mark.parametrize("later", ["updates", "deletions"])
def test_a_file_compacted_with_later_rows_is_never_part_of_the_snapshot(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """RocksDB sets sequence numbers on the lowest level to zero and drops deleted rows. No file would show the later
    rows."""
    make, follow, compacted = Database._make_options, FrozenDatabase._follow, threading.Event()

    def eager(self: Database) -> Options:
        options = make(self)
        options.set_level_zero_file_num_compaction_trigger(2)
        return options

    def late(self: FrozenDatabase) -> None:
        compacted.wait(30)
        follow(self)

    monkeypatch.setattr(Database, "_make_options", eager)
    monkeypatch.setattr(FrozenDatabase, "_follow", late)
    backend = backends.create()
    put(backend, range(50), "before")
    upload = backend.snapshot(1)
    if later == "updates":
        put(backend, range(50), "after")
    else:
        for key in range(25):
            at(backend, key)
            backend.get_state(VALUE).clear()
    family = backend._database.family("state:value")
    family.flush()
    until = time.monotonic() + 20
    while family.property_value("rocksdb.num-files-at-level0") != "0" or len(tables_of(backend)) > 1:
        assert time.monotonic() < until
        time.sleep(0.01)  # a compaction deletes its input files a moment after it has written the output
    compacted.set()
    try:
        handle = upload.run(backends.storage)
    except StorageError as error:
        found: Any = str(error)
    else:  # memory was on disk before the snapshot had linked the existing files
        found = content(backends.restored([handle]), VALUE)
    assert "compacted the files of the checkpoint" in found or found == {
        (None, key): f"before {key}" * 10 for key in range(50)
    }
    upload.wait()
    assert family.property_value("rocksdb.num-snapshots") == "0", "compaction is blocked for ever"


def _last_round(key: int, number: int) -> int:
    return next((n for n in range(number, 0, -1) if key % n == 0), 0)


def test_consecutive_snapshots_contain_the_state_at_their_barriers(backends: Backends) -> None:
    backend = backends.create()
    uploads = []
    for number in range(1, 12):
        put(backend, range(20), f"round {number}")
        uploads.append(backend.snapshot(number))
    for number, upload in enumerate(uploads, 1):
        found = content(backends.restored([upload.run(backends.storage)]), VALUE)
        assert found == {(None, key): f"round {number} {key}" * 10 for key in range(20)}


def test_a_snapshot_reads_only_changes_since_the_last_one(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = manifest._decode

    def counted(payload: bytes) -> manifest.Edit:
        decoded.append(payload)
        return decode(payload)

    monkeypatch.setattr(manifest, "_decode", counted)
    backend = backends.create()
    counts = []
    for number in range(1, 60):
        put(backend, range(20), f"round {number}")
        decoded.clear()
        handle = backends.snapshot(backend, number)
        counts.append(len(decoded))
    assert max(counts[-20:]) <= max(counts[1:21]) + 10
    assert len(decoded) < 30
    assert content(backends.restored([handle]), VALUE) == {(None, key): f"round 59 {key}" * 10 for key in range(20)}


def test_a_new_manifest_is_read_from_its_beginning(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Database._make_options

    def short_manifests(self: Database) -> Options:
        options = make(self)
        options.set_max_manifest_file_size(1_000)
        return options

    monkeypatch.setattr(Database, "_make_options", short_manifests)
    backend = backends.create()
    names = set()
    for number in range(1, 40):
        put(backend, range(0, 100, number), f"round {number}")
        handle = backends.snapshot(backend, number)
        names.add(backend._database.manifest.current())
        if number % 10 == 0:
            expected = {(None, key): f"round {_last_round(key, number)} {key}" * 10 for key in range(100)}
            assert content(backends.restored([handle]), VALUE) == expected
    assert len(names) > 3


def test_a_manifest_that_disappears_during_the_linking_is_searched_again(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    named = iter(["MANIFEST-999999"])
    current = ManifestTail.current
    monkeypatch.setattr(ManifestTail, "current", lambda tail: next(named, None) or current(tail))
    handle = backends.snapshot(backend)
    assert next(named, None) is None
    assert len(content(backends.restored([handle]), VALUE)) == 20


def test_files_that_cannot_be_linked_fail_the_checkpoint_and_not_the_task(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    monkeypatch.setattr(ManifestTail, "current", lambda tail: "MANIFEST-999999")
    upload = backend.snapshot(1)
    with pytest.raises(StorageError, match="cannot be linked"):
        upload.run(backends.storage)
    backend.notify_checkpoint_aborted(1)
    monkeypatch.undo()
    assert len(content(backends.restored([backends.snapshot(backend, 2)]), VALUE)) == 20


def test_polls_become_less_frequent_while_the_disk_is_slow(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    looks: list[float] = []

    def is_flushed(database: Database) -> bool:
        looks.append(time.monotonic())
        return looks[-1] - looks[0] > 0.5

    monkeypatch.setattr(Database, "is_flushed", is_flushed)
    backends.snapshot(backend)
    assert len(looks) < 60


def test_a_disk_that_cannot_be_written_to_fails_the_checkpoint(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    monkeypatch.setattr(Database, "is_flushed", _full)
    with pytest.raises(StorageError, match="disk full"):
        backend.snapshot(1).run(backends.storage)
    monkeypatch.undo()
    assert len(content(backends.restored([backends.snapshot(backend, 2)]), VALUE)) == 20


def _full(database: Database) -> bool:
    raise StorageError("disk full")


def test_an_aborted_snapshot_does_not_wait_for_the_disk(backends: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = backends.create()
    put(backend, range(20), "first")
    monkeypatch.setattr(Database, "is_flushed", lambda database: False)
    backend.snapshot(1)
    began = time.monotonic()
    backend.notify_checkpoint_aborted(1)
    assert time.monotonic() - began < 5
    assert not (backends.work_dir / "b0" / "chk-1").exists()


def test_the_end_of_a_snapshot_rewrites_no_file(tmp_path: Path) -> None:
    """RocksDB rewrites files of the lowest level when their sequence numbers are released. The next checkpoint would
    upload them again."""
    database = Database(str(tmp_path / "db"), read_options({}))
    family = database.family("state:a")
    for number in range(2_000):
        family[b"%08d" % number] = b"a value of some length"
    FrozenDatabase(database, tmp_path / "chk-1").wait()
    family[b"%08d" % 7] = b"another"
    FrozenDatabase(database, tmp_path / "chk-2").wait()
    database.close()  # waits for running compactions
    assert "BottommostFiles" not in (tmp_path / "db" / "LOG").read_text()
