"""The checkpoint settings of a job. Times in ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Retention = Literal["DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"]
TerminalState = Literal["FINISHED", "CANCELED", "FAILED", "SUSPENDED"]


@dataclass(frozen=True)
class CheckpointSettings:
    """The checkpoint settings. If `interval_ms` is None, there are no periodic checkpoints.

    `tolerable_failures`: maximum number of consecutive failed checkpoints that do not cause a failover of the job.

    `max_uncommitted`: periodic checkpoints wait while this number of complete checkpoints have unfinished commits.
    """

    interval_ms: int | None = None
    min_pause_ms: int = 0
    timeout_ms: int = 600_000
    tolerable_failures: int = 0
    max_uncommitted: int = 3
    retained: int = 1
    retention: Retention = "NO_EXTERNALIZED_CHECKPOINTS"
    savepoint_directory: str | None = None
    history_size: int = 10

    def __post_init__(self) -> None:
        least_of = {"min_pause_ms": 0, "timeout_ms": 1, "tolerable_failures": 0, "retained": 1, "max_uncommitted": 1}
        for name, least in least_of.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.interval_ms is not None and self.interval_ms < 1:
            raise ValueError(f"interval_ms must be at least 1, not {self.interval_ms}; None switches checkpoints off")

    def keeps_checkpoints(self, state: TerminalState) -> bool:
        """Return whether checkpoints are kept when the job ends in this state (docs/checkpoint-protocol.md, 7).

        >>> CheckpointSettings(retention="RETAIN_ON_CANCELLATION").keeps_checkpoints("CANCELED")
        True
        >>> CheckpointSettings(retention="DELETE_ON_CANCELLATION").keeps_checkpoints("CANCELED")
        False
        """
        if state == "SUSPENDED":
            return True
        if state == "FAILED":
            return self.retention != "NO_EXTERNALIZED_CHECKPOINTS"
        return state == "CANCELED" and self.retention == "RETAIN_ON_CANCELLATION"
