"""Restart strategies mean what Flink documents: how often a failed job is started again, and after which pause.

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
    """What a strategy answers to failures that each come after the job ran for a while."""
    now, answers = HOUR, []
    for _ in range(failures):
        answers.append(strategy.on_failure(now))
        now += (answers[-1] or 0) + ran_ms
    return answers


class Highest(random.Random):
    """Draws the upper end of a range."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Lowest(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


def test_none_ends_the_job_with_its_first_failure() -> None:
    assert NoRestart().on_failure(0) is None
    assert NoRestart().describe() == "none"


class TestFixedDelay:
    def test_restarts_so_often_after_the_same_pause(self) -> None:
        assert pauses(FixedDelay(3, 10_000), 5) == [10_000, 10_000, 10_000, None, None]

    def test_failures_that_lie_far_apart_count_as_well(self) -> None:
        assert pauses(FixedDelay(2, 5), 3, ran_ms=24 * HOUR) == [5, 5, None]

    def test_zero_attempts_restart_nothing(self) -> None:
        assert FixedDelay(0, 5).on_failure(0) is None

    def test_says_how_many_attempts_are_used(self) -> None:
        strategy = FixedDelay(3, 5)
        strategy.on_failure(0)
        assert strategy.describe() == "fixed-delay: 3 attempts, 5 ms apart (1 used)"


class TestFailureRate:
    def test_survives_so_many_failures_in_an_interval_and_no_more(self) -> None:
        strategy = FailureRate(max_failures=3, interval_ms=5 * MINUTE, delay_ms=7)
        assert [strategy.on_failure(now) for now in (0, 1, 2, 3)] == [7, 7, 7, None]

    def test_the_interval_goes_along_with_time(self) -> None:
        strategy = FailureRate(max_failures=2, interval_ms=100, delay_ms=7)
        assert [strategy.on_failure(now) for now in (0, 90, 150, 191, 195)] == [7, 7, 7, 7, None]

    @pytest.mark.parametrize(("second", "answer"), [(100, None), (101, 7)])
    def test_a_failure_is_out_of_the_interval_when_it_is_longer_ago(self, second: int, answer: int | None) -> None:
        strategy = FailureRate(max_failures=1, interval_ms=100, delay_ms=7)
        assert [strategy.on_failure(0), strategy.on_failure(second)] == [7, answer]

    def test_a_steady_trickle_of_failures_is_survived_for_ever(self) -> None:
        assert pauses(FailureRate(max_failures=1, interval_ms=100, delay_ms=50), 50, ran_ms=51) == [50] * 50


class TestExponentialDelay:
    def test_begins_with_the_initial_pause_and_grows_up_to_the_maximum(self) -> None:
        strategy = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(strategy, 6) == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]

    def test_the_factor_need_not_be_whole(self) -> None:
        assert pauses(ExponentialDelay(4, 300, 2.3, HOUR, jitter=0), 3) == [4, 9, 21]

    def test_goes_back_to_the_initial_pause_when_the_job_ran_quietly(self) -> None:
        strategy = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(strategy, 3) == [1_000, 2_000, 4_000]
        quiet = ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0)
        assert pauses(quiet, 3, ran_ms=HOUR) == [1_000, 1_000, 1_000]

    def test_one_millisecond_short_of_the_threshold_is_not_quiet(self) -> None:
        assert pauses(ExponentialDelay(1_000, 10_000, 2.0, HOUR, jitter=0), 2, ran_ms=HOUR - 1) == [1_000, 2_000]

    def test_the_pause_itself_is_no_quiet_time(self) -> None:
        """It may be longer than the threshold; the job has not run in it."""
        strategy = ExponentialDelay(1_000, 8_000, 2.0, reset_after_ms=1_500, jitter=0)
        assert pauses(strategy, 5) == [1_000, 2_000, 4_000, 8_000, 8_000]

    def test_gives_up_after_so_many_restarts_without_a_quiet_time(self) -> None:
        assert pauses(ExponentialDelay(10, 10, 1.0, HOUR, jitter=0, attempts=3), 5) == [10, 10, 10, None, None]

    def test_a_quiet_time_gives_the_attempts_back(self) -> None:
        strategy = ExponentialDelay(10, 10, 1.0, HOUR, jitter=0, attempts=2)
        assert [strategy.on_failure(now) for now in (0, 20)] == [10, 10]
        assert strategy.on_failure(30 + HOUR) == 10
        assert strategy.describe().endswith("2 attempts (1 used)")

    def test_without_a_limit_it_never_gives_up(self) -> None:
        assert None not in pauses(ExponentialDelay(), 5_000)

    def test_attempts_count_also_without_pauses(self) -> None:
        assert pauses(ExponentialDelay(initial_ms=0, jitter=0, attempts=2), 3) == [0, 0, None]

    def test_jitter_is_a_part_of_the_pause_either_way(self) -> None:
        assert pauses(ExponentialDelay(1_000, 60_000, 2.0, HOUR, 0.25, random=Highest()), 3) == [1_250, 2_500, 5_000]
        assert pauses(ExponentialDelay(1_000, 60_000, 2.0, HOUR, 0.25, random=Lowest()), 3) == [1_000, 1_500, 3_000]

    def test_two_jobs_that_failed_together_do_not_come_back_together(self) -> None:
        one, other = (pauses(ExponentialDelay(random=random.Random(seed)), 5) for seed in (1, 2))
        assert one != other

    @given(
        initial=st.integers(0, 5_000),
        longer=st.integers(0, 100_000),
        multiplier=st.floats(1, 10),
        jitter=st.floats(0, 1),
        ran=st.integers(0, 2 * HOUR),
    )
    def test_no_pause_is_outside_the_initial_and_the_maximum(
        self, initial: int, longer: int, multiplier: float, jitter: float, ran: int
    ) -> None:
        strategy = ExponentialDelay(initial, initial + longer, multiplier, HOUR, jitter)
        assert all(initial <= (pause or 0) <= initial + longer for pause in pauses(strategy, 20, ran))


