"""What happened to a job: its states with their times, failures, rescales, events."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

from penstock.common.job_status import JobStatus
from penstock.rest.facts import Event, Failure, JobStart, Rescale, StateChange

logger = logging.getLogger(__name__)


@dataclass
class JobHistory:
    """Bounded lists for REST and the dashboard."""

    status: JobStatus = JobStatus.CREATED
    timestamps: dict[str, int] = field(default_factory=dict)
    """ms by state; the last time it was entered."""
    states: deque[StateChange] = field(default_factory=lambda: deque(maxlen=512))
    """The last of them, the oldest first."""
    failures: deque[Failure] = field(default_factory=lambda: deque(maxlen=32))
    rescales: deque[Rescale] = field(default_factory=lambda: deque(maxlen=32))
    starts: deque[JobStart] = field(default_factory=lambda: deque(maxlen=64))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=256))
    restarts: int = 0
    rescale_count: int = 0
    """Since the job was started; `rescales` are the last of them."""
    started_at: int = 0
    """ms; of the first attempt."""
    end_of_input: bool = False
    """The job has FINISHED because all of its input was read, and not because it was asked to stop."""

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
        """For REST, the live view and the log: what a person should know of."""
        logger.info("%s", text)
        self.events.append(Event(now_ms, text))
