"""One split of a source's subtask: its reader, its watermark, and whether it is idle."""

from __future__ import annotations

from collections.abc import Callable

from penstock.connectors.core.source import Split, SplitReader
from penstock.taskmanager.operators.event_time.watermark_generator import (
    BatchWatermarkGenerator,
)
from penstock.taskmanager.protocol import SourceProgress, SplitAssignment


class OwnedSplit:
    """A split of this subtask. It is opened before its first read."""

    __slots__ = (
        "assignment",
        "generator",
        "id",
        "is_caught_up",
        "is_closed",
        "is_quiet",
        "number",
        "reached",
        "reader",
        "reported_lag",
        "rests",
        "watermark",
    )

    def __init__(self, assignment: SplitAssignment, number: int) -> None:
        self.id = assignment.id
        self.assignment = assignment
        self.number = number
        self.reader: SplitReader | None = None
        self.generator: BatchWatermarkGenerator | None = None
        self.watermark: int | None = assignment.watermark
        self.reached: int | None = assignment.watermark
        self.is_closed = False
        self.is_quiet = False
        """Whether the last read returned nothing, or the next record is not due yet."""
        self.rests = False
        """Whether the last read returned all available records. The split is read again after a short pause."""
        self.is_caught_up: Callable[[], bool] = never
        self.reported_lag = -1

    def is_idle(self, now_ms: int) -> bool:
        """Return whether the split is idle. A split that has not been read yet, or has more records, is never idle."""
        if self.reader is None:
            return False
        return self.reader.is_idle() or (
            self.is_quiet and self.generator is not None and self.generator.is_idle(now_ms)
        )

    def add_to(self, progress: SourceProgress) -> None:
        """Add the position, the watermark and the state of the watermark generator to the progress of the subtask."""
        if self.reader is None:
            progress.positions[self.id] = self.assignment.position
            return
        progress.positions[self.id] = self.reader.position
        progress.watermarks[self.id] = self.watermark
        if self.generator is not None:
            progress.generators[self.id] = self.generator.snapshot()

    def idle_since(self) -> int:
        """Return the time (monotonic ms) at which the split became idle, or 0 if the time is unknown."""
        return 0 if self.generator is None else self.generator.idle_at() or 0

    def next_wake(self, now_ms: int) -> int | None:
        """Return when (monotonic ms) the split becomes idle."""
        if self.generator is None:
            return None
        self.is_idle(now_ms)  # starts the idle timeout
        return self.generator.idle_at() if self.is_quiet else None

    def split(self) -> Split:
        found = self.assignment
        return Split(found.id, found.properties, found.size, found.files, found.root)


def never() -> bool:
    return False
