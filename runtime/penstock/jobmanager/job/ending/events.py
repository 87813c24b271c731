"""What the machine that ends attempts is told, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.job_status import JobStatus
from penstock.jobmanager.job.ending.state import Request

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requested:
    """Somebody asks. `refusal`: why it cannot be, as far as the shell can tell."""

    request: Request
    refusal: str = ""


@dataclass(frozen=True)
class InputEnded:
    """Every source was read to its end."""


@dataclass(frozen=True)
class AttemptBegun:
    """The tasks are started; the first epoch is to follow."""


@dataclass(frozen=True)
class FirstEpochRun:
    """State is restored, records flow. `result`: of the rescale that began the attempt."""

    result: int = 0


@dataclass(frozen=True)
class LastSnapshotSent:
    """An epoch was given the last snapshot."""

    checkpoint: int


@dataclass(frozen=True)
class BarrierReached:
    """The epoch with this snapshot has ended."""

    checkpoint: int


@dataclass(frozen=True)
class SnapshotComplete:
    """A checkpoint is complete; `requests`: ids of those who asked for it."""

    checkpoint: int
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotAborted:
    """A checkpoint was given up, and `requests` with it. Who asked for it and is not among them is served by the next one."""

    checkpoint: int
    reason: str
    requests: tuple[str, ...] = ()


@dataclass(frozen=True)
class SavepointDone:
    """A savepoint is copied (`location`), or failed."""

    id: str
    location: str = ""
    failure: str = ""


@dataclass(frozen=True)
class CommitsDone:
    """Nothing that a complete checkpoint promised is left to be committed."""


@dataclass(frozen=True)
class AttemptFailed:
    """Another attempt follows."""

    reason: str


@dataclass(frozen=True)
class JobOver:
    """The job has ended, or was left, with this status; everything is tidied up."""

    status: JobStatus


Event = (
    Requested
    | InputEnded
    | AttemptBegun
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
    """The one answer of a request. `failure` empty: it succeeded."""

    id: str
    failure: str = ""
    location: str = ""
    result: int | None = None


@dataclass(frozen=True)
class Ask:
    """Have the coordinator take this savepoint or checkpoint, or the last snapshot of this stop or rescale."""

    request: Request


@dataclass(frozen=True)
class AskAgain:
    """What was deferred has its turn: ask anew."""

    requests: tuple[Request, ...]


@dataclass(frozen=True)
class NoteParallelism:
    """The next attempt is to have what this rescale asks for."""

    id: str


@dataclass(frozen=True)
class BeginAnew:
    """Nothing has failed, but another attempt is to start at once from the last checkpoint. `rescaled`: as was asked for."""

    reason: str
    rescaled: bool = False


@dataclass(frozen=True)
class EndJob:
    """Leave the job with this status, as soon as the epoch that runs has ended or is lost."""

    status: JobStatus


Effect = Answer | Ask | AskAgain | NoteParallelism | BeginAnew | EndJob
