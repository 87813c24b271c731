"""The takeover of a job: claim the leadership, find the starting point, and record it before acting.

    snapshot = preview_recovery(storage, restore_path=path)                    # once, for a first plan that may refuse: changes nothing
    recovery = take_over(storage, name="jm-0", restore_path=path)     # claims; lists; changes nothing else
    plan = plan_restore(recovery.snapshot.manifest, operators, …)     # the final plan
    recovery.begin()                                                  # the base is durable, no higher claim exists
    committer.commit(recovery.commits …)                              # from here on act

Every restore uses these steps: the first start, a new JobManager, a failover in the same JobManager, a rescale. Each
restore takes a new epoch (docs/checkpoint-protocol.md, 3.2), so `leadership.epoch` is also the number of the attempt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files.layout import checkpoint_folder
from penstock.checkpoint.leadership.fencing import Candidate, read_bases
from penstock.checkpoint.leadership.lineage import Base, History, ManifestId, history, needed_bases, next_checkpoint_id
from penstock.checkpoint.savepoint.snapshots import Snapshot, resolve
from penstock.checkpoint.store.object_store import base_name, parent_url
from penstock.common.errors import SnapshotNotFound, SnapshotTorn, StorageError

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.storage import CheckpointStorage
    from penstock.checkpoint.leadership.fencing import Leadership

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovery:
    """The result of a takeover. `retained`: this job's checkpoints that still count, oldest first. The registry starts
    with these checkpoints.
    """

    storage: CheckpointStorage
    leadership: Leadership
    snapshot: Snapshot | None
    retained: list[Manifest]
    base: Base
    void_ids: list[int] = field(default_factory=list)
    """Numbers of manifests that no longer count. They are removed with the orphans."""
    obsolete_epochs: list[int] = field(default_factory=list)
    """Epochs of bases that are not needed after this attempt's base is written."""

    @property
    def epoch(self) -> int:
        return self.leadership.epoch

    @property
    def commits(self) -> dict[str, list[Any]]:
        """Committables of the snapshot, by uid. Commit them (again) after `begin`, before any other write."""
        return dict(self.snapshot.manifest.commits) if self.snapshot else {}

    @property
    def is_foreign(self) -> bool:
        """Whether the snapshot's files are outside of this job's folder. Later checkpoints may then not refer to these
        files.
        """
        return self.snapshot is not None and self.snapshot.base_url != self.storage.url

    @property
    def is_drained(self) -> bool:
        """Whether the job's newest checkpoint is that of a `stop --drain`. The stop is then complete except for its commits."""
        snapshot = self.snapshot
        return snapshot is not None and not self.is_foreign and snapshot.manifest.is_drained

    def begin(self) -> None:
        """Write the base. The new attempt may change something outside of its memory only after this method has
        returned.

        Raises:
            Fenced: another JobManager took over.
            StorageError: the store does not respond.
        """
        self.leadership.begin(self.base)


def take_over(
    storage: CheckpointStorage,
    *,
    name: str = "",
    restore_path: str | None = None,
    restore_token: str = "",
    candidate: Candidate | None = None,
    above: int | None = None,
) -> Recovery:
    """Claim the next epoch and choose the snapshot to start from.

    `candidate`: this JobManager, for all its attempts (failover, rescale). Its first claim fences the current leader.
    Its later claims are refused if another JobManager took over. Without `candidate`, a new candidate with the given
    `name` is used. `above`: see `Candidate.claim`.

    Without `restore_path` the newest checkpoint of the job's history is chosen. If the last leader stored no
    checkpoint, the starting point of that leader is chosen. It may be empty state. A `restore_path` counts once: a
    JobManager that restarts with the same arguments starts from its newest checkpoint. To start from the same path
    again, pass another `restore_token`.

    Raises:
        Fenced: another JobManager took over.
        SnapshotNotFound, SnapshotTorn, StateFormatUnsupported: the chosen snapshot cannot be read. A torn newest
            checkpoint is never skipped: its output was committed, so an older start would repeat records.
        StorageError: the store cannot be used.
    """
    token = restore_token or (restore_path or "")
    if restore_path and token != _newest_token(read_bases(storage)):
        resolve(restore_path, stores=storage.stores)  # refuse a wrong path before a leader is fenced
    leadership = (candidate or Candidate(storage, name)).claim(above)
    try:
        return _choose_snapshot(storage, leadership, restore_path, token)
    except StorageError:
        leadership.check()  # a successor may be deleting these files: then raise Fenced
        raise


