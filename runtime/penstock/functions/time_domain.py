"""`TimeDomain`: the clock that a timer belongs to."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """The clock of a timer: event time follows the watermark, processing time follows the machine's clock."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
