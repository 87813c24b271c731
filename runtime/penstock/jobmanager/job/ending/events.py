"""The events and the effects of the state machine that ends attempts."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.ending.state import Request

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requested:
    """Request for an action. `refusal` is the reason why it is impossible, if the caller knows one."""

    request: Request
    refusal: str = ""


@dataclass(frozen=True)
class InputEnded:
    """End of the input of every source."""


@dataclass(frozen=True)
class AttemptStarted:
    """Start of the tasks. The first epoch follows."""


@dataclass(frozen=True)
class FirstEpochRun:
    """End of the first epoch: state is restored and records flow. `result` belongs to the rescale that began the attempt."""

    result: int = 0


@dataclass(frozen=True)
class LastSnapshotSent:
    """Start of the epoch that takes the last snapshot."""

    checkpoint: int


@dataclass(frozen=True)
class BarrierReached:
    """End of the epoch that takes this snapshot."""

    checkpoint: int


@dataclass(frozen=True)
class SnapshotComplete:
    """Completion of a checkpoint. `requests` contains the ids of its requests."""

    checkpoint: int
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotAborted:
    """Abort of a checkpoint and of `requests`. The next checkpoint serves its other requests."""

    checkpoint: int
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavepointDone:
    """Completion of a savepoint at `location`, or its failure."""

    id: str
    location: str = ""
    failure: str = ""


@dataclass(frozen=True)
class CommitsDone:
    """Completion of all commits that complete checkpoints promised."""


@dataclass(frozen=True)
class AttemptFailed:
    """Failure of the attempt. Another attempt follows."""

    reason: str


@dataclass(frozen=True)
class JobOver:
    """End of the job with this status, or its handover. The cleanup is complete."""

    status: JobStatus


Event = (
    Requested
    | InputEnded
    | AttemptStarted
    | FirstEpochRun
    | LastSnapshotSent
    | BarrierReached
    | SnapshotComplete
    | SnapshotAborted
    | SavepointDone
    | CommitsDone
    | AttemptFailed
    | JobOver
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Answer to a request. An empty `failure` means success."""

    id: str
    failure: str = ""
    location: str = ""
    result: int | None = None


@dataclass(frozen=True)
class RequestSnapshot:
    """Order to the coordinator: take this savepoint or checkpoint, or the last snapshot of this stop or rescale."""

    request: Request


@dataclass(frozen=True)
class RetryRequests:
    """Order to handle the deferred requests again."""

    requests: tuple[Request, ...]


@dataclass(frozen=True)
class SetParallelism:
    """Order to use the parallelism of this rescale in the next attempt."""

    id: str


@dataclass(frozen=True)
class RestartAttempt:
    """Order to start another attempt at once from the last checkpoint, without a failure. `rescaled`: a rescale is the reason."""

    reason: str
    rescaled: bool = False


@dataclass(frozen=True)
class EndJob:
    """Order to end the job with this status, as soon as the running epoch has ended or is lost."""

    status: JobStatus


Effect = Answer | RequestSnapshot | RetryRequests | SetParallelism | RestartAttempt | EndJob
