"""The interface to file systems: local paths through the operating system, all others through fsspec.

Paths are absolute local paths or URLs (`s3://bucket/key`). Local files do not use fsspec: a `pread` costs one microsecond,
and a file that is read in blocks should cost no more. An error of a store becomes a `SourceError` that names the path and
the remedy.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fsspec

from penstock.common.errors import PlatformError, SourceError
from penstock.common.folders.start_folder import absolute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

StorageOptions = dict[str, Any]
"""Arguments of fsspec file systems. Options of S3 are flat (`key`, `secret`, `endpoint_url`), others are under their protocol."""

_S3 = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class FileStatus:
    """A file in a listing. `modified_ms`: ms since the epoch, 0 if the store does not report it."""

    path: str
    size: int
    modified_ms: int
    version: str = ""
    """Version that changes with the content, such as an ETag, if the store has one."""


def protocol_of(path: str) -> str:
    """Return the scheme of a path, or "file" for a plain path.
    >>> protocol_of("s3://bucket/key"), protocol_of("/tmp/x"), protocol_of("file:///tmp/x")
    ('s3', 'file', 'file')
    """
    scheme, separator, _ = path.partition("://")
    return scheme.lower() if separator else "file"


def is_local(path: str) -> bool:
    return protocol_of(path) in ("file", "local")


def local_path(path: str) -> str:
    """Return the absolute path of a local file or `file://` URL.
    >>> local_path("file:///data/in")
    '/data/in'
    """
    return absolute(urlsplit(path).path if "://" in path else os.path.expanduser(path))


def merge_options(defaults: StorageOptions, own: StorageOptions | None) -> StorageOptions:
    """Return the job's options, overridden by the connector's own options key by key."""
    return {**defaults, **(own or {})}


def file_system(path: str, options: StorageOptions | None = None) -> AbstractFileSystem:
    """Return the fsspec file system for a URL.

    Raises:
        SourceError: the protocol is unknown, or its package is not installed.
    """
    protocol = protocol_of(path)
    given = options or {}
    nested = given.get(protocol)
    if isinstance(nested, dict):
        arguments = dict(nested)
    elif protocol in _S3:
        arguments = {key: value for key, value in given.items() if not _is_protocol(key)}
    else:
        arguments = {}
    if protocol in _S3:
        arguments.setdefault("use_listings_cache", False)
        if "profile" not in arguments:
            from penstock.checkpoint.store.s3_session import client_config, shared_session

            arguments.setdefault("session", shared_session())
            arguments["config_kwargs"] = {**client_config(), **(arguments.get("config_kwargs") or {})}
    try:
        return fsspec.filesystem(protocol, **arguments)
    except (ImportError, ValueError) as error:
        raise SourceError(
            f"no file system for {path!r}: {error}",
            remedy=f"install the fsspec package of {protocol!r}, or use a local path or s3://",
        ) from error


def _is_protocol(key: str) -> bool:
    return key in fsspec.available_protocols()


@contextlib.contextmanager
def explained(path: str, action: str, kind: type[PlatformError] = SourceError) -> Iterator[None]:
    """Convert a store's exceptions into platform errors that name the path and the action."""
    try:
        yield
    except PlatformError:
        raise
    except FileNotFoundError as error:
        raise kind(
            f"cannot {action} {path!r}: it does not exist",
            remedy="check the path and that it is reachable from every worker",
        ) from error
    except PermissionError as error:
        raise kind(
            f"cannot {action} {path!r}: permission denied ({error})",
            remedy="give the job's user, service account or access key the right to do this",
        ) from error
    except (OSError, ValueError) as error:
        raise kind(
            f"cannot {action} {path!r}: {type(error).__name__}: {error}",
            remedy="check that the store is up, and check the endpoint, the network and the credentials",
        ) from error
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("botocore", "aiobotocore", "aiohttp"):
            raise
        raise kind(
            f"cannot {action} {path!r}: {type(error).__name__}: {error}",
            remedy="check the endpoint, the network and the credentials of the object store",
        ) from error


