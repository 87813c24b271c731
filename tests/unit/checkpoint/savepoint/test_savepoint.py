"""Savepoints and checkpoints found by path: resolve, verify, list, dispose, move."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from penstock.checkpoint.files.codec import decode_manifest, encode_manifest
from penstock.checkpoint.files.layout import is_savepoint_folder
from penstock.checkpoint.files.manifest import FORMAT_VERSION, Manifest
from penstock.checkpoint.leadership.fencing import Leadership
from penstock.checkpoint.leadership.lineage import Base
from penstock.checkpoint.savepoint.savepoints import (
    SavepointCancelled,
    dispose,
    list_checkpoints,
    list_savepoints,
    newest_complete,
    resolve,
    verify,
    write_savepoint,
)
from penstock.checkpoint.store.faults import Fault, FaultyStore
from penstock.checkpoint.store.object_store import base_name
from penstock.common.errors import (
    RestoreRefused,
    SnapshotNotFound,
    SnapshotTorn,
    StateFormatUnsupported,
    StorageError,
)
from penstock.state.files import FileRef
from tests.unit.checkpoint.support import JOB_ID, handle, manifest

if TYPE_CHECKING:
    from penstock.checkpoint.files.storage import CheckpointStorage


def store_checkpoint(storage: CheckpointStorage, id: int = 1, *contents: bytes, **fields: Any) -> Manifest:
    if id == 1:
        leadership = Leadership.take(storage)
        leadership.begin(Base(leadership.epoch, 1))
    stored = manifest(id, keyed=[handle(storage, (0, 127), *(contents or (b"one", b"two")))], **fields)
    storage.put(f"chk-{id}/_metadata", encode_manifest(stored))
    return stored


def make_savepoint(storage: CheckpointStorage, target: Path) -> str:
    return write_savepoint(store_checkpoint(storage), storage.url, str(target), storage.stores)


class TestWrite:
    def test_a_savepoint_is_complete_and_its_name_contains_the_job(
        self, storage: CheckpointStorage, tmp_path: Path
    ) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        assert is_savepoint_folder(base_name(url))
        assert base_name(url).startswith(f"savepoint-{JOB_ID[:6]}-")
        snapshot = resolve(url)
        assert snapshot.is_savepoint
        assert snapshot.base_url == url
        files = snapshot.manifest.states["count"].keyed[0]["files"]
        reader = storage.reader(snapshot.base_url)
        assert sorted(reader.read(FileRef(f["path"], f["size"], f["checksum"])) for f in files) == [b"one", b"two"]

    def test_a_savepoint_can_be_moved_and_outlives_the_job(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        shutil.move(url.removeprefix("file://"), tmp_path / "moved")
        shutil.rmtree(tmp_path / "root")
        assert verify(str(tmp_path / "moved"), checksums=True).is_complete

    def test_the_manifest_is_written_last(self, pair: tuple[CheckpointStorage, FaultyStore], tmp_path: Path) -> None:
        storage, faulty = pair
        make_savepoint(storage, tmp_path / "savepoints")
        writes = [url for operation, url in faulty.calls if operation in ("put", "copy")]
        assert "savepoint-" in writes[-1]
        assert writes[-1].endswith("/_metadata")

    def test_a_failed_copy_leaves_no_files(self, pair: tuple[CheckpointStorage, FaultyStore], tmp_path: Path) -> None:
        storage, faulty = pair
        faulty.inject("copy", Fault.DENIED)
        with pytest.raises(StorageError, match="403"):
            make_savepoint(storage, tmp_path / "savepoints")
        assert [path for path in (tmp_path / "savepoints").rglob("*") if path.is_file()] == []

    def test_the_error_names_a_missing_file(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        stored = store_checkpoint(storage)
        path = stored.states["count"].keyed[0]["files"][1]["path"]
        storage.delete(path)
        with pytest.raises(SnapshotTorn, match=path):
            write_savepoint(stored, storage.url, str(tmp_path / "s"), storage.stores)

    def test_a_cancelled_savepoint_does_not_exist(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        stored = store_checkpoint(storage)
        answers = iter([False, False, True])
        with pytest.raises(SavepointCancelled):
            write_savepoint(
                stored, storage.url, str(tmp_path / "s"), storage.stores, is_cancelled=lambda: next(answers)
            )
        assert list((tmp_path / "s").rglob("_metadata")) == []

    def test_files_are_kept_if_the_outcome_of_the_manifest_put_is_unknown(
        self, pair: tuple[CheckpointStorage, FaultyStore], tmp_path: Path
    ) -> None:
        storage, faulty = pair
        stored = store_checkpoint(storage)
        faulty.inject("put", Fault.LATE, match="savepoint-")
        faulty.inject("put", Fault.TIMEOUT_BEFORE, match="savepoint-", times=10**9)
        with pytest.raises(StorageError, match="no answer"):
            write_savepoint(stored, storage.url, str(tmp_path / "s"), storage.stores)
        assert faulty.land_late() == [None]
        (info,) = list_savepoints(str(tmp_path / "s"))
        assert info.is_usable

    def test_a_savepoint_is_written_to_another_kind_of_store(self, storage: CheckpointStorage) -> None:
        url = write_savepoint(store_checkpoint(storage), storage.url, "memory://savepoints", storage.stores)
        assert verify(url, stores=storage.stores, checksums=True).is_complete


class TestResolve:
    @pytest.mark.parametrize("suffix", ["", "/", "/_metadata", "//", "/_metadata/"])
    def test_pasted_paths_are_accepted(self, storage: CheckpointStorage, tmp_path: Path, suffix: str) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        assert resolve(url + suffix).url == url
        assert resolve(url.removeprefix("file://") + suffix).url == url

    def test_a_checkpoint_folder_is_resolved(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage, 1)
        snapshot = resolve(storage.url_of("chk-1"))
        assert not snapshot.is_savepoint
        assert snapshot.base_url == storage.url

    def test_the_error_for_a_folder_of_savepoints_lists_them(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        with pytest.raises(SnapshotNotFound) as caught:
            resolve(str(tmp_path / "savepoints"))
        assert base_name(url) in caught.value.message
        assert url in caught.value.remedy

    def test_the_error_for_a_job_folder_suggests_its_newest_checkpoint(self, storage: CheckpointStorage) -> None:
        for id in (1, 9, 10):
            store_checkpoint(storage, id)
        with pytest.raises(SnapshotNotFound) as caught:
            resolve(storage.url)
        assert "chk-1, chk-9, chk-10" in caught.value.message
        assert storage.url_of("chk-10") in caught.value.remedy

    def test_the_error_for_a_slightly_wrong_path_names_its_siblings(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage, 1)
        with pytest.raises(SnapshotNotFound, match="the path does not exist; beside it: chk-1"):
            resolve(storage.url_of("chk-2"))

    def test_a_path_without_objects_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(SnapshotNotFound, match="the path does not exist"):
            resolve(str(tmp_path / "none"))

    def test_an_unfinished_savepoint_is_an_error(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        (Path(url.removeprefix("file://")) / "_metadata").unlink()
        with pytest.raises(SnapshotNotFound, match="but no _metadata") as caught:
            resolve(url)
        assert "the savepoint is not complete" in caught.value.remedy

    def test_missing_files_are_listed(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        files = sorted((Path(url.removeprefix("file://")) / "shared").iterdir())
        files[0].unlink()
        files[1].write_bytes(b"longer than before")
        with pytest.raises(SnapshotTorn) as caught:
            resolve(url)
        assert f"missing: shared/{files[0].name}" in caught.value.message
        assert f"size differs from the manifest: shared/{files[1].name}" in caught.value.message

    def test_the_message_limits_the_number_of_missing_files(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage, 1, *(b"%d" % i for i in range(50)))
        for name in storage.list_names("shared"):
            storage.delete(f"shared/{name}")
        with pytest.raises(SnapshotTorn, match=r"50 of its 50 files .* and 40 more"):
            resolve(storage.url_of("chk-1"))

    def test_a_truncated_manifest_is_an_error(self, storage: CheckpointStorage) -> None:
        content = encode_manifest(store_checkpoint(storage))
        storage.put("chk-1/_metadata", content[: len(content) // 2])
        with pytest.raises(SnapshotTorn, match="is not a readable manifest"):
            resolve(storage.url_of("chk-1"))

    def test_a_truncated_read_is_repeated(self, pair: tuple[CheckpointStorage, FaultyStore]) -> None:
        storage, faulty = pair
        store_checkpoint(storage)
        faulty.inject("get", Fault.TRUNCATED, match="_metadata")
        assert resolve(storage.url_of("chk-1"), stores=storage.stores).manifest.checkpoint_id == 1

    def test_a_newer_format_is_not_reported_as_damaged(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage)
        newer = {"format_version": FORMAT_VERSION + 1, "something": "new"}
        storage.put("chk-1/_metadata", msgspec.json.encode(newer))
        with pytest.raises(StateFormatUnsupported, match=f"has format version {FORMAT_VERSION + 1}"):
            resolve(storage.url_of("chk-1"))

    def test_a_savepoint_of_another_job_is_an_error(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage)
        with pytest.raises(RestoreRefused, match=f"belongs to job {JOB_ID} \\('airports'\\), not to other"):
            resolve(storage.url_of("chk-1"), job_id="other")

    @pytest.mark.parametrize("path", ["../../secret", "/etc/passwd", "s3://bucket/x"])
    def test_a_manifest_that_reaches_outside_of_its_folder_is_an_error(
        self, storage: CheckpointStorage, path: str
    ) -> None:
        evil = handle(None, (0, 127), reuse=[{"path": path, "size": 1, "checksum": ""}])
        storage.put("chk-1/_metadata", encode_manifest(manifest(1, keyed=[evil])))
        with pytest.raises(SnapshotTorn, match="outside of the snapshot"):
            resolve(storage.url_of("chk-1"))

    def test_a_manifest_with_invalid_content_is_an_error(self, storage: CheckpointStorage) -> None:
        evil = {"files": [{"size": "many"}], "key_groups": [0, 1]}
        storage.put(
            "chk-1/_metadata",
            encode_manifest(manifest(1, keyed=[evil | {"files": []}])).replace(
                b'"files": []', b'"files": [{"size": "many"}]'
            ),
        )
        with pytest.raises(SnapshotTorn, match="is not a readable manifest"):
            resolve(storage.url_of("chk-1"))


class TestVerify:
    def test_checksums_find_damage_that_sizes_do_not(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        path = sorted((Path(url.removeprefix("file://")) / "shared").iterdir())[0]
        path.unlink()
        path.write_bytes(b"evi")
        assert verify(url).is_complete
        report = verify(url, checksums=True)
        assert report.damaged == [f"shared/{path.name}"]
        assert report.problems() == [f"content differs from the manifest: shared/{path.name}"]
        assert (report.files, report.bytes, report.checksums_verified) == (2, 6, True)

    def test_a_snapshot_without_files_is_valid(self, storage: CheckpointStorage) -> None:
        storage.put("chk-1/_metadata", encode_manifest(manifest(1)))
        assert verify(storage.url_of("chk-1"), checksums=True).is_complete


class TestDispose:
    def test_disposal_removes_every_object(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        report = dispose(url)
        assert (report.deleted_files, report.unknown_objects) == (2, [])
        assert not Path(url.removeprefix("file://")).exists()
        assert storage.checkpoint_ids() == [1]

    def test_an_interrupted_disposal_can_be_repeated(
        self, pair: tuple[CheckpointStorage, FaultyStore], tmp_path: Path
    ) -> None:
        storage, faulty = pair
        url = make_savepoint(storage, tmp_path / "savepoints")
        faulty.inject("delete", Fault.DENIED, match="_metadata")
        with pytest.raises(StorageError):
            dispose(url, stores=storage.stores)
        assert dispose(url, stores=storage.stores).unknown_objects == []

    def test_disposal_of_a_checkpoint_is_refused(self, storage: CheckpointStorage) -> None:
        store_checkpoint(storage)
        with pytest.raises(StorageError, match="is a checkpoint of job"):
            dispose(storage.url_of("chk-1"))
        assert storage.checkpoint_ids() == [1]

    def test_disposal_of_other_paths_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "holiday.jpg").write_bytes(b"x")
        with pytest.raises(SnapshotNotFound):
            dispose(str(tmp_path / "photos"))
        assert (tmp_path / "photos" / "holiday.jpg").exists()

    def test_disposal_keeps_unknown_objects(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        url = make_savepoint(storage, tmp_path / "savepoints")
        (Path(url.removeprefix("file://")) / "notes.txt").write_text("keep me")
        assert dispose(url).unknown_objects == [f"{url}/notes.txt"]


class TestListings:
    def test_checkpoints_are_listed_newest_first_with_their_problems(self, storage: CheckpointStorage) -> None:
        for id in (1, 2, 3):
            store_checkpoint(storage, id)
        storage.delete(storage.read_manifest(2).states["count"].keyed[0]["files"][0]["path"])
        storage.put("chk-4/_metadata", b"{")
        infos = list_checkpoints(storage.root_url, JOB_ID)
        assert [info.checkpoint_id for info in infos] == [4, 3, 2, 1]
        assert [info.is_usable for info in infos] == [False, True, False, True]
        assert infos[1].job_name == "airports"
        assert infos[1].state_bytes == 6

    def test_an_unknown_job_has_no_checkpoints(self, tmp_path: Path) -> None:
        assert list_checkpoints(str(tmp_path), "nobody") == []
        assert newest_complete(str(tmp_path), "nobody").snapshot is None

    def test_savepoints_are_listed_with_unfinished_ones(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        target = tmp_path / "savepoints"
        good = make_savepoint(storage, target)
        (target / "savepoint-aaaaaa-000000000000" / "shared").mkdir(parents=True)
        (target / "savepoint-aaaaaa-000000000000" / "shared" / "x").write_bytes(b"x")
        (target / "something-else").mkdir()
        infos = list_savepoints(str(target))
        assert [info.url for info in infos] == [good, f"file://{target}/savepoint-aaaaaa-000000000000"]
        assert [info.is_usable for info in infos] == [True, False]
        assert "incomplete" in infos[1].problem


def test_manifests_survive_the_round_trip(storage: CheckpointStorage) -> None:
    stored = store_checkpoint(storage, 1, b"x", commits={"sink": [{"path": "part-0", "size": 3}]}, is_final=True)
    assert decode_manifest(encode_manifest(stored), "x") == stored


def test_a_manifest_is_readable_by_people(storage: CheckpointStorage) -> None:
    text = encode_manifest(store_checkpoint(storage)).decode()
    assert text.splitlines()[1] == f' "format_version": {FORMAT_VERSION},'


def test_an_old_reader_accepts_a_field_that_was_added_later() -> None:
    content = encode_manifest(manifest(1)).replace(b'"format_version"', b'"added_later": [1],\n "format_version"')
    assert decode_manifest(content, "x").checkpoint_id == 1


def test_the_savepoint_package_does_not_import_the_engine() -> None:
    """The Kubernetes operator imports this package, and must not import Spark, the engine or its heavy libraries."""
    code = (
        "import sys, penstock.checkpoint.savepoint.savepoints\n"
        "heavy = {'pyspark', 'py4j', 'pyarrow', 'numpy', 'pandas', 'rocksdict', 'fastapi'}\n"
        "parts = {'datastream', 'graph', 'jobmanager', 'taskmanager', 'state', 'connectors', 'rest', 'cli'}\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in heavy or (m.startswith('penstock.') and m.split('.')[1] in parts)]\n"
        "print(sorted(bad)); sys.exit(bool(bad))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
