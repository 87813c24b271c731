"""What a sink promises after a failure."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """What a sink promises after a failure: each record once, at least once, or nothing."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2
