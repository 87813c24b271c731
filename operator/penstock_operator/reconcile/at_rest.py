"""The reads that must be fresh, and the reads that may use the copy. Pure functions.

Most jobs of a fleet are at rest nearly all the time. An operator that asks the API server every few seconds whether
this is still true would be expensive. So a pass starts with the copy that the watch streams update
(`kube/watched.py`). It continues with fresh reads unless the copy shows a job at rest:

    reads                                                   source      reason
    ──────────────────────────────────────────────────────  ──────────  ────────────────────────────────────────────────────
    first read of a pass over a job that was at rest        the copy    its only possible result is that nothing is done
    every read that leads to an action, an event or         fresh       starting, stopping, fencing and deleting depend on
      another phase or condition                                        the current state
    every read during an operation, during a deletion,      fresh       the next step would be an action
      and after an edit
    the first read of a process or after an action          fresh       the copy may not have our own write yet
    FlinkSnapshots that are not final                       fresh       they take savepoints and delete them; few at a time
    Services, ConfigMap, Secret and others, every           fresh       they are not watched
      ten minutes
    the job's master, checkpoint storage,                   fresh       they have no copy
      the ConfigMap in job.source

So a stale copy can only *delay* an action. It never repeats an action, and never prevents one. Two things limit the
delay. Every pass reads from the job's master, and fresh lists correct the copy. FlinkJobs and FlinkSnapshots are listed
every minute, and Deployments, pods and revisions every ten minutes. All of them are listed after a watch has restarted.

Only one write may follow a read of the copy. It stores the newest checkpoint and the number of restarts, which the
master has reported. The write uses the resourceVersion of the copy, so the API server refuses it if the stored object
is newer.
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
    """Return whether the pass may start with the copy.

    The last pass must have found nothing to do, and no periodic fresh read may be due.
    """
    compared = cache.dependents_at
    return cache.is_at_rest and cache.last is None and (compared is None or now - compared < dependents_resync)


def looks_at_rest(manifest: Manifest) -> bool:
    """Return whether the FlinkJob itself shows no operation, no deletion and no new generation."""
    meta, status = manifest["metadata"], manifest.get("status") or {}
    current = status.get("observedGeneration") == meta.get("generation", 1)
    return current and "operation" not in status and "deletionTimestamp" not in meta


def is_at_rest(ctx: Context, decision: Decision, is_sent: Callable[[Event], bool]) -> bool:
    """Return whether the decision has no action, no new event, and no important change of the status."""
    news = not all(is_sent(event) for event in decision.events)
    quiet = decision.action is None and decision.requeue is not None and not news
    if not quiet or ctx.unreadable:
        return False
    return ctx.status == decision.status or weighty(ctx.status) == weighty(decision.status)
