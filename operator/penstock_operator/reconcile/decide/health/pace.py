"""The expected frequency of a job's checkpoints, from its configuration. Pure functions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import parse_duration
from penstock_operator.resources.configuration import DEFAULTS

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus


def checkpoint_interval(spec: FlinkJobSpec) -> timedelta | None:
    """Return the time between two checkpoints, or None if the job takes no periodic checkpoints."""
    return _configured({**DEFAULTS, **spec.configuration}, "execution.checkpointing.interval")


def checkpoint_window(spec: FlinkJobSpec) -> timedelta | None:
    """Return the maximum age of the newest checkpoint.

    It is (tolerable failures + 2) times the longer of the interval and the timeout. The timeout is limited to ten
    intervals.
    """
    configured = {**DEFAULTS, **spec.configuration}
    interval = checkpoint_interval(spec)
    if interval is None:
        return None
    timeout = _configured(configured, "execution.checkpointing.timeout") or timedelta(minutes=10)
    tolerable = configured.get("execution.checkpointing.tolerable-failed-checkpoints", 0)
    times = int(tolerable) + 2 if str(tolerable).isdigit() else 2
    return max(interval, min(timeout, interval * 10)) * times


def checkpoint_patience(spec: FlinkJobSpec) -> timedelta | None:
    """Return the time without a new checkpoint after which `NoCheckpoint` applies. It is at least the window of
    `CheckpointHealthy`.
    """
    interval, window = checkpoint_interval(spec), checkpoint_window(spec)
    return max(interval * spec.health.checkpoint_intervals, window) if interval and window else None


def known_without_checkpoint(status: FlinkJobStatus, spec: FlinkJobSpec | None) -> timedelta:
    """Return the minimum time for which the running incarnation has had no new checkpoint. The status only shows
    whether a limit is exceeded, so this is the limit. Zero means that no limit is exceeded.
    """
    health, found = status.health, status.condition("CheckpointHealthy")
    if spec is None or status.running is None:
        return timedelta(0)
    if health is not None and health.job_id == status.running.job_id and health.broken == "NoCheckpoint":
        return checkpoint_patience(spec) or timedelta(0)
    overdue = found is not None and found.status == "False"
    return (checkpoint_window(spec) or timedelta(0)) if overdue else timedelta(0)


def _configured(configuration: dict[str, Any], key: str) -> timedelta | None:
    try:
        value = parse_duration(str(configuration.get(key, "")).replace(" ", ""))
    except ValueError:
        return None
    return value if isinstance(value, timedelta) and value > timedelta(0) else None
