"""The keys that `spec.autoscaling` adds to the configuration of the engine."""

from __future__ import annotations

import pytest
import yaml

from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock_operator.resources.configuration import configuration, render
from tests.unit.operator.contexts import make_spec


def test_the_autoscaler_is_configured_only_if_it_is_on() -> None:
    assert not [key for key in configuration(make_spec(autoscaling={"min": 2})) if "autoscaler" in key]
    on = {"enabled": True, "min": 2, "target": 0.5, "maxLag": "1m30s", "mode": "recommend"}
    keys = configuration(make_spec(autoscaling=on, configuration={"job.autoscaler.utilization.min": 0.1}))
    assert {key: value for key, value in keys.items() if "autoscaler" in key} == {
        "job.autoscaler.enabled": True,
        "job.autoscaler.metrics.window": "1m",
        "job.autoscaler.scale-down.interval": "10m",
        "job.autoscaler.utilization.max": 0.833,
        "job.autoscaler.utilization.min": 0.1,
        "job.autoscaler.utilization.target": 0.5,
        "job.autoscaler.vertex.max-parallelism": 128,
        "job.autoscaler.vertex.min-parallelism": 2,
        "penstock.autoscaler.max-lag": "1m30s",
        "penstock.autoscaler.mode": "recommend",
    }


@pytest.mark.parametrize("target", [0.2, 0.45, 0.7, 0.9])
def test_the_engine_accepts_the_configuration_of_every_target(target: float) -> None:
    keys = configuration(make_spec(autoscaling={"enabled": True, "target": target, "window": "15s", "max": 7}))
    settings = AutoscalerSettings.from_configuration(yaml.safe_load(render(keys)))
    assert (settings.is_enabled, settings.is_active, settings.target, settings.max_parallelism) == (
        True,
        True,
        target,
        7,
    )
    assert settings.lower < target < settings.upper
