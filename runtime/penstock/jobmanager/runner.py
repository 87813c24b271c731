"""The runner seam: how one epoch is carried out. The JobMaster and the tasks do not know which runner is behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from penstock.connectors.source import SparkAccess
from penstock.taskmanager.protocol import EpochCommand, LevelAck


@dataclass(frozen=True)
class Attempt:
    """One execution of the job from a restore to the next failure, rescale or end."""

    job_id: str
    number: int
    payload: bytes
    slots: int
    levels: int


class Runner(Protocol):
    """Carries out epochs of one attempt after the other."""

    streaming: bool
    """Rows flow between two calls of `run_epoch`, which then *ends* the running epoch."""
    task_settings: dict[str, str]
    """Fields of `TaskSettings` that this runner sets."""

    @property
    def name(self) -> str: ...

    @property
    def spark(self) -> SparkAccess | None:
        """DataFrames on the cluster; None without Spark."""
        ...

    def available_slots(self) -> int:
        """Slots that could take a subtask now."""
        ...

    def ensure_slots(self, count: int) -> None:
        """Make so many slots, if they are this cluster's to make, and wait for them (from another thread).

        Raises:
            NotEnoughSlots: they did not come up.
        """
        ...

    def start(self, attempt: Attempt) -> None:
        """Prepare for the attempt: ship the payload, choose a place for every slot.

        Raises:
            NotEnoughSlots: fewer slots than the attempt needs.
        """
        ...

    def run_epoch(self, commands: list[EpochCommand]) -> list[LevelAck]:
        """Run one epoch; `commands[i]` is for slot i. Blocks until every level of every slot has answered.

        Raises:
            EpochFailed: the epoch was lost (executor, worker or connection gone); the state of the attempt is void.
        """
        ...

    def request_barrier(self) -> None:
        """End the running epoch as soon as possible (from another thread)."""
        ...

    def cancel(self) -> None:
        """End the running epoch at once, whatever its tasks do (from another thread); `run_epoch` raises EpochFailed."""
        ...

    def end_attempt(self) -> None:
        """The attempt is over: let go of its tasks. Harmless when there is none."""
        ...

    def close(self) -> None:
        """The job is over: give back everything. `available_slots` still answers."""
        ...
