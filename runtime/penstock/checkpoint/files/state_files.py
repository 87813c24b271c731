"""State files: written once by subtasks, verified whenever they are read (the contract of `state.backend`).

A checkpoint of many operators makes many small files, and an object store charges and takes its time for each object. So what
a task writes for one checkpoint goes into one object as long as it is small (`MergedFileWriter`, Flink's file merging): a
handle names the object, where in it the file begins, its size and its checksum. The registry counts objects, so one stays as
long as any file in it is named; as only small files are put together, little else is kept alive with it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

from penstock.checkpoint.files.checksum import checksum_of, file_checksum
from penstock.checkpoint.files.layout import is_safe_relative, new_shared_path
from penstock.checkpoint.store.object_store import ObjectMissing, join_url
from penstock.checkpoint.store.retrying_store import READ_ATTEMPTS
from penstock.common.errors import CorruptStateFile, SnapshotTorn, StorageError
from penstock.state.backend import FileRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.checkpoint.store.retrying_store import RetryingStore, Stores

T = TypeVar("T")
SMALL_FILE = 1 << 20
"""Bytes; what is larger is an object of its own."""


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


class MergedFileWriter:
    """Puts the small files of one task and checkpoint together; nothing it named is durable before `finish` returned.

    Args:
        largest: bytes of an object with several files.
    """

    def __init__(self, writer: StateFileWriter, largest: int) -> None:
        self._writer = writer
        self._largest = largest
        self._lock = threading.Lock()
        self._parts = _Parts()
        self._error: StorageError | None = None

    def write(self, content: bytes) -> FileRef:
        """
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
        """As `write`, of a local file, which must not change until this returns."""
        if os.path.getsize(local_path) > min(SMALL_FILE, self._largest):
            return self._writer.upload(local_path)
        with open(local_path, "rb") as file:
            return self.write(file.read())

    def finish(self) -> None:
        """Put what is left.

        Raises:
            StorageError: this, or an object before, cannot be written.
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
    """An object that is being put together."""

    def __init__(self) -> None:
        self.path = new_shared_path()
        self.contents: list[bytes] = []
        self.size = 0

    def add(self, content: bytes) -> None:
        self.contents.append(content)
        self.size += len(content)


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
            content = _read(store, url, ref)
            return content, len(content), checksum_of(content)

        return self._verified(ref, url, attempt)

    def download(self, ref: FileRef, local_path: str) -> None:
        """As `read`, into a local file; a file that does not verify is not left behind."""
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
            f"the state file {url} is damaged{_at(ref)}: {size} bytes, {checksum}; expected {ref.size} bytes, {ref.checksum}",
            remedy="restore an earlier checkpoint or a savepoint by naming its path",
        )


def _read(store: RetryingStore, url: str, ref: FileRef) -> bytes:
    return store.get(url) if ref.offset is None else store.get_range(url, ref.offset, ref.size)


def _at(ref: FileRef) -> str:
    return "" if ref.offset is None else f" at {ref.offset}"
