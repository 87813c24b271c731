"""States of jobs and of subtasks, and the number of subtasks in each state."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

JOB_STATES = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)
SUBTASK_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
    "INITIALIZING",
)
ENDED = frozenset({"FAILED", "CANCELED", "FINISHED"})
"""States from which a job never returns by itself."""

ApplicationStatus = Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]
_OUTCOMES: dict[str, ApplicationStatus] = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}

_OF_JOB = {
    "RESTARTING": "SCHEDULED",
    "CANCELLING": "CANCELING",
    "FAILING": "FAILED",
    "SUSPENDED": "CANCELED",
}
"""States that only a job has, with the corresponding state of a subtask."""

_BY_WEIGHT = ("FAILED", "CANCELING", "CANCELED", "RUNNING", "INITIALIZING", "DEPLOYING", "SCHEDULED", "CREATED")


def state_counts(states: Iterable[str]) -> dict[str, int]:
    """Return the number of subtasks by state, including states without subtasks.

    >>> state_counts(["RUNNING", "RESTARTING"])["SCHEDULED"]
    1
    """
    tally = Counter(map(subtask_state, states))
    return {state: tally.get(state, 0) for state in SUBTASK_STATES}


def lower_case_counts(states: Iterable[str]) -> dict[str, int]:
    """Return the counts for `/jobs/overview`: lower case, with the total.

    >>> counts = lower_case_counts(["RUNNING", "RUNNING"])
    >>> counts["total"], counts["running"], counts["failed"]
    (2, 2, 0)
    """
    counts = state_counts(states)
    return {"total": sum(counts.values()), **{state.lower(): n for state, n in counts.items()}}


def subtask_state(state: str) -> str:
    """Return the state of a subtask if only the state of its job is known."""
    return _OF_JOB.get(state, state)


def vertex_state(states: Iterable[str]) -> str:
    """Return one state for all subtasks of a vertex: the most severe state. The result is FINISHED only if all subtasks
    are FINISHED.

    >>> vertex_state(["FINISHED", "RUNNING"]), vertex_state(["RUNNING", "FAILED"]), vertex_state(["FINISHED"])
    ('RUNNING', 'FAILED', 'FINISHED')
    """
    found = set(map(subtask_state, states))
    if found == {"FINISHED"}:
        return "FINISHED"
    return next((state for state in _BY_WEIGHT if state in found), "CREATED")


def application_status(job_state: str) -> ApplicationStatus:
    """Return the status of an ended job in `/execution-result`."""
    return _OUTCOMES.get(job_state, "UNKNOWN")
