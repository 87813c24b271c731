"""What is known of an attempt's end: where it stands, what ends it, who asked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from penstock.common.job_status import JobStatus


class Stage(Enum):
    """Where an attempt stands; the values are for people."""

    DOWN = "no tasks run"
    STARTING = "restoring"
    RUNNING = "running"
    PLANNED = "waiting for what was asked for before"
    SNAPSHOT = "taking the last snapshot"
    STANDING = "storing the last snapshot"
    EXPORTING = "copying the savepoint"
    COMMITTING = "committing the sinks"
    ENDED = "ending"


class Cause(Enum):
    """What ends the attempt in order."""

    STOP = "stop"
    RESCALE = "rescale"
    INPUT = "end of input"


@dataclass(frozen=True)
class Request:
    """What was asked for. `kind`: savepoint, checkpoint, stop, rescale, cancel, suspend."""

    id: str
    kind: str
    drain: bool = False
    """stop: send the final watermark first."""
    cancels: bool = False
    """stop: the job's final status is CANCELED."""


@dataclass(frozen=True)
class Ending:
    """The one ending in progress. `checkpoint`: number of its last snapshot, 0 = no epoch was given it."""

    cause: Cause
    request: Request | None = None
    checkpoint: int = 0
    is_drained: bool = False
    """The final watermark of a drain was sent, or may have been."""
    location: str = ""
    """Of its savepoint, once that is complete."""

    @property
    def id(self) -> str:
        return self.request.id if self.request is not None else ""


@dataclass(frozen=True)
class State:
    """All that is known of an attempt's end."""

    stage: Stage = Stage.DOWN
    ending: Ending | None = None
    open: tuple[Request, ...] = ()
    """Savepoints and checkpoints that the coordinator was asked for."""
    deferred: tuple[Request, ...] = ()
    """Wait until the ending has failed or the job has ended."""
    cancels: tuple[Request, ...] = ()
    """Cancel and suspend, answered when the job is over."""
    input_ended: bool = False
    status: JobStatus | None = None
    """ENDED: the job's final status."""
    is_over: bool = False
    """Everything is tidied up, and whoever asks now is told so at once."""

    @property
    def stands_still(self) -> bool:
        """No epoch may run: what was read after the last snapshot would be read again."""
        return self.stage in (Stage.STANDING, Stage.EXPORTING, Stage.COMMITTING, Stage.ENDED)

    @property
    def reads(self) -> bool:
        """Epochs read their sources."""
        return self.ending is None or not (self.ending.cause is Cause.INPUT or self.ending.is_drained)

    @property
    def is_idle(self) -> bool:
        """Nothing was asked for that is not answered."""
        return self.ending is None and not (self.open or self.deferred or self.cancels)

    def describe(self) -> str:
        """For people: what ends the attempt, and how far that has come; empty: nothing does.

        >>> State(Stage.EXPORTING, Ending(Cause.STOP, Request("1", "stop"))).describe()
        'stop: copying the savepoint'
        """
        if self.ending is None or self.stage in (Stage.DOWN, Stage.ENDED):
            return ""
        return f"{self.ending.cause.value}: {self.stage.value}"
