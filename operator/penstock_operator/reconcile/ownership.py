"""The choice of the operator that manages a FlinkJob, if several operators share a cluster. Pure functions.

Each operator has its own label selector and its own Lease. The Lease decides between the replicas of one operator, but
not between operators. So the status of a FlinkJob names its operator. The status is only written with the
resourceVersion that was read. Every pass reads the status again before it does anything:

    labels match us    status.operator                  action
    ─────────────────  ───────────────────────────────  ──────────────────────────────────────────────────────────────────
    yes                none                             write our name, then continue
    yes                us                               continue
    yes                us, taken from another           wait until a pass of the other operator must have ended, then
                                                        continue
    yes                another                          wait until it releases the job; after a timeout, write our name
                                                        and the name of the former operator
    no                 us                               release the job between two passes, when our last change and the
                                                        changes of the former operator must have ended
    no                 another, or none                 leave it alone

A pass that started under another operator ends after the controller's `PASS_TIMEOUT`. The requests that it has sent end
a little later. So an operator that has written its name and then waited for `TAKE_OVER_AFTER` is the only operator that
acts. It does not matter whether the former operator is alive, was uninstalled, or has not seen the new labels yet.
Clocks are never compared: a process that restarts during the wait starts the wait again.

An operator does not take back a job that another operator has taken from it. So if two operators select the same job,
the operator that took it last keeps it. The job does not move back and forth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from penstock_operator.kube.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.status.flinkjob_status import Ownership

RELEASE_TIMEOUT = timedelta(seconds=30)
"""Time to wait until the former operator releases the job. It must see the new labels and finish its pass."""
TAKE_OVER_AFTER = timedelta(seconds=240)
"""Maximum duration of a pass and of its last call to storage, plus a reserve."""
QUIET_BEFORE_RELEASE = timedelta(seconds=5)
"""Time between our last change and the release. A change that timed out without a response may still be executed."""


@dataclass(frozen=True)
class Shard:
    """The FlinkJobs that one operator manages."""

    operator: str = ""
    """Namespace and name of the operator's Lease, separated by a slash. Empty means that no other operator exists."""
    selector: Selector = field(default_factory=Selector)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether the shard includes a FlinkJob with these labels."""
        return self.selector.matches(labels)


class Claim(Enum):
    """The first action of a pass, which depends on the owner of the job."""

    OURS = "ours"
    TAKE = "take"
    """Write our name."""
    TAKE_FROM = "take from"
    """Write our name, and the name of the former operator."""
    SETTLE = "settle"
    """Write that the former operator must have stopped."""
    WAIT = "wait"
    RELEASE = "release"
    LEAVE = "leave"


def claim(
    shard: Shard, labels: Mapping[str, str], owner: Ownership | None, *, waited: timedelta, quiet: timedelta, lost: bool
) -> Claim:
    """Return the action of the table in the module's docstring.

    Args:
        waited: time for which this process has seen the current owner.
        quiet: time since our last change.
        lost: whether the owner has taken the job from this process.
    """
    if not shard.operator:
        return Claim.OURS if shard.selects(labels) else Claim.LEAVE
    mine = owner is not None and owner.name == shard.operator
    unsettled = owner is not None and owner.taken_from is not None and waited < TAKE_OVER_AFTER
    if not shard.selects(labels):
        if not mine:
            return Claim.LEAVE
        return Claim.WAIT if unsettled or quiet < QUIET_BEFORE_RELEASE else Claim.RELEASE
    if owner is None:
        return Claim.TAKE
    if mine:
        if owner is None or owner.taken_from is None:
            return Claim.OURS
        return Claim.WAIT if unsettled else Claim.SETTLE
    return Claim.TAKE_FROM if waited >= RELEASE_TIMEOUT and not lost else Claim.WAIT


def is_ours(shard: Shard, labels: Mapping[str, str], owner: Ownership | None) -> bool:
    """Return whether this operator may change the objects of a FlinkJob."""
    mine = owner is not None and owner.name == shard.operator and owner.taken_from is None
    return shard.selects(labels) and (mine or not shard.operator)
