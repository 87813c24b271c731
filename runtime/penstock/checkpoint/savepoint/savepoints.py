"""Savepoints: a complete checkpoint is copied to a new folder. Only the owner of a savepoint disposes of it.

All paths in a savepoint are relative to its folder, so that it can be copied or moved as a whole, even to another
bucket. This module and its imports need fsspec and msgspec but not the engine, because the Kubernetes operator imports
this module. The functions for reading (`resolve`, `verify`, `list_…`, `newest_complete`) are in `snapshots` and can be
imported from here, too.
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

MAX_CONCURRENT_COPIES = 8
"""Concurrent server-side copies of one savepoint."""


class SavepointCancelled(Exception):
    """An error of a copy that the job has cancelled. The folder of the savepoint is incomplete."""


@dataclass(frozen=True)
class DisposeReport:
    """The result of a disposal. `unknown_objects`: objects in the folder that the manifest does not name. They are kept."""

    url: str
    deleted_files: int
    unknown_objects: list[str]


def check_target(target_directory: str | None, default_directory: str | None) -> str:
    """Return the URL of the folder in which a savepoint is created.

    Raises:
        InvalidJob: no folder is given or configured.
    """
    target = target_directory or default_directory
    if not target:
        raise InvalidJob(
            "the savepoint has no target directory: the request names none, and the job has no default",
            remedy="name a directory (`penstock stop -p DIR JOB`, `penstock savepoint JOB DIR`, `penstock cancel -s DIR JOB`), "
            "or set `execution.checkpointing.savepoint-dir`",
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
    """Copy every file of a complete checkpoint to a new savepoint folder, then write its manifest. Return the folder's URL.

    `source_url`: the folder to which the paths in the manifest are relative. The server copies if both places are in
    the same kind of store. Blocks, so call it from a background thread. `on_folder` gets the URL before any object is
    written.

    Raises:
        SnapshotTorn: a file of the checkpoint is gone.
        StorageError: source or target cannot be used. The files of the incomplete folder are removed if the store allows it.
        SavepointCancelled: `is_cancelled` returned True.
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
                f"the savepoint cannot be written: the state file {join_url(source_url, path)} does not exist",
                remedy="check whether a lifecycle rule or a person deleted files of the bucket",
            ) from missing
        copied.append(path)

    try:
        with ThreadPoolExecutor(MAX_CONCURRENT_COPIES, thread_name_prefix="savepoint-copy") as pool:
            for _ in pool.map(copy, objects_of(manifest)):
                pass
        if is_cancelled():
            raise SavepointCancelled(folder)
    except BaseException:
        _remove(target, folder, copied)
        raise
    content = encode_manifest(msgspec.structs.replace(manifest, kind="savepoint"))
    # Even if this put fails, the manifest may be stored. So the files are kept, and the savepoint is then complete.
    if not target.put_if_absent(metadata_url(folder), content):
        raise StorageError(
            f"{metadata_url(folder)} already exists, and another process wrote it", remedy="trigger the savepoint again"
        )
    return folder


def _remove(target: RetryingStore, folder: str, paths: list[str]) -> None:
    """Remove files of an incomplete savepoint. Any file that cannot be removed is harmless, because the folder has no manifest."""
    target.delete_many(join_url(folder, path) for path in paths)


def dispose(path: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None) -> DisposeReport:
    """Delete a savepoint: its files, then its manifest, so that an interrupted disposal can be repeated.

    Raises:
        SnapshotNotFound: the path has nothing to dispose of.
        StorageError: the path is a checkpoint, which belongs to its job; or the store refuses.
    """
    stores = stores or Stores(options)
    snapshot = resolve(path, stores=stores, check_files=False)
    if not snapshot.is_savepoint:
        raise StorageError(
            f"{snapshot.url} is a checkpoint of job {snapshot.manifest.job_id}, not a savepoint",
            remedy="the job deletes its own checkpoints. The number and the retention after a cancellation are configured",
        )
    store = stores.for_url(snapshot.url)
    paths = objects_of(snapshot.manifest)
    for error in store.delete_many(join_url(snapshot.url, path) for path in paths).values():
        raise error
    store.delete(metadata_url(snapshot.url))
    left = [info.url for info in store.list_objects(snapshot.url)]
    return DisposeReport(snapshot.url, len(paths), left)
