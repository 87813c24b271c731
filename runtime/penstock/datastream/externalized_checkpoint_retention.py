"""`ExternalizedCheckpointRetention`: whether the checkpoints of a cancelled job are kept."""

from __future__ import annotations

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """Retention of the checkpoints of a cancelled job. A failed job keeps its checkpoints unless they are not externalized at all."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
