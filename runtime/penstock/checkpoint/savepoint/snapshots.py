"""Functions that find, check and list checkpoints and savepoints by path, without the engine.

The Kubernetes operator, the CLI and the REST API read storage through these functions, which need fsspec and msgspec
but not the engine. A *path* is a savepoint's folder, a job's `chk-<n>` folder, or the `_metadata` in one of these
folders. A trailing slash and `file://` are optional.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.checksum import checksum_of
from penstock.checkpoint.files.codec import NamedFile, files_of, handle_files
from penstock.checkpoint.files.layout import (
    METADATA,
    SHARED,
    checkpoint_folder,
    is_savepoint_folder,
    metadata_url,
    parse_checkpoint_folder,
)
from penstock.checkpoint.files.storage import CheckpointStorage, read_manifest
from penstock.checkpoint.leadership.fencing import read_bases
from penstock.checkpoint.leadership.lineage import History, ManifestId, history
from penstock.checkpoint.store.object_store import (
    ObjectInfo,
    ObjectMissing,
    base_name,
    join_url,
    normalize_url,
    parent_url,
    relative_url,
)
from penstock.checkpoint.store.retrying_store import Stores
from penstock.common.errors import (
    CorruptStateFile,
    RestoreRefused,
    SnapshotNotFound,
    SnapshotTorn,
    StateFormatUnsupported,
    StorageError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.checkpoint.files.manifest import Manifest

_SHOWN = 10


@dataclass(frozen=True)
class Snapshot:
    """A readable checkpoint or savepoint. `url`: its folder; `base_url`: the folder to which its paths are relative."""

    url: str
    base_url: str
    manifest: Manifest

    @property
    def is_savepoint(self) -> bool:
        return self.manifest.kind == "savepoint"

    @property
    def id(self) -> ManifestId:
        return ManifestId(self.manifest.leader_epoch, self.manifest.checkpoint_id)


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify`. `damaged`: files whose content differs from what was written. It is filled only if
    `checksums` is set.
    """

    snapshot: Snapshot
    files: int
    bytes: int
    missing: list[str] = field(default_factory=list)
    wrong_size: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unsafe: list[str] = field(default_factory=list)
    """Packs (files that contain other files) that Penstock cannot have written, each with the reason."""
    checksums_verified: bool = False

    @property
    def is_complete(self) -> bool:
        return not (self.missing or self.wrong_size or self.damaged or self.unsafe)

    def problems(self) -> list[str]:
        """Return the problems as one line each."""
        return [
            *(f"missing: {path}" for path in self.missing),
            *(f"size differs from the manifest: {path}" for path in self.wrong_size),
            *(f"content differs from the manifest: {path}" for path in self.damaged),
            *self.unsafe,
        ]


@dataclass(frozen=True)
class SnapshotInfo:
    """An entry of a listing. `problem` is the reason why the snapshot cannot be used. If it is set, other fields may be
    unknown.
    """

    url: str
    kind: str
    checkpoint_id: int | None = None
    job_id: str = ""
    job_name: str = ""
    leader_epoch: int = 0
    trigger_timestamp: int = 0
    complete_timestamp: int = 0
    parallelism: int = 0
    state_bytes: int = 0
    is_final: bool = False
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class NewestComplete:
    """The newest whole checkpoint, and newer ones that cannot be used, with the reason for each."""

    snapshot: Snapshot | None
    skipped: list[SnapshotInfo]


def resolve(
    path: str,
    options: Mapping[str, Any] | None = None,
    *,
    stores: Stores | None = None,
    job_id: str | None = None,
    check_files: bool = True,
) -> Snapshot:
    """Return the snapshot at a path after checking that it is readable and, with `check_files`, that all its files exist.

    Raises:
        SnapshotNotFound: the path has no snapshot. The error describes what the path has instead.
        SnapshotTorn: the manifest cannot be read, or files are missing. The error lists them.
        StateFormatUnsupported: a newer version wrote the snapshot.
        RestoreRefused: the snapshot belongs to another job than `job_id`.
        StorageError: the store cannot be used.
    """
    stores = stores or Stores(options)
    folder = normalize_url(path)
    if base_name(folder) == METADATA:
        folder = parent_url(folder)
    store = stores.for_url(folder)
    try:
        manifest = read_manifest(store, metadata_url(folder))
    except ObjectMissing as missing:
        raise _not_found(path, folder, stores) from missing
    snapshot = Snapshot(folder, _base_url(folder, manifest), manifest)
    if job_id is not None and manifest.job_id != job_id:
        raise RestoreRefused(
            f"{folder} belongs to job {manifest.job_id} ({manifest.job_name!r}), not to {job_id}",
            remedy="use a checkpoint or savepoint of this job, or pass this path explicitly to start from it",
        )
    if check_files:
        report = _check(snapshot, stores)
        if not report.is_complete:
            raise _torn(report)
    return snapshot


