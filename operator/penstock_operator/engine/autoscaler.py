"""The autoscaler of a job, as its master reports it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock_operator.api.status.autoscaling import (
    DECISIONS_KEPT,
    INPUTS_KEPT,
    AutoscalerDecision,
    AutoscalerInput,
    AutoscalerMemory,
)

TEXT = 300
"""Maximum number of characters of a message or a name."""
LARGEST = 2**31 - 1
"""Largest number in a status."""
RESCALING = frozenset({"SCALE_UP", "SCALE_DOWN", "OUTSIDE_LIMITS", "WAITING_FOR_SLOTS"})
"""Reasons with which the engine rescales the job, now or when slots are available."""


@dataclass(frozen=True)
class Autoscaler:
    """The response of `GET /jobs/:id/autoscaler`."""

    mode: str
    """active, recommend or disabled."""
    current: int
    """Parallelism with which the job runs."""
    requested: int
    """Parallelism of the last rescale. The job may run with fewer slots."""
    wanted: int
    """Parallelism that the load needs."""
    reason: str
    message: str
    slots_available: int = 0
    decisions: tuple[AutoscalerDecision, ...] = ()
    inputs: tuple[AutoscalerInput, ...] = ()
    memory: AutoscalerMemory | None = None
    """Memory of a worker. None means that it has no limit, or that the engine gives no advice."""
    configuration_id: str | None = ""
    """Id of the settings that the operator has sent. Empty means that the settings are those of the start. None means an
    engine of an earlier version, whose settings cannot be changed.
    """

    @property
    def needed(self) -> int:
        """Parallelism for which the job needs slots now: the requested one, or a larger one that it waits for."""
        return max(self.requested, self.wanted) if self.reason in RESCALING else self.requested


def read_autoscaler(body: dict[str, Any]) -> Autoscaler:
    """Parse the response. A master runs the code of the job's author, so every text and list is limited.

    >>> found = read_autoscaler({"mode": "active", "current": 1, "requested": 1, "wanted": 3, "reason": "WAITING_FOR_SLOTS"})
    >>> found.needed, found.decisions
    (3, ())
    """
    decisions = [one for one in body.get("decisions") or () if isinstance(one, dict)][:DECISIONS_KEPT]
    inputs = [one for one in (decisions[0].get("inputs") if decisions else None) or () if isinstance(one, dict)]
    current = _count(body["current"])
    return Autoscaler(
        mode=_text(body["mode"]),
        current=current,
        requested=_count(body.get("requested", current)),
        wanted=_count(body["wanted"]),
        reason=_text(body.get("reason")),
        message=_text(body.get("message")),
        slots_available=_count(body.get("slotsAvailable", 0)),
        decisions=tuple(_decision(one) for one in decisions),
        inputs=tuple(_input(one) for one in inputs[:INPUTS_KEPT]),
        memory=_memory(body.get("memory")),
        configuration_id=_text(body["configurationId"]) if "configurationId" in body else None,
    )


def _memory(body: object) -> AutoscalerMemory | None:
    """Return the memory limit of a worker and the recommended one, in MiB."""
    sizes = [body.get(key) for key in ("processSize", "recommendedProcessSize")] if isinstance(body, dict) else []
    found = [size >> 20 for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size >= 1 << 20]
    if len(found) != 2:
        return None
    limit, recommended = (f"{min(size, LARGEST)}Mi" for size in found)
    return AutoscalerMemory(limit=limit, recommended=recommended)


def _decision(body: dict[str, Any]) -> AutoscalerDecision:
    time = int(body["timestamp"])
    return AutoscalerDecision(
        time=_moment(time),
        since=_moment(int(body.get("since", time))),
        count=_count(body.get("count", 1)),
        current=_count(body["current"]),
        wanted=_count(body["wanted"]),
        reason=_text(body.get("reason")),
        message=_text(body.get("message")),
    )


def _input(body: dict[str, Any]) -> AutoscalerInput:
    return AutoscalerInput(
        name=_text(body.get("name")),
        parallelism=_count(body.get("parallelism", 0)),
        busy=_number(body.get("busy")),
        input_rate=_number(body.get("inputRate")),
        true_rate=_number(body.get("trueRate")),
        target_rate=_number(body.get("targetRate")),
        load=_number(body.get("load")),
        lag_ms=_number(body.get("lagMs")),
    )


def _count(value: Any) -> int:
    """Return a number between 0 and `LARGEST`. The API server refuses a status with a number of more than 64 bits."""
    return max(0, min(int(value), LARGEST))


def _number(value: object) -> float | None:
    """Return a number with three significant digits, or None. Otherwise the status would change with every sample."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(f"{value:.3g}")


def _text(value: object) -> str:
    return str(value or "")[:TEXT]


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC).replace(microsecond=0)
