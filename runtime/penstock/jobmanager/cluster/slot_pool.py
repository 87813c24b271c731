"""Which job holds which slots. A slot is held by one job at a time; slots of several jobs may be in one TaskManager."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from penstock.common.errors import NotEnoughSlots


class SlotPool:
    """The slots of a cluster, by name, as far as jobs hold them. What slots there are is for the callers to say. Thread-safe.

    >>> pool = SlotPool()
    >>> pool.place("a", 2, ["0", "1", "2"]), pool.place("b", 1, ["0", "1", "2"])
    (['0', '1'], ['2'])
    >>> pool.place("a", 2, ["1", "2", "3"])  # slot 0 was lost
    ['3', '1']
    >>> pool.available("b", ["1", "2", "3"])
    ['2']
    """

    def __init__(self) -> None:
        self._held: dict[object, list[str]] = {}
        self._needed: dict[object, int] = {}
        self._homes: dict[object, list[str]] = {}
        """Where the slots are that a job holds, or were, if they are gone."""
        self._lock = threading.Lock()

    def need(self, job: object, count: int) -> int:
        """Note how many slots a job is going to hold; returns how many all jobs need together."""
        with self._lock:
            self._needed[job] = count
            return sum(self._needed.values())

    def need_no_more(self, job: object) -> None:
        """The job goes on with the slots that it holds."""
        with self._lock:
            self._needed[job] = len(self._held.get(job, ()))

    def available(self, job: object, slots: Sequence[str]) -> list[str]:
        """Those of `slots` that the job holds or could have."""
        with self._lock:
            return self._available(job, slots)

    def _available(self, job: object, slots: Sequence[str]) -> list[str]:
        others = {slot for other, held in self._held.items() if other != job for slot in held}
        return [slot for slot in slots if slot not in others]

    def place(
        self, job: object, count: int, slots: Sequence[str], machines: Mapping[str, str] | None = None
    ) -> list[str]:
        """Give the job so many slots, in the order of its subtasks. What it holds stays where it is: what is warm is of use. In the
        place of one that was lost comes one of the same machine, if there is any: its disk has what is warm there.

        Args:
            machines: by slot.

        Raises:
            NotEnoughSlots: fewer are left; the job holds what it held.
        """
        with self._lock:
            available = self._available(job, slots)
            if len(available) < count:
                raise NotEnoughSlots(
                    f"the job needs {count} slots, {len(available)} of {len(slots)} are there for it",
                    remedy="add workers or slots per worker, or lower the parallelism",
                )
            before = self._held.get(job, [])[:count]
            free = dict.fromkeys(slot for slot in available if slot not in before)
            there = set(available)
            found = [slot if slot in there else None for slot in before] + [None] * (count - len(before))
            for index, home in enumerate(self._homes.get(job, [])[:count]):
                at_home = (slot for slot in free if machines and machines.get(slot) == home)
                if found[index] is None and (slot := next(at_home, None)) is not None:
                    del free[slot]
                    found[index] = slot
            rest = iter(free)
            held = [next(rest) if slot is None else slot for slot in found]
            self._homes[job] = [(machines or {}).get(slot, "") for slot in held]
            self._held[job] = held
            self._needed[job] = count
            return list(held)

    def release(self, job: object) -> None:
        with self._lock:
            self._held.pop(job, None)
            self._homes.pop(job, None)
            self._needed.pop(job, None)
