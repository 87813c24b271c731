"""The spec of a job that a FlinkCluster runs: the fields of the FlinkJob, and those of the FlinkCluster's revision.

A pass replaces `spec.cluster` by the revision of the FlinkCluster in which the job should run. It adds the image, the
storage and the pod templates of this revision. All later code treats the result like the spec of any other job. So
another revision of the FlinkCluster is another revision of the job. The job moves to it like in every upgrade, with a
check, a savepoint and a rollback.

A job stays in its revision until the FlinkCluster names it in `status.moving`. So jobs move one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from penstock_operator.api.cluster_fields import merged, refused_fields
from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.api.flinkcluster import ClusterDeletion, ClusterJobs, FlinkClusterSpec, parse_cluster_status
from penstock_operator.errors import Denied, Problem, SpecError
from penstock_operator.kube.cluster import FLINKCLUSTER, NAMESPACE, REVISION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock_operator.api.flinkcluster import DeletionOfJobs
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.kube.cluster import Cluster, Manifest

_FIELD = "spec.cluster"


class ClusterSource:
    """Reader of the FlinkClusters that FlinkJobs of one namespace name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._specs: dict[ClusterRef, tuple[str, FlinkClusterSpec]] = {}
        """The last specs of revisions, with the uid of their ControllerRevision, which never changes."""

    async def with_cluster(self, raw: Mapping[str, Any], status: FlinkJobStatus) -> Mapping[str, Any]:
        """Return the spec with the fields of the FlinkCluster's revision. Return any other spec unchanged.

        Raises:
            SpecError: the FlinkCluster does not exist, does not allow the job, or the job sets fields of the FlinkCluster.
        """
        if raw.get("cluster") is None:
            return raw
        named = ClusterRef.named(raw["cluster"], self._namespace)
        if named is None:
            raise _refused(f"{raw['cluster']!r} is not the name of a FlinkCluster", "Write NAME or NAMESPACE/NAME.")
        text = f"FlinkCluster {named.namespace}/{named.name}"
        manifest = await self._cluster.get(FLINKCLUSTER, named.namespace, named.name)
        is_stopped = manifest is not None and _is_stopped(named, manifest, status)
        problems = tuple(refused_fields(raw))
        if problems and not is_stopped:
            raise SpecError(problems)
        if manifest is None:
            raise _refused(f"{text} does not exist", "Create it, or name another one.")
        if named.namespace != self._namespace and not is_stopped and not await self._is_allowed(manifest):
            remedy = f"Have its owner add the namespace {self._namespace} to spec.jobs.namespaceSelector."
            raise _refused(f"{text} does not allow jobs of the namespace {self._namespace}", remedy)
        if "deletionTimestamp" in manifest["metadata"]:
            raw = _while_deleted(raw, manifest, status, text)
        ref, spec = await self._revision(named, manifest, status)
        if spec is None:
            raise _refused(f"{text} has no pods yet", "Wait. kubectl describe flinkcluster shows the reason.")
        return merged(raw, ref, spec)

    async def _is_allowed(self, manifest: Manifest) -> bool:
        try:
            selector = ClusterJobs.model_validate((manifest.get("spec") or {}).get("jobs") or {}).namespace_selector
        except ValidationError:
            return False
        if selector is None:
            return False
        labels = {"kubernetes.io/metadata.name": self._namespace}
        try:
            found = await self._cluster.get(NAMESPACE, "", self._namespace)
            labels |= ((found or {}).get("metadata") or {}).get("labels") or {}
        except Denied:  # an operator of single namespaces only knows the name
            pass
        return selector.matches(labels)

    async def _revision(
        self, named: ClusterRef, manifest: Manifest, status: FlinkJobStatus
    ) -> tuple[ClusterRef, FlinkClusterSpec | None]:
        """Return the revision in which the job should run: the current one, unless the job still has to wait for its
        turn to move.
        """
        state, running = parse_cluster_status(manifest.get("status")), status.running
        current = ClusterRef(named.namespace, named.name, state.revision or 0)
        own = ClusterRef.parse(running.cluster) if running is not None and running.finished_at is None else None
        waits = _runs_in(named, status) and own != current and state.moving != f"{self._namespace}/{self._name}"
        if own is not None and waits and (spec := await self._spec(own)) is not None:
            return own, spec
        return current, await self._spec(current)

    async def _spec(self, ref: ClusterRef) -> FlinkClusterSpec | None:
        found = await self._cluster.get(REVISION, ref.namespace, ref.revision)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return None
        uid, known = found["metadata"]["uid"], self._specs.get(ref)
        if known is not None and known[0] == uid:
            return known[1]
        try:
            spec = FlinkClusterSpec.model_validate((found.get("data") or {}).get("spec"))
        except ValidationError:
            return None
        self._specs = {ref: (uid, spec)}
        return spec


def _runs_in(named: ClusterRef, status: FlinkJobStatus) -> bool:
    """Return whether the job runs in a revision of this FlinkCluster."""
    running = status.running
    own = ClusterRef.parse(running.cluster) if running is not None and running.finished_at is None else None
    return own is not None and (own.namespace, own.name) == (named.namespace, named.name)


def _is_stopped(named: ClusterRef, manifest: Manifest, status: FlinkJobStatus) -> bool:
    """Return whether the deletion of the FlinkCluster stops the job. The operator then stops it even if the FlinkJob sets
    fields of the FlinkCluster, or if its namespace is not allowed any more. Otherwise the deletion would never end.
    """
    return "deletionTimestamp" in manifest["metadata"] and _policy(manifest) == "Suspend" and _runs_in(named, status)


def _policy(manifest: Manifest) -> DeletionOfJobs:
    try:
        return ClusterDeletion.model_validate((manifest.get("spec") or {}).get("deletion") or {}).jobs
    except ValidationError:
        return "Wait"


def _while_deleted(raw: Mapping[str, Any], manifest: Manifest, status: FlinkJobStatus, text: str) -> Mapping[str, Any]:
    """Return the spec of a job whose FlinkCluster is being deleted. Suspend the job if the FlinkCluster requests it."""
    if _policy(manifest) == "Suspend":
        return {**raw, "job": {**(raw.get("job") or {}), "state": "suspended"}}
    if status.running is None and status.operation is None:
        raise _refused(f"{text} is being deleted", "Name another one, or create it again after its deletion.")
    return raw


def _refused(message: str, remedy: str) -> SpecError:
    return SpecError((Problem(_FIELD, message, remedy),))
