"""Snapshots with arbitrary content: verification and reading end with an error code, before a restore starts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.checkpoint.files.codec import encode_manifest
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.savepoint.contents import OperatorContents
from penstock.checkpoint.savepoint.snapshots import resolve, verify
from penstock.common.errors import PenstockError
from penstock.state.rocksdb.files.pack import PACK
from tests.unit.checkpoint.support import manifest
from tests.unit.state.hostile import NAMES, damaged, with_damaged_value
from tests.unit.state.support import KINDS, VALUE, Backends, at


def stored_snapshot(kind: str, tmp_path: Path) -> tuple[CheckpointStorage, dict[str, Any]]:
    """Return a job's storage with the files of one snapshot, and the handle that names them."""
    storage = CheckpointStorage(f"file://{tmp_path}/root", "job-1")
    backends = Backends(kind, tmp_path / "work")
    backend = backends.create()
    for key in range(20):
        at(backend, key)
        backend.get_state(VALUE).update({"n": key})
    handle = backend.snapshot(1).run(storage.writer())
    backends.close()
    return storage, handle


def put_manifest(storage: CheckpointStorage, handle: dict[str, Any]) -> str:
    storage.put("chk-1/_metadata", encode_manifest(manifest(1, keyed=[handle])))
    return storage.url_of("chk-1")


@pytest.mark.parametrize("name", NAMES)
def test_verify_reads_packs(name: str, tmp_path: Path) -> None:
    storage, handle = stored_snapshot("rocksdb", tmp_path)
    assert verify(put_manifest(storage, handle)).is_complete
    entry = next(entry for entry in handle["files"] if entry["name"] == PACK)
    small = msgspec.msgpack.decode(storage.read(entry["path"]))
    ref = storage.writer().write(msgspec.msgpack.encode({**small, name: b"evil"}))
    entry.update(ref.to_json())
    for checksums in (False, True):
        report = verify(put_manifest(storage, handle), checksums=checksums)
        assert not report.is_complete
        assert repr(name)[:50] in report.problems()[0]


@pytest.mark.parametrize("name", NAMES)
def test_verify_checks_the_names_of_sst_files(name: str, tmp_path: Path) -> None:
    storage, handle = stored_snapshot("rocksdb", tmp_path)
    next(entry for entry in handle["files"] if entry["name"] != PACK)["name"] = name
    assert not verify(put_manifest(storage, handle)).is_complete


def read_all(url: str) -> None:
    snapshot = resolve(url)
    verify(url, checksums=True)
    for uid in [*snapshot.manifest.states, *snapshot.manifest.sources]:
        contents = OperatorContents(url, uid)
        contents.sizes()
        for name in contents.names():
            contents.group_of(name, 1)
            list(contents.rows(name))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**32))
def test_damaged_manifests_end_with_error_codes(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    url = str(tmp_path / f"url-{kind}")
    if not Path(url).exists():
        storage, handle = stored_snapshot(kind, tmp_path / kind)
        Path(url).write_text(put_manifest(storage, handle))
    folder = Path(Path(url).read_text().removeprefix("file://"))
    content = (folder / "_metadata").read_bytes()
    try:
        changed = (
            damaged(content, chance)
            if chance.random() < 0.5
            else msgspec.json.encode(with_damaged_value(msgspec.json.decode(content), chance))
        )
        (folder / "_metadata").write_bytes(changed)
        read_all(Path(url).read_text())
    except PenstockError:
        pass
    finally:
        (folder / "_metadata").write_bytes(content)
