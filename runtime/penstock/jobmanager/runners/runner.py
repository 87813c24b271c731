"""The runner seam: how one epoch is carried out. The JobMaster and the tasks do not know which runner is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.connectors.source import SparkAccess
from penstock.graph.job_graph import JobGraph
from penstock.jobmanager.runners.live_look_ups import LiveLookUps
from penstock.taskmanager.protocol import EpochCommand, LevelAck, SnapshotAck, Whereabouts

WATCH_S = 0.1
"""About how often the `watch` of an epoch is called."""
Watch = Callable[[], None]
"""Called again and again while an epoch runs, by the thread that waits for it; what it raises ends the wait."""


def unwatched() -> None:
    """Nobody looks: the epoch has all the time in the world."""


@dataclass(frozen=True)
class Attempt:
    """One execution of the job from a restore to the next failure, rescale or end."""

    job_id: str
    number: int
    payload: bytes
    slots: int
    levels: int
    graph: JobGraph | None = None
    """To name the operators of a worker that cannot name them any more."""
    closing_s: float = 10.0
    """How long its tasks may take to close all their functions in the end, s: levels and operators close one after the other.
    A single function that takes too long is found out by its task (`taskmanager.watching.watchdog`)."""


class Runner(Protocol):
    """Carries out epochs of one attempt after the other."""

    streaming: bool
    """Rows flow between two calls of `run_epoch`, which then *ends* the running epoch."""
    on_wait: Callable[[], None] | None
    """Called, from another thread, when a task waits for the next epoch, or has failed between two."""
    look_ups: LiveLookUps | None
    """Asks tasks for single keys; None: they cannot be asked between two epochs."""
    task_settings: dict[str, Any]
    """Fields of `TaskSettings` that this runner sets."""

    @property
    def name(self) -> str: ...

    @property
    def spark(self) -> SparkAccess | None:
        """DataFrames on the cluster; None without Spark."""
        ...

    @property
    def task_managers(self) -> list[str]:
        """Id of the TaskManager of every slot that the job holds, in order; empty when it holds none."""
        ...

    def available_slots(self) -> int:
        """Slots the job could run in now: those that are free, and those it holds."""
        ...

    def expects_home(self) -> bool:
        """A machine where the job had slots has fewer for it than that now, and its TaskManager is starting an executor."""
        ...

    def ensure_slots(self, count: int) -> None:
        """Make so many slots available to the job, if they are this cluster's to make, and wait for them (from another thread).

        Raises:
            NotEnoughSlots: they did not come up.
        """
        ...

    def place(self, count: int) -> None:
        """Hold so many slots from now on, as far as possible those held before.

        Raises:
            NotEnoughSlots: fewer are available; nothing has changed.
        """
        ...

    def start(self, attempt: Attempt) -> None:
        """Prepare for the attempt: ship the payload to the slots that were placed."""
        ...

    def run_epoch(self, commands: list[EpochCommand], watch: Watch = unwatched) -> list[LevelAck]:
        """Run one epoch; `commands[i]` is for slot i. Blocks until every level of every slot has answered.

        Raises:
            EpochFailed: the epoch was lost (executor, worker or connection gone); the state of the attempt is void.
            Whatever `watch` raised: nobody waits for this epoch any more, and the attempt is to be ended (`end_attempt`).
        """
        ...

    def unanswered(self) -> list[tuple[int, int]]:
        """Slot and level of every task for which `run_epoch` waits, or waited when `watch` ended it; as far as is known."""
        ...

    def whereabouts(self) -> dict[tuple[int, int], Whereabouts]:
        """By slot and level: where tasks are that have not come back for a while; from any thread."""
        ...

    def take_news(self) -> list[SnapshotAck]:
        """Answers to snapshots that have come since the last epoch. A task tells when its files are written: nobody asks."""
        ...

    def request_barrier(self) -> None:
        """End the running epoch as soon as possible (from another thread)."""
        ...

    def cancel(self) -> None:
        """End the running epoch at once, whatever its tasks do (from another thread); `run_epoch` raises EpochFailed."""
        ...

    def end_attempt(self) -> None:
        """The attempt is over: its functions are closed, its tasks let go of. Harmless when there is none.

        Raises:
            JobFailed: a function could not be closed.
        """
        ...

    def close(self) -> None:
        """The job is over: give back everything. `available_slots` still answers."""
        ...
