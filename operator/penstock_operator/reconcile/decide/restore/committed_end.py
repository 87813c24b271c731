"""Where the next incarnation of a job gets its state from: the one function that every start passes (`origin`).

Sinks commit with checkpoints. So what a job has committed ends where the newest checkpoint of its last incarnation is, and
whoever starts the job from anywhere before that repeats output. Two invariants: *a stateful job is never started empty by
accident*, and *never from behind its committed end, unless a person names the place*. "No checkpoint yet" and "the
checkpoint is lost" are different facts, and "storage does not answer" is a third: unknown is never absent.

    what starts                      the incarnation before it                      it starts from
    ───────────────────────────────  ─────────────────────────────────────────────  ─────────────────────────────────────
    Deploy, job.startFrom            of earlier FlinkJobs of this name (see `predecessor`)
    latest-of-name                     storage does not answer                      wait
                                       the newest of the last incarnation, whole    that
                                       the same, torn                               blocked: a person decides
                                       nothing                                      empty state
    Redeploy                         whatever it has done                           what the person has named
    with upgradeMode stateless       whatever it has done                           empty state, as the person has said
    Deploy, Resume                   none, or stopped and settled before            what is pinned
    Upgrade, Recover, Suspend,       storage does not answer                        wait
    Rollback                         its newest checkpoint, complete                that, or the savepoint that ended it,
                                                                                    whichever is later
                                     the newest one is torn                         blocked: a person decides, since sinks
                                                                                    have committed what came after an
                                                                                    older one; unless the savepoint that
                                                                                    ended it is later and whole
                                     none, but one was seen before                  blocked: a person decides
                                     none, and none was ever seen                   what is pinned, or what it started from

It is asked when nothing can write any more: the pods are gone and the incarnation is fenced off. A rollback that has to go on
from a checkpoint of the revision that failed proves first that the old graph takes it (`operations.prove`). The checkpoints
are read from storage, never asked of the engine: a job that is failing or gone is no obstacle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.api.status import Restore
from penstock_operator.reconcile.decide.restore.predecessor import newest_left

if TYPE_CHECKING:
    from penstock_operator.api.status import Running
    from penstock_operator.reconcile.observation import Storage


@dataclass(frozen=True)
class Unknown:
    """Storage has not answered; nothing may be concluded."""

    message: str


@dataclass(frozen=True)
class Lost:
    """There was state and it cannot be found; only a person can decide to go on without it."""

    message: str
    checkpoint_id: int | None = None
    """Of the newest checkpoint, if that is there and torn."""


_BY_HAND = "Restore the files, or set job.initialSavepointPath to a snapshot and change job.savepointRedeployNonce"

Choice = Restore | Unknown | Lost


def incarnation_restore(running: Running, storage: Storage) -> Choice:
    """The newest state of one incarnation."""
    if not storage.asked or storage.error:
        return Unknown(storage.error or "checkpoint storage has not been read yet")
    newest = storage.newest
    if newest is not None and newest.torn:
        other = f"The next older one is {newest.older}; what came after it would be repeated. " if newest.older else ""
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
    if running.had_checkpoint:
        return Lost(
            f"job {running.job_id} has completed checkpoints, but none that is complete can be read; it is not started "
            f"empty. {_BY_HAND}, or set job.upgradeMode to stateless and change job.restartNonce to give up its state"
        )
    return running.restored_from.model_copy(
        update={"reason": f"no checkpoint since; {running.restored_from.reason}".rstrip("; ")}
    )


def from_savepoint(path: str, reason: str, checkpoint_id: int | None = None) -> Restore:
    """A restore point that was named or made as a savepoint."""
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
    """What an operation starts its incarnation from; see the table.

    Args:
        pinned: what was settled on before the pods were stopped.
        named: a person has named the place, or that there is none.
        own: `pinned` is the savepoint that ended `running`, and shares its numbers.
        running: the incarnation that has just been stopped.
        storage: what was read after it was fenced off.
        of_name: go on from where the last incarnation of an earlier FlinkJob of the name has ended; `pinned` if there was none.
    """
    if of_name:
        return _end_of_name(pinned, storage)
    if pinned is not None and (named or running is None):
        return pinned
    if running is None:
        return Lost(f"nothing says where the job is to start from. {_BY_HAND}")
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
    newest = newest_left(storage.left.snapshots)
    if newest is None:
        return pinned or Restore(kind="Fresh", reason="earlier FlinkJobs of this name have left nothing")
    if newest.torn:
        other = f"The next older one is {newest.older}; what came after it would be repeated. " if newest.older else ""
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
    """The savepoint that ended an incarnation is not before a checkpoint of it; with no number to compare it is the end."""
    return checkpoint is None or savepoint.checkpoint_id is None or savepoint.checkpoint_id >= checkpoint


FRESH_BY_WISH = Restore(kind="Fresh", reason="upgradeMode is stateless")
