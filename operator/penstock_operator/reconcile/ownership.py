"""Which of several operators looks after a FlinkJob. Pure.

Operators may share a cluster, each with a label selector and a Lease of its own. Among the replicas of one operator the Lease decides;
between operators it says nothing. So who looks after a job stands in its status, which is only written under the
resourceVersion it was read with, and every pass reads it anew before it does anything:

    labels select us   status.operator                  what we do
    ─────────────────  ───────────────────────────────  ──────────────────────────────────────────────────────────────────
    yes                nobody                           write our name, then go on
    yes                us                               go on
    yes                us, taken from another           wait: that one may be in a pass that it began before; then go on
    yes                another                          wait for it to let go; if it does not, write our name and from whom
    no                 us                               let go: between two passes, when our last change is surely over, and
                                                        that of the one whom we took it from
    no                 another, or nobody               leave it alone

A pass that began while the status named another operator is over after `PASS_TIMEOUT` of the controller, and what it had sent
away by then a little later: who has written his name and then waited for `TAKE_OVER` is alone. So it does not matter whether the
former operator is alive, was uninstalled, or has only not heard that the labels have changed; and no clocks are compared: a
process that is started anew meanwhile waits anew. Whoever was taken a job from does not take it back, so two operators that both select
it do not go on for ever: the second one has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from penstock_operator.kube.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.status import Ownership

LET_GO = timedelta(seconds=30)
"""How long the former operator is waited for: it has to hear of the labels and to come to the end of a pass."""
TAKE_OVER = timedelta(seconds=240)
"""The longest pass, a call to storage that it had begun, and a little more."""
LINGER = timedelta(seconds=5)
"""How long after our last change we let go: one that was given up without an answer may still be carried out."""


@dataclass(frozen=True)
class Shard:
    """One operator's share of the FlinkJobs."""

    operator: str = ""
    """Namespace and name of its Lease, with a slash between them; empty: there is no other operator."""
    selector: Selector = field(default_factory=Selector)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a FlinkJob with these labels is in it."""
        return self.selector.matches(labels)


class Claim(Enum):
    """What to do about it before anything else."""

    OURS = "ours"
    TAKE = "take"
    """Write our name."""
    TAKE_FROM = "take from"
    """Write our name, and whose was there."""
    SETTLE = "settle"
    """Write that the former operator is surely done."""
    WAIT = "wait"
    RELEASE = "release"
    LEAVE = "leave"


def claim(
    shard: Shard, labels: Mapping[str, str], owner: Ownership | None, *, waited: timedelta, quiet: timedelta, lost: bool
) -> Claim:
    """See the table above.

    Args:
        waited: for how long this process has seen the owner as it is.
        quiet: since our last change.
        lost: that owner has taken the job from this process.
    """
    if not shard.operator:
        return Claim.OURS if shard.selects(labels) else Claim.LEAVE
    mine = owner is not None and owner.name == shard.operator
    unsettled = owner is not None and owner.taken_from is not None and waited < TAKE_OVER
    if not shard.selects(labels):
        if not mine:
            return Claim.LEAVE
        return Claim.WAIT if unsettled or quiet < LINGER else Claim.RELEASE
    if owner is None:
        return Claim.TAKE
    if mine:
        if owner is None or owner.taken_from is None:
            return Claim.OURS
        return Claim.WAIT if unsettled else Claim.SETTLE
    return Claim.TAKE_FROM if waited >= LET_GO and not lost else Claim.WAIT


def is_ours(shard: Shard, labels: Mapping[str, str], owner: Ownership | None) -> bool:
    """Whether what belongs to a FlinkJob may be acted on."""
    mine = owner is not None and owner.name == shard.operator and owner.taken_from is None
    return shard.selects(labels) and (mine or not shard.operator)
