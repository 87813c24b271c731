"""`RuntimeExecutionMode`: whether results are updated as records come, or given once at the end."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """
    STREAMING: records are worked on as they come; rolling aggregates and `reduce` emit for every record.
    BATCH: keyed operators get their input key by key, in order of time; rolling aggregates and `reduce` emit one final result
        for each key; every source must be bounded.
    AUTOMATIC: BATCH if every source is bounded, else STREAMING.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
