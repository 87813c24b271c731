"""The running incarnation in the status of a FlinkJob: its pods, their terminations and its health."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.api.types import Api, Time, renamed


class Running(Api):
    """The incarnation of the job that has pods, or that was the last to have pods."""

    revision: str
    """Name of the ControllerRevision that contains the spec of the incarnation."""
    generation: int
    """Generation of the FlinkJob from which the incarnation was created."""
    job_id: str
    """The engine's job id, which is new for every incarnation. The folder of its checkpoints has this name."""
    image: str
    """Image of the pods."""
    cluster: str | None = None
    """FlinkCluster in which the job runs, with the number of its revision: NAMESPACE/NAME@NUMBER. Not set if the job has its own pods."""
    parallelism: int
    """Parallelism of the incarnation."""
    worker_memory: str | None = None
    """Memory limit of the workers, if `autoscaling.memory` has replaced that of the spec."""
    args_hash: str = ""
    """Hash of entry and arguments."""
    started_at: Time
    """Time when the operator created the pods."""
    restored_from: Restore
    """Source of the incarnation's state."""
    warm: bool = False
    """Whether the operator started the pods before the previous incarnation stopped. The file `release` next to the checkpoints then names the source of the state."""
    checks: bool = False
    """Whether the master checks the program before the operator writes the file `release`. This is so for the first deployment."""
    service_suffix: Annotated[str, renamed("serviceSuffix", former="door")] = ""
    """Suffix of the name of the Service through which the workers find the master. Two incarnations that run at the same time have different suffixes."""
    rest_tls: str = ""
    """Secret with the certificate of the REST API. Empty means that the REST API serves plain HTTP."""
    stable: bool = False
    """Whether the incarnation has been RUNNING and has completed a checkpoint."""
    had_checkpoint: bool = False
    """Whether the operator has seen a checkpoint of this incarnation. If so, the operator never restarts the job with empty state, even if it cannot read a checkpoint."""
    finished_at: Time | None = None
    """Time when the operator saw that the job was FINISHED."""
    end_of_input: bool = False
    """Whether the job finished because it had read all of its input. False if a user stopped the job, or if the engine does not report the reason."""
    origin_unknown: bool = False
    """Whether the operator adopted a running job without knowing its history. The operator then knows neither the source of the state nor whether a checkpoint is complete."""
    adopted_at: Time | None = None
    """Time when the operator adopted the job, because its status was lost. The operator has no record of an operation that was in progress at that time."""
    canceled: bool = False
    """Whether a user canceled the job over its REST API. The operator then restarts the job only after an edit of the spec."""
    failures: int = 0
    """Number of consecutive restarts after the engine gave up the job. The number returns to zero when the job has been RUNNING for ten minutes."""
    failed_at: Time | None = None
    """Time when the operator saw that the engine had given up the job."""
    failure: str = ""
    """The engine's reason for giving up the job."""

    @property
    def may_have_checkpoint(self) -> bool:
        """Whether the incarnation has completed a checkpoint, or may have completed one that the operator does not know."""
        return self.had_checkpoint or self.origin_unknown


class Termination(Api):
    """The last unexpected termination of a container of the job."""

    pod: str
    """Name of the pod, which may no longer exist."""
    role: str
    """master or worker."""
    container: str = ""
    """Name of the container. Empty means the whole pod."""
    reason: str
    """OOMKilled, ContainerFailed, Evicted, …"""
    exit_code: int | None = None
    """Exit code of the container."""
    memory_limit: str | None = None
    """Memory limit of the container."""
    message: str
    """Explanation for users."""
    remedy: str = ""
    """Action that users can take."""
    job_id: str
    """Job id of the incarnation that the container belonged to."""
    time: Time
    """Time of the termination."""
    count: int = 1
    """Number of terminations of the same kind in this series."""
    since: Time
    """Time of the first termination in this series."""


class EndSeries(Api):
    """A series of terminations of the same kind."""

    role: str
    """master or worker."""
    container: str = ""
    """Name of the container. Empty means the whole pod."""
    reason: str
    """OOMKilled, ContainerFailed, Evicted, …"""
    count: int
    """Number of terminations."""
    since: Time
    """Time of the first termination."""
    time: Time
    """Time of the last termination."""


class Ends(Api):
    """The terminations and restarts of one incarnation's containers that the operator has counted. The operator uses
    this record to count each of them exactly once.
    """

    job_id: str
    """Job id of the incarnation."""
    counted: dict[str, Time] = Field(default_factory=dict)
    """Time of the last counted termination, by pod and container (POD/CONTAINER)."""
    series: tuple[EndSeries, ...] = ()
    """Terminations by kind, with their numbers."""
    restarts: dict[str, int] = Field(default_factory=dict)
    """Number of container restarts by role, and of failovers under the key `failover`. The numbers include the restarts of pods that no longer exist."""
    counted_restarts: Annotated[dict[str, int], renamed("countedRestarts", former="told")] = Field(default_factory=dict)
    """Numbers that `restarts` already includes. The key POD has the restarts of the containers of a pod. The key POD#N has the failovers of a master since the N-th restart of its container."""


class HealthStatus(Api):
    """Health of the running incarnation."""

    job_id: str
    """Job id of the incarnation."""
    restarts: int = 0
    """Number of restarts of the incarnation at the last count."""
    restarts_at: tuple[Time, ...] = ()
    """Times of the most recent restarts."""
    broken: str | None = None
    """The problem that the job has: RestartLoop, NoCheckpoint or MasterSilent."""
    message: str = ""
    """Explanation for users, with the remedy."""
    since: Time | None = None
    """Time when the problem began, or when the job became healthy."""
    pod_restarts: int = 0
    """Number of consecutive restarts of the pods because of a problem."""
    restarted_at: Time | None = None
    """Time of the last restart of the pods."""
