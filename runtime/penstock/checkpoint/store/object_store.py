"""The one seam to the outside world of storage: what the checkpoint protocol needs of an object store.

Paths are full URLs (`s3://bucket/key`, `file:///dir/file`, `memory://x`); a store serves all URLs of its scheme, so that
a copy from one place to another within a store is one call. Implementations do one attempt and say precisely how it
failed; retries, deadlines and messages for people are in `retrying_store`, and `faults` has a double that fails on
purpose. All methods may be called from several threads.

What the protocol relies on: a put is whole or absent; a read and a list see every put that returned before they began;
`put(if_absent=True)` succeeds for at most one of any number of puts of a name (`conditional_puts` says whether the
driver can promise that; `probe` asks the server).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from penstock.common.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


DELETES_AT_ONCE = 1000
"""What S3's DeleteObjects takes."""


class StoreFailure(Exception):
    """One attempt at one operation failed; `url` names the object."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")


class ObjectExists(StoreFailure):
    """A conditional put lost: the name is taken."""


class ObjectMissing(StoreFailure):
    """No such object (or bucket)."""


class TransientFailure(StoreFailure):
    """The store did not answer, or asked to come back later (5xx, 409, 429, timeouts). A put may have happened."""


class PermanentFailure(StoreFailure):
    """Trying again will not help (not a store, feature missing, an error of the driver)."""


class Refused(PermanentFailure):
    """The store itself said no (access denied, no such bucket). A put did not happen."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object in a listing. `modified`: seconds since the epoch by the store's clock; None if it does not say."""

    url: str
    size: int
    modified: float | None = None


class ObjectStore(Protocol):
    """See the head of the module. Every method raises the `StoreFailure`s above and nothing else."""

    conditional_puts: bool
    """The driver passes the condition on to the server (or the file system), instead of looking first."""

    def put(self, url: str, content: bytes, *, if_absent: bool = False) -> None: ...

    def put_file(self, local_path: str, url: str) -> None:
        """Upload a local file, in parts if it is large."""
        ...

    def get(self, url: str) -> bytes: ...

    def get_range(self, url: str, offset: int, size: int) -> bytes:
        """A part of an object; shorter, or empty, where the object ends before."""
        ...

    def get_file(self, url: str, local_path: str) -> None: ...

    def head(self, url: str) -> ObjectInfo: ...

    def list_objects(self, prefix_url: str) -> list[ObjectInfo]:
        """All objects under a folder, at any depth; an empty list when there is no such folder."""
        ...

    def list_folders(self, url: str) -> list[str]:
        """Names (not URLs) of the folders directly in a folder."""
        ...

    def delete(self, url: str) -> None:
        """Gone afterwards; no error if it was gone before."""
        ...

    def delete_many(self, urls: Sequence[str]) -> dict[str, StoreFailure]:
        """`delete` of up to `DELETES_AT_ONCE` objects of one bucket, in one request where the store has that.

        Returns why, for each one that may still be there. Raises when nothing is known of any.
        """
        ...

    def copy(self, source_url: str, target_url: str) -> None:
        """Within the store, without the bytes passing through this process."""
        ...


def delete_each(delete: Callable[[str], None], urls: Sequence[str]) -> dict[str, StoreFailure]:
    """`ObjectStore.delete_many` of a store that has no request for many."""
    failed: dict[str, StoreFailure] = {}
    for url in urls:
        try:
            delete(url)
        except StoreFailure as failure:
            failed[url] = failure
    return failed


def normalize_url(url: str) -> str:
    """A URL with a scheme and without a trailing slash; a plain path becomes `file://` and absolute.

    >>> normalize_url("s3://bucket/checkpoints/")
    's3://bucket/checkpoints'
    >>> normalize_url("/tmp/checkpoints//")
    'file:///tmp/checkpoints'
    >>> normalize_url("s3a://bucket/x")
    's3://bucket/x'
    """
    if not url or not url.strip():
        raise StorageError("an empty storage path", remedy="give a URL such as s3://bucket/checkpoints or file:///data")
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
    """
    >>> join_url("s3://bucket/root/", "job", "chk-1")
    's3://bucket/root/job/chk-1'
    """
    return "/".join([url.rstrip("/"), *(part.strip("/") for part in parts)])


def parent_url(url: str) -> str:
    """
    >>> parent_url("s3://bucket/root/job")
    's3://bucket/root'
    """
    return url.rstrip("/").rsplit("/", 1)[0]


def base_name(url: str) -> str:
    """
    >>> base_name("s3://bucket/root/job/")
    'job'
    """
    return url.rstrip("/").rsplit("/", 1)[-1]


def scheme_of(url: str) -> str:
    return urlsplit(url).scheme


def relative_url(url: str, root_url: str) -> str:
    """The part of `url` below `root_url`.

    >>> relative_url("s3://bucket/root/shared/a", "s3://bucket/root")
    'shared/a'
    """
    root = root_url.rstrip("/") + "/"
    if not url.startswith(root):
        raise ValueError(f"{url} does not lie under {root_url}")
    return url[len(root) :]
