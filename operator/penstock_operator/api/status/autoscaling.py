"""The autoscaler in the status of a FlinkJob: its decisions as the engine reports them, and the workers for them."""

from __future__ import annotations

from penstock_operator.api.types import Api, Time

DECISIONS_KEPT = 10
"""Maximum number of decisions in a status."""
INPUTS_KEPT = 10
"""Maximum number of vertices in a status whose measurements are shown."""


class AutoscalerInput(Api):
    """Measurements of one vertex that the newest decision used."""

    name: str
    """Name of the vertex."""
    parallelism: int
    """Number of its subtasks."""
    busy: float | None = None
    """Share of the time for which its subtasks were busy."""
    input_rate: float | None = None
    """Records per second that it read."""
    true_rate: float | None = None
    """Records per second that it could read."""
    target_rate: float | None = None
    """Records per second that it must read."""
    load: float | None = None
    """Predicted load at the wanted parallelism."""
    lag_ms: float | None = None
    """Age of the oldest unread record of a source, in ms."""


class AutoscalerDecision(Api):
    """A decision, and the time for which it was repeated."""

    time: Time
    """Time of the last decision of this kind."""
    since: Time
    """Time of the first one."""
    count: int = 1
    """Number of consecutive decisions."""
    current: int
    """Parallelism of the job at this time."""
    wanted: int
    """Parallelism that the load needed."""
    reason: str
    """Reason for a rescale, or for none, such as SCALE_UP or WITHIN_TARGET."""
    message: str = ""
    """Explanation for users."""


class Autoscaling(Api):
    """The autoscaler of the running job."""

    mode: str
    """active or recommend."""
    parallelism: int
    """Parallelism that the autoscaler has chosen. The next start of the job uses it."""
    wanted: int
    """Parallelism that the load needs now."""
    reason: str = ""
    """Reason of the newest decision."""
    message: str = ""
    """Explanation of the newest decision."""
    slots_available: int = 0
    """Slots that the job has, and free ones that it could use."""
    limited: str | None = None
    """Reason why the job does not get the parallelism that it needs."""
    limited_message: str = ""
    """Explanation of this limit when it began."""
    stored: int | None = None
    """Parallelism in the ConfigMap from which a master that restarts reads it."""
    spare_since: Time | None = None
    """Time since when the job has more workers than it needs."""
    inputs: tuple[AutoscalerInput, ...] = ()
    """Measurements of the newest decision, at most ten vertices."""
    decisions: tuple[AutoscalerDecision, ...] = ()
    """The last ten decisions, newest first."""
