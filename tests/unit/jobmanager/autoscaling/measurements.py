"""Histories with constant measurements, for tests of single decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.decision import Decision
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.samples import Sample, VertexSample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings

SETTINGS = AutoscalerSettings(is_enabled=True)


def source(rate: float = 1000.0, busy: float = 0.3, **more: Any) -> VertexSample:
    return VertexSample(
        **{
            "id": "0",
            "name": "source",
            "level": 0,
            "parallelism": 4,
            "rate_in": rate,
            "rate_out": rate,
            "busy": busy,
            "lag": 0.0,
            **more,
        }
    )


def count(rate: float = 1000.0, busy: float = 0.6, **more: Any) -> VertexSample:
    return VertexSample(
        **{
            "id": "1",
            "name": "count",
            "level": 1,
            "parallelism": 4,
            "inputs": ("0",),
            "rate_in": rate,
            "rate_out": rate,
            "busy": busy,
            **more,
        }
    )


def sample(at_s: float, *vertices: VertexSample, **more: Any) -> Sample:
    values: dict[str, Any] = {
        "at_ms": int(at_s * 1e3),
        "time_ms": int(at_s * 1e3),
        "interval_ms": 5_000,
        "attempt": 1,
        "parallelism": 4,
        "requested": 4,
        "max_parallelism": 128,
        "slots": 100,
        "vertices": vertices or (source(), count()),
        **more,
    }
    return Sample(**values)


def steady(
    *vertices: VertexSample,
    seconds: int = 1200,
    settings: AutoscalerSettings = SETTINGS,
    growing_lag: float = 0.0,
    start: int = 0,
    history: History | None = None,
    **more: Any,
) -> History:
    """Return a history with the same measurements every 5 s. `growing_lag`: growth of the first vertex's lag in records per second."""
    history = history or History(settings)
    vertices = vertices or (source(), count())
    for at in range(start + 5, start + seconds + 1, 5):
        first, *others = vertices
        if growing_lag:
            first = replace(first, lag=(first.lag or 0.0) + growing_lag * (at - start))
        history.add_sample(sample(at, first, *others, **more))
    return history


def decision(*vertices: VertexSample, settings: AutoscalerSettings = SETTINGS, **more: Any) -> Decision:
    return decide(settings, steady(*vertices, settings=settings, **more))
