"""`ExternalizedCheckpointRetention`: what becomes of the checkpoints of a cancelled job."""

from __future__ import annotations

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """A job that fails keeps its checkpoints unless they are not externalized at all."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
