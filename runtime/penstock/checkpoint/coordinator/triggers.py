"""Why the next checkpoint is, or is not, triggered now (pure). Times in ms of the coordinator's clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TriggerState(Enum):
    """What decides about the next checkpoint, as REST tells it."""

    DUE = "it is triggered with the next epoch"
    WAITING_FOR_INTERVAL = "the interval, or the pause after the last one, is not over"
    WAITING_FOR_COMMITS = (
        "sinks have not carried out the commits of as many complete checkpoints as "
        "execution.checkpointing.max-uncommitted-checkpoints allows"
    )
    WAITING_AFTER_FAILURE = "the last one failed, and it is tried again after a pause"
    IN_PROGRESS = "one is in progress"
    STOPPING = "the job ends with the one that was taken"
    NOT_PERIODIC = "no interval is set"
    NO_ATTEMPT = "the job is not running"
    FENCED = "another JobManager has taken over"


@dataclass(frozen=True)
class TriggerSituation:
    """What is known when the question is asked.

    `asked_for`: a savepoint waits, or somebody asked for a checkpoint: that goes before the interval and past the commits.
    `uncommitted`: complete checkpoints whose commits are not confirmed; `most_uncommitted` of them hold up the next one.
    """

    now: int
    has_attempt: bool = True
    is_fenced: bool = False
    is_stopping: bool = False
    is_in_progress: bool = False
    savepoint_waits: bool = False
    is_asked_for: bool = False
    may_retry_at: int = 0
    due_at: int | None = None
    uncommitted: int = 0
    most_uncommitted: int = 1

    def judge(self) -> TriggerState:
        """
        >>> TriggerSituation(now=10, due_at=10).judge().name, TriggerSituation(now=9, due_at=10).judge().name
        ('DUE', 'WAITING_FOR_INTERVAL')
        >>> TriggerSituation(now=10, due_at=10, uncommitted=1).judge().name
        'WAITING_FOR_COMMITS'
        >>> TriggerSituation(now=10, due_at=10, uncommitted=1, savepoint_waits=True).judge().name
        'DUE'
        >>> TriggerSituation(now=10, due_at=12, may_retry_at=11).judge().name
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
        if self.is_asked_for and self.now >= self.may_retry_at:
            return TriggerState.DUE
        if self.due_at is not None and self.now >= self.due_at:
            return TriggerState.WAITING_FOR_COMMITS if self.uncommitted >= self.most_uncommitted else TriggerState.DUE
        if self.due_at is None and not self.is_asked_for:
            return TriggerState.NOT_PERIODIC
        return TriggerState.WAITING_AFTER_FAILURE if self.now < self.may_retry_at else TriggerState.WAITING_FOR_INTERVAL
