"""`CheckpointingMode`: what state reflects after a failure."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    """Both modes give exactly-once state here: an epoch's end is a barrier with no record in flight."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
