"""Restart strategies as Flink documents them: the number of restarts of a failed job and the pauses before them.

https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/state/task_failure_recovery/
"""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import RestartStrategies
from penstock.common.errors import InvalidJob
from penstock.jobmanager.failover.restart_strategies import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    create_restart_strategy,
)
from penstock.jobmanager.job.settings import JobSettings

MINUTE = 60_000
HOUR = 60 * MINUTE


def pauses(strategy: RestartStrategy, failures: int, ran_ms: int = 1) -> list[int | None]:
    """Return the pauses of a strategy for failures that each occur after the job ran for a while."""
    now, answers = HOUR, []
    for _ in range(failures):
        answers.append(strategy.on_failure(now))
        now += (answers[-1] or 0) + ran_ms
    return answers


class Highest(random.Random):
    """A random generator that always returns the upper end of a range."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Lowest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


def test_the_restart_strategy_none_ends_the_job_at_its_first_failure() -> None:
    assert NoRestart().on_failure(0) is None
    assert NoRestart().describe() == "none"


class TestFixedDelay:
    def test_fixed_delay_restarts_a_fixed_number_of_times_with_the_same_pause(self) -> None:
        assert pauses(FixedDelay(3, 10_000), 5) == [10_000, 10_000, 10_000, None, None]

    def test_fixed_delay_counts_failures_regardless_of_their_distance(self) -> None:
        assert pauses(FixedDelay(2, 5), 3, ran_ms=24 * HOUR) == [5, 5, None]

    def test_zero_attempts_allow_no_restart(self) -> None:
        assert FixedDelay(0, 5).on_failure(0) is None

    def test_the_message_contains_the_number_of_attempts(self) -> None:
        strategy = FixedDelay(3, 5)
        strategy.on_failure(0)
        assert strategy.describe() == "fixed-delay: 3 attempts, 5 ms apart (1 used)"


class TestFailureRate:
    def test_failure_rate_tolerates_a_number_of_failures_per_interval(self) -> None:
        strategy = FailureRate(max_failures=3, interval_ms=5 * MINUTE, delay_ms=7)
        assert [strategy.on_failure(now) for now in (0, 1, 2, 3)] == [7, 7, 7, None]

    def test_the_interval_slides(self) -> None:
        strategy = FailureRate(max_failures=2, interval_ms=100, delay_ms=7)
        assert [strategy.on_failure(now) for now in (0, 90, 150, 191, 195)] == [7, 7, 7, 7, None]

    @pytest.mark.parametrize(("second", "answer"), [(100, None), (101, 7)])
    def test_an_older_failure_is_outside_of_the_interval(self, second: int, answer: int | None) -> None:
        strategy = FailureRate(max_failures=1, interval_ms=100, delay_ms=7)
        assert [strategy.on_failure(0), strategy.on_failure(second)] == [7, answer]

    def test_a_steady_low_rate_of_failures_is_tolerated_forever(self) -> None:
        assert pauses(FailureRate(max_failures=1, interval_ms=100, delay_ms=50), 50, ran_ms=51) == [50] * 50


class TestExponentialDelay:
    def test_the_pause_grows_from_the_initial_to_the_maximum(self) -> None:
        strategy = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(strategy, 6) == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]

    def test_the_factor_may_be_fractional(self) -> None:
        assert pauses(ExponentialDelay(4, 300, 2.3, HOUR, jitter=0), 3) == [4, 9, 21]

    def test_the_pause_is_reset_after_a_run_without_failures(self) -> None:
        strategy = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(strategy, 3) == [1_000, 2_000, 4_000]
        quiet = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(quiet, 3, ran_ms=HOUR) == [1_000, 1_000, 1_000]

    def test_a_run_one_millisecond_below_the_threshold_does_not_reset(self) -> None:
        assert pauses(ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0), 2, ran_ms=HOUR - 1) == [1_000, 2_000]

    def test_the_pause_does_not_count_as_running_time(self) -> None:
        """The pause may be longer than the threshold, but the job does not run during it."""
        strategy = ExponentialDelay(1_000, 8_000, 2.0, reset_after_ms=1_500, jitter=0)
        assert pauses(strategy, 5) == [1_000, 2_000, 4_000, 8_000, 8_000]

    def test_the_job_fails_after_the_maximum_of_restarts_without_a_reset(self) -> None:
        assert pauses(ExponentialDelay(10, 10, 1.0, HOUR, jitter=0, attempts=3), 5) == [10, 10, 10, None, None]

    def test_a_reset_restores_the_attempts(self) -> None:
        strategy = ExponentialDelay(10, 10, 1.0, HOUR, jitter=0, attempts=2)
        assert [strategy.on_failure(now) for now in (0, 20)] == [10, 10]
        assert strategy.on_failure(30 + HOUR) == 10
        assert strategy.describe().endswith("2 attempts (1 used)")

    def test_exponential_delay_without_a_limit_retries_forever(self) -> None:
        assert None not in pauses(ExponentialDelay(), 5_000)

    def test_attempts_count_also_without_pauses(self) -> None:
        assert pauses(ExponentialDelay(initial_ms=0, jitter=0, attempts=2), 3) == [0, 0, None]

    def test_jitter_is_a_fraction_of_the_pause_in_both_directions(self) -> None:
        assert pauses(ExponentialDelay(1_000, 60_000, 2.0, HOUR, 0.25, random=Highest()), 3) == [1_250, 2_500, 5_000]
        assert pauses(ExponentialDelay(1_000, 60_000, 2.0, HOUR, 0.25, random=Lowest()), 3) == [1_000, 1_500, 3_000]

    def test_two_jobs_that_failed_together_restart_at_different_times(self) -> None:
        one, other = (pauses(ExponentialDelay(random=random.Random(seed)), 5) for seed in (1, 2))
        assert one != other

    @given(
        initial=st.integers(0, 5_000),
        longer=st.integers(0, 100_000),
        multiplier=st.floats(1, 10),
        jitter=st.floats(0, 1),
        ran=st.integers(0, 2 * HOUR),
    )
    def test_no_pause_is_outside_of_the_initial_and_the_maximum(
        self, initial: int, longer: int, multiplier: float, jitter: float, ran: int
    ) -> None:
        strategy = ExponentialDelay(initial, initial + longer, multiplier, HOUR, jitter)
        assert all(initial <= (pause or 0) <= initial + longer for pause in pauses(strategy, 20, ran))


class TestStrategyOfAJob:
    """The strategy that a JobMaster gets from the text of a configuration."""

    def of(self, **settings: str) -> RestartStrategy:
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
        return JobSettings.from_configuration(named).restart_strategy()

    def test_without_checkpoints_the_first_failure_ends_the_job(self) -> None:
        assert isinstance(self.of(), NoRestart)

    def test_with_checkpoints_the_pause_grows_and_restarts_are_unlimited(self) -> None:
        found = self.of(execution__checkpointing__interval="10 s")
        assert isinstance(found, ExponentialDelay)
        assert (found.initial_ms, found.maximum_ms, found.multiplier) == (1_000, MINUTE, 1.5)
        assert (found.reset_after_ms, found.jitter, found.attempts) == (HOUR, 0.1, None)

    def test_disabled_checkpoints_count_as_none(self) -> None:
        assert isinstance(self.of(execution__checkpointing__interval="0"), NoRestart)

    @pytest.mark.parametrize("name", ["none", "off", "disable", "NONE"])
    def test_the_restart_strategy_none_also_applies_with_checkpoints(self, name: str) -> None:
        found = self.of(execution__checkpointing__interval="10 s", restart_strategy__type=name)
        assert isinstance(found, NoRestart)

    @pytest.mark.parametrize("name", ["fixed-delay", "fixeddelay"])
    def test_fixed_delay_is_configured(self, name: str) -> None:
        key = "restart-strategy.fixed-delay."
        values = {"restart-strategy.type": name, f"{key}attempts": "3", f"{key}delay": "10 s"}
        assert JobSettings.from_configuration(values).restart_strategy() == FixedDelay(3, 10_000)
        assert self.of(restart_strategy__type=name) == FixedDelay(1, 1_000)

    @pytest.mark.parametrize("name", ["failure-rate", "failurerate"])
    def test_failure_rate_is_configured(self, name: str) -> None:
        key = "restart-strategy.failure-rate."
        values = {
            "restart-strategy.type": name,
            f"{key}max-failures-per-interval": "4",
            f"{key}failure-rate-interval": "5 min",
            f"{key}delay": "10 s",
        }
        assert JobSettings.from_configuration(values).restart_strategy() == FailureRate(4, 5 * MINUTE, 10_000)
        assert self.of(restart_strategy__type=name) == FailureRate(1, MINUTE, 1_000)

    @pytest.mark.parametrize("name", ["exponential-delay", "exponentialdelay"])
    def test_exponential_delay_is_configured(self, name: str) -> None:
        key = "restart-strategy.exponential-delay."
        values = {
            "restart-strategy.type": name,
            f"{key}initial-backoff": "10 s",
            f"{key}max-backoff": "2 min",
            f"{key}backoff-multiplier": "1.4",
            f"{key}reset-backoff-threshold": "10 min",
            f"{key}jitter-factor": "0.2",
            f"{key}attempts-before-reset-backoff": "8",
        }
        found = JobSettings.from_configuration(values).restart_strategy()
        assert isinstance(found, ExponentialDelay)
        assert (found.initial_ms, found.maximum_ms, found.multiplier) == (10_000, 2 * MINUTE, 1.4)
        assert (found.reset_after_ms, found.jitter, found.attempts) == (10 * MINUTE, 0.2, 8)

    def test_the_older_key_is_accepted(self) -> None:
        assert isinstance(self.of(restart_strategy="failure-rate"), FailureRate)

    @pytest.mark.parametrize(
        ("kind", "key", "value"),
        [
            ("exponential-delay", "backoff-multiplier", "0.5"),
            ("exponential-delay", "jitter-factor", "5"),
            ("exponential-delay", "initial-backoff", "2 min"),
            ("exponential-delay", "attempts-before-reset-backoff", "0"),
            ("failure-rate", "max-failures-per-interval", "0"),
            ("fixed-delay", "attempts", "-1"),
        ],
    )
    def test_invalid_values_are_refused_also_from_a_file(self, kind: str, key: str, value: str) -> None:
        values = {"restart-strategy.type": kind, f"restart-strategy.{kind}.{key}": value}
        with pytest.raises(InvalidJob):
            JobSettings.from_configuration(values).restart_strategy()

    def test_the_settings_of_a_program_have_the_same_effect(self) -> None:
        length = timedelta(seconds=2)
        assert create_restart_strategy(RestartStrategies.fixed_delay_restart(4, length)) == FixedDelay(4, 2_000)
        found = create_restart_strategy(RestartStrategies.failure_rate_restart(2, length, 300))
        assert found == FailureRate(2, 2_000, 300)

    def test_every_job_counts_separately(self) -> None:
        """Two jobs with one configuration do not use up each other's attempts."""
        settings = JobSettings.from_configuration({"restart-strategy.type": "fixed-delay"})
        assert [settings.restart_strategy().on_failure(0) for _ in range(3)] == [1_000, 1_000, 1_000]
