"""High availability and the identity of the cluster."""

from __future__ import annotations

from datetime import timedelta

from penstock.common.config.option import choice_option, duration_option, text_option

HIGH_AVAILABILITY = choice_option(
    "high-availability.type",
    ("none", "kubernetes", "file"),
    "none",
    "kubernetes or file: several masters may run for one job or session. One leads, and the others are on standby. "
    "kubernetes elects the leader with a Lease, file with a claim in high-availability.storageDir. Checkpoint storage must "
    "support conditional writes.",
    "high-availability",
)
HIGH_AVAILABILITY_DIRECTORY = text_option(
    "high-availability.storageDir",
    None,
    "Folder of the election of the leader. A session cluster also keeps its programs in it, so that it runs them again when "
    "it is restarted. Not set: the election uses execution.checkpointing.dir, and the programs of a session end with it.",
)
LEASE_DURATION = duration_option(
    "high-availability.kubernetes.leader-election.lease-duration",
    timedelta(seconds=5),
    "Time without a heartbeat of the leader after which a standby master takes over. It also applies to the election in "
    "storage. A standby master on a connected network notices the end of the leader's process sooner.",
)
RENEW_DEADLINE = duration_option(
    "high-availability.kubernetes.leader-election.renew-deadline",
    timedelta(minutes=1),
    "Time for which a leader keeps the leadership while the Lease or the storage of the election does not respond.",
)
RETRY_PERIOD = duration_option(
    "high-availability.kubernetes.leader-election.retry-period",
    timedelta(seconds=1),
    "Time between two heartbeats of the leader. Standby masters read the heartbeat as often.",
)
CLUSTER_ID = text_option(
    "kubernetes.cluster-id",
    None,
    "Name of the cluster in an election. All masters of a cluster have the same name. A master with --job-id uses the job id "
    "instead.",
    "high-availability.cluster-id",
)
KUBERNETES_NAMESPACE = text_option("kubernetes.namespace", None, "Namespace of the FlinkJob. The operator sets it.")
LEADER_LEASE = text_option(
    "kubernetes.leader-lease", None, "Name of the Lease. Not set: the name of the cluster, followed by `-leader`."
)