class Storage:
    """Access to the files of one file system: list and read them."""

    def __init__(self, path: str, options: StorageOptions | None = None) -> None:
        self.protocol = protocol_of(path)
        self.local = is_local(path)
        self._fs = None if self.local else file_system(path, options)

    def find(self, path: str) -> list[FileStatus]:
        """Return the files of a path: the file itself, all files below a directory, or the matches of a glob pattern.

        Files and directories whose name begins with `.` or `_` are left out, like in Flink's default filter, because unfinished
        output has such names. A file that the path names itself is always included.

        Raises:
            SourceError: the path does not exist or cannot be listed.
        """
        with explained(path, "list"):
            return self._list_local(local_path(path)) if self._fs is None else self._list_remote(path)

    def stat(self, path: str) -> FileStatus:
        """Return the status of a file.

        Raises:
            SourceError: the file is gone.
        """
        with explained(path, "read"):
            if self._fs is None:
                return _local_status(path)
            return self._status(self._fs.info(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return bytes `start` to `end` (excluded) of a file that is not local, with one request."""
        assert self._fs is not None
        with explained(path, "read"):
            return bytes(self._fs.cat_file(path, start=start, end=end))

    def open(self, path: str) -> Any:
        """Open a file as a seekable binary file."""
        with explained(path, "read"):
            return open(path, "rb") if self._fs is None else self._fs.open(path, "rb")

    def _list_local(self, path: str) -> list[FileStatus]:
        if os.path.isdir(path):
            return list(_walk(path))
        if os.path.exists(path) or not _is_pattern(path):
            return [_local_status(path)]
        fs = fsspec.filesystem("file")
        found = sorted(match for match in fs.glob(path) if not _is_skipped(match, path))
        if not found:
            raise FileNotFoundError(path)
        return [
            status for match in found for status in (_walk(match) if os.path.isdir(match) else [_local_status(match)])
        ]

    def _list_remote(self, path: str) -> list[FileStatus]:
        fs = self._fs
        assert fs is not None
        fs.invalidate_cache()
        if _is_pattern(path):
            found = {name: info for name, info in fs.glob(path, detail=True).items() if not _is_skipped(name, path)}
            files = [info for info in found.values() if info["type"] == "file"]
            directories = [name for name, info in found.items() if info["type"] == "directory"]
            statuses = [self._status(info) for info in files] + [s for d in directories for s in self._below(d)]
            if not found:
                raise FileNotFoundError(path)
            return statuses
        below = self._below(path)
        if below:
            return below
        info = fs.info(path)
        return [self._status(info)] if info["type"] == "file" else []

    def _below(self, directory: str) -> list[FileStatus]:
        assert self._fs is not None
        found = self._fs.find(directory, detail=True)
        root = self._fs._strip_protocol(directory).rstrip("/")
        statuses = []
        for name, info in found.items():
            if info["type"] != "file":  # s3fs returns the directory itself if its first file appears during the listing
                continue
            relative = name[len(root) :].lstrip("/")
            if not relative:
                return [self._status(info)]
            if not name.endswith("/") and not any(map(_is_hidden, PurePosixPath(relative).parts)):
                statuses.append(self._status(info))
        return statuses

    def _status(self, info: dict[str, Any]) -> FileStatus:
        assert self._fs is not None
        return FileStatus(
            str(self._fs.unstrip_protocol(info["name"])),
            int(info["size"] or 0),
            _modified_ms(info),
            str(info.get("ETag") or info.get("etag") or "").strip('"'),
        )


def _walk(directory: str) -> Iterator[FileStatus]:
    def fail(error: OSError) -> None:
        raise error

    seen: set[tuple[int, int]] = set()
    for parent, directories, files in os.walk(directory, onerror=fail, followlinks=True):
        here = os.stat(parent)
        if (here.st_dev, here.st_ino) in seen:  # a link to a parent directory
            directories.clear()
            continue
        seen.add((here.st_dev, here.st_ino))
        directories[:] = sorted(name for name in directories if not _is_hidden(name))
        for name in sorted(files):
            if not _is_hidden(name):
                with contextlib.suppress(FileNotFoundError):  # moved after the directory was read
                    yield _local_status(os.path.join(parent, name))


def _local_status(path: str) -> FileStatus:
    found = os.stat(path)
    if not os.access(path, os.R_OK):
        raise PermissionError(f"not readable by user {os.geteuid()}")
    return FileStatus(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_skipped(match: str, pattern: str) -> bool:
    """Return True if `match` has a hidden name. A hidden name that the pattern spells out does not count."""
    spelled = set(pattern.split("/"))
    return any(_is_hidden(part) and part not in spelled for part in match.split("/"))


def _is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def _modified_ms(info: dict[str, Any]) -> int:
    for key in ("LastModified", "mtime", "last_modified", "updated", "modified", "created"):
        value = info.get(key)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, int | float):
            return int(value * 1000)
    return 0
