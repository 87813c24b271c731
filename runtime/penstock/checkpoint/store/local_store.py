"""`file://`: a directory as an object store, with the same guarantees as S3.

A put writes a temporary file in the target's folder, fsyncs it, and then gives it the target's name. A plain put uses
`rename`. A conditional put uses `link`, which the kernel refuses if the name exists. An object is therefore whole as
soon as it is visible, on a local disk and on NFS. A crash leaves at most a temporary file, which is an object that no
manifest names.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from typing import TYPE_CHECKING

from penstock.checkpoint.store.object_store import (
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    PermanentFailure,
    Refused,
    StoreFailure,
    TransientFailure,
    delete_one_by_one,
    join_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TEMPORARY_SUFFIX = ".writing"
_TRANSIENT = {errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR, errno.ENOSPC}
_FOLDER_RACES = 10
"""Number of times to create a folder again if another thread removes it while it is empty."""


def path_of(url: str) -> str:
    """Return the path of a URL. Percent escapes are not decoded.

    >>> path_of("file:///tmp/a%20b")
    '/tmp/a%20b'
    """
    return "/" + url.removeprefix("file://").lstrip("/")


class LocalStore:
    """The store of `file://`. `fsync=False` is for tests and benchmarks only: a crash of the machine may lose data."""

    conditional_puts = True

    def __init__(self, *, fsync: bool = True) -> None:
        self.fsync = fsync

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None:
        def write(temporary: str) -> None:
            with open(temporary, "xb") as file:
                file.write(content)
                self._sync(file.fileno())

        self._publish(url, write, if_absent=if_absent)

    def put_file(self, local_path: str, url: str) -> None:
        if not os.path.isfile(local_path):
            raise PermanentFailure(url, f"the local file {local_path} to upload does not exist")

        def write(temporary: str) -> None:
            shutil.copyfile(local_path, temporary)
            self._sync_path(temporary)

        self._publish(url, write, if_absent=False)

    def get(self, url: str) -> bytes:
        try:
            with open(path_of(url), "rb") as file:
                return file.read()
        except OSError as error:
            raise _failure(url, error) from error

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        try:
            with open(path_of(url), "rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise _failure(url, error) from error

    def get_file(self, url: str, local_path: str) -> None:
        try:
            shutil.copyfile(path_of(url), local_path)
        except OSError as error:
            raise _failure(url, error) from error

    def head(self, url: str) -> ObjectInfo:
        path = path_of(url)
        try:
            status = os.stat(path)
        except OSError as error:
            raise _failure(url, error) from error
        if not os.path.isfile(path):
            raise ObjectMissing(url, "is a directory")
        return ObjectInfo(url, status.st_size, status.st_mtime)

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        root = path_of(prefix_url)
        found = []
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # deleted while listing
                    continue
                except OSError as error:
                    raise _failure(prefix_url, error) from error
                found.append(
                    ObjectInfo(join_url(prefix_url, os.path.relpath(path, root)), status.st_size, status.st_mtime)
                )
        return sorted(found, key=lambda info: info.url)

    def list_folders(self, url: str) -> list[str]:
        try:
            with os.scandir(path_of(url)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _failure(url, error) from error

    def delete(self, url: str) -> None:
        path = path_of(url)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _failure(url, error) from error
        try:
            os.rmdir(os.path.dirname(path))  # an object store has no empty folders
        except OSError:
            pass

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        return delete_one_by_one(self.delete, urls)

    def copy(self, source_url: str, target_url: str) -> None:
        """Copy with a hard link if the file system has them, because objects never change. Otherwise copy the bytes."""
        source = path_of(source_url)
        self.head(source_url)

        def write(temporary: str) -> None:
            try:
                os.link(source, temporary)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copyfile(source, temporary)
                self._sync_path(temporary)

        self._publish(target_url, write, if_absent=False)

    def _publish(self, url: str, write: Callable[[str], None], *, if_absent: bool) -> None:
        path = path_of(url)
        folder = os.path.dirname(path)
        temporary = f"{path}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        is_named = False
        try:
            self._write_into(folder, temporary, write)
            try:
                if if_absent:
                    os.link(temporary, path)
                else:
                    os.replace(temporary, path)
                is_named = True
            finally:
                _unlink_if_exists(temporary)
            self._sync_path(folder)
        except FileExistsError as error:
            raise ObjectExists(url, "exists already") from error
        except OSError as error:
            failure = _failure(url, error)
            if isinstance(failure, PermanentFailure) and not is_named:
                failure = Refused(url, failure.reason)
            raise failure from error

    def _write_into(self, folder: str, temporary: str, write: Callable[[str], None]) -> None:
        for attempts_left in reversed(range(_FOLDER_RACES)):
            try:
                self._make_folder(folder)
                write(temporary)
                return
            except FileNotFoundError:
                if not attempts_left:
                    raise
            except BaseException:
                _unlink_if_exists(temporary)
                raise

    def _make_folder(self, folder: str) -> None:
        """Create the folder durably: fsync each new entry in its parent."""
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        self._make_folder(parent)
        try:
            os.mkdir(folder)
        except FileExistsError:
            if os.path.isfile(folder):
                raise NotADirectoryError(errno.ENOTDIR, "is a file, not a directory", folder) from None
        self._sync_path(parent)

    def _sync(self, descriptor: int) -> None:
        if self.fsync:
            os.fsync(descriptor)

    def _sync_path(self, path: str) -> None:
        if not self.fsync:
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unlink_if_exists(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _failure(url: str, error: OSError) -> StoreFailure:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(url, "does not exist")
    if error.errno in _TRANSIENT:
        return TransientFailure(url, reason)
    return PermanentFailure(url, reason)