def preview_recovery(
    storage: CheckpointStorage, *, restore_path: str | None = None, restore_token: str = ""
) -> Snapshot | None:
    """Return the snapshot that `take_over` with the same arguments would choose now. No claim is made, so no leader is fenced.

    Return None if the job would start with empty state. Also return None if the choice needs a claim, because the
    leader may be deleting the files.

    Raises:
        SnapshotNotFound, SnapshotTorn, StateFormatUnsupported: the snapshot at `restore_path` cannot be read.
        StorageError: the store cannot be used.
    """
    bases = read_bases(storage)
    if restore_path and (restore_token or restore_path) != _newest_token(bases):
        return resolve(restore_path, stores=storage.stores)
    manifests, unreadable = _read_manifests(storage)
    try:
        return _newest(storage, history(manifests, bases), unreadable)
    except StorageError as error:
        logger.info(
            "cannot read the checkpoint of %s yet; the job reads it again when this JobManager leads: %s",
            storage.url,
            error.message,
        )
        return None


def _choose_snapshot(
    storage: CheckpointStorage, leadership: Leadership, restore_path: str | None, token: str
) -> Recovery:
    bases = read_bases(storage)
    manifests, unreadable = _read_manifests(storage)
    found = history(manifests, bases)
    if restore_path and token != _newest_token(bases):
        snapshot: Snapshot | None = resolve(restore_path, stores=storage.stores)
    else:
        token = _newest_token(bases)
        snapshot = _newest(storage, found, unreadable)
    # Numbers also continue above the number of a restored savepoint. A sink may remember the last number that it wrote,
    # and must not see that number again.
    restored_id = [snapshot.manifest.checkpoint_id] if snapshot is not None else []
    first_id = next_checkpoint_id([*(id.checkpoint_id for id in manifests), *unreadable, *restored_id], bases)
    base = _base_of(storage, snapshot, leadership.epoch, first_id, token)
    bases_after = {**bases, leadership.epoch: base}
    after = history(manifests, bases_after)
    return Recovery(
        storage,
        leadership,
        snapshot,
        [manifests[id] for id in sorted(after.manifests)],
        base,
        [id.checkpoint_id for id in after.void],
        sorted(set(bases) - needed_bases(after.manifests, bases_after)),
    )


def _newest_token(bases: dict[int, Base]) -> str:
    return bases[max(bases)].token if bases else ""


def _read_manifests(storage: CheckpointStorage) -> tuple[dict[ManifestId, Manifest], dict[int, StorageError]]:
    manifests: dict[ManifestId, Manifest] = {}
    unreadable: dict[int, StorageError] = {}
    for checkpoint_id in storage.checkpoint_ids():
        try:
            manifest = storage.read_manifest(checkpoint_id)
        except SnapshotNotFound:
            continue
        except StorageError as error:
            unreadable[checkpoint_id] = error
            continue
        manifests[ManifestId(manifest.leader_epoch, checkpoint_id)] = manifest
    return manifests, unreadable


def _newest(storage: CheckpointStorage, found: History, unreadable: dict[int, StorageError]) -> Snapshot | None:
    """Return the snapshot from which the last leader would start. Raise rather than choose an older one."""
    newest, base = found.newest, found.base
    own_first = base.first_checkpoint_id if base is not None else 1
    for checkpoint_id in sorted(unreadable, reverse=True):
        if checkpoint_id >= own_first and (newest is None or checkpoint_id > newest.checkpoint_id):
            raise _name_alternatives(storage, unreadable[checkpoint_id], found)
    if base is not None and (newest is None or newest.leader_epoch != base.epoch):
        if base.checkpoint is not None and newest != base.checkpoint:
            gone = unreadable.get(base.checkpoint.checkpoint_id) or SnapshotTorn(
                f"job {storage.job_id} must continue from checkpoint {base.checkpoint.checkpoint_id}, which no longer exists in "
                f"{storage.url}"
            )
            raise _name_alternatives(storage, gone, found)
        if base.path:
            return resolve(base.path, stores=storage.stores)
    if newest is None:
        return None
    try:
        return resolve(storage.url_of(checkpoint_folder(newest.checkpoint_id)), stores=storage.stores)
    except SnapshotTorn as torn:
        raise _name_alternatives(storage, torn, found, newest) from torn


def _name_alternatives(
    storage: CheckpointStorage, error: StorageError, found: History, newest: ManifestId | None = None
) -> StorageError:
    others = [storage.url_of(checkpoint_folder(id.checkpoint_id)) for id in found.manifests if id != newest]
    return type(error)(
        error.message,
        remedy="start the job from the path of an earlier checkpoint or a savepoint. The job then repeats the output committed "
        f"since that snapshot. Earlier checkpoints: {', '.join(others) or 'none'}",
    )


def _base_of(storage: CheckpointStorage, snapshot: Snapshot | None, epoch: int, first_id: int, token: str) -> Base:
    if snapshot is None:
        return Base(epoch, first_id, token=token)
    is_in_this_job = parent_url(snapshot.url) == storage.url and not snapshot.is_savepoint
    if is_in_this_job and base_name(snapshot.url) == checkpoint_folder(snapshot.manifest.checkpoint_id):
        return Base(epoch, first_id, checkpoint=snapshot.id, token=token)
    return Base(epoch, first_id, path=snapshot.url, token=token)
