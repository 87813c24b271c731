"""Restart strategies: how often a job restarts after failures, and how long it waits before each restart.

This module has only the settings. The JobMaster executes the strategies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.common.config import options
from penstock.common.program.user_location import refusal
from penstock.common.time import TimeLike, as_millis, format_duration

if TYPE_CHECKING:
    from penstock.common.configuration import Configuration


class RestartStrategyConfiguration(ABC):
    """Base of the settings of all restart strategies."""

    @abstractmethod
    def get_description(self) -> str:
        """Describe the strategy and its numbers for people."""

    @abstractmethod
    def to_settings(self) -> dict[str, Any]:
        """Return the strategy as configuration keys and values."""


@dataclass(frozen=True)
class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """No restarts: the first failure fails the job."""

    def get_description(self) -> str:
        return "Restart deactivated."

    def to_settings(self) -> dict[str, Any]:
        return {options.RESTART_STRATEGY.key: "none"}


@dataclass(frozen=True)
class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """The configured strategy. If none is configured, jobs with checkpoints restart with exponential delay, and other
    jobs do not restart.
    """

    def get_description(self) -> str:
        return "Cluster level default restart strategy."

    def to_settings(self) -> dict[str, Any]:
        return {options.RESTART_STRATEGY.key: "default"}


@dataclass(frozen=True)
class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A fixed number of restarts with the same delay before each restart."""

    restart_attempts: int
    delay: timedelta

    def get_restart_attempts(self) -> int:
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self.delay

    def get_description(self) -> str:
        return f"Restart with fixed delay ({format_duration(self.delay)}). #{self.restart_attempts} restart attempts."

    def to_settings(self) -> dict[str, Any]:
        return {
            options.RESTART_STRATEGY.key: "fixed-delay",
            options.FIXED_DELAY_ATTEMPTS.key: self.restart_attempts,
            options.FIXED_DELAY.key: self.delay,
        }


@dataclass(frozen=True)
class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts while the number of failures in an interval does not exceed a limit."""

    max_failure_rate: int
    failure_interval: timedelta
    delay: timedelta

    def get_max_failure_rate(self) -> int:
        return self.max_failure_rate

    def get_failure_interval(self) -> timedelta:
        return self.failure_interval

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self.delay

    def get_description(self) -> str:
        return (
            f"Failure rate restart with maximum of {self.max_failure_rate} failures within interval "
            f"{format_duration(self.failure_interval)} and fixed delay {format_duration(self.delay)}."
        )

    def to_settings(self) -> dict[str, Any]:
        return {
            options.RESTART_STRATEGY.key: "failure-rate",
            options.FAILURE_RATE_MAX.key: self.max_failure_rate,
            options.FAILURE_RATE_INTERVAL.key: self.failure_interval,
            options.FAILURE_RATE_DELAY.key: self.delay,
        }


@dataclass(frozen=True)
class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts with a delay that grows by a factor with each failure. The delay is reset after the job has run for a
    while without failure.

    Args:
        jitter_factor: random part of the delay, 0 to 1.
        attempts: maximum number of restarts since the last reset. The next failure then fails the job. None means no
            limit.
    """

    initial_backoff: timedelta = field(default=options.EXPONENTIAL_INITIAL.default)
    max_backoff: timedelta = field(default=options.EXPONENTIAL_MAX.default)
    backoff_multiplier: float = options.EXPONENTIAL_MULTIPLIER.default
    reset_backoff_threshold: timedelta = field(default=options.EXPONENTIAL_RESET.default)
    jitter_factor: float = options.EXPONENTIAL_JITTER.default
    attempts: int | None = None

    def get_description(self) -> str:
        limit = "" if self.attempts is None else f" At most {self.attempts} attempts in a row."
        return (
            f"Restart with exponential delay, starting at {format_duration(self.initial_backoff)}, increasing by "
            f"{self.backoff_multiplier}, with maximum {format_duration(self.max_backoff)}. Delay resets after "
            f"{format_duration(self.reset_backoff_threshold)} with jitter {self.jitter_factor}.{limit}"
        )

    def to_settings(self) -> dict[str, Any]:
        settings = {
            options.RESTART_STRATEGY.key: "exponential-delay",
            options.EXPONENTIAL_INITIAL.key: self.initial_backoff,
            options.EXPONENTIAL_MAX.key: self.max_backoff,
            options.EXPONENTIAL_MULTIPLIER.key: self.backoff_multiplier,
            options.EXPONENTIAL_RESET.key: self.reset_backoff_threshold,
            options.EXPONENTIAL_JITTER.key: self.jitter_factor,
        }
        return settings if self.attempts is None else {**settings, options.EXPONENTIAL_ATTEMPTS.key: self.attempts}


