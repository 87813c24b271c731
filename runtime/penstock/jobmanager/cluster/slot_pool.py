"""The assignment of slots to jobs. At most one job holds a slot at a time. The slots of a TaskManager may belong to several jobs.

Jobs that wait for slots form a queue. The job with the highest priority is first. Among jobs with the same priority,
the job that has waited or run for the longest time is first. Free slots are reserved for the first jobs of the queue
until they have as many as they need. Otherwise jobs that need few slots would take each slot that becomes free, and a
job that needs many would wait forever. A job that needs more slots than the cluster has reserves none, because it
cannot start. A running job never loses a slot to a job with a higher priority.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.common.errors import NotEnoughSlots

WAIT_S = 10.0
"""Time in seconds after which a job that no longer asks for slots leaves the queue. Jobs ask ten times a second."""


class _Request(NamedTuple):
    """Request of a waiting job. The queue has the order of the first two fields."""

    urgency: int
    """Priority with a negative sign."""
    arrival: int
    slots: int
    asked_at: float


class SlotPool:
    """Slots that jobs hold, by name. The callers pass the slots that exist. Thread-safe.

    >>> pool = SlotPool()
    >>> pool.place("a", 2, ["0", "1", "2"]), pool.place("b", 1, ["0", "1", "2"])
    (['0', '1'], ['2'])
    >>> pool.place("a", 2, ["1", "2", "3"])  # slot 0 was lost
    ['3', '1']
    >>> pool.available("b", ["1", "2", "3"])
    ['2']
    >>> pool.available("c", ["1", "2", "3", "4"], wanted=2)
    ['4']
    >>> pool.available("d", ["1", "2", "3", "4"], wanted=1)  # "c" waits for a slot longer
    []
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._assigned: dict[object, list[str]] = {}
        self._needed: dict[object, int] = {}
        self._homes: dict[object, list[str]] = {}
        """Machines of the slots that a job holds or held."""
        self._arrivals: dict[object, int] = {}
        """Order in which jobs have asked for slots the first time."""
        self._waiting: dict[object, _Request] = {}
        self._numbers = itertools.count()
        self._clock = clock
        self._lock = threading.Lock()

    def need(self, job: object, count: int) -> int:
        """Record the number of slots that a job is going to hold. Return the number that all jobs need together."""
        with self._lock:
            self._needed[job] = count
            return sum(self._needed.values())

    def cancel_request(self, job: object) -> None:
        """Record that the job needs only the slots that it holds."""
        with self._lock:
            self._needed[job] = len(self._assigned.get(job, ()))
            self._waiting.pop(job, None)

    def available(self, job: object, slots: Sequence[str], wanted: int = 0, priority: int = 0) -> list[str]:
        """Return the elements of `slots` that the job holds or could get.

        Args:
            wanted: number of slots for which the job waits. The job is in the queue as long as it repeats the call,
                until it gets its slots. 0 means that the job does not wait.
        """
        with self._lock:
            if wanted:
                arrival = self._arrivals.setdefault(job, next(self._numbers))
                self._waiting[job] = _Request(-priority, arrival, wanted, self._clock())
            return self._available(job, slots)

    def _available(self, job: object, slots: Sequence[str]) -> list[str]:
        assigned = {slot for held in self._assigned.values() for slot in held}
        free = [slot for slot in slots if slot not in assigned]
        usable = {*self._assigned.get(job, ()), *free[self._reserved(job, slots) :]}
        return [slot for slot in slots if slot in usable]

    def _reserved(self, job: object, slots: Sequence[str]) -> int:
        """Return the number of free slots that the jobs ahead of this job still need."""
        own = self._waiting.get(job)
        oldest = self._clock() - WAIT_S
        return sum(
            max(0, request.slots - len(set(self._assigned.get(other, ())).intersection(slots)))
            for other, request in self._waiting.items()
            if other != job
            and (own is None or request < own)
            and request.slots <= len(slots)
            and request.asked_at >= oldest
        )

    def place(
        self, job: object, count: int, slots: Sequence[str], machines: Mapping[str, str] | None = None
    ) -> list[str]:
        """Assign slots to the job, in the order of its subtasks.

        The job keeps the slots that it holds, because their workers and local copies are warm. A lost slot is replaced by a slot of the
        same machine if possible, because this machine's disk has the local copies.

        Args:
            machines: machine of each slot.

        Raises:
            NotEnoughSlots: fewer slots are available. The job keeps the slots that it held.
        """
        with self._lock:
            available = self._available(job, slots)
            if len(available) < count:
                raise NotEnoughSlots(
                    f"the job needs {count} slots, but only {len(available)} of {len(slots)} slots are available",
                    remedy="add workers, raise the slots per worker, or lower the parallelism",
                )
            before = self._assigned.get(job, [])[:count]
            free = dict.fromkeys(slot for slot in available if slot not in before)
            still_available = set(available)
            found = [slot if slot in still_available else None for slot in before] + [None] * (count - len(before))
            for index, home in enumerate(self._homes.get(job, [])[:count]):
                at_home = (slot for slot in free if machines and machines.get(slot) == home)
                if found[index] is None and (slot := next(at_home, None)) is not None:
                    del free[slot]
                    found[index] = slot
            rest = iter(free)
            assigned = [next(rest) if slot is None else slot for slot in found]
            self._homes[job] = [(machines or {}).get(slot, "") for slot in assigned]
            self._assigned[job] = assigned
            self._needed[job] = count
            self._arrivals.setdefault(job, next(self._numbers))
            self._waiting.pop(job, None)
            return list(assigned)

    def release(self, job: object) -> None:
        with self._lock:
            self._assigned.pop(job, None)
            self._homes.pop(job, None)
            self._needed.pop(job, None)
            self._arrivals.pop(job, None)
            self._waiting.pop(job, None)
