"""The interface to storage: the operations of an object store that the checkpoint protocol needs.

Paths are full URLs (`s3://bucket/key`, `file:///dir/file`, `memory://x`). A store serves all URLs of its scheme, so
that a copy within a store is one call. An implementation makes one attempt and reports exactly how it failed. Retries,
deadlines and messages for people are in `retrying_store`, and `faults` has a test double that fails on purpose. Several
threads may call all methods.

The protocol relies on these guarantees:

- A put is whole or absent.
- A read or a list sees every put that returned before the read or list began.
- `put(if_absent=True)` succeeds for at most one of any number of puts of a name. `conditional_puts` states whether the
  driver can guarantee that, and `probe` tests the server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from penstock.common.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


MAX_DELETES = 1000
"""Maximum number of objects in one DeleteObjects request of S3."""


class StoreFailure(Exception):
    """A failure of one attempt at one operation. `url` names the object."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")


class ObjectExists(StoreFailure):
    """A conditional put that lost, because the name is taken."""


class ObjectMissing(StoreFailure):
    """The object or its bucket does not exist."""


class TransientFailure(StoreFailure):
    """The store did not respond, or asked to try again later (5xx, 409, 429, timeouts). A put may have happened."""


class PermanentFailure(StoreFailure):
    """A failure that a retry does not fix (not a store, missing feature, an error of the driver)."""


class Refused(PermanentFailure):
    """A refusal by the store itself (access denied, no such bucket). A put did not happen."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object in a listing. `modified`: seconds since the epoch by the store's clock; None if unknown."""

    url: str
    size: int
    modified: float | None = None


class ObjectStore(Protocol):
    """An object store. The module's docstring has its guarantees. Every method raises only the `StoreFailure`s above."""

    conditional_puts: bool
    """Whether the driver passes the condition to the server or the file system. Other drivers check for the object
    before they write.
    """

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None: ...

    def put_file(self, local_path: str, url: str) -> None:
        """Upload a local file, in parts if it is large."""
        ...

    def get(self, url: str) -> bytes: ...

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        """Return a part of an object. It is shorter, or empty, if the object ends before."""
        ...

    def get_file(self, url: str, local_path: str) -> None: ...

    def head(self, url: str) -> ObjectInfo: ...

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        """Return all objects under a folder, at any depth. The list is empty if the folder does not exist."""
        ...

    def list_folders(self, url: str) -> list[str]:
        """Return the names (not URLs) of the folders directly in a folder."""
        ...

    def delete(self, url: str) -> None:
        """Delete an object. Do nothing if it does not exist."""
        ...

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """Delete up to `MAX_DELETES` objects of one bucket, in one request if the store has such a request.

        Return the error of each object that may still exist. Raise if the outcome of all is unknown.
        """
        ...

    def copy(self, source_url: str, target_url: str) -> None:
        """Copy within the store. The bytes do not pass through this process."""
        ...


def delete_one_by_one(delete: Callable[[str], None], urls: Sequence[str]) -> dict[str, StoreFailure]:
    """Implement `ObjectStore.delete_many` for a store without a request for many objects."""
    failed: dict[str, StoreFailure] = {}
    for url in urls:
        try:
            delete(url)
        except StoreFailure as failure:
            failed[url] = failure
    return failed


def normalize_url(url: str) -> str:
    """Return a URL with a scheme and without a trailing slash. A plain path becomes an absolute `file://` URL.

    >>> normalize_url("s3://bucket/checkpoints/")
    's3://bucket/checkpoints'
    >>> normalize_url("/tmp/checkpoints//")
    'file:///tmp/checkpoints'
    >>> normalize_url("s3a://bucket/x")
    's3://bucket/x'
    """
    if not url or not url.strip():
        raise StorageError("an empty storage path", remedy="set a URL such as s3://bucket/checkpoints or file:///data")
    url = url.strip()
    if "://" not in url:
        path = url.removeprefix("file:")
        return "file://" + os.path.abspath(os.path.expanduser(path))
    scheme, _, rest = url.partition("://")
    scheme = {"s3a": "s3", "s3n": "s3", "local": "file"}.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        return "file://" + os.path.normpath("/" + rest.lstrip("/"))
    return f"{scheme}://{rest.rstrip('/')}"


def join_url(url: str, *parts: str) -> str:
    """Return the URL of a path below `url`.

    >>> join_url("s3://bucket/root/", "job", "chk-1")
    's3://bucket/root/job/chk-1'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def parent_url(url: str) -> str:
    """Return the URL of the folder that contains `url`.

    >>> parent_url("s3://bucket/root/job")
    's3://bucket/root'
    """
    return url.rstrip("/").rsplit("/", 1)[0]


def base_name(url: str) -> str:
    """Return the last segment of `url`.

    >>> base_name("s3://bucket/root/job/")
    'job'
    """
    return url.rstrip("/").rsplit("/", 1)[-1]


def scheme_of(url: str) -> str:
    return urlsplit(url).scheme


def relative_url(url: str, root_url: str) -> str:
    """Return the part of `url` below `root_url`.

    >>> relative_url("s3://bucket/root/shared/a", "s3://bucket/root")
    'shared/a'
    """
    root = root_url.rstrip("/") + "/"
    if not url.startswith(root):
        raise ValueError(f"{url} is not in {root_url}")
    return url[len(root) :]