def verify(
    path: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None, checksums: bool = False
) -> VerifyReport:
    """Check that every file exists with its size. If `checksums` is set, also check the content, which reads everything.

    The packs of RocksDB snapshots (files that contain other files) are always read, to check the names in them.

    Raises:
        SnapshotNotFound, SnapshotTorn (no readable manifest), StateFormatUnsupported, StorageError.
    """
    stores = stores or Stores(options)
    snapshot = resolve(path, stores=stores, check_files=False)
    report = _check(snapshot, stores)
    if report.is_complete:
        report = replace(report, unsafe=_unsafe(snapshot, stores))
    if not checksums:
        return report
    absent = {*report.missing, *report.wrong_size}
    damaged = [
        str(file)
        for file in files_of(snapshot.manifest)
        if file.path not in absent and file.checksum and _content_checksum(snapshot, file, stores) != file.checksum
    ]
    return replace(report, damaged=damaged, checksums_verified=True)


def list_checkpoints(
    root_url: str, job_id: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None
) -> list[SnapshotInfo]:
    """Return all checkpoints of a job, newest first. A checkpoint that does not count or cannot be used has a `problem`."""
    return _JobListing(CheckpointStorage(root_url, job_id, options, stores=stores)).infos()


def list_savepoints(
    directory_url: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None
) -> list[SnapshotInfo]:
    """Return all savepoints directly in a folder, newest first. A savepoint without a manifest has a `problem`."""
    directory = normalize_url(directory_url)
    stores = stores or Stores(options)
    names = [name for name in stores.for_url(directory).list_folders(directory) if is_savepoint_folder(name)]
    infos = [_savepoint_info(join_url(directory, name), stores) for name in names]
    return sorted(infos, key=lambda info: (-info.trigger_timestamp, info.url))


def newest_complete(
    root_url: str, job_id: str, options: Mapping[str, Any] | None = None, *, stores: Stores | None = None
) -> NewestComplete:
    """Return the newest whole checkpoint of the job's history, and the newer ones that were skipped."""
    listing = _JobListing(CheckpointStorage(root_url, job_id, options, stores=stores))
    skipped: list[SnapshotInfo] = list(listing.unreadable)
    for id in listing.history.manifests:
        info = listing.info(id)
        if info.is_usable:
            newer = [entry for entry in skipped if (entry.checkpoint_id or 0) > id.checkpoint_id]
            return NewestComplete(listing.snapshot(id), newer)
        skipped.append(info)
    return NewestComplete(None, skipped)


class _JobListing:
    """One listing of a job's folder: manifests, bases and the shared files, each read or listed once."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self.storage = storage
        self.manifests: dict[ManifestId, Manifest] = {}
        self.unreadable: list[SnapshotInfo] = []
        for checkpoint_id in storage.checkpoint_ids():
            url = storage.url_of(checkpoint_folder(checkpoint_id))
            try:
                manifest = storage.read_manifest(checkpoint_id)
            except SnapshotNotFound:
                continue  # a folder without a manifest is not a checkpoint
            except (SnapshotTorn, CorruptStateFile, StateFormatUnsupported) as error:
                # An error of the file itself. An unavailable store says nothing about the checkpoint, so that error is
                # raised.
                self.unreadable.append(SnapshotInfo(url, "checkpoint", checkpoint_id, problem=error.message))
                continue
            self.manifests[ManifestId(manifest.leader_epoch, checkpoint_id)] = manifest
        self.history: History = history(self.manifests, read_bases(storage))
        self._shared: dict[str, ObjectInfo] | None = None

    def snapshot(self, id: ManifestId) -> Snapshot:
        return Snapshot(self.storage.url_of(checkpoint_folder(id.checkpoint_id)), self.storage.url, self.manifests[id])

    def info(self, id: ManifestId) -> SnapshotInfo:
        if id in self.history.void:
            return _info(self.snapshot(id), "void: its leader was superseded before it was stored")
        if self._shared is None:
            self._shared = _by_path(self.storage.list_objects(SHARED), self.storage.url)
        report = _compare(self.snapshot(id), self._shared)
        return _info(self.snapshot(id), "" if report.is_complete else _torn(report).message)

    def infos(self) -> list[SnapshotInfo]:
        infos = [*map(self.info, self.manifests), *self.unreadable]
        return sorted(infos, key=lambda info: (-(info.checkpoint_id or 0), info.url))


def _check(snapshot: Snapshot, stores: Stores) -> VerifyReport:
    files = files_of(snapshot.manifest)
    if not files:
        return VerifyReport(snapshot, 0, 0)
    listed = stores.for_url(snapshot.base_url).list_objects(join_url(snapshot.base_url, SHARED))
    return _compare(snapshot, _by_path(listed, snapshot.base_url))


def _by_path(listed: list[ObjectInfo], base_url: str) -> dict[str, ObjectInfo]:
    return {relative_url(info.url, base_url): info for info in listed}


def _compare(snapshot: Snapshot, present: Mapping[str, ObjectInfo]) -> VerifyReport:
    files = files_of(snapshot.manifest)
    missing = [file.path for file in files if file.path not in present]
    wrong = [file.path for file in files if file.path in present and not _fits(file, present[file.path].size)]
    size = sum(file.size for file in files)
    return VerifyReport(snapshot, len(files), size, list(dict.fromkeys(missing)), list(dict.fromkeys(wrong)))


def _fits(file: NamedFile, size: int) -> bool:
    """Return whether the file fits in an object of this size. An object with several files may have other files after it."""
    return size == file.size if file.offset is None else size >= file.offset + file.size


def _content_checksum(snapshot: Snapshot, file: NamedFile, stores: Stores) -> str:
    try:
        return checksum_of(_content(snapshot, file, stores))
    except ObjectMissing:
        return "missing"


def _content(snapshot: Snapshot, file: NamedFile, stores: Stores) -> bytes:
    url = join_url(snapshot.base_url, file.path)
    store = stores.for_url(url)
    return store.get(url) if file.offset is None else store.get_range(url, file.offset, file.size)


def _unsafe(snapshot: Snapshot, stores: Stores) -> list[str]:
    """Look for names in the snapshot's packs that a restore refuses."""
    # Imported here, because the operator imports this module and needs `state` for nothing else.
    from penstock.state.rocksdb.files.pack import BACKEND as ROCKSDB
    from penstock.state.rocksdb.files.pack import PACK, checked_table_name, decode_pack

    found = []
    for state in snapshot.manifest.states.values():
        for handle in state.keyed:
            if handle.get("backend") != ROCKSDB:
                continue
            named = zip((entry.get("name") for entry in handle.get("files", ())), handle_files(handle), strict=True)
            try:
                for name, file in named:
                    if name == PACK:
                        decode_pack(_content(snapshot, file, stores), f"state file {file}")
                    else:
                        checked_table_name(name, f"a handle of {snapshot.url}")
            except (SnapshotTorn, CorruptStateFile) as error:
                found.append(error.message)
            except ObjectMissing:
                continue  # it has just been deleted
    return found


