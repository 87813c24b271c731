"""The section `autoscaling` in the spec of a FlinkJob."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field

from penstock_operator.api.types import Api, Duration, Quantity


class AutoscalingMemory(Api):
    """Memory of the worker pods that follows the use of memory."""

    mode: Literal["recommend", "apply"] = "recommend"
    """`recommend` only reports the recommended memory. `apply` uses it at the next upgrade or other start. It never restarts the job for this."""
    min: Quantity | None = None
    """Minimum memory limit of a worker. Default: `worker.resources.limits.memory`, so the memory only grows."""
    max: Quantity | None = None
    """Maximum memory limit of a worker. Necessary for `apply`."""


class Autoscaling(Api):
    """Change of the parallelism of the running job with its load. The engine decides, and the operator adds and removes
    worker pods.
    """

    enabled: bool = False
    """Turn the autoscaler on. In mode `active`, `job.parallelism` is then only the parallelism of the first start. The current parallelism is in `status.parallelism`."""
    min: int = Field(default=1, ge=1, le=32768)
    """Minimum parallelism."""
    max: int | None = Field(default=None, ge=1, le=32768)
    """Maximum parallelism. Default: `job.maxParallelism`."""
    target: float = Field(default=0.7, ge=0.2, le=0.9)
    """Share of the time for which the limiting operator should be busy. The autoscaler chooses the parallelism for this share."""
    max_lag: Duration = timedelta(seconds=30)
    """Target of the lag: the age of the oldest unread record. If the lag is greater, the job is not scaled down. It is scaled up if it would not catch up in time."""
    window: Duration = timedelta(seconds=60)
    """Period of the measurements of one decision. At least 15s."""
    scale_down_after: Duration = timedelta(minutes=10)
    """Time for which the load must be low before the job is scaled down."""
    mode: Literal["active", "recommend"] = "active"
    """`active` rescales the job. `recommend` only reports the parallelism that the autoscaler would choose."""
    memory: AutoscalingMemory = Field(
        default_factory=AutoscalingMemory,
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.mode) || self.mode != 'apply' || has(self.max)",
                    "message": "mode apply needs max",
                    "fieldPath": ".max",
                },
            ]
        },
    )
    """Memory of the worker pods."""

    @property
    def sets_parallelism(self) -> bool:
        """Whether the autoscaler, and not `job.parallelism`, sets the parallelism of the running job."""
        return self.enabled and self.mode == "active"

    def within_limits(self, parallelism: int) -> int:
        """Return the parallelism, limited to `min` and `max`."""
        return max(self.min, parallelism if self.max is None else min(parallelism, self.max))
