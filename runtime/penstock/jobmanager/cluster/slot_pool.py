"""The assignment of slots to jobs. At most one job holds a slot at a time. The slots of a TaskManager may belong to several jobs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from penstock.common.errors import NotEnoughSlots


class SlotPool:
    """Slots that jobs hold, by name. The callers pass the slots that exist. Thread-safe.

    >>> pool = SlotPool()
    >>> pool.place("a", 2, ["0", "1", "2"]), pool.place("b", 1, ["0", "1", "2"])
    (['0', '1'], ['2'])
    >>> pool.place("a", 2, ["1", "2", "3"])  # slot 0 was lost
    ['3', '1']
    >>> pool.available("b", ["1", "2", "3"])
    ['2']
    """

    def __init__(self) -> None:
        self._assigned: dict[object, list[str]] = {}
        self._needed: dict[object, int] = {}
        self._homes: dict[object, list[str]] = {}
        """Machines of the slots that a job holds or held."""
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

    def available(self, job: object, slots: Sequence[str]) -> list[str]:
        """Return the elements of `slots` that the job holds or could get."""
        with self._lock:
            return self._available(job, slots)

    def _available(self, job: object, slots: Sequence[str]) -> list[str]:
        others = {slot for other, assigned in self._assigned.items() if other != job for slot in assigned}
        return [slot for slot in slots if slot not in others]

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
            return list(assigned)

    def release(self, job: object) -> None:
        with self._lock:
            self._assigned.pop(job, None)
            self._homes.pop(job, None)
            self._needed.pop(job, None)