def _base_url(folder: str, manifest: Manifest) -> str:
    return folder if manifest.kind == "savepoint" else parent_url(folder)


def _info(snapshot: Snapshot, problem: str = "") -> SnapshotInfo:
    manifest = snapshot.manifest
    return SnapshotInfo(
        url=snapshot.url,
        kind=manifest.kind,
        checkpoint_id=manifest.checkpoint_id,
        job_id=manifest.job_id,
        job_name=manifest.job_name,
        leader_epoch=manifest.leader_epoch,
        trigger_timestamp=manifest.trigger_timestamp,
        complete_timestamp=manifest.complete_timestamp,
        parallelism=manifest.parallelism,
        state_bytes=manifest.state_bytes,
        is_final=manifest.is_final,
        problem=problem,
    )


def _savepoint_info(url: str, stores: Stores) -> SnapshotInfo:
    try:
        report = _check(resolve(url, stores=stores, check_files=False), stores)
    except SnapshotNotFound:
        return SnapshotInfo(url, "savepoint", problem="incomplete: no _metadata (still being written, or abandoned)")
    except StorageError as error:
        return SnapshotInfo(url, "savepoint", problem=error.message)
    return _info(report.snapshot, "" if report.is_complete else _torn(report).message)


def _torn(report: VerifyReport) -> SnapshotTorn:
    problems = report.problems()
    shown = "; ".join(problems[:_SHOWN]) + (f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else "")
    return SnapshotTorn(
        f"{report.snapshot.url} is not complete. {len(problems)} of its {report.files} files cannot be used: {shown}",
        remedy="restore another checkpoint or savepoint by its path. Check whether a lifecycle rule of the bucket deleted files",
    )


def _not_found(path: str, folder: str, stores: Stores) -> SnapshotNotFound:
    """Return an error that describes what the path has instead of a snapshot."""
    store = stores.for_url(folder)
    folders = store.list_folders(folder)
    checkpoints = [name for name in folders if parse_checkpoint_folder(name) is not None]
    savepoints = [name for name in folders if is_savepoint_folder(name)]
    remedy = "use the folder of a savepoint (savepoint-…) or of a checkpoint (…/<job id>/chk-<n>)"
    if checkpoints or savepoints:
        names = sorted(checkpoints, key=lambda name: parse_checkpoint_folder(name) or 0) + savepoints
        found = f"it holds {_some(names)}"
        remedy = f"choose one of them, such as {join_url(folder, names[-1])}"
    elif objects := store.list_objects(folder):
        found = f"it holds {_some([relative_url(info.url, folder) for info in objects])}, but no {METADATA}"
        if is_savepoint_folder(base_name(folder)):
            remedy = "the savepoint is not complete. Use another one"
    else:
        found = "the path does not exist"
        siblings = [
            name
            for name in store.list_folders(parent_url(folder))
            if is_savepoint_folder(name) or parse_checkpoint_folder(name) is not None
        ]
        if siblings:
            found += f"; beside it: {_some(siblings)}"
    return SnapshotNotFound(f"{path} is not a checkpoint or savepoint: {found}", remedy=remedy)


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
