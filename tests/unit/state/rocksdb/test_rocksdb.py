"""Features of the RocksDB backend only: shared SST files, local directories and options."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from penstock.common.errors import InvalidJob, LocalDiskError, StateTypeError
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.state.key_groups import KeyGroupRange
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.export import exported_blocks
from penstock.state.rocksdb.memory import SlotMemory
from penstock.state.rocksdb.options import MEMORY, WRITES, read_options
from penstock.state.rocksdb.rows import Addresses, after, decode_namespace, space_prefix, split_row
from tests.unit.state.support import LIST, MAP, VALUE, Backends, at, content


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("rocksdb", tmp_path)
    yield made
    made.close()


def tables(handle: dict[str, Any]) -> dict[str, str]:
    """Return the SST files of a handle: name -> path in the storage."""
    return {file["name"]: file["path"] for file in handle["files"] if file["name"].endswith(".sst")}


def put(backend: Any, keys: Any) -> None:
    state = backend.get_state(VALUE)
    for key in keys:
        at(backend, key)
        state.update(f"value of {key}" * 20)


def test_only_new_files_are_uploaded_and_only_files_of_confirmed_checkpoints_are_referenced(backends: Backends) -> None:
    backend = backends.create()
    put(backend, range(500))
    first = backends.snapshot(backend, 1)
    put(backend, range(500, 520))
    second = backends.snapshot(backend, 2, confirm=False)
    assert tables(first).items() <= tables(second).items()
    assert second["bytes_uploaded"] < first["bytes_uploaded"] / 2
    put(backend, range(520, 540))
    third = backends.snapshot(backend, 3, confirm=False)
    own_of_second = tables(second).items() - tables(first).items()
    assert own_of_second
    assert not {path for _, path in own_of_second} & set(tables(third).values()), (
        "the second checkpoint is not confirmed"
    )
    assert tables(first).items() <= tables(third).items()
    backend.notify_checkpoint_aborted(2)
    backend.notify_checkpoint_complete(3)
    fourth = backends.snapshot(backend, 4)
    assert tables(third).items() <= tables(fourth).items()
    assert len(content(backends.restored([fourth]), VALUE)) == 540


def test_local_directories_are_created_and_removed(backends: Backends) -> None:
    backend = backends.create()
    put(backend, range(10))
    work_dir = backends.work_dir / "b0"
    uploading, given_up, forgotten = backend.snapshot(1), backend.snapshot(2), backend.snapshot(3)
    assert sorted(p.name for p in work_dir.iterdir()) == ["chk-1", "chk-2", "chk-3", "db"]
    uploading.run(backends.storage)
    backend.notify_checkpoint_aborted(2)
    assert sorted(p.name for p in work_dir.iterdir()) == ["chk-3", "db"]
    backend.close()
    assert not work_dir.exists()
    del given_up, forgotten


def test_a_failed_upload_leaves_no_directory(backends: Backends) -> None:
    backend = backends.create()
    put(backend, range(10))
    upload = backend.snapshot(1)

    class Broken:
        def write(self, content: bytes) -> Any:
            raise OSError("the storage is not available")

        upload = write

    with pytest.raises(OSError, match="not available"):
        upload.run(Broken())
    assert [p.name for p in (backends.work_dir / "b0").iterdir()] == ["db"]
    backend.notify_checkpoint_aborted(1)
    assert len(content(backends.restored([backends.snapshot(backend, 2)]), VALUE)) == 10


def test_files_of_a_dead_process_are_removed(backends: Backends) -> None:
    (backends.work_dir / "b0" / "db").mkdir(parents=True)
    (backends.work_dir / "b0" / "db" / "CURRENT").write_text("rubbish")
    put(backends.create(), range(3))


def test_restored_files_have_different_names_than_new_ones(backends: Backends) -> None:
    backend = backends.create()
    put(backend, range(100))
    handle = backends.snapshot(backend, 1)
    (restored,) = backends.restored([handle], owned=True)
    put(restored, range(100, 110))
    second = backends.snapshot(restored, 2)
    assert tables(handle).items() <= tables(second).items()
    assert len(tables(second)) > len(tables(handle))
    (copied,) = backends.restored([handle], owned=False)
    copied.get_state(VALUE)
    assert not set(tables(backends.snapshot(copied, 2)).values()) & set(tables(handle).values())


def test_a_bad_value_is_refused_when_it_is_written(backends: Backends) -> None:
    backend = backends.create()
    at(backend, "a")
    number = backend.get_state(ValueStateDescriptor("n", int))
    elements = backend.get_state(ListStateDescriptor("l", int))
    with pytest.raises(StateTypeError, match="declared as int"):
        number.update("text")
    with pytest.raises(StateTypeError, match="declared as int"):
        elements.add_all([1, "text"])
    assert number.value() is None


def test_list_order_survives_restores_and_merging_of_subtasks(backends: Backends) -> None:
    subtasks = backends.restored([], 3)
    for round_ in range(3):
        for backend in subtasks:
            state = backend.get_state(LIST)
            for key in range(30):
                if Addresses(backend.key_context, backend._keys, 16).of(key, None)[1] in backend.key_group_range:
                    at(backend, key)
                    state.add_all([round_ * 2, round_ * 2 + 1])
        handles = [backends.snapshot(backend, round_ + 1) for backend in subtasks]
        subtasks = backends.restored(handles, 1 + round_)
    assert content(subtasks, LIST) == {(None, key): [0, 1, 2, 3, 4, 5] for key in range(30)}


def test_the_count_is_an_estimate_if_counting_would_be_slow(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = backends.create()
    put(backend, range(50))
    backend.get_state(MAP).put_all({i: i for i in range(10)})
    assert backend.entry_count() == 51
    monkeypatch.setattr("penstock.state.rocksdb.backend.EXACT_COUNT", 20)
    assert backend.entry_count() == 51


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"thread.num": 0}, "thread.num is 0"),
        ({"predefined-options": "FAST"}, "predefined-options is 'FAST'"),
        ({"state.backend.rocksdb.writebuffer.size": "much"}, "writebuffer.size is 'much'"),
        ({"state.backend.rocksdb.compression": "zip"}, "the compression 'zip' does not exist"),
    ],
)
def test_invalid_options_are_refused(backends: Backends, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidJob, match=says) as caught:
        backends.create(options=options)
    assert caught.value.remedy


def test_options_are_applied(backends: Backends) -> None:
    backend = backends.create(
        options={
            "state.backend.rocksdb.writebuffer.size": "1mb",
            "state.backend.rocksdb.compression": "none",
            "other": 1,
        }
    )
    put(backend, range(10_000))
    assert len(tables(backends.snapshot(backend))) > 1, "a small buffer must be flushed often"


def test_rows_are_ordered_by_key_group_and_namespace() -> None:
    prefixes = [space_prefix(group, ns) for group in (0, 1, 255, 256) for ns in (None, (0, 5), (0, 70_000))]
    assert prefixes == sorted(prefixes)
    for prefix, follower in itertools.pairwise(prefixes):
        assert prefix < after(prefix) <= follower
    assert decode_namespace(split_row(space_prefix(3, (1, 2)) + b"\0\0\0\1k")[1]) == (1, 2)
    assert after(b"\xff\xff") > b"\xff\xff\xff"[:2]
    assert KeyGroupRange(0, 3).overlaps(KeyGroupRange(3, 5))


def unflushed(folder: Path, options: dict[str, Any], until: int) -> int:
    """Return the bytes of unflushed writes of all states, after eight states have written 4 MiB each and had time to
    flush."""
    database = Database(str(folder), read_options(options))
    families = [database.family(f"state-{n}") for n in range(8)]

    def unflushed_bytes() -> int:
        return sum(int(family.property_int_value("rocksdb.cur-size-all-mem-tables") or 0) for family in families)

    for row in range(64):
        for family in families:
            family[row.to_bytes(4, "big")] = bytes(64 * 1024)
    deadline = time.monotonic() + 10
    while unflushed_bytes() > until and time.monotonic() < deadline:
        time.sleep(0.02)
        families[0][b"again"] = b"1"  # writes trigger flushes
    assert all(family[(63).to_bytes(4, "big")] == bytes(64 * 1024) for family in families)
    found = unflushed_bytes()
    database.close()
    return found


def test_a_memory_limit_applies_to_all_states_together(tmp_path: Path) -> None:
    assert unflushed(tmp_path / "free", {}, 64 * 2**20) > 30 * 2**20
    bounded = {MEMORY: 24 * 2**20, "memory.write-buffer-ratio": "0.5"}
    assert unflushed(tmp_path / "bounded", bounded, 12 * 2**20) <= 12 * 2**20


def test_the_budget_takes_precedence_over_a_cache_of_each_database() -> None:
    given = read_options({MEMORY: 24 * 2**20, "block.cache-size": "500mb", "writebuffer.size": "3mb"})
    assert (given["block.cache-size"], given[WRITES], given["writebuffer.size"]) == (20 * 2**20, 8 * 2**20, 3 * 2**20)


def test_operators_and_states_of_a_slot_have_one_budget(tmp_path: Path) -> None:
    memory = SlotMemory(24 * 2**20, 0.5)
    databases = [Database(str(tmp_path / name), read_options({MEMORY: memory})) for name in ("one", "two", "three")]
    families = [database.family(f"state:{state}") for database in databases for state in ("a", "b")]
    most = 0
    for row in range(200):
        for family in families:
            family[row.to_bytes(4, "big")] = os.urandom(64 * 1024)
        most = max(most, memory.usage)
    for database in databases:
        database.begin_flush()
    for family in families:
        assert sum(len(value) for value in family.values()) == 200 * 64 * 1024
        assert family.property_int_value("rocksdb.block-cache-capacity") == 20 * 2**20
        looks = range(500)  # a compaction may change the value between the two reads
        assert any(family.property_int_value("rocksdb.block-cache-usage") == memory.usage for _ in looks), (
            "a separate cache"
        )
        most = max(most, memory.usage)
    assert 8 * 2**20 < most <= 24 * 2**20, "75 MB were written and read by three databases"
    for database in databases:
        database.close()


def test_an_incomplete_scan_is_an_error(tmp_path: Path) -> None:
    """Otherwise, the rest of a list, of a map or of the timers would be lost silently."""
    path = tmp_path / "db"
    written = Rdict(str(path), Options(raw_mode=True))
    for number in range(20_000):
        written[b"%08d" % number] = os.urandom(50)
    written.flush()
    written.close()
    file = max(path.glob("*.sst"), key=lambda found: found.stat().st_size)
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 100] = b"\xff" * 100
    file.write_bytes(content)
    database = Rdict(str(path), Options(raw_mode=True))
    with pytest.raises(LocalDiskError, match="RocksDB cannot read its files: Corruption"):
        list(scan(database, b"", b"9"))
    assert len(list(scan(database, b"", b"00001000"))) == 1000


def test_files_of_a_snapshot_reader_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers put the database into the temporary folder, which every user may read."""
    backends = Backends("rocksdb", tmp_path / "work")
    backend = backends.create()
    at(backend, "k")
    backend.get_state(VALUE).update(1)
    handle = backends.snapshot(backend)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    rows = exported_blocks(handle, backend.key_group_range, backends.storage)
    assert next(iter(rows))
    folders = [path for path in (tmp_path / "tmp").rglob("*") if path.is_dir()]
    assert folders
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    list(rows)
    backends.close()
