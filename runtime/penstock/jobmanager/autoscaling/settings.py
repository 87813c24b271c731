"""The settings of the autoscaler, read from the configuration of a job. Times in ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock.common.config import options
from penstock.common.config.option_table import check_key
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob

PREFIXES = ("job.autoscaler.", "penstock.autoscaler.")
"""Prefixes of the keys of the autoscaler."""
LONGEST_TEXT = 200
"""Maximum number of characters of a key, and of its value, in a request."""


@dataclass(frozen=True)
class AutoscalerSettings:
    """Settings of one job. The defaults are those of the configuration options."""

    is_enabled: bool = False
    is_active: bool = True
    """Whether the autoscaler requests rescales. False means that it only recommends a parallelism."""
    target: float = 0.7
    """Busy share of the limiting vertex for which a parallelism is chosen."""
    upper: float = 0.9
    """Busy share above which the job is scaled up."""
    lower: float = 0.4
    """Busy share below which the job is scaled down."""
    min_parallelism: int = 1
    max_parallelism: int = 200
    window_ms: int = 60_000
    stabilization_ms: int = 10_000
    """Time at the start of an attempt whose measurements are not used."""
    scale_down_ms: int = 600_000
    catch_up_ms: int = 180_000
    rescale_ms: int = 3_000
    """Expected pause of a rescale until one was measured."""
    max_lag_ms: int = 30_000
    budget: float = 0.001
    """Share of an hour for which rescales may pause the job."""
    effectiveness: float = 0.1
    """Share of the expected gain that a rescale must have reached. Otherwise the parallelism does not change the vertex's capacity."""

    shows_keys: bool = True
    """Whether decisions contain the text of hot keys."""

    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of the configuration that set them."""

    @staticmethod
    def from_configuration(values: Mapping[str, Any]) -> AutoscalerSettings:
        """Read the settings.

        Raises:
            InvalidJob: a value is not valid, or two values contradict each other.
        """
        conf = Configuration(values)
        settings = AutoscalerSettings(
            is_enabled=conf.get(options.AUTOSCALER_ENABLED),
            is_active=conf.get(options.AUTOSCALER_MODE) == "active" and conf.get(options.AUTOSCALER_SCALING_ENABLED),
            target=conf.get(options.AUTOSCALER_TARGET),
            upper=conf.get(options.AUTOSCALER_UPPER),
            lower=conf.get(options.AUTOSCALER_LOWER),
            min_parallelism=conf.get(options.AUTOSCALER_MIN_PARALLELISM),
            max_parallelism=conf.get(options.AUTOSCALER_MAX_PARALLELISM),
            window_ms=_ms(conf.get(options.AUTOSCALER_WINDOW)),
            stabilization_ms=_ms(conf.get(options.AUTOSCALER_STABILIZATION)),
            scale_down_ms=_ms(conf.get(options.AUTOSCALER_SCALE_DOWN_INTERVAL)),
            catch_up_ms=_ms(conf.get(options.AUTOSCALER_CATCH_UP)),
            rescale_ms=_ms(conf.get(options.AUTOSCALER_RESTART_TIME)),
            max_lag_ms=_ms(conf.get(options.AUTOSCALER_MAX_LAG)),
            budget=conf.get(options.AUTOSCALER_BUDGET),
            effectiveness=conf.get(options.AUTOSCALER_EFFECTIVENESS),
            shows_keys=conf.get(options.AUTOSCALER_KEY_TEXTS),
            keys={key: text for key, text in conf.to_dict().items() if key.startswith(PREFIXES)},
        )
        settings.check()
        return settings

    @staticmethod
    def from_request(values: Mapping[str, Any]) -> AutoscalerSettings:
        """Read the settings from the keys of a request.

        Raises:
            InvalidJob: a key is not a key of the autoscaler, or as in `from_configuration`.
        """
        for key, value in values.items():
            if not key.startswith(PREFIXES):
                raise InvalidJob(
                    f"{key[:LONGEST_TEXT]!r} is not a key of the autoscaler",
                    remedy=f"use keys that start with {' or '.join(PREFIXES)}",
                )
            check_key(key)
            if len(key) > LONGEST_TEXT or len(str(value)) > LONGEST_TEXT:
                raise InvalidJob(
                    f"{key[:LONGEST_TEXT]} or its value has more than {LONGEST_TEXT} characters",
                    remedy="shorten the value",
                )
        return AutoscalerSettings.from_configuration(values)

    def check(self) -> None:
        """Refuse contradictory settings."""
        if not self.lower < self.target < self.upper:
            raise InvalidJob(
                f"the utilizations of the autoscaler are min {self.lower}, target {self.target} and max {self.upper}, which are not ascending",
                remedy=f"set {options.AUTOSCALER_LOWER.key} < {options.AUTOSCALER_TARGET.key} < {options.AUTOSCALER_UPPER.key}",
            )
        if self.min_parallelism > self.max_parallelism:
            raise InvalidJob(
                f"the autoscaler's parallelism is limited to at least {self.min_parallelism} and at most {self.max_parallelism}",
                remedy=f"set {options.AUTOSCALER_MIN_PARALLELISM.key} to at most {options.AUTOSCALER_MAX_PARALLELISM.key}",
            )
        if self.window_ms < 15_000:
            raise InvalidJob(
                f"{options.AUTOSCALER_WINDOW.key} is {self.window_ms} ms, but the metrics are sampled every 5 s",
                remedy="set it to at least 15s",
            )


def _ms(value: timedelta) -> int:
    return int(value.total_seconds() * 1000)