class TestWhatAJobGets:
    """From the text of a configuration to the strategy of a JobMaster."""

    def of(self, **settings: str) -> RestartStrategy:
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
        return JobSettings.from_configuration(named).restart_strategy()

    def test_without_checkpoints_the_first_failure_ends_the_job(self) -> None:
        assert isinstance(self.of(), NoRestart)

    def test_with_checkpoints_the_pause_grows_for_ever(self) -> None:
        found = self.of(execution__checkpointing__interval="10 s")
        assert isinstance(found, ExponentialDelay)
        assert (found.initial_ms, found.maximum_ms, found.multiplier) == (1_000, MINUTE, 1.5)
        assert (found.reset_after_ms, found.jitter, found.attempts) == (HOUR, 0.1, None)

    def test_checkpoints_that_are_switched_off_are_none(self) -> None:
        assert isinstance(self.of(execution__checkpointing__interval="0"), NoRestart)

    @pytest.mark.parametrize("name", ["none", "off", "disable", "NONE"])
    def test_none_counts_with_checkpoints_too(self, name: str) -> None:
        found = self.of(execution__checkpointing__interval="10 s", restart_strategy__type=name)
        assert isinstance(found, NoRestart)

    @pytest.mark.parametrize("name", ["fixed-delay", "fixeddelay"])
    def test_fixed_delay(self, name: str) -> None:
        key = "restart-strategy.fixed-delay."
        values = {"restart-strategy.type": name, f"{key}attempts": "3", f"{key}delay": "10 s"}
        assert JobSettings.from_configuration(values).restart_strategy() == FixedDelay(3, 10_000)
        assert self.of(restart_strategy__type=name) == FixedDelay(1, 1_000)

    @pytest.mark.parametrize("name", ["failure-rate", "failurerate"])
    def test_failure_rate(self, name: str) -> None:
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
    def test_exponential_delay(self, name: str) -> None:
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

    def test_the_older_key_counts(self) -> None:
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
    def test_what_cannot_be_is_refused_also_from_a_file(self, kind: str, key: str, value: str) -> None:
        values = {"restart-strategy.type": kind, f"restart-strategy.{kind}.{key}": value}
        with pytest.raises(InvalidJob):
            JobSettings.from_configuration(values).restart_strategy()

    def test_what_a_program_sets_comes_out_the_same(self) -> None:
        length = timedelta(seconds=2)
        assert create_restart_strategy(RestartStrategies.fixed_delay_restart(4, length)) == FixedDelay(4, 2_000)
        found = create_restart_strategy(RestartStrategies.failure_rate_restart(2, length, 300))
        assert found == FailureRate(2, 2_000, 300)

    def test_every_job_counts_for_itself(self) -> None:
        """Two jobs with one configuration do not use up each other's attempts."""
        settings = JobSettings.from_configuration({"restart-strategy.type": "fixed-delay"})
        assert [settings.restart_strategy().on_failure(0) for _ in range(3)] == [1_000, 1_000, 1_000]
