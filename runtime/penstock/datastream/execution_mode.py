"""`RuntimeExecutionMode`: whether a job emits results for each record or final results at the end."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """Execution mode of a job.

    STREAMING: operators process records when they arrive. Rolling aggregates and `reduce` emit a result for every record.
    BATCH: keyed operators process their input key by key, in order of time. Rolling aggregates and `reduce` emit one final result
        for each key. Every source must be bounded.
    AUTOMATIC: BATCH if every source is bounded, otherwise STREAMING.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
