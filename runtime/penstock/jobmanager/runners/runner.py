"""The interface of runners, which execute epochs. The JobMaster and the tasks do not depend on the implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.connectors.core.source import SparkAccess
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.taskmanager.protocol import EpochCommand, LevelAck, SnapshotAck, Whereabouts

WATCH_S = 0.1
"""Approximate interval in seconds of the calls of an epoch's `watch`."""
Watch = Callable[[], None]
"""Function that the waiting thread calls repeatedly while an epoch runs. Its exception ends the wait."""


def unwatched() -> None:
    """Do nothing: the epoch has no time limit."""


@dataclass(frozen=True)
class Attempt:
    """Execution of the job from a restore to the next failure, rescale or end."""

    job_id: str
    number: int
    payload: bytes
    slots: int
    levels: int
    graph: JobGraph | None = None
    """Graph with the names of operators, for messages about a worker that died and cannot report the names."""
    closing_s: float = 10.0
    """Time in seconds for the attempt's tasks to close all their functions at the end. Levels and operators close one after the other. The
    task itself detects a single function that is too slow (`taskmanager.watching.watchdog`).
    """


class Runner(Protocol):
    """Executor of epochs, for one attempt after the other."""

    streaming: bool
    """Whether rows flow between two calls of `run_epoch`, which then *ends* the running epoch."""
    on_wait: Callable[[], None] | None
    """Callback, in another thread, when a task waits for the next epoch, or has failed between two epochs."""
    look_ups: LiveLookUps | None
    """Lookups of single keys in tasks. None means that tasks cannot respond between two epochs."""
    task_settings: dict[str, Any]
    """Fields of `TaskSettings` that this runner sets."""

    @property
    def name(self) -> str: ...

    @property
    def spark(self) -> SparkAccess | None:
        """Return the access to DataFrames on the cluster, or None if the runner does not use Spark."""
        ...

    @property
    def task_managers(self) -> list[str]:
        """Return the TaskManager id of every slot that the job holds, in order. The list is empty if the job holds no slots."""
        ...

    def available_slots(self, wanted: int = 0, priority: int = 0) -> int:
        """Return the number of slots in which the job could run now: free slots, and the slots that it holds.

        Args:
            wanted, priority: number of slots for which the job waits, and its priority among waiting jobs. See `SlotPool.available`.
        """
        ...

    @property
    def slot_limit(self) -> int | None:
        """Return the maximum number of slots of the cluster. None means no limit."""
        ...

    @property
    def can_add_slots(self) -> bool:
        """Return whether `ensure_slots` can start workers."""
        ...

    def expects_returning_slots(self) -> bool:
        """Return whether a machine has fewer slots for the job than before and its TaskManager is starting an executor."""
        ...

    def ensure_slots(self, count: int) -> None:
        """Make `count` slots available to the job if the cluster can create them, and wait for the slots. Another thread calls this method.

        Raises:
            NotEnoughSlots: the slots were not available in time.
        """
        ...

    def place(self, count: int) -> None:
        """Hold `count` slots from now on. If possible, keep the current slots.

        Raises:
            NotEnoughSlots: fewer slots are available. Nothing has changed.
        """
        ...

    def start(self, attempt: Attempt) -> None:
        """Prepare for the attempt: send the payload to the slots that `place` selected."""
        ...

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        """Run one epoch. `commands[i]` is for slot i. Wait until every level of every slot has acknowledged.

        Raises:
            EpochFailed: the epoch was lost (executor, worker or connection). The state of the attempt is invalid.
            Exception: the error of `watch`. The epoch is abandoned, and the caller must end the attempt (`end_attempt`).
        """
        ...

    def unanswered(self) -> list[tuple[int, int]]:
        """Return slot and level of every known task for which `run_epoch` waits, or waited when `watch` ended the wait."""
        ...

    def whereabouts(self) -> dict[tuple[int, int], Whereabouts]:
        """Return the locations, by slot and level, of tasks that have not responded for a while. Any thread may call it."""
        ...

    def take_news(self) -> list[SnapshotAck]:
        """Return acknowledgements of snapshots since the last epoch. A task sends its acknowledgement without a request when the files of
        its snapshot are written.
        """
        ...

    def request_barrier(self) -> None:
        """End the running epoch as soon as possible. Another thread calls this method."""
        ...

    def cancel(self) -> None:
        """End the running epoch at once, whatever its tasks do, so that `run_epoch` raises EpochFailed. Another thread calls this method."""
        ...

    def end_attempt(self) -> None:
        """End the attempt: close its functions and release its tasks. If no attempt runs, do nothing.

        Raises:
            JobFailed: a function could not be closed.
        """
        ...

    def close(self) -> None:
        """Release all resources, because the job is over. `available_slots` still works."""
        ...
