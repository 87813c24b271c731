"""What each subtask of a vertex does now, in a few numbers: cheap enough for thousands of them while somebody looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SubtaskLoad:
    """Counts since the attempt began; rates per second of the last seconds; shares of time, 0 to 1; `watermark` in ms."""

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
