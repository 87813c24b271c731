"""The source of the state of a job's next incarnation. Every start uses the function `origin`.

Sinks commit with checkpoints. So the committed output of a job ends at the newest checkpoint of its last incarnation.
A start from an earlier state repeats output. Two invariants apply:

- A stateful job is never started empty by accident.
- A job is never started from a state before its committed end, unless a user names that state.

"No checkpoint yet", "the checkpoint is lost" and "storage does not respond" are three different facts. An unknown
checkpoint never counts as an absent checkpoint.

    operation                        previous incarnation                           source of the state
    ───────────────────────────────  ─────────────────────────────────────────────  ─────────────────────────────────────
    Deploy, job.startFrom            of earlier FlinkJobs of this name (see `predecessor`)
    latest-of-name                     storage does not respond                     wait
                                       newest state of the last one is complete     that state
                                       newest state of the last one is torn         blocked: a user decides
                                       no state                                     empty state
    Redeploy                         any                                            the state that the user named
    with upgradeMode stateless       any                                            empty state, as the user requested
    Deploy, Resume                   none, or stopped and settled before            the pinned state
    Upgrade, Recover, Suspend,       storage does not respond                       wait
    Rollback                         its newest checkpoint, complete                the later of this checkpoint and the
                                                                                    savepoint that ended the incarnation
                                     its newest checkpoint, torn                    blocked: a user decides, because sinks
                                                                                    have committed output after the older
                                                                                    checkpoints; unless the savepoint that ended
                                                                                    the incarnation is later and complete
                                     no checkpoint, but one was seen before         blocked: a user decides
                                     no checkpoint, adopted, of unknown origin      blocked: a user decides (`beginning`)
                                     no checkpoint, and none was ever seen          the pinned state, or the state from
                                                                                    which it was started

The function is called when no process can write: the pods are gone and the incarnation is fenced. A rollback
may have to continue from a checkpoint of the failed revision. The operator first checks that the old graph accepts
that checkpoint (`operations.prove`). Checkpoints are read from storage and never requested from the engine. So a job
that fails or is gone is not an obstacle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.reconcile.decide.restore.predecessor import newest_snapshot

if TYPE_CHECKING:
    from penstock_operator.api.status.incarnation import Running
    from penstock_operator.reconcile.observation import Storage


@dataclass(frozen=True)
class Unknown:
    """Result if storage has not responded. Nothing may be concluded from it."""

    message: str


@dataclass(frozen=True)
class Lost:
    """Result if state existed and cannot be found. Only a user can decide to continue without it."""

    message: str
    checkpoint_id: int | None = None
    """Number of the newest checkpoint, if it exists and is torn."""


_BY_HAND = "Restore the files, or set job.initialSavepointPath to a snapshot and change job.savepointRedeployNonce"

Choice = Restore | Unknown | Lost


def incarnation_restore(running: Running, storage: Storage) -> Choice:
    """Return the newest state of one incarnation."""
    if not storage.was_read or storage.error:
        return Unknown(storage.error or "checkpoint storage has not been read yet")
    newest = storage.newest
    if newest is not None and newest.torn:
        other = (
            f"The next older one is {newest.older}; the job would repeat the records since then. "
            if newest.older
            else ""
        )
        text = f"the newest checkpoint cannot be used: {newest.torn}. {other}{_BY_HAND}"
        return Lost(text, newest.checkpoint_id)
    if newest is not None and newest.job_id in (None, running.job_id):
        return Restore(
            kind="Checkpoint",
            path=newest.path,
            checkpoint_id=newest.checkpoint_id,
            time=newest.time,
            reason="newest complete checkpoint",
        )
    if running.origin_unknown:
        return _of_unknown_origin(running, storage)
    if running.had_checkpoint:
        return Lost(
            f"job {running.job_id} has completed checkpoints, but no complete checkpoint can be read. The operator does not start it "
            f"with empty state. {_BY_HAND}, or set job.upgradeMode to stateless and change job.restartNonce to give up its state"
        )
    return running.restored_from.model_copy(
        update={"reason": f"no checkpoint since its start; {running.restored_from.reason}".rstrip("; ")}
    )


def _of_unknown_origin(running: Running, storage: Storage) -> Choice:
    found, restored_from = storage.beginning, running.restored_from
    if found is None:
        return Unknown(f"the records of the start of incarnation {running.job_id} have not been read yet")
    start_arguments = {"Fresh": "; its master was started with --fresh", "Latest": ""}
    args = start_arguments.get(restored_from.kind, f"; its master was started with --restore {restored_from.path}")
    return Lost(
        f"the status was lost, and {found.folder} does not prove from which state incarnation {running.job_id} continues{args}. "
        f"Find the newest snapshot there and in the savepoint folder (penstock savepoint verify PATH checks one). {_BY_HAND}, or "
        "set job.upgradeMode to stateless and change job.restartNonce to give up its state"
    )


def from_savepoint(path: str, reason: str, checkpoint_id: int | None = None) -> Restore:
    """Return the restore point of a savepoint."""
    return Restore(kind="Savepoint", path=path, checkpoint_id=checkpoint_id, reason=reason)


def origin(
    pinned: Restore | None,
    *,
    named: bool,
    own: bool,
    running: Running | None,
    storage: Storage,
    of_name: bool = False,
) -> Choice:
    """Return the source of the state of an operation's incarnation, as the table in the module's docstring defines.

    Args:
        pinned: the restore point that was chosen before the pods were stopped.
        named: whether a user has named the state, or requested empty state.
        own: whether `pinned` is the savepoint that ended `running`. Its number then belongs to the checkpoint numbers
            of `running`.
        running: the incarnation that was just stopped.
        storage: the result of reading storage after the incarnation was fenced.
        of_name: continue from the end of the last incarnation of an earlier FlinkJob of the name, or from `pinned` if
            no such incarnation existed.
    """
    if of_name:
        return _end_of_name(pinned, storage)
    if pinned is not None and (named or running is None):
        return pinned
    if running is None:
        return Lost(f"the state to start from is unknown. {_BY_HAND}")
    end = incarnation_restore(running, storage)
    if pinned is None or isinstance(end, Unknown):
        return end
    if isinstance(end, Lost):
        return pinned if own and _reaches(pinned, end.checkpoint_id) else end
    if end.kind != "Checkpoint" or end.path == running.restored_from.path:
        return pinned
    return pinned if own and _reaches(pinned, end.checkpoint_id) else end


def _end_of_name(pinned: Restore | None, storage: Storage) -> Choice:
    if storage.error or storage.left is None:
        return Unknown(storage.error or "storage has not been read yet")
    newest = newest_snapshot(storage.left.snapshots)
    if newest is None:
        return pinned or Restore(kind="Fresh", reason="earlier FlinkJobs of this name have left no state")
    if newest.torn:
        other = (
            f"The next older one is {newest.older}; the job would repeat the records since then. "
            if newest.older
            else ""
        )
        text = (
            f"the newest state of earlier FlinkJobs of this name cannot be used: {newest.path}: {newest.torn}. {other}"
        )
        return Lost(
            f"{text}Restore the files, or set job.initialSavepointPath to a snapshot, or job.startFrom to empty"
        )
    return Restore(
        kind="Savepoint" if "/savepoint-" in newest.path else "Checkpoint",
        path=newest.path,
        checkpoint_id=newest.checkpoint_id,
        time=newest.time,
        reason="job.startFrom: latest-of-name",
    )


def _reaches(savepoint: Restore, checkpoint: int | None) -> bool:
    """Return whether the savepoint that ended an incarnation is not older than its checkpoint. If one of
    the numbers is unknown, the savepoint counts as not older.
    """
    return checkpoint is None or savepoint.checkpoint_id is None or savepoint.checkpoint_id >= checkpoint


FRESH_BY_WISH = Restore(kind="Fresh", reason="upgradeMode is stateless")
