"""`JobStatus`: the state of a job."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    """Flink's states of a job.

    >>> JobStatus.FINISHED.is_globally_terminal_state(), JobStatus.SUSPENDED.is_terminal_state()
    (True, True)
    """

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended and cannot continue."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Return whether this JobManager has finished with the job. Another JobManager may continue a SUSPENDED job."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED


GLOBALLY_TERMINAL = frozenset(status.value for status in JobStatus if status.is_globally_terminal_state())
"""Names of the states in which a job has ended and cannot continue."""
