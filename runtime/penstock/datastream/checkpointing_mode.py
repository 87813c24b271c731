"""`CheckpointingMode`: the guarantee that state gives after a failure."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    """Consistency guarantee of checkpoints. Both modes give exactly-once state, because no record is in flight at the end of an epoch."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
