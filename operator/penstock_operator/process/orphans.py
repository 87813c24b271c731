"""Holds whose FlinkJob is gone: somebody took its finalizer away, and what belonged to it would stay for ever."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock_operator.kube.cluster import CONFIG_MAP, FLINKJOB
from penstock_operator.resources.hold import HOLD
from penstock_operator.resources.names import JOB_UID, MANAGER, ROLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_operator.kube.cluster import Cluster, Manifest

log = logging.getLogger(__name__)

HOLDS = {"app.kubernetes.io/managed-by": MANAGER, ROLE: HOLD}


async def sweep(cluster: Cluster, namespaces: Sequence[str] = ()) -> list[str]:
    """Delete the holds without a FlinkJob; the garbage collector takes the rest. Names of what was deleted.

    The holds are listed first: a FlinkJob that is made meanwhile, with a hold, must not lose it.
    """
    gone: list[Manifest] = []
    for namespace in namespaces or (None,):
        holds = await cluster.list(CONFIG_MAP, namespace, HOLDS)
        if not holds:
            continue
        there = {job["metadata"]["uid"] for job in await cluster.list(FLINKJOB, namespace)}
        gone += [h for h in holds if h["metadata"]["labels"].get(JOB_UID) not in there]
    for manifest in gone:
        meta = manifest["metadata"]
        log.warning("%s/%s: its FlinkJob is gone; what it held goes, too", meta["namespace"], meta["name"])
        await cluster.delete(CONFIG_MAP, meta["namespace"], meta["name"])
    return [f"{h['metadata']['namespace']}/{h['metadata']['name']}" for h in gone]
