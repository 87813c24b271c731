"""The guarantees of every backend for snapshots: complete, incremental, consistent, and restorable at any parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.errors import (
    CorruptStateFile,
    StateFormatUnsupported,
)
from penstock.datastream.state import (
    ValueStateDescriptor,
)
from penstock.state.key_groups import KeyGroupRange, key_group
from tests.unit.state.support import (
    KINDS,
    LIST,
    MAP,
    MAX_PARALLELISM,
    SUM,
    VALUE,
    Backends,
    at,
    content,
)


def fill(backend: Any, keys: Any, offset: int = 0) -> None:
    value, elements, entries_of, total = (backend.get_state(d) for d in (VALUE, LIST, MAP, SUM))
    for i in keys:
        for namespace in (None, (0, i % 3)):
            at(backend, f"k{i}", namespace)
            value.update((i, offset))
            elements.add(i + offset)
            entries_of[i % 5 + offset] = {"i": i}
            total.add(1)


def everything(backends: list[Any]) -> dict[str, Any]:
    return {d.name: content(backends, d) for d in (VALUE, LIST, MAP, SUM)}


def own(groups: KeyGroupRange, count: int) -> list[int]:
    return [i for i in range(count) if key_group(f"k{i}", MAX_PARALLELISM) in groups]


@pytest.mark.parametrize(("old", "new"), [(1, 1), (1, 3), (3, 2), (2, 16)])
def test_state_follows_its_key_groups_to_any_parallelism(backends: Backends, old: int, new: int) -> None:
    before = backends.restored([], old)
    handles = []
    for backend in before:
        mine = own(backend.key_group_range, 60)
        fill(backend, mine)
        backends.snapshot(backend, 1)
        fill(backend, mine[::3], 100)
        handles.append(backends.snapshot(backend, 2))
    expected = everything(before)
    after = backends.restored(handles, new)
    assert everything(after) == expected
    for backend in after:
        for key in backend.keys("value"):
            assert key_group(key, MAX_PARALLELISM) in backend.key_group_range
    again = backends.restored([backends.snapshot(backend, 3) for backend in after], old)
    assert everything(again) == expected


def test_a_state_is_restored_by_the_other_backend(backends: Backends) -> None:
    other = KINDS[1 - KINDS.index(backends.kind)]
    backend = backends.create()
    fill(backend, range(40))
    backends.snapshot(backend, 1)
    fill(backend, range(5, 15), 7)
    handle = backends.snapshot(backend, 2)
    there = backends.restored([handle], 3, kind=other)
    assert everything(there) == everything([backend])
    back = backends.restored([backends.snapshot(b, 3) for b in there], 2)
    assert everything(back) == everything([backend])


def change(backend: Any, which: int, i: int) -> None:
    """Change the state of the current key in one of several ways."""
    value, elements, entries_of = (backend.get_state(d) for d in (VALUE, LIST, MAP))
    if which == 0:
        value.clear()
    elif which == 1:
        value.update("new")
    elif which == 2:
        elements.clear()
    elif which == 3:
        elements.add(5)
    elif which == 4:
        entries_of.clear()
    elif which == 5:
        entries_of.remove(i % 5)
    elif which == 6:
        entries_of.put("x", 1)
    else:
        elements.update([1])


def test_an_incremental_snapshot_contains_changes_and_removals(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(400))
    value, entries_of = backend.get_state(VALUE), backend.get_state(MAP)
    table = backend.raw_table(VALUE)
    first = backends.snapshot(backend, 1)
    for i in range(30):
        at(backend, f"k{i}")
        change(backend, i % 8, i)
    list(table.pop_namespace((0, 1)))
    at(backend, "k4", (0, 1))
    value.update("again")
    at(backend, "k4")
    entries_of["after clear"] = 1
    second = backends.snapshot(backend, 2)
    assert second["bytes_uploaded"] < first["bytes_uploaded"] / 5
    assert everything(backends.restored([second])) == everything([backend])
    at(backend, "k5")
    value.clear()
    third = backends.snapshot(backend, 3)
    assert everything(backends.restored([third], 2)) == everything([backend])
    assert everything(backends.restored([second])) != everything([backend])


def test_a_snapshot_without_changes_uploads_no_files(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(100))
    first = backends.snapshot(backend, 1)
    second = backends.snapshot(backend, 2)
    assert second["bytes_uploaded"] <= first["bytes_uploaded"] / 2
    assert everything(backends.restored([second])) == everything([backend])


def test_changes_of_an_aborted_snapshot_are_part_of_the_next_one(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(400))
    backends.snapshot(backend, 1)
    fill(backend, range(10), 50)
    at(backend, "k20")
    backend.get_state(VALUE).clear()
    aborted = backends.snapshot(backend, 2, confirm=False)
    backend.notify_checkpoint_aborted(2)
    for file in aborted["files"]:
        if file["path"] not in {f["path"] for f in backends.storage_of_checkpoint(1)}:
            del backends.storage.files[file["path"]]
    fill(backend, [11], 60)
    third = backends.snapshot(backend, 3)
    assert everything(backends.restored([third])) == everything([backend])


def test_an_unconfirmed_snapshot_is_not_used_as_a_base(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(400))
    backends.snapshot(backend, 1)
    fill(backend, range(10), 50)
    uploading = backend.snapshot(2)
    fill(backend, range(5, 15), 70)
    third = backends.snapshot(backend, 3, confirm=False)
    second = uploading.run(backends.storage)
    new_of_second = {f["path"] for f in second["files"]} - {f["path"] for f in backends.storage_of_checkpoint(1)}
    assert not new_of_second & {f["path"] for f in third["files"]}
    assert everything(backends.restored([third])) == everything([backend])
    backend.notify_checkpoint_complete(3)
    fill(backend, [0], 90)
    assert everything(backends.restored([backends.snapshot(backend, 4)])) == everything([backend])


def test_a_snapshot_contains_the_state_at_its_time(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(20))
    mutable = backend.get_state(ValueStateDescriptor("mutable", list))
    at(backend, "k1")
    values = [1, 2]
    mutable.update(values)
    expected = everything([backend])
    upload = backend.snapshot(1)
    values.append(3)
    mutable.update(values)
    fill(backend, range(10, 30), 5)
    (restored,) = backends.restored([upload.run(backends.storage)])
    assert everything([restored]) == expected
    at(restored, "k1")
    assert restored.get_state(ValueStateDescriptor("mutable", list)).value() == [1, 2]


def test_unregistered_state_is_kept(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(30))
    handle = backends.snapshot(backend, 1)
    forgetful = backends.restored([handle], 3)
    handles = []
    for subtask in forgetful:
        subtask.get_state(SUM)
        handles.append(backends.snapshot(subtask, 2))
        handles[-1] = backends.snapshot(subtask, 3)
    assert set(handles[0]["states"]) == {"value", "list", "map", "sum"}
    assert everything(backends.restored(handles, 2)) == everything([backend])


def test_a_state_registered_later_is_found(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(30))
    handle = backends.snapshot(backend, 1)
    (late,) = backends.restored([handle], owned=True)
    backends.snapshot(late, 2)
    fill(late, range(30, 40))
    assert everything(backends.restored([backends.snapshot(late, 3)])) == everything([late])
    assert len(content([late], VALUE)) == 80


def test_a_restored_backend_continues_incrementally(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(400))
    backends.snapshot(backend, 1)
    fill(backend, range(10), 3)
    handle = backends.snapshot(backend, 2)
    (restored,) = backends.restored([handle], owned=True)
    expected = everything([restored])
    fill(restored, [1], 8)
    expected |= everything([restored])
    third = backends.snapshot(restored, 3)
    assert third["bytes_uploaded"] < handle["bytes_uploaded"]
    assert everything(backends.restored([third], 2)) == everything([restored])
    (copied,) = backends.restored([handle])
    copied.get_state(VALUE)
    assert not {f["path"] for f in backends.snapshot(copied, 3)["files"]} & {f["path"] for f in handle["files"]}


def test_a_corrupt_file_is_named(backends: Backends) -> None:
    backend = backends.create()
    fill(backend, range(30))
    handle = backends.snapshot(backend)
    path = handle["files"][0]["path"]
    backends.storage.files[path] = b"x" * handle["files"][0]["size"]
    with pytest.raises(CorruptStateFile, match=path):
        backends.restored([handle])


def test_a_handle_of_a_newer_format_is_refused(backends: Backends) -> None:
    handle = backends.snapshot(backends.create()) | {"format": 99}
    with pytest.raises(StateFormatUnsupported, match="format 99"):
        backends.restored([handle])