class RestartStrategies:
    """Factory of restart strategies.

    >>> RestartStrategies.fixed_delay_restart(3, timedelta(seconds=10)).get_description()
    'Restart with fixed delay (10s). #3 restart attempts.'
    """

    NoRestartStrategyConfiguration = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration = FailureRateRestartStrategyConfiguration
    ExponentialDelayRestartStrategyConfiguration = ExponentialDelayRestartStrategyConfiguration

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: TimeLike) -> RestartStrategyConfiguration:
        if restart_attempts < 0:
            raise refusal(f"restart_attempts must not be negative, got {restart_attempts}", "use no_restart()")
        delay = _length(delay_between_attempts, "delay_between_attempts")
        return FixedDelayRestartStrategyConfiguration(restart_attempts, delay)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: TimeLike, delay_interval: TimeLike
    ) -> RestartStrategyConfiguration:
        if failure_rate < 1:
            raise refusal(f"failure_rate must be at least 1, got {failure_rate}", "use no_restart()")
        return FailureRateRestartStrategyConfiguration(
            failure_rate, _length(failure_interval, "failure_interval"), _length(delay_interval, "delay_interval")
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: TimeLike = timedelta(seconds=1),
        max_backoff: TimeLike = timedelta(minutes=1),
        backoff_multiplier: float = 1.5,
        reset_backoff_threshold: TimeLike = timedelta(hours=1),
        jitter_factor: float = 0.1,
        attempts: int | None = None,
    ) -> RestartStrategyConfiguration:
        if backoff_multiplier < 1:
            raise refusal(f"backoff_multiplier must be at least 1, got {backoff_multiplier}")
        if not 0 <= jitter_factor <= 1:
            raise refusal(f"jitter_factor must be from 0 to 1, got {jitter_factor}")
        first, longest = _length(initial_backoff, "initial_backoff"), _length(max_backoff, "max_backoff")
        if first > longest:
            durations = f"{format_duration(first)} and {format_duration(longest)}"
            raise refusal(f"initial_backoff must not be longer than max_backoff, got {durations}", "set both")
        return ExponentialDelayRestartStrategyConfiguration(
            first,
            longest,
            backoff_multiplier,
            _length(reset_backoff_threshold, "reset_backoff_threshold"),
            jitter_factor,
            attempts,
        )


def restart_strategy_of(configuration: Configuration, *, checkpointing: bool) -> RestartStrategyConfiguration:
    """Return the configured strategy.

    Raises:
        InvalidJob: the numbers do not fit together.

    >>> from penstock.common.configuration import Configuration
    >>> restart_strategy_of(Configuration(), checkpointing=False)
    NoRestartStrategyConfiguration()
    """
    get = configuration.get
    kind = get(options.RESTART_STRATEGY).replace("-", "")
    if kind == "fixeddelay":
        return RestartStrategies.fixed_delay_restart(get(options.FIXED_DELAY_ATTEMPTS), get(options.FIXED_DELAY))
    if kind == "failurerate":
        return RestartStrategies.failure_rate_restart(
            get(options.FAILURE_RATE_MAX), get(options.FAILURE_RATE_INTERVAL), get(options.FAILURE_RATE_DELAY)
        )
    if kind == "exponentialdelay" or (kind == "default" and checkpointing):
        return RestartStrategies.exponential_delay_restart(
            get(options.EXPONENTIAL_INITIAL),
            get(options.EXPONENTIAL_MAX),
            get(options.EXPONENTIAL_MULTIPLIER),
            get(options.EXPONENTIAL_RESET),
            get(options.EXPONENTIAL_JITTER),
            get(options.EXPONENTIAL_ATTEMPTS),
        )
    return NoRestartStrategyConfiguration()


def _length(length: TimeLike, name: str) -> timedelta:
    millis = as_millis(length, name)
    if millis < 0:
        raise refusal(f"{name} must not be negative, got {length!r}")
    return timedelta(milliseconds=millis)
