"""Kubernetes' controllers of Deployments and ReplicaSets, which create and remove pods.

The rules are those of `pkg/controller/deployment` (`sync.go`, `recreate.go`, `rolling.go`). A changed number of
replicas is handled before anything else, and nothing else is handled then. If one ReplicaSet has pods, it gets the new
number, *also if its template is the old one*. If two have pods, a rolling Deployment divides the number among them. A
Deployment of the type Recreate then **does nothing, forever**. Pods of a rolling Deployment are never available here,
because `minReadySeconds` is longer than a test. No existing pod is therefore removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_operator.reconcile.act.objects import DELETION_COST
from penstock_operator.reconcile.observe.manifests import annotations_of
from penstock_operator.resources.names import ROLE
from tests.unit.operator.world.kubernetes.pods import is_rolling, role_of

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest
    from tests.unit.operator.world.kubernetes.cluster import FakeCluster


@dataclass
class ReplicaSet:
    """The pods of a Deployment that have the same template."""

    replicas: int
    desired: int
    """The number of replicas of the Deployment when this was last scaled."""


def _keeps_first(pod: Manifest) -> tuple[bool, int]:
    """Return the key by which a ReplicaSet sorts the pods that it keeps: ready ones first, then the more expensive ones."""
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return conditions.get("Ready") != "True", -int(annotations_of(pod).get(DELETION_COST, "0"))


class Deployments:
    """The controllers of one cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._sets: dict[str, dict[str, ReplicaSet]] = {}
        """The ReplicaSets by the uid of their Deployment and by template."""
        self._templates: dict[str, tuple[str, str]] = {}
        """The resourceVersion of a Deployment and its template at that version, by uid."""
        self.quota: int | None = None
        """The maximum number of pods of one role, or None for no maximum."""

    def forget(self) -> None:
        """Forget the history, because a test has changed the templates of Deployments and pods alike."""
        self._sets.clear()

    def control(self, deployment: Manifest) -> None:
        """Reconcile a Deployment once."""
        meta, spec = deployment["metadata"], deployment["spec"]
        if "deletionTimestamp" in meta:
            return
        pods = self._cluster.select("Pod", meta["namespace"], spec["selector"]["matchLabels"])
        pods = [p for p in pods if p["status"].get("phase") != "Failed"]
        template = self._template(deployment)
        sets = self._known(deployment, pods)
        self._scale(deployment, sets, template, pods)
        refusals = [self._fill(deployment, pods, own, one) for own, one in sets.items()]
        refused = next((r for r in refusals if r), {})
        if deployment.get("status", {}) != refused:
            self._cluster.edit("Deployment", "default", meta["name"], lambda m: m.update(status=refused))

    def _template(self, deployment: Manifest) -> str:
        """Return the template as text. Equal templates have equal texts."""
        meta = deployment["metadata"]
        version, text = self._templates.get(meta["uid"], ("", ""))
        if version != meta["resourceVersion"]:
            text = json.dumps(deployment["spec"]["template"], sort_keys=True)
            self._templates[meta["uid"]] = (meta["resourceVersion"], text)
        return text

    def _known(self, deployment: Manifest, pods: list[Manifest]) -> dict[str, ReplicaSet]:
        uid, replicas = deployment["metadata"]["uid"], deployment["spec"]["replicas"]
        if uid not in self._sets:
            live = [p["x-template"] for p in pods if "deletionTimestamp" not in p["metadata"]]
            self._sets[uid] = {own: ReplicaSet(live.count(own), replicas) for own in live}
        return self._sets[uid]

    def _scale(self, deployment: Manifest, sets: dict[str, ReplicaSet], template: str, pods: list[Manifest]) -> None:
        replicas = deployment["spec"]["replicas"]
        active = [one for one in sets.values() if one.replicas]
        if any(one.desired != replicas for one in active):
            if len(active) == 1 or is_rolling(deployment):
                for one in active:
                    one.replicas = one.desired = replicas
            return
        if is_rolling(deployment):
            sets[template] = ReplicaSet(replicas, replicas)
            return
        outdated = [one for own, one in sets.items() if own != template and one.replicas]
        for one in outdated:
            one.replicas = 0
        if not outdated and all(p["x-template"] == template for p in pods):
            sets[template] = ReplicaSet(replicas, replicas)

    def _fill(self, deployment: Manifest, pods: list[Manifest], template: str, one: ReplicaSet) -> dict[str, Any]:
        """Create or remove pods. Return the Deployment's status if that is refused."""
        mine = [p for p in pods if p["x-template"] == template and "deletionTimestamp" not in p["metadata"]]
        mine.sort(key=_keeps_first)
        for pod in mine[one.replicas :]:
            self._cluster.remove("Pod", "default", pod["metadata"]["name"])
        for _ in range(one.replicas - len(mine)):
            there = len(self._cluster.select("Pod", None, {ROLE: role_of(deployment)}))
            if self.quota is not None and there >= self.quota:
                name = deployment["metadata"]["name"]
                text = f'pods "{name}-x" is forbidden: exceeded quota: small, limited: pods={self.quota}'
                return {
                    "conditions": [
                        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": text}
                    ]
                }
            self._create(deployment["metadata"], template)
        return {}

    def _create(self, owner: dict[str, Any], template: str) -> None:
        pod = json.loads(template)
        pod["metadata"] |= {"name": f"{owner['name']}-{self._cluster.next_number}", "namespace": owner["namespace"]}
        pod["metadata"]["ownerReferences"] = [{"uid": owner["uid"], "controller": True, "blockOwnerDeletion": True}]
        self._cluster.put(
            {"apiVersion": "v1", "kind": "Pod", "x-template": template, **pod, "status": {"phase": "Pending"}}
        )
