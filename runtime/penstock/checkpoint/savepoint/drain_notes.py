"""Notes of drained savepoints whose stop is not decided yet, so that a successor finds the savepoint of a JobManager that died.

A `stop --drain` stores the manifest of its savepoint before that of its checkpoint (docs/checkpoint-protocol.md, 5). A JobManager that
dies between the two leaves a savepoint that names output which its successor removes, in a folder that the successor does not know.
So the folder is noted beside the checkpoints before anything is in it: `drain/<checkpoint id>-<leader epoch>`. Whoever begins an attempt settles
what is noted: the savepoint stays if the attempt starts from its checkpoint, and is disposed of otherwise.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoint.files.storage import read_record
from penstock.checkpoint.savepoint.savepoints import dispose
from penstock.checkpoint.store.object_store import ObjectMissing
from penstock.common.errors import PenstockError, SnapshotNotFound

if TYPE_CHECKING:
    from penstock.checkpoint.files.manifest import Manifest
    from penstock.checkpoint.files.storage import CheckpointStorage

FOLDER = "drain"
logger = logging.getLogger(__name__)


class DrainNote(msgspec.Struct, frozen=True):
    """`savepoint`: its folder's URL."""

    checkpoint_id: int
    leader_epoch: int
    savepoint: str


def keep_note(storage: CheckpointStorage, drained: Manifest, savepoint: str) -> None:
    note = DrainNote(drained.checkpoint_id, drained.leader_epoch, savepoint)
    storage.put(_path_of(drained), msgspec.json.encode(note))


def forget_note(storage: CheckpointStorage, drained: Manifest) -> None:
    storage.delete(_path_of(drained))


def settle_notes(storage: CheckpointStorage, restored: Manifest | None, epoch: int) -> None:
    """The attempt of this leader epoch begins from `restored`; notes of earlier ones are settled. Blocks; what cannot be settled now is tried again by the next attempt."""
    try:
        for name in storage.list_names(FOLDER):
            _settle(storage, f"{FOLDER}/{name}", restored, epoch)
    except PenstockError as error:
        logger.warning(
            "savepoints of stops that were not decided in %s are not looked at: %s", storage.url, error.message
        )


def _settle(storage: CheckpointStorage, path: str, restored: Manifest | None, epoch: int) -> None:
    try:
        note = read_record(storage, path, DrainNote, "remove it, and the savepoint it is about, by hand")
    except ObjectMissing:  # the attempt before has settled it meanwhile
        return
    if note.leader_epoch >= epoch:  # this attempt's own: it is being made
        return
    counts = restored is not None and (restored.checkpoint_id, restored.leader_epoch) == (
        note.checkpoint_id,
        note.leader_epoch,
    )
    if counts:
        logger.info("the stop with --drain is decided; its savepoint is %s", note.savepoint)
    else:
        logger.warning("the stop with --drain failed; its savepoint %s is disposed of", note.savepoint)
        _remove(storage, note.savepoint)
    storage.delete(path)


def _remove(storage: CheckpointStorage, url: str) -> None:
    try:
        dispose(url, stores=storage.stores)
    except SnapshotNotFound:  # its manifest was not reached: copies, or nothing
        store = storage.stores.for_url(url)
        for error in store.delete_many([info.url for info in store.list_objects(url)]).values():
            raise error from None


def _path_of(drained: Manifest) -> str:
    return f"{FOLDER}/{drained.checkpoint_id}-{drained.leader_epoch}"
