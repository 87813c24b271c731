"""A runner without Spark: it runs all slots and levels in this process, one after the other. The clock may be manual.

The tasks are the same objects as on a cluster. `penstock.testing` and the unit tests use this runner.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from penstock.common.errors import EpochFailed, NotEnoughSlots
from penstock.connectors.core.source import SparkAccess
from penstock.functions.operator_context import Clock
from penstock.jobmanager.failover.failures import JobFailed
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.jobmanager.runners.runner import Attempt, Watch, unwatched
from penstock.taskmanager.exchange.rows import ACK, COMMAND
from penstock.taskmanager.level import LevelTask
from penstock.taskmanager.protocol import (
    EpochCommand,
    LevelAck,
    SnapshotAck,
    Whereabouts,
    decode_ack,
    encode_command,
)
from penstock.taskmanager.subtask import Subtask
from penstock.taskmanager.worker import ManualClock, _Slot, run_level

TASK_MANAGER = "in-process"
"""Id of the only TaskManager."""
_HANG_STEP_MS = 10
_COMMAND_PREFIX = bytes((COMMAND,))


class InProcessRunner:
    """Runner in this process; see the module docstring.

    Args:
        slots: number of slots to offer.
        clock: clock. None means the system clock.
    """

    name = "in-process"
    streaming = False
    can_add_slots = False
    slot_limit: int | None = None
    look_ups: LiveLookUps | None = None
    spark: SparkAccess | None = None

    def __init__(self, slots: int = 64, clock: Clock | None = None) -> None:
        self._capacity = slots
        self._clock = clock
        self._attempt: Attempt | None = None
        self._placed = 0
        self._slots: dict[tuple[str, int], _Slot] = {}
        self.task_settings: dict[str, Any] = {}
        self.on_wait: Callable[[], None] | None = None
        self.lost = False
        """Flag for tests: the next epoch fails as if a worker had been killed."""
        self.hung = False
        """Flag for tests: the next epoch, except the first epoch of an attempt, ends only by force, as if a function
        did not return. A manual clock still advances.
        """
        self._killed = threading.Event()

    @property
    def task_managers(self) -> list[str]:
        return [TASK_MANAGER] * self._placed

    def available_slots(self, wanted: int = 0, priority: int = 0) -> int:
        return self._capacity

    def expects_returning_slots(self) -> bool:
        return False

    def ensure_slots(self, count: int) -> None:
        """Do nothing, because the number of slots is fixed."""

    def place(self, count: int) -> None:
        if count > self._capacity:
            raise NotEnoughSlots(f"the job needs {count} slots, but {self._capacity} slots exist")
        self._placed = count

    def start(self, attempt: Attempt) -> None:
        self._attempt = attempt
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        attempt = self._attempt
        assert attempt is not None
        if self.lost:
            self.lost = False
            self._slots.clear()
            raise EpochFailed("a worker was killed")
        if self.hung and not commands[0].is_first:
            self._hang(watch)
        rows: dict[int, list[bytes]] = {
            slot: [_COMMAND_PREFIX + encode_command(command)] for slot, command in enumerate(commands)
        }
        for level in range(attempt.levels):
            watch()
            following: dict[int, list[bytes]] = defaultdict(list)
            for slot in range(attempt.slots):
                out = run_level(
                    lambda: attempt.payload,
                    attempt.job_id,
                    attempt.number,
                    level,
                    slot,
                    rows.get(slot, []),
                    clock=self._clock,
                    slots=self._slots,
                )
                for target, row in out:
                    following[target].append(row)
            rows = following
        return [decode_ack(row[1:]) for slot_rows in rows.values() for row in slot_rows if row[0] == ACK]

    def _hang(self, watch: Watch) -> None:
        try:
            while not self._killed.wait(0 if self._clock is not None else _HANG_STEP_MS / 1000):
                watch()
                if isinstance(self._clock, ManualClock):
                    self._clock.set(self._clock.now_ms() + _HANG_STEP_MS)
        finally:
            self.hung = False
            self._killed.clear()
        raise EpochFailed("the tasks were killed")

    def unanswered(self) -> list[tuple[int, int]]:
        return [(slot, 0) for slot in range(self._placed)]

    def whereabouts(self) -> dict[tuple[int, int], Whereabouts]:
        """Return nothing, because tasks in this process are not watched."""
        return {}

    def tasks(self) -> list[LevelTask]:
        """Return the tasks that exist now. Any thread may call it."""
        return [task for slot in list(self._slots.values()) for task in list(slot.levels.values())]

    def subtasks(self) -> Iterator[Subtask]:
        """Yield the subtasks that hold state now."""
        for slot in self._slots.values():
            for level in slot.levels.values():
                yield from level.subtasks

    def end_attempt(self) -> None:
        failed = [failure for slot in self._slots.values() if (failure := slot.close()) is not None]
        self._slots.clear()
        if failed:
            raise JobFailed(failed[0])

    def take_news(self) -> list[SnapshotAck]:
        """Return nothing, because tasks of this runner report only at the end of an epoch."""
        return []

    def request_barrier(self) -> None:
        """Do nothing, because epochs of this runner are short."""

    def cancel(self) -> None:
        """End a hang that a test has requested. A user's function in this process cannot be ended."""
        if self.hung:
            self._killed.set()

    def close(self) -> None:
        self._placed = 0
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
