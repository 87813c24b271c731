"""The command `penstock-operator smoke` for `helm test`.

It checks three things: a leader exists, the API server serves the kinds, and a FlinkJob becomes Ready.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from penstock_operator.errors import KubeError, OperatorError
from penstock_operator.kube.cluster import EVENT, FLINKJOB, LEASE, Cluster, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

POLL = 2.0
NAME = "penstock-smoke"


class SmokeFailed(OperatorError):
    """Error of an installation that does not work. The message contains the observations."""

    code = "SmokeFailed"


async def smoke(
    cluster: Cluster,
    namespace: str,
    lease: str,
    spec: dict[str, Any],
    timeout: timedelta,
    report: Callable[[str], None],
) -> None:
    """Check the operator. If `spec` is not empty, also run it as a FlinkJob until it is Ready, and delete it."""
    deadline = time.monotonic() + timeout.total_seconds()
    await _wait_for_leader(cluster, namespace, lease, deadline)
    report("an operator leads")
    await cluster.list(FLINKJOB, namespace)
    report("FlinkJobs are served")
    if not spec:
        report("no FlinkJob is run: test.flinkJobSpec is empty")
        return
    manifest = {
        "apiVersion": FLINKJOB.api_version,
        "kind": FLINKJOB.name,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }
    await cluster.create(manifest)
    try:
        await _wait_until_ready(cluster, namespace, deadline, report)
    finally:
        await cluster.delete(FLINKJOB, namespace, NAME)
    await _wait_until_deleted(cluster, namespace, deadline)
    report("the FlinkJob was deleted")


async def _wait_for_leader(cluster: Cluster, namespace: str, lease: str, deadline: float) -> None:
    while time.monotonic() < deadline:
        found = await cluster.get(LEASE, namespace, lease)
        if found is not None and found["spec"].get("holderIdentity"):
            return
        await asyncio.sleep(POLL)
    msg = f"no operator holds the Lease {namespace}/{lease}. Check the pods of the operator"
    raise SmokeFailed(msg)


async def _wait_until_ready(cluster: Cluster, namespace: str, deadline: float, report: Callable[[str], None]) -> None:
    last = ""
    while time.monotonic() < deadline:
        job = await cluster.get(FLINKJOB, namespace, NAME) or {}
        status = job.get("status") or {}
        line = f"{status.get('phase', 'Pending')}: {status.get('message', '')}"
        if line != last:
            report(line)
            last = line
        conditions = {c["type"]: c for c in status.get("conditions", ())}
        if conditions.get("Ready", {}).get("status") == "True":
            return
        if conditions.get("Stalled", {}).get("status") == "True":
            break
        await asyncio.sleep(POLL)
    events = "\n".join(f"  {e['reason']}: {e['message']}" for e in await _events(cluster, namespace))
    msg = f"the FlinkJob did not become Ready: {last}\n{events}"
    raise SmokeFailed(msg)


async def _wait_until_deleted(cluster: Cluster, namespace: str, deadline: float) -> None:
    while await cluster.get(FLINKJOB, namespace, NAME) is not None:
        if time.monotonic() > deadline:
            msg = "the FlinkJob was not deleted in time. The log of the operator has the reason"
            raise SmokeFailed(msg)
        await asyncio.sleep(POLL)


async def _events(cluster: Cluster, namespace: str) -> list[Manifest]:
    try:
        found = await cluster.list(EVENT, namespace)
    except KubeError:
        return []
    return [e for e in found if e.get("involvedObject", {}).get("name", "").startswith(NAME)]
