"""High availability and the identity of the cluster."""

from __future__ import annotations

from penstock.common.config.option import choice_option, text_option

HIGH_AVAILABILITY = choice_option(
    "high-availability.type",
    ("none", "kubernetes", "file"),
    "none",
    "kubernetes or file: a second JobManager may start while the first still runs. The newest JobManager leads. It "
    "claims the leadership in checkpoint storage, which must support conditional writes.",
    "high-availability",
)
HIGH_AVAILABILITY_DIRECTORY = text_option(
    "high-availability.storageDir",
    None,
    "Folder in which a session cluster keeps its programs, so that it runs them again when it is restarted. Not set: the "
    "programs end with the session. Jobs that are not in a session do not need it: their claims are stored with the checkpoints.",
)
CLUSTER_ID = text_option(
    "kubernetes.cluster-id", None, "Name of the FlinkJob. The operator sets it.", "high-availability.cluster-id"
)
KUBERNETES_NAMESPACE = text_option("kubernetes.namespace", None, "Namespace of the FlinkJob. The operator sets it.")
LEADER_LEASE = text_option("kubernetes.leader-lease", None, "Reserved name of a Lease. The operator sets it.")
