"""State files are written once and verified when they are read. The storage object can be sent to other processes."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.checksum import checksum_of, file_checksum
from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.faults import Fault
from penstock.common.errors import CorruptStateFile, SnapshotTorn, StorageError
from penstock.state.files import FileRef
from tests.unit.checkpoint.support import faulty_storage

if TYPE_CHECKING:
    from pathlib import Path


def test_written_files_are_read_back(tmp_path: Path) -> None:
    storage, _ = faulty_storage(tmp_path)
    ref = storage.writer().write(b"state")
    assert ref.path.startswith("shared/")
    assert (ref.size, ref.checksum) == (5, checksum_of(b"state"))
    assert storage.reader().read(ref) == b"state"


def test_names_are_never_reused(tmp_path: Path) -> None:
    storage, _ = faulty_storage(tmp_path)
    assert storage.writer().write(b"same").path != storage.writer().write(b"same").path


def test_local_files_are_uploaded_and_downloaded(tmp_path: Path) -> None:
    storage, _ = faulty_storage(tmp_path / "store")
    content = b"sst" * 1_000_000
    (tmp_path / "1.sst").write_bytes(content)
    ref = storage.writer().upload(str(tmp_path / "1.sst"))
    assert ref.checksum == checksum_of(content) == file_checksum(str(tmp_path / "1.sst"))
    storage.reader().download(ref, str(tmp_path / "2.sst"))
    assert (tmp_path / "2.sst").read_bytes() == content


def test_a_truncated_read_is_repeated(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path / "store")
    ref = storage.writer().write(b"0123456789")
    faulty.inject("get", Fault.TRUNCATED)
    assert storage.reader().read(ref) == b"0123456789"
    faulty.inject("get", Fault.TRUNCATED)
    storage.reader().download(ref, str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == b"0123456789"


def test_the_error_of_a_damaged_file_names_both_checksums(tmp_path: Path) -> None:
    storage, faulty = faulty_storage(tmp_path / "store")
    ref = storage.writer().write(b"good")
    faulty.inner.put(storage.url_of(ref.path), b"evil")
    with pytest.raises(CorruptStateFile) as caught:
        storage.reader().read(ref)
    for part in (ref.path, ref.checksum, checksum_of(b"evil")):
        assert part in caught.value.message
    with pytest.raises(CorruptStateFile):
        storage.reader().download(ref, str(tmp_path / "down"))
    assert not (tmp_path / "down").exists()


def test_the_error_of_a_missing_file_names_the_file(tmp_path: Path) -> None:
    storage, _ = faulty_storage(tmp_path)
    with pytest.raises(SnapshotTorn, match="shared/none does not exist"):
        storage.reader().read(FileRef("shared/none", 1, "crc32:00000000"))


@pytest.mark.parametrize("path", ["../other-job/shared/x", "/etc/passwd", "s3://bucket/x"])
def test_a_handle_cannot_reach_outside_of_its_folder(tmp_path: Path, path: str) -> None:
    storage, _ = faulty_storage(tmp_path)
    with pytest.raises(SnapshotTorn, match="outside"):
        storage.reader().read(FileRef(path, 1, "crc32:00000000"))


def test_files_of_another_folder_are_read_through_the_same_storage(tmp_path: Path) -> None:
    one, _ = faulty_storage(tmp_path, "one")
    two, _ = faulty_storage(tmp_path, "two")
    ref = one.writer().write(b"x")
    assert two.reader(one.url).read(ref) == b"x"


def test_storage_can_be_sent_to_another_process(tmp_path: Path) -> None:
    storage = CheckpointStorage(str(tmp_path), "job", {"fsync": False})
    ref = storage.writer().write(b"x")
    copy: CheckpointStorage = pickle.loads(pickle.dumps(storage))
    assert copy.url == storage.url
    assert copy.reader().read(ref) == b"x"


@pytest.mark.parametrize("job_id", ["", "a/b", "..", "s3://x"])
def test_a_job_id_is_one_plain_name(job_id: str) -> None:
    with pytest.raises(StorageError, match="cannot be a job id"):
        CheckpointStorage("memory://x", job_id)
