"""The job's output: every committed range of records must start where the last one ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.unit.operator.world.storage import Stored


@dataclass
class Sink:
    """An external observer of exactly-once output."""

    ends: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    empty_starts: list[str] = field(default_factory=list)
    restores: list[str] = field(default_factory=list)
    drained: list[tuple[str, int]] = field(default_factory=list)
    """The savepoints before which all windows have fired, and the position of the job."""

    def commit(self, job: str, start: int, end: int) -> None:
        at = self.ends.get(job, 0)
        if start > at:
            self.lost.append(f"{job}: records {at}..{start} are missing")
        if start < at and end > start:
            self.repeated.append(f"{job}: records {start}..{at} come again")
        self.ends[job] = max(end, at)

    def started_empty(self, job: str, job_id: str) -> None:
        self.empty_starts.append(job_id)

    def restored(self, job: str, snapshot: Stored) -> None:
        self.restores.append(snapshot.path)
