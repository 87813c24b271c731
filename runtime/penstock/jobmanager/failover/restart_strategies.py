"""Restart strategies: whether a failed job is restarted, and after which delay. Pure; the time is an argument.

The module `failures` describes how a failover uses the strategies.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from penstock.common.restart_strategy import (
    ExponentialDelayRestartStrategyConfiguration,
    FailureRateRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    RestartStrategyConfiguration,
)
from penstock.common.time import as_millis


class RestartStrategy(Protocol):
    """Policy that decides after each failure."""

    def on_failure(self, now_ms: int) -> int | None:
        """Return the delay in ms before the next attempt, or None for no further attempt."""
        ...

    def describe(self) -> str: ...


@dataclass
class NoRestart:
    """`none`: the first failure ends the job."""

    def on_failure(self, now_ms: int) -> int | None:
        return None

    def describe(self) -> str:
        return "none"


@dataclass
class FixedDelay:
    """`fixed-delay`: a number of attempts with a constant delay."""

    attempts: int
    delay_ms: int
    _used: int = 0

    def on_failure(self, now_ms: int) -> int | None:
        if self._used >= self.attempts:
            return None
        self._used += 1
        return self.delay_ms

    def describe(self) -> str:
        return f"fixed-delay: {self.attempts} attempts, {self.delay_ms} ms apart ({self._used} used)"


@dataclass
class FailureRate:
    """`failure-rate`: a maximum number of failures within an interval. The interval includes both of its ends."""

    max_failures: int
    interval_ms: int
    delay_ms: int
    _failures: deque[int] = field(default_factory=deque)

    def on_failure(self, now_ms: int) -> int | None:
        self._failures.append(now_ms)
        while self._failures[0] < now_ms - self.interval_ms:
            self._failures.popleft()
        return None if len(self._failures) > self.max_failures else self.delay_ms

    def describe(self) -> str:
        return f"failure-rate: {self.max_failures} failures in {self.interval_ms} ms, {self.delay_ms} ms apart"


@dataclass
class ExponentialDelay:
    """`exponential-delay`: the delay grows with every failure, and resets after a quiet time.

    The quiet time is the time for which the job ran. It starts at the end of the last delay and not at the last failure. Otherwise
    the delay of a job that waits longer than the threshold would never grow further. The jitter prevents jobs that failed together from
    restarting together. It never moves the delay below the initial or above the maximum value.

    Defaults are Flink's (1 s, 1 min, factor 1.5, reset after 1 h, jitter 10 %).

    Args:
        attempts: number of restarts without a quiet time between them. None means no limit.
    """

    initial_ms: int = 1_000
    maximum_ms: int = 60_000
    multiplier: float = 1.5
    reset_after_ms: int = 3_600_000
    jitter: float = 0.1
    attempts: int | None = None
    random: random.Random = field(default_factory=random.Random)
    _delay_ms: float = 0.0
    """Last delay before its jitter, in ms."""
    _restarted_ms: int = 0
    _used: int = 0
    """Restarts since the last quiet time."""

    def on_failure(self, now_ms: int) -> int | None:
        if now_ms - self._restarted_ms >= self.reset_after_ms:
            self._used = 0
        if self.attempts is not None and self._used >= self.attempts:
            return None
        grown = self._delay_ms * self.multiplier if self._used else self.initial_ms
        self._delay_ms = min(grown, self.maximum_ms)
        self._used += 1
        varied = self._delay_ms * (1 + self.jitter * self.random.uniform(-1, 1))
        delay = int(max(self.initial_ms, min(varied, self.maximum_ms)))
        self._restarted_ms = now_ms + delay
        return delay

    def describe(self) -> str:
        limit = "" if self.attempts is None else f", {self.attempts} attempts ({self._used} used)"
        return f"exponential-delay: {self.initial_ms} ms x {self.multiplier} up to {self.maximum_ms} ms{limit}"


def create_restart_strategy(configuration: RestartStrategyConfiguration) -> RestartStrategy:
    """Return the strategy that a program or its configuration selects."""
    match configuration:
        case FixedDelayRestartStrategyConfiguration():
            return FixedDelay(
                configuration.get_restart_attempts(), as_millis(configuration.get_delay_between_attempts_interval())
            )
        case FailureRateRestartStrategyConfiguration():
            return FailureRate(
                configuration.get_max_failure_rate(),
                as_millis(configuration.get_failure_interval()),
                as_millis(configuration.get_delay_between_attempts_interval()),
            )
        case ExponentialDelayRestartStrategyConfiguration():
            return ExponentialDelay(
                initial_ms=as_millis(configuration.initial_backoff),
                maximum_ms=as_millis(configuration.max_backoff),
                multiplier=configuration.backoff_multiplier,
                reset_after_ms=as_millis(configuration.reset_backoff_threshold),
                jitter=configuration.jitter_factor,
                attempts=configuration.attempts,
            )
        case _:
            return NoRestart()
