"""Notes of drained savepoints whose stop may still fail. A successor of a dead JobManager finds the savepoint by its
note.

A `stop --drain` stores the manifest of its savepoint before that of its checkpoint (docs/checkpoint-protocol.md, 5).
Suppose that the JobManager dies between the two. Its successor removes the output that the savepoint names, but does
not know the folder of the savepoint.

The folder is therefore recorded next to the checkpoints before it has any content: `drain/<checkpoint id>-<leader
epoch>`. The next attempt settles the notes. If this attempt starts from the savepoint's checkpoint, it keeps the
savepoint. Otherwise it disposes of the savepoint.
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
    """The content of a note. `savepoint`: URL of its folder."""

    checkpoint_id: int
    leader_epoch: int
    savepoint: str


def write_note(storage: CheckpointStorage, drained: Manifest, savepoint: str) -> None:
    note = DrainNote(drained.checkpoint_id, drained.leader_epoch, savepoint)
    storage.put(_path_of(drained), msgspec.json.encode(note))


def delete_note(storage: CheckpointStorage, drained: Manifest) -> None:
    storage.delete(_path_of(drained))


def settle_notes(storage: CheckpointStorage, restored: Manifest | None, epoch: int) -> None:
    """Settle the notes of earlier attempts when the attempt of this leader epoch starts from `restored`. Blocks.

    The next attempt tries again to settle the notes that fail now.
    """
    try:
        for name in storage.list_names(FOLDER):
            _settle(storage, f"{FOLDER}/{name}", restored, epoch)
    except PenstockError as error:
        logger.warning("cannot check the savepoints of incomplete stops in %s: %s", storage.url, error.message)


def _settle(storage: CheckpointStorage, path: str, restored: Manifest | None, epoch: int) -> None:
    try:
        note = read_record(storage, path, DrainNote, "delete this record and its savepoint manually")
    except ObjectMissing:  # the previous attempt has settled the note
        return
    if note.leader_epoch >= epoch:  # this attempt's own savepoint, still in progress
        return
    counts = restored is not None and (restored.checkpoint_id, restored.leader_epoch) == (
        note.checkpoint_id,
        note.leader_epoch,
    )
    if counts:
        logger.info("the stop with --drain is complete; its savepoint is %s", note.savepoint)
    else:
        logger.warning("the stop with --drain failed; its savepoint %s was deleted", note.savepoint)
        _remove(storage, note.savepoint)
    storage.delete(path)


def _remove(storage: CheckpointStorage, url: str) -> None:
    try:
        dispose(url, stores=storage.stores)
    except SnapshotNotFound:  # the savepoint has no manifest: delete its copied files, if any
        store = storage.stores.for_url(url)
        for error in store.delete_many([info.url for info in store.list_objects(url)]).values():
            raise error from None


def _path_of(drained: Manifest) -> str:
    return f"{FOLDER}/{drained.checkpoint_id}-{drained.leader_epoch}"
