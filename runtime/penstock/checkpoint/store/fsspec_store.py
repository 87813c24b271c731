"""Any fsspec file system as an object store. `s3_store` specializes it for S3.

Conditional puts differ between drivers. `gs`, `abfs` and `az` pass the condition to the server. Most others check
whether the object exists and then write, so two writers can both succeed. Such a store has `conditional_puts` False,
and `probe` refuses it in HA mode. `memory://` is a dictionary of one process, and a lock makes its puts conditional.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.asyn import sync
from fsspec.exceptions import FSTimeoutError

from penstock.checkpoint.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    PermanentFailure,
    Refused,
    StoreFailure,
    TransientFailure,
)
from penstock.common.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

REQUEST_TIMEOUT = 20.0
"""Seconds that one request may take, plus one second for every MiB that it transfers."""
_CONDITIONAL_DRIVERS = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "az", "memory"})
_WRITES = {"pipe_file": 0, "put_file": 1, "cp_file": 1}
"""Position of the target in the arguments of each write. Drivers without an event loop are mostly file systems, so the target's
folder must exist before the write."""
DELETE_THREADS = 8
_memory_lock = threading.RLock()


def too_large(url: str, limit: int) -> PermanentFailure:
    """Return the error for an object that is larger than this process reads."""
    return PermanentFailure(url, f"it is larger than {limit >> 20} MiB, the limit for such an object")


class FsspecStore:
    """One fsspec file system. A forked process opens the file system again, because the event loop of the parent does not run in it."""

    def __init__(self, scheme: str, options: Mapping[str, Any] | None = None) -> None:
        self.scheme = scheme
        self.options = dict(options or {})
        self.request_timeout = float(self.options.pop("request_timeout", REQUEST_TIMEOUT))
        self.read_limit: int | None = self.options.pop("read_limit", None)
        """Maximum bytes of one object that `get` reads; None means no limit."""
        self.options.pop("fsync", None)
        self.conditional_puts = scheme in _CONDITIONAL_DRIVERS
        self._lock = threading.Lock()
        self._opened: tuple[int, Any] | None = None
        self._file_system()

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        with self._failures(url), self._serialized():
            mode = "create" if if_absent else "overwrite"
            self._call("pipe_file", self._path(url), content, mode=mode, moved=len(content))

    def put_file(self, local_path: str, url: str) -> None:
        if not os.path.isfile(local_path):
            raise PermanentFailure(url, f"the local file {local_path} to upload does not exist")
        with self._failures(url), self._serialized():
            self._call("put_file", local_path, self._path(url), moved=os.path.getsize(local_path))

    def get(self, url: str) -> bytes:
        with self._failures(url), self._serialized():
            if (
                self.read_limit is not None
                and int(self._call("info", self._path(url)).get("size") or 0) > self.read_limit
            ):
                raise too_large(url, self.read_limit)
            content = self._call("cat_file", self._path(url), moved=1 << 30)
        return bytes(content)

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        with self._failures(url), self._serialized():
            content = self._call("cat_file", self._path(url), start=offset, end=offset + size, moved=size)
        return bytes(content)

    def get_file(self, url: str, local_path: str) -> None:
        with self._failures(url), self._serialized():
            self._call("get_file", self._path(url), local_path, moved=1 << 30)

    def head(self, url: str) -> ObjectInfo:
        with self._failures(url):
            info = self._call("info", self._path(url))
        if info.get("type") == "directory":
            raise ObjectMissing(url, "is a folder")
        return ObjectInfo(url, int(info["size"] or 0), _modified(info))

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        root = self._path(prefix_url)
        try:
            with self._failures(prefix_url):
                found = self._call("find", root, detail=True, withdirs=False)
        except ObjectMissing:
            return []
        return sorted(
            (
                ObjectInfo(prefix_url + name[len(root) :], int(info.get("size") or 0), _modified(info))
                for name, info in found.items()
                if name.startswith(root + "/")
            ),
            key=lambda info: info.url,
        )

    def list_folders(self, url: str) -> list[str]:
        root = self._path(url)
        try:
            with self._failures(url):
                entries = self._call("ls", root, detail=True)
        except ObjectMissing:
            return []
        names = (entry["name"].rstrip("/") for entry in entries if entry["type"] == "directory")
        return sorted(name.rsplit("/", 1)[-1] for name in names if name != root)

    def delete(self, url: str) -> None:
        try:
            with self._failures(url), self._serialized():
                self._call("rm_file", self._path(url))
        except ObjectMissing:
            pass

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """Delete several objects concurrently, because drivers have no common request for many."""
        if self.scheme == "memory":
            return _failures_of(map(self._try_delete, urls))
        with ThreadPoolExecutor(DELETE_THREADS, thread_name_prefix="penstock-delete") as pool:
            return _failures_of(pool.map(self._try_delete, urls))

    def _try_delete(self, url: str) -> StoreFailure | None:
        try:
            self.delete(url)
        except StoreFailure as failure:
            return failure
        return None

    def copy(self, source_url: str, target_url: str) -> None:
        with self._failures(source_url), self._serialized():
            self._call("cp_file", self._path(source_url), self._path(target_url), moved=1 << 30)

    def _path(self, url: str) -> str:
        return str(self._file_system()._strip_protocol(url))

    def _file_system(self) -> Any:
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = (os.getpid(), self._open())
            return self._opened[1]

    def _open(self) -> Any:
        try:
            return fsspec.filesystem(self.scheme, skip_instance_cache=True, use_listings_cache=False, **self.options)
        except ImportError as error:
            raise StorageError(
                f"storage URLs of the scheme {self.scheme!r} need a driver that is not installed: {error}",
                remedy="add this driver to the image, or use s3:// or file://",
            ) from error
        except ValueError as error:
            raise StorageError(
                f"no storage driver for the scheme {self.scheme!r}: {error}",
                remedy="use s3://, file:// or a scheme that fsspec knows",
            ) from error
        except TypeError as error:
            raise StorageError(
                f"the storage driver for {self.scheme!r} does not take the options {sorted(self.options)}: {error}",
                remedy="correct the object store options",
            ) from error

    def _call(self, name: str, *arguments: Any, moved: int = 0, **keywords: Any) -> Any:
        file_system = self._file_system()
        if not file_system.async_impl:
            if name in _WRITES and self.scheme != "memory":
                file_system.makedirs(file_system._parent(arguments[_WRITES[name]]), exist_ok=True)
            return getattr(file_system, name)(*arguments, **keywords)
        timeout = self.request_timeout + moved / (1 << 20)
        return sync(file_system.loop, getattr(file_system, "_" + name), *arguments, timeout=timeout, **keywords)

    @contextmanager
    def _serialized(self) -> Iterator[None]:
        """Serialize access to `memory://`, which checks before it writes and shares file positions between readers."""
        if self.scheme == "memory":
            with _memory_lock:
                yield
        else:
            yield

    @contextmanager
    def _failures(self, url: str) -> Iterator[None]:
        """Turn any exception of the driver into a `StoreFailure`."""
        try:
            yield
        except StoreFailure:
            raise
        except Exception as error:
            raise self._classify(url, error) from error

    def _classify(self, url: str, error: Exception) -> StoreFailure:
        if isinstance(error, FileExistsError):
            return ObjectExists(url, "exists already")
        if isinstance(error, FileNotFoundError):
            return ObjectMissing(url, "does not exist")
        if isinstance(error, FSTimeoutError | asyncio.TimeoutError | TimeoutError | ConnectionError):
            return TransientFailure(url, f"no answer ({type(error).__name__})")
        if isinstance(error, PermissionError):
            return Refused(url, f"access denied: {error}")
        if isinstance(error, OSError):
            return TransientFailure(url, str(error) or type(error).__name__)
        return PermanentFailure(url, f"{type(error).__name__}: {error}")


def _failures_of(outcomes: Iterable[StoreFailure | None]) -> dict[str, StoreFailure]:
    return {failure.url: failure for failure in outcomes if failure is not None}


def download_and_upload(
    get_file: Callable[[str, str], None], put_file: Callable[[str, str], None], source_url: str, target_url: str
) -> None:
    """Copy between two stores through a temporary file on this machine."""
    with tempfile.TemporaryDirectory(prefix="penstock-copy-") as folder:
        path = os.path.join(folder, "object")
        get_file(source_url, path)
        put_file(path, target_url)


def _modified(info: Mapping[str, Any]) -> float | None:
    for name in ("LastModified", "mtime", "last_modified", "updated", "created"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None
