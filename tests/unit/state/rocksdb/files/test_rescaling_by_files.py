"""A restore at another parallelism reuses files, and does not copy rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.factory import create_timer_service
from penstock.state.key_groups import KeyGroupCache, KeyGroupRange, key_group_range
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.files.manifest import ManifestUnreadable
from penstock.state.rocksdb.rows import STATE, group_prefix, split_row
from penstock.state.rocksdb.timers import FAMILY as TIMERS
from tests.unit.state.support import LIST, MAP, MAX_PARALLELISM, VALUE, Backends, at, content

GROUPS = KeyGroupCache(MAX_PARALLELISM)
KEYS = range(400)


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("rocksdb", tmp_path)
    yield made
    made.close()


@pytest.fixture
def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    put_all = Database.put_all

    def without_states(self: Database, name: str, rows: Any) -> None:
        assert not name.startswith(STATE), "rows of a state are copied one by one"
        put_all(self, name, rows)

    monkeypatch.setattr(Database, "put_all", without_states)


def put(subtasks: list[Any], keys: Any, text: str) -> None:
    for backend in subtasks:
        value, entries = backend.get_state(VALUE), backend.get_state(MAP)
        timers = create_timer_service(backend)
        for key in keys:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                value.update(f"{text} {key}")
                entries.put(text, key)
                timers.register_event_time_timer(key)


def remove(subtasks: list[Any], keys: Any) -> None:
    for backend in subtasks:
        for key in keys:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                backend.get_state(VALUE).clear()
                backend.get_state(MAP).clear()
                create_timer_service(backend).delete_event_time_timer(key)


def snapshots(backends: Backends, subtasks: list[Any], number: int) -> list[dict[str, Any]]:
    return [backends.snapshot(backend, number) for backend in subtasks]


def values(subtasks: list[Any]) -> dict[Any, Any]:
    return {key: value for (_, key), value in content(subtasks, VALUE).items()}


def compact(backend: Any) -> None:
    states = [name for name in backend._database.families if name.startswith(STATE)]
    backend._database.compact({name: [KeyGroupRange(0, MAX_PARALLELISM - 1)] for name in states})


def timers_of(subtasks: list[Any]) -> list[int]:
    return sorted(timestamp for backend in subtasks for timestamp, _, _ in backend.event_time_timers.timers())


@pytest.mark.usefixtures("no_copies")
@pytest.mark.parametrize(
    "steps", [(1, 2, 4), (4, 2, 1), (1, 4, 2, 3, 1), (2, 3), (3, 2, 4, 1), (1, 2, 4, 8, 3), (1, 2, 1, 2, 1)], ids=str
)
def test_files_are_reused_at_any_parallelism(backends: Backends, steps: tuple[int, ...]) -> None:
    subtasks = backends.restored([], steps[0])
    expected: dict[Any, Any] = {}
    for number, parallelism in enumerate((*steps[1:], 1), 1):
        changed, gone = KEYS[number::number], KEYS[:: number + 5]
        put(subtasks, changed, f"round {number}")
        remove(subtasks, gone)
        expected |= {key: f"round {number} {key}" for key in changed}
        expected = {key: value for key, value in expected.items() if key not in gone}
        subtasks = backends.restored(snapshots(backends, subtasks, number), parallelism, owned=True)
        assert values(subtasks) == expected
        assert timers_of(subtasks) == sorted(expected)
        for backend in subtasks:
            assert all(GROUPS[key] in backend.key_group_range for key in backend.keys("value"))


def looked_up(subtasks: list[Any], keys: Any) -> dict[Any, Any]:
    """Look up each key. A scan sorts rows by version, but a look-up uses the first file that has the row."""
    found = {}
    for backend in subtasks:
        value = backend.get_state(VALUE)
        for key in keys:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                found[key] = value.value()
    return found


@pytest.mark.usefixtures("no_copies")
@pytest.mark.parametrize("compacted", [True, False], ids=["above others", "alone"])
@pytest.mark.parametrize("steps", [(3,), (3, 1), (3, 2, 3, 1)], ids=str)
def test_one_row_that_changes_in_every_checkpoint_has_its_newest_value(
    backends: Backends, steps: tuple[int, ...], compacted: bool
) -> None:
    """Each checkpoint leaves a file of only this row. RocksDB moves such files between levels without a change."""
    middle = [key for key in KEYS if GROUPS[key] in key_group_range(1, 3, MAX_PARALLELISM)]
    subtasks = backends.restored([], 2)
    number = 0
    for parallelism in steps:
        owners = [(backend, [key for key in middle if GROUPS[key] in backend.key_group_range]) for backend in subtasks]
        for backend, keys in owners:
            if compacted and keys:
                put([backend], keys, "first")
                backends.snapshot(backend, number := number + 1)
                compact(backend)
            for key in KEYS:  # the files of another state then exceed the range
                if GROUPS[key] in backend.key_group_range:
                    at(backend, key)
                    backend.get_state(LIST).add(key)
            for _ in range(4):
                for hot in keys[:1]:
                    at(backend, hot)
                    backend.get_state(VALUE).update(f"{hot} {number}")
                backends.snapshot(backend, number := number + 1)
        expected = looked_up(subtasks, middle)
        subtasks = backends.restored(snapshots(backends, subtasks, number := number + 1), parallelism, owned=True)
        assert looked_up(subtasks, middle) == expected
        assert values(subtasks) == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.usefixtures("no_copies")
def test_files_of_other_key_groups_are_not_fetched(backends: Backends) -> None:
    (backend,) = backends.restored([])
    for half in (0, 1):  # one file for each half
        own = key_group_range(half, 2, MAX_PARALLELISM)
        put([backend], [key for key in KEYS if GROUPS[key] in own], "first")
        handle = backends.snapshot(backend, half + 1)
    for name in ("value", "map"):
        backend._database.family(f"state:{name}")
    of_states = {table.name for table in _version(handle, backends).all_tables()}
    assert len(of_states) > 2
    backends.storage.reads.clear()
    backends.restored([handle], 2)
    read = [path for path in backends.storage.reads if path in {f["path"] for f in handle["files"]}]
    assert len(read) < 2 * len(handle["files"]), "each half must skip the files of the other half"


def _version(handle: dict[str, Any], backends: Backends) -> Any:
    from penstock.state.rocksdb.files.download import StoredDatabase

    return StoredDatabase.of(handle, backends.storage).version()


@pytest.mark.usefixtures("no_copies")
def test_a_state_whose_files_are_within_the_range_is_not_changed(backends: Backends) -> None:
    """Only the files of another state exceed the range. A range deletion in this state would delete nothing, and
    would remain for ever."""
    subtasks = backends.restored([], 2)
    put(subtasks, KEYS, "first")
    for backend in subtasks:
        last = backend.key_group_range.end
        for key in KEYS:
            if GROUPS[key] == last:
                at(backend, key)
                backend.get_state(LIST).add(key)
    expected = values(subtasks)
    assert values(backends.restored(snapshots(backends, subtasks, 1), 3, owned=True)) == expected


@pytest.mark.usefixtures("no_copies")
def test_reused_files_are_not_uploaded_again(backends: Backends) -> None:
    subtasks = backends.restored([], 2)
    put(subtasks, KEYS, "first " * 50)
    handles = snapshots(backends, subtasks, 1)
    before = sum(handle["bytes_uploaded"] for handle in handles)
    (whole,) = backends.restored(handles, owned=True)
    again = backends.snapshot(whole, 2)
    paths = {file["path"] for handle in handles for file in handle["files"] if file["name"].endswith(".sst")}
    assert {file["path"] for file in again["files"]} & paths
    assert again["bytes_uploaded"] < before / 2
    assert values(backends.restored([again], 2)) == values([whole])


def test_rows_are_copied_if_the_files_cannot_be_distinguished(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subtasks = backends.restored([], 2)
    put(subtasks, KEYS, "first")
    expected = values(subtasks)
    handles = snapshots(backends, subtasks, 1)

    def unreadable(content: bytes) -> Any:
        raise ManifestUnreadable("a field 77")

    monkeypatch.setattr("penstock.state.rocksdb.files.download.read_version", unreadable)
    with caplog.at_level(logging.WARNING):
        assert values(backends.restored(handles, 3)) == expected
    assert "a field 77" in caplog.text


def test_list_elements_keep_their_order_when_files_are_merged(backends: Backends) -> None:
    subtasks = backends.restored([], 3)
    for backend in subtasks:
        for key in KEYS:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                backend.get_state(LIST).add_all([1, 2])
    subtasks = backends.restored(snapshots(backends, subtasks, 1), 2)
    for backend in subtasks:
        for key in KEYS:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                backend.get_state(LIST).add(3)
    assert content(subtasks, LIST) == {(None, key): [1, 2, 3] for key in KEYS}


@pytest.mark.usefixtures("no_copies")
def test_hidden_rows_remain_hidden_when_a_part_is_split_again(backends: Backends) -> None:
    """The file that hides the other half is skipped with its key groups. Rows in a remaining file must not return."""
    (backend,) = backends.restored([])
    put([backend], KEYS, "first")
    handle = backends.snapshot(backend, 1)
    (half,) = backends.restored([handle], 2, owned=True)[:1]
    half_handle = backends.snapshot(half, 2)
    (quarter,) = backends.restored([half_handle], 4, owned=True)[:1]
    found = values([quarter])
    assert found == {key: f"first {key}" for key in KEYS if GROUPS[key] in quarter.key_group_range}
    rows = [row for row, _ in scan(quarter._database.family("state:value"), b"", group_prefix(1 << 16))]
    assert {split_row(row)[0] for row in rows} <= set(range(4)), "rows of other key groups are visible"


def test_another_range_hides_rows_without_reading_them(backends: Backends) -> None:
    (backend,) = backends.restored([])
    put([backend], KEYS, "first")
    handle = backends.snapshot(backend, 1)
    (part,) = backends.restored([handle])[:1]
    part.close()
    middle = backends.create(KeyGroupRange(5, 9))
    middle.restore([handle], backends.storage)
    assert set(values([middle])) == {key for key in KEYS if 5 <= GROUPS[key] <= 9}


def test_a_database_that_fails_to_open_is_closed_before_another_one_replaces_it(
    backends: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = backends.restored([])
    put([before], KEYS, "value")
    handle = backends.snapshot(before)
    family, close = Database.family, Database.close
    failed: list[Database] = []
    closed: list[Database] = []

    def disk_full(self: Database, name: str) -> Any:
        if name == TIMERS and not failed:
            failed.append(self)
            raise OSError("No space left on device")
        return family(self, name)

    monkeypatch.setattr(Database, "family", disk_full)
    monkeypatch.setattr(Database, "close", lambda self: (closed.append(self), close(self)))
    subtasks = backends.restored([handle], 2, owned=True)
    assert closed[:1] == failed
    assert subtasks[0]._database is not failed[0]
    again = backends.restored(snapshots(backends, subtasks, 2))
    assert values(again) == {key: f"value {key}" for key in KEYS}
    assert timers_of(again) == list(KEYS)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Database._make_options

    def with_small_files(self: Database) -> Any:
        options = made(self)
        options.set_target_file_size_base(8 << 10)
        return options

    monkeypatch.setattr(Database, "_make_options", with_small_files)


def fill(subtasks: list[Any], keys: Any, text: str) -> None:
    for backend in subtasks:
        value = backend.get_state(VALUE)
        for key in keys:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                value.update(f"{text} {key} {(key * 7919) % 65_537:x}" * 8)


@pytest.mark.usefixtures("no_copies", "small_files")
def test_only_files_above_the_lowest_level_and_its_edge_files_are_rewritten(
    backends: Backends,
) -> None:
    """Deletions above the lowest level are still effective, and so are newer rows there."""
    keys = range(12_000)
    subtasks = backends.restored([], 2)
    fill(subtasks, keys, "first")
    for backend in subtasks:
        compact(backend)
    full = sum(handle["bytes_uploaded"] for handle in snapshots(backends, subtasks, 1))
    fill(subtasks, keys[::50], "second")
    for backend in subtasks:
        for key in keys[::70]:
            if GROUPS[key] in backend.key_group_range:
                at(backend, key)
                backend.get_state(VALUE).clear()
    expected = {**dict.fromkeys(keys, "first"), **dict.fromkeys(keys[::50], "second")}
    expected = {key: text for key, text in expected.items() if key % 70}
    subtasks = backends.restored(snapshots(backends, subtasks, 2), 3, owned=True)
    assert {key: value.split()[0] for key, value in values(subtasks).items()} == expected
    handles = snapshots(backends, subtasks, 3)
    tables = [table for handle in handles for table in _version(handle, backends).of_family("state:value")]
    assert {table.level > 0 for table in tables} == {True, False}
    subtasks = backends.restored(handles, 2, owned=True)
    assert {key: value.split()[0] for key, value in values(subtasks).items()} == expected
    handles = snapshots(backends, subtasks, 4)
    assert sum(handle["bytes_uploaded"] for handle in handles) < full / 3
    fill(subtasks, keys[::90], "third")
    for backend in subtasks:
        compact(backend)
    expected |= dict.fromkeys(keys[::90], "third")
    assert {key: value.split()[0] for key, value in values(subtasks).items()} == expected
    subtasks = backends.restored(snapshots(backends, subtasks, 5), 1)
    assert {key: value.split()[0] for key, value in values(subtasks).items()} == expected
