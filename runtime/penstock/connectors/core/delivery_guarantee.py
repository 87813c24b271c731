"""The guarantees that a sink can give after a failure."""

from __future__ import annotations

from enum import Enum


class DeliveryGuarantee(Enum):
    """The guarantee of a sink after a failure: each record exactly once, at least once, or none."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2
