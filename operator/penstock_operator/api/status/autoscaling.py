"""The autoscaler in the status of a FlinkJob: the decisions that the engine reports, and the workers that they need."""

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
    """Number of subtasks of the vertex."""
    busy: float | None = None
    """Share of the time for which the subtasks of the vertex were busy."""
    input_rate: float | None = None
    """Records per second that the vertex read."""
    true_rate: float | None = None
    """Records per second that the vertex could read."""
    target_rate: float | None = None
    """Records per second that the vertex must read."""
    load: float | None = None
    """Predicted load at the wanted parallelism."""
    lag_ms: float | None = None
    """Age of the oldest unread record of a source, in ms."""


class AutoscalerDecision(Api):
    """A decision, and the time for which it was repeated."""

    time: Time
    """Time of the last decision of this kind."""
    since: Time
    """Time of the first decision of this kind."""
    count: int = 1
    """Number of consecutive decisions of this kind."""
    current: int
    """Parallelism of the job at the time of the decision."""
    wanted: int
    """Parallelism that the load needed."""
    reason: str
    """Reason why the job was rescaled or not, such as SCALE_UP or WITHIN_TARGET."""
    message: str = ""
    """Explanation for users."""


class AutoscalerMemory(Api):
    """Memory of a worker, with its recommendation."""

    limit: str
    """Memory limit of a worker of the running job."""
    recommended: str
    """Recommended memory limit, from the memory use of the last ten minutes."""


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
    """Number of slots that the job has, plus free slots that it could use."""
    limited: str | None = None
    """Reason why the job does not get the parallelism that it needs."""
    limited_message: str = ""
    """Explanation of the limit, written when the limit began."""
    stored: int | None = None
    """Parallelism that the ConfigMap NAME-parallelism contains. A master that restarts reads it there."""
    spare_since: Time | None = None
    """Start of the time for which the job has had more workers than it needs."""
    memory: AutoscalerMemory | None = None
    """Memory of the workers. Not set if they have no limit."""
    inputs: tuple[AutoscalerInput, ...] = ()
    """Measurements of the newest decision, at most ten vertices."""
    decisions: tuple[AutoscalerDecision, ...] = ()
    """The last ten decisions, newest first."""
