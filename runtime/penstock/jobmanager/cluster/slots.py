"""Executors and the slots in them. One executor has all slots of its TaskManager."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PIPELINED_LEVELS = 16
"""Maximum number of tasks that run in a slot at once. The pipelined runner has one task for each level. An executor has this number of
cores for each slot.
"""


@dataclass(frozen=True)
class ExecutorInfo:
    """Executor that is registered with the driver."""

    id: str
    host: str
    port: int
    slots: int = 1

    @property
    def location(self) -> str:
        """Return Spark's name for a task location on exactly this executor."""
        return f"executor_{self.host}_{self.id}"


@dataclass(frozen=True)
class Slot:
    """Slot of an executor.

    >>> Slot(ExecutorInfo("7", "10.0.0.1", 7079, slots=2), 1).id
    '7.1'
    """

    executor: ExecutorInfo
    index: int

    @property
    def id(self) -> str:
        return f"{self.executor.id}.{self.index}"


def slots_of(executors: list[ExecutorInfo]) -> dict[str, Slot]:
    """Return the slots by id, in order.

    >>> list(slots_of([ExecutorInfo("0", "a", 1, slots=2), ExecutorInfo("1", "a", 2)]))
    ['0.0', '0.1', '1.0']
    """
    found = (Slot(executor, index) for executor in executors for index in range(executor.slots))
    return {slot.id: slot for slot in found}
