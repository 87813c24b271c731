"""Refused actions: which of them fail again until something changes, and what a user can do. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_operator.reconcile.observation import ActionResult

QUOTA_REMEDY = "Raise the quota of the namespace, or lower the resources or the parallelism"

UNREADABLE = "Unreadable"
"""Code of an action that needs an object which the API server has failed to read for some time."""

REFUSALS = frozenset(
    {
        "InvalidObject",
        "Denied",
        "QuotaExceeded",
        "NameTaken",
        "SecretMissing",
        UNREADABLE,
        "ProgramRefused",
        "ClusterMissing",
    }
)
"""Codes of actions that are refused because of their content. They fail again until something changes."""

REVISION_LOST = "RevisionLost"
"""Reason if the ControllerRevision for the start does not exist or cannot be parsed."""

PODS_STUCK = "PodsStuck"
"""Reason if pods of the former incarnation do not end."""

CANNOT_START = REFUSALS | {REVISION_LOST, PODS_STUCK}
"""Reasons why the pods of an incarnation cannot be created until something changes. An edit of the spec takes effect
immediately.
"""

SNAPSHOT_REFUSED = "SnapshotRefused"
"""Reason while the creation of a FlinkSnapshot is refused. All other work continues."""

REMEDIES = {
    "Denied": "Check quotas, admission policies and the operator's RBAC",
    "QuotaExceeded": QUOTA_REMEDY,
    "InvalidObject": "Correct the field of the spec from which the object is created (podTemplate, resources, ingress, …)",
    "NameTaken": "Delete or rename that object, or give the FlinkJob another name. The operator waits until then",
    "SecretMissing": "Create the Secret, or correct the field that names it: spec.storage.secretName, rest.ssl.secret-name in "
    "spec.configuration, or env, envFrom and volumes in a podTemplate. The operator does not change the running job until the Secret exists",
    UNREADABLE: "Check the log of the API server, which cannot return objects of one kind. If it cannot decrypt a Secret, restore or delete the Secret",
    "ProgramRefused": "Correct the program, its arguments or its packages, and edit the FlinkJob",
    "ClusterMissing": "Create the FlinkCluster, or name another one in spec.cluster. The job then continues from the same state",
    "KubernetesUnavailable": "The operator tries again",
}


def explain(result: ActionResult) -> str:
    """Describe a failed action, with the remedy."""
    remedy = REMEDIES.get(result.code, "The operator tries again")
    return f"{result.action}: {result.message}. {remedy}"


def leftovers(names: tuple[str, ...], command: str) -> str:
    """Describe the remedy for objects of an earlier FlinkJob that have lost their owner."""
    return (
        f"{', '.join(names[:4])}: created for an earlier FlinkJob of this name, without an owner, so Kubernetes never removes "
        f"them. Nothing proves that they belong to this FlinkJob, so the operator does not change them. Remove them: {command}. "
        "Their checkpoints stay in storage. To continue from them, set job.startFrom to latest-of-name"
    )


def stuck_pods(names: list[str]) -> str:
    """Describe the remedy for pods of a former incarnation that do not end."""
    return (
        f"waiting for {len(names)} pods of the former incarnation to end: {', '.join(names[:3])}. Run kubectl describe pod and remove "
        "the cause (a finalizer, a lost node), or delete the pods with --force"
    )


def lost_revision(name: str | None) -> str:
    """Describe the remedy for a revision that cannot be read."""
    return (
        f"ControllerRevision {name} does not exist or cannot be read, so its pods cannot be created. Set the spec to the revision to "
        "run (or change job.restartNonce). The job then starts from the same state"
    )
