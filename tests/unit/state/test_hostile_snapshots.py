"""Snapshots of unknown origin: a read raises a coded error or returns other rows, and writes nothing outside of its
folder."""

from __future__ import annotations

import copy
import random
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.errors import PenstockError, SnapshotTorn
from penstock.common.folders.storage_names import is_relative_path, is_segment
from penstock.state.factory import create_timer_service
from penstock.state.files import FileRef
from penstock.state.reader import read_state, read_timers, states_of
from penstock.state.rocksdb.files.download import download
from penstock.state.rocksdb.files.pack import CONFIG_CONTENT, PACK
from tests.unit.state.hostile import NAMES, with_damaged_file, with_damaged_value, with_file
from tests.unit.state.support import KINDS, LIST, MAP, VALUE, Backends, at

MOST_MEMORY = 64 << 20
"""Maximum bytes of memory for reading a damaged snapshot of a few KB."""


@pytest.fixture(scope="module", params=KINDS)
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Backends with one snapshot of every layout in several key groups, and its handle."""
    backends = Backends(request.param, tmp_path_factory.mktemp(request.param))
    backend = backends.create()
    timers = create_timer_service(backend)
    value, items, mapped = backend.get_state(VALUE), backend.get_state(LIST), backend.get_state(MAP)
    for number in range(40):
        at(backend, f"key-{number}")
        value.update({"n": number, "t": (1, "x")})
        items.update([number, "a"])
        mapped.put("m", number)
        timers.register_event_time_timer(number)
    handle = backends.snapshot(backend)
    yield backends, handle
    backends.close()


def read_everything(backends: Backends, handle: dict[str, Any]) -> None:
    for name in states_of([handle]):
        list(read_state([handle], name, backends.storage))
    list(read_timers([handle], backends.storage))


def restore_everywhere(backends: Backends, handle: dict[str, Any]) -> None:
    for kind in KINDS:
        for backend in backends.restored([handle], 2, kind=kind):
            for descriptor in (VALUE, LIST, MAP):
                backend.get_state(descriptor)


def in_storage(backends: Backends, handle: dict[str, Any], read: Any) -> None:
    """Read, and accept coded errors. The storage must be unchanged afterwards."""
    files = dict(backends.storage.files)
    try:
        read(backends, handle)
    except PenstockError:
        pass
    finally:
        backends.storage.files = files
        backends.close()
        backends._created.clear()


@pytest.mark.parametrize("name", NAMES)
def test_a_pack_cannot_write_outside_of_its_folder(name: str, tmp_path: Path) -> None:
    backends = Backends("rocksdb", tmp_path / "work")
    backend = backends.create()
    at(backend, "k")
    backend.get_state(VALUE).update(1)
    handle = backends.snapshot(backend)
    backends.close()
    entry = next(entry for entry in handle["files"] if entry["name"] == PACK)
    small = msgspec.msgpack.decode(backends.storage.files[entry["path"]])
    name = name.replace("/tmp/evil", str(tmp_path / "evil"))
    with_file(handle, backends.storage, entry, msgspec.msgpack.encode({**small, name: b"evil"}))
    before = sorted(tmp_path.rglob("*evil*"))
    for read in (read_everything, restore_everywhere):
        with pytest.raises(SnapshotTorn, match="names the file"):
            read(backends, handle)
    assert sorted(tmp_path.rglob("*evil*")) == before
    backends.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_state_file_cannot_be_written_outside_of_its_folder(name: str, snapshot: Any) -> None:
    backends, handle = snapshot
    if backends.kind != "rocksdb":
        name = f"../{name}"
    handle = copy.deepcopy(handle)
    entry = next(entry for entry in handle["files"] if entry.get("name") != PACK)
    entry["name" if backends.kind == "rocksdb" else "path"] = name
    for read in (read_everything, restore_everywhere):
        with pytest.raises(SnapshotTorn, match="names the file"):
            read(backends, handle)


def test_the_settings_of_the_binding_are_not_taken_from_a_snapshot(tmp_path: Path) -> None:
    """The binding would unpickle values with another setting.

    The test checks the downloaded folder before a database opens it, because that rewrites the settings.
    """
    backends = Backends("rocksdb", tmp_path)
    backend = backends.create()
    at(backend, "k")
    backend.get_state(VALUE).update(1)
    handle = backends.snapshot(backend)
    entry = next(entry for entry in handle["files"] if entry["name"] == PACK)
    small = msgspec.msgpack.decode(backends.storage.files[entry["path"]])
    small["rocksdict-config.json"] = b'{"raw_mode":false,"prefix_extractors":{}}'
    with_file(handle, backends.storage, entry, msgspec.msgpack.encode(small))
    download(handle, tmp_path / "downloaded", backends.storage)
    assert (tmp_path / "downloaded/rocksdict-config.json").read_bytes() == CONFIG_CONTENT
    (restored,) = backends.restored([handle])
    at(restored, "k")
    assert restored.get_state(VALUE).value() == 1
    assert b"false" not in b"".join(path.read_bytes() for path in tmp_path.rglob("rocksdict-config.json"))
    backends.close()


FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damaged_files_cause_coded_errors(snapshot: Any, seed: int) -> None:
    backends, handle = snapshot
    chance = random.Random(seed)
    read = chance.choice([read_everything, restore_everywhere])

    def damage_and_read(backends: Backends, handle: dict[str, Any]) -> None:
        read(backends, with_damaged_file(handle, backends.storage, chance))

    tracemalloc.start()
    try:
        in_storage(backends, handle, damage_and_read)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@FUZZ
@given(seed=st.integers(0, 2**32))
def test_damaged_handles_cause_coded_errors(snapshot: Any, seed: int) -> None:
    backends, handle = snapshot
    chance = random.Random(seed)
    in_storage(backends, with_damaged_value(handle, chance), chance.choice([read_everything, restore_everywhere]))


@given(st.text() | st.sampled_from(NAMES))
def test_names_are_single_segments_of_the_alphabet(name: str) -> None:
    if is_segment(name):
        assert Path("/folder", name).resolve().parent == Path("/folder")
        assert name.isascii()
        assert not name.startswith((".", "-"))
    if is_relative_path(name):
        assert Path("/folder", name).resolve().is_relative_to("/folder")
        assert FileRef.of_json({"path": name, "size": 1, "checksum": ""}).path == name
    else:
        with pytest.raises(SnapshotTorn):
            FileRef.of_json({"path": name, "size": 1, "checksum": ""})
