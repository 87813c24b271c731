"""The state of an attempt's end: its stage, its cause, and the requests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.common.job_status import JobStatus


class Stage(Enum):
    """Stage of an attempt. Reports show the values."""

    DOWN = "no tasks run"
    STARTING = "restoring"
    RUNNING = "running"
    PLANNED = "waiting for an earlier request"
    SNAPSHOT = "taking the last snapshot"
    STANDING = "storing the last snapshot"
    EXPORTING = "copying the savepoint"
    COMMITTING = "committing the sinks"
    ENDED = "ending"


class Cause(Enum):
    """Cause of an orderly end of the attempt."""

    STOP = "stop"
    RESCALE = "rescale"
    INPUT = "end of input"


@dataclass(frozen=True)
class Request:
    """Request for an action. `kind`: savepoint, checkpoint, stop, rescale, cancel, suspend."""

    id: str
    kind: str
    drain: bool = False
    """stop: whether to send the final watermark first."""
    cancels: bool = False
    """stop: whether the final status of the job is CANCELED."""


@dataclass(frozen=True)
class Ending:
    """Ending in progress. `checkpoint` is the number of its last snapshot, or 0 if no epoch takes it yet."""

    cause: Cause
    request: Request | None = None
    checkpoint: int = 0
    is_drained: bool = False
    """Whether the final watermark of a drain was sent, or may have been sent."""
    location: str = ""
    """Location of its savepoint, after completion."""

    @property
    def id(self) -> str:
        return self.request.id if self.request is not None else ""


@dataclass(frozen=True)
class State:
    """State of an attempt's end."""

    stage: Stage = Stage.DOWN
    ending: Ending | None = None
    open: tuple[Request, ...] = ()
    """Savepoints and checkpoints that were passed to the coordinator."""
    deferred: tuple[Request, ...] = ()
    """Requests that wait until the ending fails or the job ends."""
    cancels: tuple[Request, ...] = ()
    """Cancel and suspend requests, which are answered at the end of the job."""
    input_ended: bool = False
    status: JobStatus | None = None
    """Final status of the job in the stage ENDED."""
    is_over: bool = False
    """Whether the cleanup is complete, so that new requests are refused at once."""

    @property
    def is_paused(self) -> bool:
        """Return whether no epoch may run, because records that are read after the last snapshot would be read again."""
        return self.stage in (Stage.STANDING, Stage.EXPORTING, Stage.COMMITTING, Stage.ENDED)

    @property
    def reads(self) -> bool:
        """Return whether epochs read their sources."""
        return self.ending is None or not (self.ending.cause is Cause.INPUT or self.ending.is_drained)

    @property
    def is_idle(self) -> bool:
        """Return whether all requests are answered."""
        return self.ending is None and not (self.open or self.deferred or self.cancels)

    def describe(self) -> str:
        """Return the cause of the end and its stage for a report, or an empty string.

        >>> State(Stage.EXPORTING, Ending(Cause.STOP, Request("1", "stop"))).describe()
        'stop: copying the savepoint'
        """
        if self.ending is None or self.stage in (Stage.DOWN, Stage.ENDED):
            return ""
        return f"{self.ending.cause.value}: {self.stage.value}"
