"""`RuntimeExecutionMode`: whether results are updated as records come, or given once at the end."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """
    STREAMING: rolling aggregates and `reduce` emit for every record.
    BATCH: they emit one final result for each key; every source must be bounded.
    AUTOMATIC: BATCH if every source is bounded, else STREAMING.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
