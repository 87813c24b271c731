"""Which reads need to be fresh, and why. Pure.

A fleet is at rest nearly all the time, and asking the API server every few seconds whether that is still so is what an
operator costs. So a pass begins with a look at the copy that the watch streams feed (`kube/watched.py`), and goes on with fresh
reads unless that shows a job at rest:

    what reads                                              from        why
    ──────────────────────────────────────────────────────  ──────────  ────────────────────────────────────────────────────
    first look of a pass at a job that was found at rest    the copy    it may end in nothing being done, and in nothing else
    every look that leads to an action, an event or         fresh       starting, stopping, fencing and deleting are decided
      another phase or condition                                        by what is there now
    every look while an operation is in progress, while     fresh       its next step would be an action
      the FlinkJob is being deleted, after an edit
    the first look of a process, the one after an action    fresh       the copy may be behind our own write
    FlinkSnapshots that have not come to their end          fresh       they take savepoints and dispose of them; few at a time
    Services, ConfigMap, Secret, …, every ten minutes       fresh       they are not watched
    a job's own master, checkpoint storage                  fresh       nobody copies them

A copy that is old can therefore only *delay*: it never starts anything a second time, and never stops what goes on. How long
it delays is bounded by the job's master, who is asked in every look, and by fresh lists: of FlinkJobs and FlinkSnapshots every
minute, of Deployments, pods and revisions every ten, of all at once when a watch had to begin anew.

One thing is written after a look at the copy: the newest checkpoint and the number of restarts, which come from the
master. It is written under the resourceVersion of the copy, so it is refused if that is not what is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_operator.reconcile.report.writes import weighty

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.decide.decision import Decision, Event


def may_be_at_rest(cache: Cache, now: datetime, dependents_resync: timedelta) -> bool:
    """The last look was fresh and found nothing to do, or was one at the copy; and nothing is due that only fresh reads tell."""
    compared = cache.dependents_at
    return cache.rests and cache.last is None and (compared is None or now - compared < dependents_resync)


def looks_at_rest(manifest: Manifest) -> bool:
    """A FlinkJob in which nothing goes on, as far as it says itself."""
    meta, status = manifest["metadata"], manifest.get("status") or {}
    current = status.get("observedGeneration") == meta.get("generation", 1)
    return current and "operation" not in status and "deletionTimestamp" not in meta


def is_at_rest(ctx: Context, decision: Decision, is_told: Callable[[Event], bool]) -> bool:
    """There is nothing to do, nothing to tell, and nothing of weight to write."""
    news = not all(is_told(event) for event in decision.events)
    quiet = decision.action is None and decision.requeue is not None and not news
    if not quiet or ctx.unreadable:
        return False
    return ctx.status == decision.status or weighty(ctx.status) == weighty(decision.status)
