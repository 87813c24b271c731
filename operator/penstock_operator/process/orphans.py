"""Deletion of holds whose FlinkJob no longer exists, and of revisions whose FlinkCluster no longer exists.

A hold is a ConfigMap that keeps the other objects of a job until its savepoint is taken (`resources.hold`). If a user
removes the finalizer of a FlinkJob, the hold of the job would keep the other objects forever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock_operator.kube.cluster import CONFIG_MAP, FLINKCLUSTER, FLINKJOB, REVISION
from penstock_operator.resources.hold import HOLD
from penstock_operator.resources.names import CLUSTER, JOB_UID, MANAGER, ROLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock_operator.kube.cluster import Cluster, Manifest

log = logging.getLogger(__name__)

HOLDS = {"app.kubernetes.io/managed-by": MANAGER, ROLE: HOLD}


async def sweep(cluster: Cluster, namespaces: Sequence[str] = ()) -> list[str]:
    """Delete the holds without a FlinkJob, and return their names. The garbage collector then deletes the other
    objects.

    The holds are listed before the FlinkJobs. So a FlinkJob that is created between the two lists cannot lose its
    hold.
    """
    gone: list[Manifest] = []
    for namespace in namespaces or (None,):
        holds = await cluster.list(CONFIG_MAP, namespace, HOLDS)
        if not holds:
            continue
        existing = {job["metadata"]["uid"] for job in await cluster.list(FLINKJOB, namespace)}
        gone += [h for h in holds if h["metadata"]["labels"].get(JOB_UID) not in existing]
    for manifest in gone:
        meta = manifest["metadata"]
        log.warning(
            "%s/%s: its FlinkJob no longer exists; the operator removes the objects of the FlinkJob",
            meta["namespace"],
            meta["name"],
        )
        await cluster.delete(CONFIG_MAP, meta["namespace"], meta["name"])
    return [f"{h['metadata']['namespace']}/{h['metadata']['name']}" for h in gone]


async def sweep_revisions(cluster: Cluster, namespaces: Sequence[str] = ()) -> list[str]:
    """Delete the revisions of FlinkClusters that no longer exist, and return their names. The garbage collector then
    deletes the pods.

    A revision has no owner (`resources.flinkcluster`). It remains if a user removes the finalizer of its FlinkCluster.
    """
    gone: list[Manifest] = []
    for namespace in namespaces or (None,):
        found = await cluster.list(REVISION, namespace, f"{CLUSTER},app.kubernetes.io/managed-by={MANAGER}")
        if not found:
            continue
        existing = {one["metadata"]["uid"] for one in await cluster.list(FLINKCLUSTER, namespace)}
        gone += [r for r in found if ((r.get("data") or {}).get("cluster") or {}).get("uid") not in existing]
    for manifest in gone:
        meta = manifest["metadata"]
        log.warning(
            "%s/%s: its FlinkCluster no longer exists; the operator removes the pods", meta["namespace"], meta["name"]
        )
        await cluster.delete(REVISION, meta["namespace"], meta["name"])
    return [f"{r['metadata']['namespace']}/{r['metadata']['name']}" for r in gone]
