"""The steps of a starting attempt, and the time limit of its first epoch.

A start is a sequence of steps: slots, the claim and the restore plan of the checkpoints, pending commits, and the tasks. Every task loads
the job, restores state and opens functions. Then the first epoch runs to its end.

Each step has its own limit. The scheduler limits the wait for slots, the retries limit storage, and the watchdog limits
the steps of a task. One case is left: a task that never starts, or that reports nothing. For this case, the first epoch has a limit. The
clock of this limit pauses while a task reports a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from penstock.common.errors import EpochFailed
from penstock.jobmanager.failover.failures import hanging
from penstock.taskmanager.protocol import Whereabouts
from penstock.taskmanager.watching.watchdog import LOADING, OPENING, RESTORING

WAITING_FOR_RELEASE = "waiting for the record that states where the job starts from"
WAITING_TO_LEAD = "on standby: another JobManager leads"
WAITING = "waiting for slots"
TAKING_OVER = "taking over the job's checkpoints"
PLANNING = "planning the restore"
COMMITTING = "committing the pending commits of the restored checkpoint"
BEGINNING_SOURCES = "starting the sources"
SENDING = "sending the job to its slots"
FIRST_EPOCH = "first epoch"

MAX_STEPS = 100
"""Maximum number of recorded steps of a start."""
_OF_TASKS = (LOADING, RESTORING, OPENING)

Where = Mapping[tuple[int, int], Whereabouts]
"""Location by slot and level."""


class StartSteps:
    """Steps of one job's start. The JobMaster's thread calls the methods. Any thread may read `step`.

    Args:
        on_step: function that is called with each step that a task reports as slow.
        timeout_s: time limit in seconds of a first epoch in which no task reports a step.
    """

    def __init__(
        self, on_step: Callable[[str], None], timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.step = ""
        """Description of the step. Empty means that the job runs or is over."""
        self.restores = ""
        """Directory of the snapshot that the attempt restores."""
        self._taken: list[tuple[str, int]] = []
        self._on_step = on_step
        self._timeout_s = timeout_s
        self._clock = clock
        self._still_since = 0.0

    def begin(self, step: str) -> None:
        self._still_since = self._clock()
        if step != self.step and len(self._taken) < MAX_STEPS:
            self._taken.append((step, int(time.time() * 1000)))
        self.step = step

    def end(self) -> list[tuple[str, int]]:
        """End the start. Return its steps, each with its start time (ms since the epoch)."""
        self.step = ""
        taken, self._taken = self._taken, []
        return taken

    def check(self, where: Where, unanswered: Callable[[], list[tuple[int, int]]]) -> None:
        """Check the first epoch while it runs.

        Raises:
            JobFailed: a task that reported its location blocks the epoch.
            EpochFailed: a task that reported nothing blocks the epoch.
        """
        at_start = {task: of for task, of in where.items() if of.step in _OF_TASKS}
        if at_start:
            (slot, level), slowest = max(at_start.items(), key=lambda entry: entry[1].seconds)
            before = self.step
            self.begin(_describe_step(slowest, slot, level))
            if self.step != before:
                self._on_step(self.step)
            return
        if self.step != FIRST_EPOCH:
            self.begin(FIRST_EPOCH)
        if not self._timeout_s or self._clock() - self._still_since <= self._timeout_s:
            return
        seen = f"the first epoch has not ended within {self._timeout_s:g} s"
        if where:
            level, slot = min((level, slot) for slot, level in where)
            raise hanging(where[slot, level], slot, level, seen)
        missing = ", ".join(f"slot {slot} level {level}" for slot, level in unanswered()) or "unknown"
        raise EpochFailed(
            f"{seen}; tasks that have not responded: {missing}",
            remedy="check the logs of the workers. Either a task did not start, or its process hangs",
        )


def _describe_step(where: Whereabouts, slot: int, level: int) -> str:
    """Return the description of a step.

    >>> _describe_step(Whereabouts("opening functions", 3.0, "lookup", line="job.py:12 in open"), 3, 1)
    "opening functions: slot 3, level 1, operator 'lookup' (job.py:12 in open)"
    """
    operator = f", operator {where.operator!r}" if where.operator else ""
    line = f" ({where.line})" if where.line else ""
    return f"{where.step}: slot {slot}, level {level}{operator}{line}"
