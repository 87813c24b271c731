"""The store of each URL scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.checkpoint.store.object_store import ObjectStore, normalize_url, scheme_of


def open_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Return the store that serves this URL. `options`: arguments of fsspec's driver for the scheme (keys, endpoint, …).

    Raises:
        StorageError: the scheme has no driver, or the driver does not accept the options.
    """
    scheme = scheme_of(normalize_url(url))
    if scheme == "file":
        from penstock.checkpoint.store.local_store import LocalStore

        return LocalStore(fsync=bool((options or {}).get("fsync", True)))
    if scheme == "s3":
        from penstock.checkpoint.store.s3_store import S3Store

        return S3Store(options)
    from penstock.checkpoint.store.fsspec_store import FsspecStore

    return FsspecStore(scheme, options)


def prepare_store(scheme: str) -> None:
    """Load the modules of a scheme's stores before the fork of processes that open such a store."""
    if scheme == "s3":
        from penstock.checkpoint.store import s3_store  # noqa: F401
        from penstock.checkpoint.store.s3_session import prepare

        prepare()
