"""The current load of each subtask of a vertex in a few numbers, cheap enough for thousands of subtasks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubtaskLoad:
    """The load of a subtask: counts since the attempt's start, recent rates per second, shares of time (0 to 1), `watermark` in ms."""

    subtask: int
    tm_id: str
    host: str
    records_in: int
    records_out: int
    in_per_second: float
    out_per_second: float
    busy: float
    back_pressured: float
    watermark: int | None
