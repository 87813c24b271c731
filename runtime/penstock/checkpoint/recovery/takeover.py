"""Take over a job: claim the leadership, find what to go on from, and say so before acting.

    snapshot = foresee(storage, restore_path=path)                    # once, for a first plan that may refuse: nothing was touched
    recovery = take_over(storage, name="jm-0", restore_path=path)     # claims; lists; changes nothing else
    plan = plan_restore(recovery.snapshot.manifest, operators, …)     # for good
    recovery.begin()                                                  # the base is durable, nobody is above us
    committer.commit(recovery.commits …)                              # from here on act

The same at every restore: the first start, a new JobManager, a failover within one, a rescale. Each takes a new epoch
(docs/checkpoint-protocol.md, 3.2), so `leadership.epoch` is also the number of the attempt.
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
    """What was found. `retained`: this job's checkpoints that still count, oldest first; the registry starts from them."""

    storage: CheckpointStorage
    leadership: Leadership
    snapshot: Snapshot | None
    retained: list[Manifest]
    base: Base
    void_ids: list[int] = field(default_factory=list)
    """Numbers of manifests that no longer count; removed with the orphans."""
    obsolete_epochs: list[int] = field(default_factory=list)
    """Bases nobody needs once this one's is written."""

    @property
    def epoch(self) -> int:
        return self.leadership.epoch

    @property
    def commits(self) -> dict[str, list[Any]]:
        """Committables of the snapshot, by uid: commit them (again) after `begin`, before anything else is written."""
        return dict(self.snapshot.manifest.commits) if self.snapshot else {}

    @property
    def is_foreign(self) -> bool:
        """The snapshot's files do not belong to this job's folder: no later checkpoint may refer to them."""
        return self.snapshot is not None and self.snapshot.base_url != self.storage.url

    @property
    def is_drained(self) -> bool:
        """The job's own newest checkpoint is that of a `stop --drain`: the stop is complete but for its commits."""
        snapshot = self.snapshot
        return snapshot is not None and not self.is_foreign and snapshot.manifest.is_drained

    def begin(self) -> None:
        """Write the base; only after this the new attempt may change anything outside of its own memory.

        Raises:
            Fenced: somebody else took over.
            StorageError: the store does not answer.
        """
        self.leadership.begin(self.base)


def take_over(
    storage: CheckpointStorage,
    *,
    name: str = "",
    restore_path: str | None = None,
    restore_token: str = "",
    candidate: Candidate | None = None,
) -> Recovery:
    """Claim the next epoch and choose the snapshot to go on from.

    `candidate`: this JobManager, for all of its attempts (failover, rescale). Its first claim fences whoever leads; later
    ones are refused if somebody else took over meanwhile. Without it: a new one of that `name`.

    Without `restore_path` that is the newest checkpoint of the job's history, or what the last leader started from if it
    stored none, or nothing. A `restore_path` counts once: a JobManager that is started again with the same arguments
    goes on from its own newest checkpoint. To start from the same path a second time give another `restore_token`.

    Raises:
        Fenced: somebody else took over.
        SnapshotNotFound, SnapshotTorn, StateFormatUnsupported: what is to be restored cannot be read. A torn newest
            checkpoint is never passed over: its output was committed, going further back would repeat records.
        StorageError: the store cannot be used.
    """
    token = restore_token or (restore_path or "")
    if restore_path and token != _newest_token(read_bases(storage)):
        resolve(restore_path, stores=storage.stores)  # refuse a wrong path before anybody is fenced
    leadership = (candidate or Candidate(storage, name)).claim()
    try:
        return _look(storage, leadership, restore_path, token)
    except StorageError:
        leadership.check()  # a successor may be deleting what this one reads: then being fenced is the reason
        raise


def foresee(storage: CheckpointStorage, *, restore_path: str | None = None, restore_token: str = "") -> Snapshot | None:
    """What `take_over` with the same arguments would choose now, without a claim: nobody is fenced for a start that fails.

    None: nothing, or it cannot be told without a claim, because whoever leads may be deleting what is read here.

    Raises:
        SnapshotNotFound, SnapshotTorn, StateFormatUnsupported: what `restore_path` names cannot be read.
        StorageError: the store cannot be used.
    """
    bases = read_bases(storage)
    if restore_path and (restore_token or restore_path) != _newest_token(bases):
        return resolve(restore_path, stores=storage.stores)
    manifests, unreadable = _read_manifests(storage)
    try:
        return _newest(storage, history(manifests, bases), unreadable)
    except StorageError as error:
        logger.info("what %s goes on from is seen when it is led: %s", storage.url, error.message)
        return None


def _look(storage: CheckpointStorage, leadership: Leadership, restore_path: str | None, token: str) -> Recovery:
    bases = read_bases(storage)
    manifests, unreadable = _read_manifests(storage)
    found = history(manifests, bases)
    if restore_path and token != _newest_token(bases):
        snapshot: Snapshot | None = resolve(restore_path, stores=storage.stores)
    else:
        token = _newest_token(bases)
        snapshot = _newest(storage, found, unreadable)
    # Also past a restored savepoint's: sinks that remember the last number they wrote must not meet it again.
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
    """What the last leader would go on from; raises rather than go further back."""
    newest, base = found.newest, found.base
    own_first = base.first_checkpoint_id if base is not None else 1
    for checkpoint_id in sorted(unreadable, reverse=True):
        if checkpoint_id >= own_first and (newest is None or checkpoint_id > newest.checkpoint_id):
            raise _offer_others(storage, unreadable[checkpoint_id], found)
    if base is not None and (newest is None or newest.leader_epoch != base.epoch):
        if base.checkpoint is not None and newest != base.checkpoint:
            gone = unreadable.get(base.checkpoint.checkpoint_id) or SnapshotTorn(
                f"job {storage.job_id} was to go on from checkpoint {base.checkpoint.checkpoint_id}, which is gone from "
                f"{storage.url}"
            )
            raise _offer_others(storage, gone, found)
        if base.path:
            return resolve(base.path, stores=storage.stores)
    if newest is None:
        return None
    try:
        return resolve(storage.url_of(checkpoint_folder(newest.checkpoint_id)), stores=storage.stores)
    except SnapshotTorn as torn:
        raise _offer_others(storage, torn, found, newest) from torn


def _offer_others(
    storage: CheckpointStorage, error: StorageError, found: History, newest: ManifestId | None = None
) -> StorageError:
    others = [storage.url_of(checkpoint_folder(id.checkpoint_id)) for id in found.manifests if id != newest]
    return type(error)(
        error.message,
        remedy="start the job from an earlier checkpoint or a savepoint by naming its path; output committed since then "
        f"will be written again. Earlier checkpoints: {', '.join(others) or 'none'}",
    )


def _base_of(storage: CheckpointStorage, snapshot: Snapshot | None, epoch: int, first_id: int, token: str) -> Base:
    if snapshot is None:
        return Base(epoch, first_id, token=token)
    own = parent_url(snapshot.url) == storage.url and not snapshot.is_savepoint
    if own and base_name(snapshot.url) == checkpoint_folder(snapshot.manifest.checkpoint_id):
        return Base(epoch, first_id, checkpoint=snapshot.id, token=token)
    return Base(epoch, first_id, path=snapshot.url, token=token)
