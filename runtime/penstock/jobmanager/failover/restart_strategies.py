"""Restart strategies (S37): whether a failed job is restarted, and after how long. Pure; time comes as an argument.

The protocol around them heads `failures`.
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
    """Decides after each failure."""

    def on_failure(self, now_ms: int) -> int | None:
        """Delay in ms before the next attempt; None: no further attempt."""
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
    """`fixed-delay`: a number of attempts, always the same pause."""

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
    """`failure-rate`: at most so many failures within an interval, both of its ends included."""

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
    """`exponential-delay`: the pause grows with every failure and falls back after a quiet time.

    Quiet is how long the job ran, so it is counted from the end of the last pause, not from the failure before it:
    otherwise a job that waits longer than the threshold would never have its pause grow further. The jitter keeps
    jobs that failed together from coming back together; it takes no pause below the initial or above the maximum.

    Defaults are Flink's (1 s, 1 min, factor 1.5, reset after 1 h, jitter 10 %).

    Args:
        attempts: restarts without a quiet time between them; None: it never gives up.
    """

    initial_ms: int = 1_000
    maximum_ms: int = 60_000
    multiplier: float = 1.5
    reset_after_ms: int = 3_600_000
    jitter: float = 0.1
    attempts: int | None = None
    random: random.Random = field(default_factory=random.Random)
    _delay_ms: float = 0.0
    """The last pause before its jitter."""
    _restarted_ms: int = 0
    _used: int = 0
    """Restarts since the job last ran quietly."""

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
    """The strategy a program or its configuration asks for."""
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
