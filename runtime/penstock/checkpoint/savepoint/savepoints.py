"""Savepoints: written by copying a complete checkpoint into a folder of its own, disposed of only by their owner.

Everything in a savepoint's folder is relative to it, so it can be copied or moved as a whole, also to another bucket.
This module and what it imports need fsspec and msgspec and nothing of the engine: the Kubernetes operator imports it.
What reads (`resolve`, `verify`, `list_…`, `newest_complete`) is in `snapshots` and can be imported from here as well.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.files.codec import encode_manifest, objects_of
from penstock.checkpoint.files.layout import metadata_url, new_savepoint_folder
from penstock.checkpoint.savepoint.snapshots import (
    NewestComplete,
    Snapshot,
    SnapshotInfo,
    VerifyReport,
    list_checkpoints,
    list_savepoints,
    newest_complete,
    resolve,
    verify,
)
from penstock.checkpoint.store.object_store import ObjectMissing, join_url, normalize_url
from penstock.checkpoint.store.retrying_store import RetryingStore, Stores
from penstock.common.errors import InvalidJob, SnapshotTorn, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.checkpoint.files.manifest import Manifest

__all__ = [
    "DisposeReport",
    "NewestComplete",
    "SavepointCancelled",
    "Snapshot",
    "SnapshotInfo",
    "VerifyReport",
    "check_target",
    "dispose",
    "list_checkpoints",
    "list_savepoints",
    "newest_complete",
    "resolve",
    "verify",
    "write_savepoint",
]

COPIES_AT_ONCE = 8
"""Server-side copies in flight for one savepoint."""


class SavepointCancelled(Exception):
    """The job does not want it any more; what was copied is an incomplete folder."""


@dataclass(frozen=True)
class DisposeReport:
    """`left`: objects in the folder that the manifest does not name; they were not touched."""

    url: str
    deleted_files: int
    left: list[str]


def check_target(target_directory: str | None, default_directory: str | None) -> str:
    """The folder in which a savepoint is made, as a URL.

    Raises:
        InvalidJob: none is known.
    """
    target = target_directory or default_directory
    if not target:
        raise InvalidJob(
            "a savepoint was asked for, but no directory was given and the job has no default one",
            remedy="give a target directory (penstock savepoint <job> <directory>) or set `state.savepoints.dir`",
        )
    return normalize_url(target)


def write_savepoint(
    manifest: Manifest,
    source_url: str,
    target_directory: str,
    stores: Stores,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_folder: Callable[[str], None] = lambda folder: None,
) -> str:
    """Copy every file of a complete checkpoint into a new savepoint folder, then write its manifest. Returns its URL.

    `source_url`: what the paths in the manifest are relative to. Copies are made by the server where both places are on
    the same kind of store. Blocks; call it from a background thread. `on_folder` is told the URL before anything is there.

    Raises:
        SnapshotTorn: a file of the checkpoint is gone.
        StorageError: source or target cannot be used; the incomplete folder is removed as far as possible.
        SavepointCancelled: `is_cancelled` said so.
    """
    folder = join_url(normalize_url(target_directory), new_savepoint_folder(manifest.job_id))
    on_folder(folder)
    source, target = stores.for_url(source_url), stores.for_url(folder)
    copied: list[str] = []

    def copy(path: str) -> None:
        if is_cancelled():
            raise SavepointCancelled(folder)
        try:
            source.copy(join_url(source_url, path), join_url(folder, path), target)
        except ObjectMissing as missing:
            raise SnapshotTorn(
                f"the state file {join_url(source_url, path)} is gone, the savepoint cannot be made",
                remedy="was the bucket cleaned up by a lifecycle rule or by hand?",
            ) from missing
        copied.append(path)

    try:
        with ThreadPoolExecutor(COPIES_AT_ONCE, thread_name_prefix="savepoint-copy") as pool:
            for _ in pool.map(copy, objects_of(manifest)):
                pass
        if is_cancelled():
            raise SavepointCancelled(folder)
    except BaseException:
        _remove(target, folder, copied)
        raise
    content = encode_manifest(msgspec.structs.replace(manifest, kind="savepoint"))
    # if this fails, nobody knows whether it landed: the files stay, so that it is whole if it did
    if not target.put_if_absent(metadata_url(folder), content):
        raise StorageError(
            f"{metadata_url(folder)} exists already, written by somebody else", remedy="trigger the savepoint again"
        )
    return folder


def _remove(target: RetryingStore, folder: str, paths: list[str]) -> None:
    """What cannot be removed has no manifest and is nobody's savepoint."""
    target.delete_many(join_url(folder, path) for path in paths)


def dispose(path: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None) -> DisposeReport:
    """Delete a savepoint: its files, then its manifest, so that an interrupted disposal can be repeated.

    Raises:
        SnapshotNotFound: nothing there that could be disposed of.
        StorageError: it is a checkpoint, which belongs to its job; or the store refuses.
    """
    stores = stores or Stores(options)
    snapshot = resolve(path, stores=stores, check_files=False)
    if not snapshot.is_savepoint:
        raise StorageError(
            f"{snapshot.url} is a checkpoint of job {snapshot.manifest.job_id}, not a savepoint",
            remedy="checkpoints are removed by their job (retained number, retention on cancel)",
        )
    store = stores.for_url(snapshot.url)
    paths = objects_of(snapshot.manifest)
    for error in store.delete_many(join_url(snapshot.url, path) for path in paths).values():
        raise error
    store.delete(metadata_url(snapshot.url))
    left = [info.url for info in store.list_objects(snapshot.url)]
    return DisposeReport(snapshot.url, len(paths), left)
