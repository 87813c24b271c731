"""`TimeDomain`: which clock a timer belongs to."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """Event time goes by the watermark, processing time by the machine's clock."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
