"""Which store serves a URL, by its scheme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.checkpoint.store.object_store import ObjectStore, normalize_url, scheme_of


def open_store(url: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """The store that serves this URL. `options`: what fsspec's driver for the scheme takes (keys, endpoint, …).

    Raises:
        StorageError: no driver for the scheme, or the driver does not take the options.
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
    """Load what stores of a scheme need, before processes are forked that will open one."""
    if scheme == "s3":
        from penstock.checkpoint.store import s3_store  # noqa: F401
        from penstock.checkpoint.store.s3_session import prepare

        prepare()
