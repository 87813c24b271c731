"""Why the next checkpoint is, or is not, triggered now (pure). Times in ms of the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TriggerState(Enum):
    """The reason that decides about the next checkpoint, as REST reports it."""

    DUE = "it starts with the next epoch"
    WAITING_FOR_INTERVAL = "the interval or the minimum pause has not passed"
    WAITING_FOR_COMMITS = "sinks have not committed the complete checkpoints, and execution.checkpointing.max-uncommitted-checkpoints allows no more"
    WAITING_AFTER_FAILURE = "the last one failed; a retry follows after a pause"
    IN_PROGRESS = "one is in progress"
    STOPPING = "the job ends with the checkpoint that was taken"
    NOT_PERIODIC = "no interval is set"
    NO_ATTEMPT = "the job is not running"
    FENCED = "another JobManager has taken over"


@dataclass(frozen=True)
class TriggerSituation:
    """The input of the decision.

    `savepoint_waits` and `is_requested`: a savepoint waits, or a checkpoint was requested. Such a request overrides the
    interval and the unconfirmed commits. `uncommitted`: complete checkpoints whose commits are not confirmed. The next periodic
    checkpoint waits if their number reaches `max_uncommitted`.
    """

    now: int
    has_attempt: bool = True
    is_fenced: bool = False
    is_stopping: bool = False
    is_in_progress: bool = False
    savepoint_waits: bool = False
    is_requested: bool = False
    may_retry_at: int = 0
    due_at: int | None = None
    uncommitted: int = 0
    max_uncommitted: int = 1

    def decide(self) -> TriggerState:
        """Return the reason why the next checkpoint is, or is not, triggered.

        >>> TriggerSituation(now=10, due_at=10).decide().name, TriggerSituation(now=9, due_at=10).decide().name
        ('DUE', 'WAITING_FOR_INTERVAL')
        >>> TriggerSituation(now=10, due_at=10, uncommitted=1).decide().name
        'WAITING_FOR_COMMITS'
        >>> TriggerSituation(now=10, due_at=10, uncommitted=1, savepoint_waits=True).decide().name
        'DUE'
        >>> TriggerSituation(now=10, due_at=12, may_retry_at=11).decide().name
        'WAITING_AFTER_FAILURE'
        """
        if not self.has_attempt:
            return TriggerState.NO_ATTEMPT
        if self.is_fenced:
            return TriggerState.FENCED
        if self.is_in_progress:
            return TriggerState.IN_PROGRESS
        if self.is_stopping:
            return TriggerState.STOPPING
        if self.savepoint_waits:
            return TriggerState.DUE
        if self.is_requested and self.now >= self.may_retry_at:
            return TriggerState.DUE
        if self.due_at is not None and self.now >= self.due_at:
            return TriggerState.WAITING_FOR_COMMITS if self.uncommitted >= self.max_uncommitted else TriggerState.DUE
        if self.due_at is None and not self.is_requested:
            return TriggerState.NOT_PERIODIC
        return TriggerState.WAITING_AFTER_FAILURE if self.now < self.may_retry_at else TriggerState.WAITING_FOR_INTERVAL
