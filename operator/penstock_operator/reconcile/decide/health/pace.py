"""How often a job's checkpoints should complete, from its configuration. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock_operator.api.types import parse_duration
from penstock_operator.resources.configuration import DEFAULTS

if TYPE_CHECKING:
    from penstock_operator.api.flinkjob import FlinkJobSpec


def checkpoint_interval(spec: FlinkJobSpec) -> timedelta | None:
    """Time between two; None if the job takes none by itself."""
    return _configured({**DEFAULTS, **spec.configuration}, "execution.checkpointing.interval")


def checkpoint_window(spec: FlinkJobSpec) -> timedelta | None:
    """How old the newest checkpoint may be: (tolerable failures + 2) times the longer of interval and timeout."""
    configured = {**DEFAULTS, **spec.configuration}
    interval = checkpoint_interval(spec)
    if interval is None:
        return None
    timeout = _configured(configured, "execution.checkpointing.timeout") or timedelta(minutes=10)
    tolerable = configured.get("execution.checkpointing.tolerable-failed-checkpoints", 0)
    times = int(tolerable) + 2 if str(tolerable).isdigit() else 2
    return max(interval, min(timeout, interval * 10)) * times


def _configured(configuration: dict[str, Any], key: str) -> timedelta | None:
    try:
        value = parse_duration(str(configuration.get(key, "")).replace(" ", ""))
    except ValueError:
        return None
    return value if isinstance(value, timedelta) and value > timedelta(0) else None
