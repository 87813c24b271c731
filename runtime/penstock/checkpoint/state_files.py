"""State files: written once by subtasks, verified whenever they are read (the contract of `state.backend`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from penstock.checkpoint.checksum import checksum_of, file_checksum
from penstock.checkpoint.layout import is_safe_relative, new_shared_path
from penstock.checkpoint.object_store import ObjectMissing, join_url
from penstock.checkpoint.retrying_store import READ_ATTEMPTS
from penstock.common.errors import CorruptStateFile, SnapshotTorn, StorageError
from penstock.state.backend import FileRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.retrying_store import RetryingStore, Stores

T = TypeVar("T")


class StateFileWriter:
    """Writes immutable files `shared/<uuid>`. Thread-safe: every file has its own name."""

    def __init__(self, store: RetryingStore, job_url: str) -> None:
        self._store = store
        self._job_url = job_url

    def write(self, content: bytes, path: str = "") -> FileRef:
        """`path`: a name under `shared/` that nobody else chooses; a new one if it is not given."""
        path = path or new_shared_path()
        self._store.put(join_url(self._job_url, path), content)
        return FileRef(path, len(content), checksum_of(content))

    def upload(self, local_path: str) -> FileRef:
        """Size and checksum are of the file as it is now; it must not change until this returns."""
        path = new_shared_path()
        size, checksum = os.path.getsize(local_path), file_checksum(local_path)
        self._store.put_file(local_path, join_url(self._job_url, path))
        return FileRef(path, size, checksum)


class StateFileReader:
    """Reads files of one snapshot, relative to `base_url`. Thread-safe."""

    def __init__(self, stores: Stores, base_url: str) -> None:
        self.base_url = base_url
        self._stores = stores

    def read(self, ref: FileRef) -> bytes:
        """
        Raises:
            SnapshotTorn: the file is gone.
            CorruptStateFile: it is not what was written.
        """
        store, url = self._locate(ref)

        def attempt() -> tuple[bytes, int, str]:
            content = store.get(url)
            return content, len(content), checksum_of(content)

        return self._verified(ref, url, attempt)

    def download(self, ref: FileRef, local_path: str) -> None:
        """As `read`, into a local file; a file that does not verify is not left behind."""
        store, url = self._locate(ref)

        def attempt() -> tuple[None, int, str]:
            store.get_file(url, local_path)
            return None, os.path.getsize(local_path), file_checksum(local_path)

        try:
            self._verified(ref, url, attempt)
        except StorageError:
            if os.path.exists(local_path):
                os.unlink(local_path)
            raise

    def _locate(self, ref: FileRef) -> tuple[RetryingStore, str]:
        if not is_safe_relative(ref.path):
            raise SnapshotTorn(
                f"a state handle names the file {ref.path!r}, which is outside of {self.base_url}",
                remedy="do not use this snapshot: it was not written by Penstock",
            )
        url = join_url(self.base_url, ref.path)
        return self._stores.for_url(url), url

    def _verified(self, ref: FileRef, url: str, attempt: Callable[[], tuple[T, int, str]]) -> T:
        size, checksum = 0, ""
        for _ in range(READ_ATTEMPTS):
            try:
                result, size, checksum = attempt()
            except ObjectMissing as missing:
                raise SnapshotTorn(
                    f"the state file {url} is gone",
                    remedy="restore another checkpoint or savepoint; was the bucket cleaned up by a lifecycle rule?",
                ) from missing
            if size == ref.size and checksum == ref.checksum:
                return result
        raise CorruptStateFile(
            f"the state file {url} is damaged: {size} bytes, {checksum}; expected {ref.size} bytes, {ref.checksum}",
            remedy="restore an earlier checkpoint or a savepoint by naming its path",
        )
