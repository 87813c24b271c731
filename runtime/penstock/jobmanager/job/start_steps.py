"""What an attempt that starts is doing, by name, and how long its first epoch may stand still.

A start is a line of steps: slots, the checkpoints' claim and plan, commits that are owed, the tasks; and in every task
loading the job, restoring, opening functions; then the first epoch runs to its end. Each has a limit of its own: slots in
the scheduler, storage in its retries, the steps of a task in its watchdog. What is left is a task that is never started, or
that says nothing: for that there is a limit on the first epoch, whose clock stands while a task tells of a step of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from penstock.common.errors import EpochFailed
from penstock.jobmanager.failover.failures import hanging
from penstock.taskmanager.protocol import Whereabouts
from penstock.taskmanager.watching.watchdog import LOADING, OPENING, RESTORING

STANDING_BY = "standing by until it is said where the job starts from"
WAITING = "waiting for slots"
TAKING_OVER = "taking over the job's checkpoints"
PLANNING = "planning what is restored"
COMMITTING = "committing what the restored checkpoint promised"
BEGINNING_SOURCES = "beginning the sources"
SENDING = "sending the job to its slots"
FIRST_EPOCH = "first epoch"

MOST_STEPS = 100
"""That are noted of a start."""
_OF_TASKS = (LOADING, RESTORING, OPENING)

Where = Mapping[tuple[int, int], Whereabouts]
"""By slot and level."""


class StartSteps:
    """Of one job; used by its JobMaster's thread, `step` is read by any.

    Args:
        told: called with each step that a task has said it takes long for.
        timeout_s: of a first epoch in which no task tells of a step.
    """

    def __init__(
        self, told: Callable[[str], None], timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.step = ""
        """In words; empty: the job runs, or is over."""
        self.restores = ""
        """Folder of what the attempt restores."""
        self._taken: list[tuple[str, int]] = []
        self._told = told
        self._timeout_s = timeout_s
        self._clock = clock
        self._still_since = 0.0

    def begin(self, step: str) -> None:
        self._still_since = self._clock()
        if step != self.step and len(self._taken) < MOST_STEPS:
            self._taken.append((step, int(time.time() * 1000)))
        self.step = step

    def end(self) -> list[tuple[str, int]]:
        """The start is over. Its steps, each with when it began (ms since the epoch)."""
        self.step = ""
        taken, self._taken = self._taken, []
        return taken

    def look(self, where: Where, unanswered: Callable[[], list[tuple[int, int]]]) -> None:
        """While the first epoch runs.

        Raises:
            JobFailed: a task that has said where it is keeps the epoch from its end.
            EpochFailed: one that has said nothing does.
        """
        at_start = {task: of for task, of in where.items() if of.step in _OF_TASKS}
        if at_start:
            (slot, level), slowest = max(at_start.items(), key=lambda entry: entry[1].seconds)
            before = self.step
            self.begin(_words(slowest, slot, level))
            if self.step != before:
                self._told(self.step)
            return
        if self.step != FIRST_EPOCH:
            self.begin(FIRST_EPOCH)
        if not self._timeout_s or self._clock() - self._still_since <= self._timeout_s:
            return
        seen = f"the first epoch has not ended within {self._timeout_s:g} s"
        if where:
            level, slot = min((level, slot) for slot, level in where)
            raise hanging(where[slot, level], slot, level, seen)
        missing = ", ".join(f"slot {slot} level {level}" for slot, level in unanswered()) or "none that is known"
        raise EpochFailed(
            f"{seen}; tasks without an answer: {missing}",
            remedy="look at the workers' logs: a task was not started, or its process does nothing at all",
        )


def _words(where: Whereabouts, slot: int, level: int) -> str:
    """
    >>> _words(Whereabouts("opening functions", 3.0, "lookup", line="job.py:12 in open"), 3, 1)
    "opening functions: slot 3, level 1, operator 'lookup' (job.py:12 in open)"
    """
    operator = f", operator {where.operator!r}" if where.operator else ""
    line = f" ({where.line})" if where.line else ""
    return f"{where.step}: slot {slot}, level {level}{operator}{line}"
