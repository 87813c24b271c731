"""The history of a job: its states with their times, failures, rescales and events."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from penstock.common.job_status import JobStatus
from penstock.rest.facts import Event, Failure, JobStart, Rescale, StateChange

logger = logging.getLogger(__name__)


@dataclass
class JobHistory:
    """History for REST and the dashboard, in lists of limited length."""

    status: JobStatus = JobStatus.CREATED
    timestamps: dict[str, int] = field(default_factory=dict)
    """Time in ms by state, at which the job last entered it."""
    states: deque[StateChange] = field(default_factory=lambda: deque(maxlen=512))
    """Latest state changes, the oldest first."""
    failures: deque[Failure] = field(default_factory=lambda: deque(maxlen=32))
    rescales: deque[Rescale] = field(default_factory=lambda: deque(maxlen=32))
    starts: deque[JobStart] = field(default_factory=lambda: deque(maxlen=64))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=256))
    restarts: int = 0
    rescale_count: int = 0
    """Number of rescales since the start of the job. `rescales` contains the latest rescales."""
    started_at: int = 0
    """Start of the first attempt, in ms."""
    end_of_input: bool = False
    """Whether the job has FINISHED because all of its input was read, and not because of a stop request."""

    def move(self, status: JobStatus, now_ms: int) -> None:
        self.status = status
        self.started_at = self.started_at or now_ms
        self.timestamps[status.value] = now_ms
        self.states.append(StateChange(now_ms, status.value))
        self.event(now_ms, f"job is {status.value}")

    def rescaled(self, rescale: Rescale) -> None:
        self.rescale_count += 1
        self.rescales.append(rescale)

    def event(self, now_ms: int, text: str) -> None:
        """Add an event that users should know, for REST, the live view and the log."""
        logger.info("%s", text)
        self.events.append(Event(now_ms, text))
