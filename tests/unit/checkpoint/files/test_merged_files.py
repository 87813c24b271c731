"""Small state files in one object: written together, read and verified individually, counted as one."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint.files.codec import decode_manifest, encode_manifest, files_of, objects_of
from penstock.checkpoint.files.manifest import FORMAT_VERSION
from penstock.checkpoint.files.state_files import SMALL_FILE, MergedFileWriter
from penstock.checkpoint.savepoint.savepoints import dispose, resolve, verify, write_savepoint
from penstock.checkpoint.store.faults import Fault
from penstock.common.errors import CorruptStateFile, SnapshotTorn, StorageError
from tests.unit.checkpoint.bench import bench_with
from tests.unit.checkpoint.support import manifest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.store.faults import FaultyStore
    from penstock.state.files import FileRef

LARGEST = 32 << 20


def handle_of(*refs: FileRef, groups: tuple[int, int] = (0, 127)) -> dict[str, Any]:
    return {
        "backend": "hashmap",
        "format": 1,
        "key_groups": list(groups),
        "files": [ref.to_json() for ref in refs],
        "states": {},
        "bytes_uploaded": sum(ref.size for ref in refs),
    }


def merged(storage: CheckpointStorage, *contents: bytes, largest: int = LARGEST) -> list[FileRef]:
    writer = MergedFileWriter(storage.writer(), largest)
    refs = [writer.write(content) for content in contents]
    writer.finish()
    return refs


class TestWriting:
    def test_small_files_are_written_into_one_object_and_read_individually(self, storage: CheckpointStorage) -> None:
        contents = [b"a" * 10, b"bb" * 20, b"ccc"]
        refs = merged(storage, *contents)
        assert len({ref.path for ref in refs}) == 1
        assert [ref.offset for ref in refs] == [0, 10, 50]
        assert len(storage.list_objects("shared")) == 1
        assert [storage.reader().read(ref) for ref in refs] == contents

    def test_a_large_file_is_a_separate_object(self, storage: CheckpointStorage) -> None:
        small, large, other = merged(storage, b"a", b"x" * (SMALL_FILE + 1), b"b")
        assert (large.offset, small.path == other.path) == (None, True)
        assert len(storage.list_objects("shared")) == 2

    def test_an_object_does_not_exceed_its_maximum_size(self, storage: CheckpointStorage) -> None:
        refs = merged(storage, *[b"x" * 400] * 5, largest=1_000)
        assert [info.size for info in storage.list_objects("shared")] in (
            [800, 800, 400],
            [800, 400, 800],
            [400, 800, 800],
        )
        assert [len(storage.reader().read(ref)) for ref in refs] == [400] * 5

    def test_local_files_are_merged_as_well(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        (tmp_path / "one.sst").write_bytes(b"sst")
        (tmp_path / "big.sst").write_bytes(b"x" * (SMALL_FILE + 1))
        writer = MergedFileWriter(storage.writer(), LARGEST)
        refs = [writer.upload(str(tmp_path / name)) for name in ("one.sst", "big.sst")] + [writer.write(b"pack")]
        writer.finish()
        assert [ref.offset for ref in refs] == [0, None, 3]
        storage.reader().download(refs[0], str(tmp_path / "down"))
        assert (tmp_path / "down").read_bytes() == b"sst"

    def test_no_small_files_create_no_object(self, storage: CheckpointStorage) -> None:
        merged(storage)
        assert storage.list_objects("shared") == []

    def test_many_threads_write_concurrently(self, storage: CheckpointStorage) -> None:
        writer = MergedFileWriter(storage.writer(), 5_000)
        contents = [bytes([number]) * (number + 1) for number in range(200)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            refs = list(pool.map(writer.write, contents))
        writer.finish()
        assert [storage.reader().read(ref) for ref in refs] == contents

    @pytest.mark.parametrize("largest", [LARGEST, 100], ids=["at the end", "as one becomes full"])
    def test_an_object_that_cannot_be_stored_is_an_error(
        self, storage: CheckpointStorage, faulty: FaultyStore, largest: int
    ) -> None:
        faulty.inject("put", Fault.DENIED, match="shared/")
        writer = MergedFileWriter(storage.writer(), largest)
        errors = 0
        for _ in range(3):
            try:
                writer.write(b"x" * 60)
            except StorageError:
                errors += 1
        with pytest.raises(StorageError, match="403"):
            writer.finish()
        assert errors == (0 if largest == LARGEST else 1)


class TestDamage:
    def test_each_file_is_verified_separately(self, storage: CheckpointStorage) -> None:
        first, second = merged(storage, b"aaaa", b"bbbb")
        storage.put(first.path, b"aaaabbbX")
        assert storage.reader().read(first) == b"aaaa"
        with pytest.raises(CorruptStateFile, match="is damaged at 4"):
            storage.reader().read(second)

    def test_a_truncated_object_is_an_error(self, storage: CheckpointStorage) -> None:
        first, second = merged(storage, b"aaaa", b"bbbb")
        storage.put(first.path, b"aaaab")
        assert storage.reader().read(first) == b"aaaa"
        with pytest.raises(CorruptStateFile, match="1 bytes"):
            storage.reader().read(second)

    def test_a_missing_object_is_an_error(self, storage: CheckpointStorage, tmp_path: Path) -> None:
        (ref,) = merged(storage, b"aaaa")
        storage.delete(ref.path)
        with pytest.raises(SnapshotTorn):
            storage.reader().read(ref)
        with pytest.raises(SnapshotTorn):
            storage.reader().download(ref, str(tmp_path / "down"))
        assert not (tmp_path / "down").exists()

    def test_a_truncated_response_is_requested_again(self, storage: CheckpointStorage, faulty: FaultyStore) -> None:
        _, ref = merged(storage, b"aaaa", b"bbbb")
        faulty.inject("get", Fault.TRUNCATED, match="shared/", times=2)
        assert storage.reader().read(ref) == b"bbbb"


class TestSnapshots:
    def stored(self, storage: CheckpointStorage, *contents: bytes) -> str:
        """Store a checkpoint whose two handles share an object."""
        refs = merged(storage, *contents)
        keyed = [handle_of(*refs[:2], groups=(0, 63)), handle_of(*refs[2:], groups=(64, 127))]
        storage.put("chk-1/_metadata", encode_manifest(manifest(1, keyed=keyed)))
        return storage.url_of("chk-1")

    def test_a_manifest_names_files_and_objects(self, storage: CheckpointStorage) -> None:
        found = resolve(self.stored(storage, b"a", b"bb", b"ccc"), stores=storage.stores).manifest
        assert [(file.size, file.offset) for file in files_of(found)] == [(1, 0), (2, 1), (3, 3)]
        assert len(objects_of(found)) == 1
        assert found.format_version == FORMAT_VERSION

    def test_verify_finds_truncated_and_damaged_files(self, storage: CheckpointStorage) -> None:
        url = self.stored(storage, b"a", b"bb", b"ccc")
        assert verify(url, stores=storage.stores, checksums=True).is_complete
        path = objects_of(resolve(url, stores=storage.stores).manifest)[0]
        storage.put(path, b"abbccX")
        report = verify(url, stores=storage.stores, checksums=True)
        assert report.damaged == [f"{path} (3 bytes at 3)"]
        storage.put(path, b"abbcc")
        assert verify(url, stores=storage.stores).wrong_size == [path]
        storage.delete(path)
        assert verify(url, stores=storage.stores).missing == [path]

    def test_a_savepoint_copies_the_object_once_and_is_disposed_of(self, storage: CheckpointStorage) -> None:
        checkpoint = resolve(self.stored(storage, b"a", b"bb", b"ccc"), stores=storage.stores)
        url = write_savepoint(checkpoint.manifest, storage.url, f"{storage.root_url}-savepoints", storage.stores)
        copy = resolve(url, stores=storage.stores)
        assert [copy_of.size for copy_of in files_of(copy.manifest)] == [1, 2, 3]
        assert verify(url, stores=storage.stores, checksums=True).is_complete
        report = dispose(url, stores=storage.stores)
        assert (report.deleted_files, report.unknown_objects) == (1, [])

    def test_an_older_manifest_is_read(self, storage: CheckpointStorage) -> None:
        ref = storage.writer().write(b"a")
        old = manifest(1, keyed=[handle_of(ref)], format_version=1)
        assert decode_manifest(encode_manifest(old), "x") == old
        assert files_of(old)[0].offset is None

    @pytest.mark.parametrize("offset", [-1, "x"])
    def test_an_impossible_offset_is_a_torn_manifest(self, storage: CheckpointStorage, offset: Any) -> None:
        keyed = handle_of(*merged(storage, b"a"))
        keyed["files"][0]["offset"] = offset
        with pytest.raises(SnapshotTorn):
            decode_manifest(encode_manifest(manifest(1, keyed=[keyed])), "x")


def test_an_object_is_kept_while_any_of_its_files_is_named(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    log, base = merged(bench.storage, b"log", b"base")

    def complete(*refs: FileRef) -> None:
        bench.answer(bench.trigger(), keyed=handle_of(*refs))
        bench.settle()
        bench.settle()

    complete(log, base)
    for number in range(3):
        (newer,) = merged(bench.storage, b"log %d" % number)
        complete(newer, base)
    assert sorted(bench.files()) == sorted([newer.path, base.path])
    (last,) = merged(bench.storage, b"all new")
    complete(last)
    assert bench.files() == [last.path]


def test_state_bytes_count_every_file_once(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    refs = merged(bench.storage, b"12345", b"123")
    bench.answer(bench.trigger(), keyed=handle_of(*refs))
    bench.settle()
    assert bench.coordinator.latest is not None
    assert bench.coordinator.latest.state_bytes == 8
