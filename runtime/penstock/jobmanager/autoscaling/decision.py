"""A decision of the autoscaler: the parallelism, the reason, and the measurements behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.jobmanager.autoscaling.window import VertexEstimate, lag_ms


class Reason(Enum):
    """Reason for a rescale, or for none. The names are part of the REST API."""

    SCALE_UP = "SCALE_UP"
    SCALE_DOWN = "SCALE_DOWN"
    OUTSIDE_LIMITS = "OUTSIDE_LIMITS"
    """The parallelism is below the minimum or above the maximum of the settings."""

    # A rescale is useful but cannot happen now.
    WAITING_FOR_SLOTS = "WAITING_FOR_SLOTS"
    BUDGET_SPENT = "BUDGET_SPENT"
    LOAD_IS_CHANGING = "LOAD_IS_CHANGING"
    SCALE_DOWN_DELAYED = "SCALE_DOWN_DELAYED"
    LAG_ABOVE_TARGET = "LAG_ABOVE_TARGET"
    """The lag is above the target, so the job is not scaled down."""

    # No rescale is needed.
    WITHIN_TARGET = "WITHIN_TARGET"
    CATCHING_UP = "CATCHING_UP"

    # A rescale would not help.
    HOT_KEY = "HOT_KEY"
    HOT_SUBTASK = "HOT_SUBTASK"
    SPLITS = "SPLITS"
    FIXED_PARALLELISM = "FIXED_PARALLELISM"
    INEFFECTIVE = "INEFFECTIVE"
    AT_MAX_PARALLELISM = "AT_MAX_PARALLELISM"
    NO_GAIN = "NO_GAIN"

    # The measurements do not allow a decision.
    TOO_FEW_SAMPLES = "TOO_FEW_SAMPLES"
    NOT_RUNNING = "NOT_RUNNING"
    FEWER_SLOTS = "FEWER_SLOTS"
    """The job runs with fewer slots than requested."""
    RECENT_RESTART = "RECENT_RESTART"
    RECENT_RESCALE = "RECENT_RESCALE"
    CLOCK_JUMP = "CLOCK_JUMP"
    BROKEN_METRICS = "BROKEN_METRICS"
    NO_INPUT = "NO_INPUT"


RESCALES = frozenset({Reason.SCALE_UP, Reason.SCALE_DOWN, Reason.OUTSIDE_LIMITS})


@dataclass(frozen=True)
class Input:
    """Measurements of a vertex that a decision used. Rates in records per second."""

    id: str
    name: str
    parallelism: int
    input_rate: float
    output_rate: float
    true_rate: float | None
    is_observed: bool
    busy: float
    idle: float
    back_pressured: float
    target_rate: float | None
    load: float | None
    """Predicted load at the wanted parallelism."""
    arrival_rate: float | None
    lag: float | None
    lag_ms: float | None
    splits: int | None
    hottest_subtask: int | None
    hottest_busy: float | None
    hot_key: str | None = None
    """Text of the key with the largest share. None means that it is unknown, or that all keys of `hot_key_group` together have the share."""
    hot_key_group: int | None = None
    hot_key_subtask: int | None = None
    hot_key_share: float | None = None

    @property
    def hot_key_weight(self) -> float:
        """Return the records of the key relative to an even share of a subtask."""
        return (self.hot_key_share or 0.0) * self.parallelism

    @property
    def has_hot_key(self) -> bool:
        """Return whether the largest key has more records than an even share of a subtask."""
        return self.parallelism > 1 and self.hot_key_weight > 1


@dataclass(frozen=True)
class Gain:
    """Predicted effect of the wanted parallelism. `capacity`: records per second of all sources that the job could read."""

    capacity_before: float
    capacity_after: float
    slots: int
    """Slots that become free. A negative number is the number of additional slots."""


@dataclass(frozen=True)
class Cost:
    """Cost of a rescale."""

    pause_ms: int
    delayed_records: float
    """Records that arrive during the pause."""
    paused_ms: int
    """Pauses of the last hour."""
    budget_ms: int
    """Pauses that the budget allows in an hour."""


@dataclass(frozen=True)
class Decision:
    """Decision at a moment. The job is rescaled only if `reason` is in `RESCALES`."""

    at_ms: int
    time_ms: int
    current: int
    wanted: int
    """Parallelism that the load needs. It is the current one if no other is better."""
    next: int
    """Parallelism to request now. It is lower than `wanted` if slots are missing."""
    reason: Reason
    message: str
    slots: int = 0
    inputs: tuple[Input, ...] = ()
    gain: Gain | None = None
    cost: Cost | None = None

    @property
    def hot_key(self) -> Input | None:
        """Return the vertex with the hottest key, or None if no vertex has a hot key."""
        return max((one for one in self.inputs if one.has_hot_key), key=lambda one: one.hot_key_weight, default=None)

    @property
    def rescales(self) -> bool:
        """Return whether the job is to be rescaled now."""
        return self.reason in RESCALES

    def to_json(self) -> dict[str, Any]:
        """Return the values with the names of the REST API. Numbers that JSON does not have are null."""
        return {
            "timestamp": self.time_ms,
            "current": self.current,
            "wanted": self.wanted,
            "next": self.next,
            "rescales": self.rescales,
            "reason": self.reason.value,
            "message": self.message,
            "slotsAvailable": self.slots,
            "hotKey": None if self.hot_key is None else _hot_key(self.hot_key),
            "inputs": [_camel(vars(one)) for one in self.inputs],
            "gain": None if self.gain is None else _camel(vars(self.gain)),
            "cost": None if self.cost is None else _camel(vars(self.cost)),
        }


def _hot_key(of: Input) -> dict[str, Any]:
    return {
        "vertex": of.id,
        "name": of.name,
        "key": of.hot_key,
        "keyGroup": of.hot_key_group,
        "subtask": of.hot_key_subtask,
        "share": _plain(of.hot_key_share),
    }


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    return {_name(key): _plain(value) for key, value in values.items()}


def _name(key: str) -> str:
    first, *others = key.split("_")
    return first + "".join(part.capitalize() for part in others)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value


def input_of(estimate: VertexEstimate, target: float | None = None, load: float | None = None) -> Input:
    """Return the input of a decision from an estimate."""
    vertex = estimate.vertex
    hottest, key = estimate.hottest, estimate.hot_key
    return Input(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        input_rate=estimate.rate_in,
        output_rate=estimate.rate_out,
        true_rate=estimate.true_rate,
        is_observed=estimate.is_observed,
        busy=estimate.busy,
        idle=estimate.idle,
        back_pressured=estimate.back_pressured,
        target_rate=target,
        load=load,
        arrival_rate=estimate.arrival,
        lag=estimate.lag,
        lag_ms=lag_ms(estimate) if estimate.lag is not None else None,
        splits=vertex.splits,
        hottest_subtask=None if hottest is None else hottest[0],
        hottest_busy=None if hottest is None else hottest[1],
        hot_key=None if key is None else key.key,
        hot_key_group=None if key is None else key.group,
        hot_key_subtask=None if key is None else key.subtask,
        hot_key_share=None if key is None else key.share,
    )
