"""State files: subtasks write them once, and every read verifies them (the contract of `state.backend`).

A checkpoint of many operators has many small files, and an object store charges money and time for each object. A task
therefore merges the small files of one checkpoint into one object (`MergedFileWriter`, Flink's file merging). A handle
names the object and the file's offset, size and checksum in it.

The registry counts objects, so an object is kept while a manifest names any file in it. Only small files are merged, so
few unneeded bytes are kept.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

from penstock.checkpoint.files.checksum import checksum_of, file_checksum
from penstock.checkpoint.files.layout import new_shared_path
from penstock.checkpoint.store.object_store import ObjectMissing, join_url
from penstock.checkpoint.store.retrying_store import READ_ATTEMPTS
from penstock.common.errors import CorruptStateFile, SnapshotTorn, StorageError
from penstock.common.folders.storage_names import checked_path
from penstock.state.files import FileRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.store.retrying_store import RetryingStore, Stores

T = TypeVar("T")
SMALL_FILE = 1 << 20
"""Bytes. A larger file is a separate object."""


class StateFileWriter:
    """The writer of immutable files `shared/<uuid>`. Thread-safe: every file has its own name."""

    def __init__(self, store: RetryingStore, job_url: str) -> None:
        self._store = store
        self._job_url = job_url

    def write(self, content: bytes, path: str = "") -> FileRef:
        """Write a file. `path` is a unique name under `shared/`. By default, the method creates a new name."""
        path = path or new_shared_path()
        self._store.put(join_url(self._job_url, path), content)
        return FileRef(path, len(content), checksum_of(content))

    def upload(self, local_path: str) -> FileRef:
        """Upload a local file. The file must not change until the method returns, because its size and checksum are
        computed first.
        """
        path = new_shared_path()
        size, checksum = os.path.getsize(local_path), file_checksum(local_path)
        self._store.put_file(local_path, join_url(self._job_url, path))
        return FileRef(path, size, checksum)


class MergedFileWriter:
    """A writer that merges the small files of one task and checkpoint. No file is durable before `finish` has returned.

    Args:
        largest: maximum bytes of an object with several files.
    """

    def __init__(self, writer: StateFileWriter, largest: int) -> None:
        self._writer = writer
        self._largest = largest
        self._lock = threading.Lock()
        self._parts = _Parts()
        self._error: StorageError | None = None

    def write(self, content: bytes) -> FileRef:
        """Write a file.

        Raises:
            StorageError: a large file, or an object that has become full, cannot be written.
        """
        if len(content) > min(SMALL_FILE, self._largest):
            return self._writer.write(content)
        checksum, full = checksum_of(content), None
        with self._lock:
            if self._parts.size + len(content) > self._largest:
                full, self._parts = self._parts, _Parts()
            ref = FileRef(self._parts.path, len(content), checksum, self._parts.size)
            self._parts.add(content)
        if full is not None:
            self._put(full)
        return ref

    def upload(self, local_path: str) -> FileRef:
        """Write a local file as `write` does. The file must not change until the method returns."""
        if os.path.getsize(local_path) > min(SMALL_FILE, self._largest):
            return self._writer.upload(local_path)
        with open(local_path, "rb") as file:
            return self.write(file.read())

    def finish(self) -> None:
        """Write the remaining files.

        Raises:
            StorageError: this object or an earlier one cannot be written.
        """
        with self._lock:
            last, self._parts = self._parts, _Parts()
        if self._error is None and last.size:
            self._put(last)
        if self._error is not None:
            raise self._error

    def _put(self, parts: _Parts) -> None:
        try:
            self._writer.write(b"".join(parts.contents), parts.path)
        except StorageError as error:
            self._error = error
            raise


class _Parts:
    """An object that is being merged."""

    def __init__(self) -> None:
        self.path = new_shared_path()
        self.contents: list[bytes] = []
        self.size = 0

    def add(self, content: bytes) -> None:
        self.contents.append(content)
        self.size += len(content)


class StateFileReader:
    """The reader of one snapshot's files, relative to `base_url`. Thread-safe."""

    def __init__(self, stores: Stores, base_url: str) -> None:
        self.base_url = base_url
        self._stores = stores

    def read(self, ref: FileRef) -> bytes:
        """Read a file.

        Raises:
            SnapshotTorn: the file is gone.
            CorruptStateFile: its content differs from what was written.
        """
        store, url = self._locate(ref)

        def attempt() -> tuple[bytes, int, str]:
            content = _read(store, url, ref)
            return content, len(content), checksum_of(content)

        return self._verified(ref, url, attempt)

    def download(self, ref: FileRef, local_path: str) -> None:
        """Read into a local file as `read` does. Remove the local file if its content does not verify."""
        store, url = self._locate(ref)

        def attempt() -> tuple[None, int, str]:
            if ref.offset is None:
                store.get_file(url, local_path)
            else:
                with open(local_path, "wb") as file:
                    file.write(_read(store, url, ref))
            return None, os.path.getsize(local_path), file_checksum(local_path)

        try:
            self._verified(ref, url, attempt)
        except StorageError:
            if os.path.exists(local_path):
                os.unlink(local_path)
            raise

    def _locate(self, ref: FileRef) -> tuple[RetryingStore, str]:
        url = join_url(self.base_url, checked_path(ref.path, f"a state handle of {self.base_url}"))
        return self._stores.for_url(url), url

    def _verified(self, ref: FileRef, url: str, attempt: Callable[[], tuple[T, int, str]]) -> T:
        size, checksum = 0, ""
        for _ in range(READ_ATTEMPTS):
            try:
                result, size, checksum = attempt()
            except ObjectMissing as missing:
                raise SnapshotTorn(
                    f"the state file {url} does not exist",
                    remedy="restore another checkpoint or savepoint. Check whether a lifecycle rule of the bucket deleted the file",
                ) from missing
            if size == ref.size and checksum == ref.checksum:
                return result
        raise CorruptStateFile(
            f"the state file {url} is damaged{_at(ref)}: {size} bytes, {checksum}; expected {ref.size} bytes, {ref.checksum}",
            remedy="restore an earlier checkpoint or a savepoint by naming its path",
        )


def _read(store: RetryingStore, url: str, ref: FileRef) -> bytes:
    return store.get(url) if ref.offset is None else store.get_range(url, ref.offset, ref.size)


def _at(ref: FileRef) -> str:
    return "" if ref.offset is None else f" at {ref.offset}"
