"""Where the next incarnation of a job gets its state from, for every path that starts a job.

The invariant: *a stateful job is never started empty by accident.* Empty is right only if the user said `stateless`,
or if the job has never completed a checkpoint and was started empty in the first place. "No checkpoint yet" and
"the checkpoint is lost" are different facts, and "storage does not answer" is a third.

    1. a restore point that was pinned when the job was stopped (suspend, upgrade)         → that
    2. storage does not answer                                                             → wait
    3. the newest checkpoint of the incarnation, complete                                  → that
    4. the newest one is torn, an older one is whole                                       → blocked: a person decides,
       since sinks have committed what came between the two
    5. none, but one was seen before                                                       → blocked: a person decides
    6. none, and none was ever seen                                                        → what it started from itself

The checkpoints are read from storage, never asked of the engine: a job that is failing or gone is no obstacle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_operator.api.status import Restore

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


_BY_HAND = "Restore the files, or set job.initialSavepointPath to a snapshot and change job.savepointRedeployNonce"

Choice = Restore | Unknown | Lost


def incarnation_restore(running: Running, storage: Storage) -> Choice:
    """The newest state of one incarnation."""
    if not storage.asked or storage.error:
        return Unknown(storage.error or "checkpoint storage has not been read yet")
    newest = storage.newest
    if newest is not None and newest.torn:
        other = f"The next older one is {newest.older}; what came after it would be repeated. " if newest.older else ""
        return Lost(f"the newest checkpoint cannot be used: {newest.torn}. {other}{_BY_HAND}")
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


FRESH_BY_WISH = Restore(kind="Fresh", reason="upgradeMode is stateless")
