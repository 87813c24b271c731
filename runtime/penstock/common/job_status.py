"""`JobStatus`: where a job stands."""

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
        """The job is over for good."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """This JobManager does nothing more for the job; after SUSPENDED another one may."""
        return self.is_globally_terminal_state() or self is JobStatus.SUSPENDED
