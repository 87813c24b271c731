"""The autoscaler on simulated jobs: the right size after a change of the load, few rescales, a small lag."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.jobmanager.autoscaling import past
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from tests.unit.jobmanager.autoscaling.simulator import SimulatedJob, Vertex, ramp, sine_day, spike, step

if TYPE_CHECKING:
    from penstock.jobmanager.autoscaling.samples import Sample

SPEED = 1000.0
"""Records per second of a subtask of the slowest vertex."""
seeds = st.integers(0, 10_000)
SIMULATED = settings(phases=(Phase.explicit, Phase.generate), derandomize=True, deadline=None)
"""Settings of all simulations. A simulated job takes a fifth of a second, so failing examples are not made smaller."""


def chain(*, speed: float = SPEED, hot_share: float = 0.0) -> list[Vertex]:
    return [Vertex("source", 5 * speed), Vertex("count", speed, hot_share=hot_share), Vertex("sink", 3 * speed)]


def needed(load: float, utilization: float = 0.7) -> int:
    return math.ceil(load / SPEED / utilization)


@given(seeds, st.integers(2, 12), st.floats(0.45, 0.85))
@settings(SIMULATED, max_examples=8)
def test_three_times_the_load_gets_the_right_size_soon_and_the_lag_is_gone(seed: int, size: int, busy: float) -> None:
    load = size * SPEED * busy
    job = SimulatedJob(chain(), step(load, 3 * load), parallelism=size, seed=seed, splits=64).run(2_400)
    after = [(at - 900, new) for at, _, new in job.rescales if at >= 900]
    assert 1 <= len(after) <= 2, after
    assert after[-1][0] <= 120, after
    assert needed(3 * load, 0.9) <= job.parallelism <= needed(3 * load) + 2, (job.parallelism, needed(3 * load))
    assert max(job.lags[900 + 300 :]) <= 1.0, "the lag must be gone after five minutes"


@pytest.mark.parametrize(
    ("high", "share"),
    [
        (8_000, 0.11),
        pytest.param(8_000, 0.15, marks=pytest.mark.slow),
        pytest.param(18_330, 0.11, marks=pytest.mark.slow),
        pytest.param(18_330, 0.15, marks=pytest.mark.slow),
        pytest.param(25_000, 0.11, marks=pytest.mark.slow),
        pytest.param(25_000, 0.15, marks=pytest.mark.slow),
    ],
)
def test_a_sine_day_needs_few_rescales_and_fewer_slots_than_its_peak(high: float, share: float) -> None:
    low = high * share
    job = SimulatedJob(
        chain(), sine_day(low, high), parallelism=needed(low), seed=349, decide_every_s=30, splits=64
    ).run(86_400)
    assert len(job.rescales) <= 6, job.rescales
    assert job.slot_seconds <= 0.65 * needed(high) * 86_400, job.slot_seconds / 86_400 / needed(high)
    assert job.seconds_behind <= 0.01 * 86_400
    assert job.paused_s <= 0.001 * 86_400


@given(seeds, st.integers(1, 6), st.floats(0.42, 0.88), st.floats(0.0, 0.1))
@settings(SIMULATED, max_examples=8)
def test_a_constant_load_within_the_limits_is_never_rescaled(seed: int, size: int, busy: float, noise: float) -> None:
    """Measurements with noise must not lead to rescales up and down."""
    load = size * SPEED * busy
    job = SimulatedJob(chain(), lambda now: load, parallelism=size, seed=seed, noise=noise / 3).run(3_600)
    assert job.rescales == []


@given(seeds, st.floats(1_500, 12_000), st.integers(1, 20))
@settings(SIMULATED, max_examples=8)
def test_any_start_settles_after_few_rescales_and_then_stays(seed: int, load: float, start: int) -> None:
    job = SimulatedJob(chain(), lambda now: load, parallelism=start, seed=seed, splits=64).run(10_800)
    assert len(job.rescales) <= 3, job.rescales
    assert all(at <= 7_200 for at, _, _ in job.rescales), job.rescales
    assert needed(load, 0.9) <= job.parallelism, (job.parallelism, needed(load))
    assert job.parallelism <= max(2, load / SPEED / 0.39 + 1)


@given(seeds, st.floats(1_200, 7_200))
@settings(SIMULATED, max_examples=8)
def test_a_ramp_is_followed_with_a_small_lag(seed: int, seconds: float) -> None:
    job = SimulatedJob(chain(), ramp(600, 9_000, 900, 900 + seconds), parallelism=1, seed=seed, splits=64)
    job.run(900 + seconds + 1_800)
    assert job.parallelism >= needed(9_000, 0.9)
    assert job.seconds_behind <= 0.03 * (seconds + 2_700)
    assert len(job.rescales) <= 8, job.rescales


@given(seeds, st.floats(5, 20))
@settings(SIMULATED, max_examples=8)
def test_a_spike_that_the_job_reads_in_time_causes_no_rescale(seed: int, seconds: float) -> None:
    job = SimulatedJob(chain(), spike(1_200, 3_000, 1_000, seconds), parallelism=2, seed=seed).run(2_400)
    assert job.rescales == []


@given(seeds, st.integers(3, 40), st.floats(2, 30))
@settings(SIMULATED, max_examples=8)
def test_a_job_whose_source_limits_it_never_exceeds_the_splits(seed: int, splits: int, factor: float) -> None:
    vertices = [Vertex("source", SPEED), Vertex("count", 200 * SPEED)]
    job = SimulatedJob(vertices, step(2_000, 2_000 * factor), parallelism=3, splits=splits, seed=seed).run(3_600)
    assert max([3, *(new for _, _, new in job.rescales)]) <= max(3, splits)


@given(seeds, st.floats(0.5, 0.8))
@settings(SIMULATED, max_examples=8)
def test_a_hot_key_causes_no_rescale_and_is_named(seed: int, share: float) -> None:
    job = SimulatedJob(chain(hot_share=share), step(SPEED, 2.2 * SPEED), parallelism=6, seed=seed, splits=64)
    job.settings = replace(job.settings, min_parallelism=4)
    job.run(3_600)
    assert not [new for at, old, new in job.rescales if new > old], job.rescales
    assert job.reasons[-1] == "HOT_SUBTASK"
    assert "Subtask 0 of 'count'" in job.decisions[-1].message


@given(seeds, st.floats(1.3, 4))
@settings(SIMULATED, max_examples=8)
def test_a_slow_external_system_causes_at_most_one_scale_up(seed: int, factor: float) -> None:
    vertices = [Vertex("source", 5 * SPEED), Vertex("sink", SPEED, external_limit=2_500)]
    job = SimulatedJob(vertices, step(1_800, 2_500 * factor), parallelism=3, seed=seed, splits=64).run(14_400)
    assert len(job.rescales) <= 1, job.rescales
    assert job.reasons[-1] == "INEFFECTIVE"
    assert "'sink'" in job.decisions[-1].message


@given(seeds, st.lists(st.integers(600, 3_000), max_size=12, unique=True))
@settings(SIMULATED, max_examples=8)
def test_restarts_of_a_job_with_a_constant_load_cause_no_rescale(seed: int, restarts: list[int]) -> None:
    times = tuple(float(at) for at in sorted(restarts))
    job = SimulatedJob(chain(), lambda now: 2_000.0, parallelism=4, seed=seed, restarts=times).run(4_000)
    assert job.rescales == []


@given(seeds, st.floats(0.05, 0.9), st.sampled_from(["nan", "negative", "lost", "zero busy", "clock"]))
@settings(SIMULATED, max_examples=8)
def test_broken_metrics_never_lead_to_a_wrong_size(seed: int, share: float, kind: str) -> None:
    chance = random.Random(seed)

    def broken(now: float, sample: Sample) -> Sample | None:
        if chance.random() > share:
            return sample
        first, *others = sample.vertices
        match kind:
            case "nan":
                return replace(sample, vertices=(replace(first, busy=math.nan), *others))
            case "negative":
                return replace(sample, vertices=(replace(first, rate_in=-first.rate_in), *others))
            case "zero busy":
                return replace(sample, vertices=tuple(replace(one, busy=0.0) for one in sample.vertices))
            case "clock":
                return replace(sample, at_ms=sample.at_ms + chance.randint(-100_000, 100_000))
        return None

    job = SimulatedJob(chain(), lambda now: 2_400.0, parallelism=4, seed=seed, breaks=broken).run(2_400)
    assert job.parallelism == 4, (job.rescales, job.reasons[-5:])


def test_a_job_without_enough_slots_is_rescaled_when_they_exist() -> None:
    job = SimulatedJob(
        chain(), step(1_400, 4_200), parallelism=2, slots=lambda now: 2 if now < 1_200 else 10, splits=64
    ).run(2_400)
    assert "WAITING_FOR_SLOTS" in job.reasons
    waiting = next(one for one in job.decisions if one.reason.value == "WAITING_FOR_SLOTS")
    assert waiting.wanted >= 6
    [(at, old, new)] = job.rescales
    assert (1_200 <= at <= 1_215, old, new >= 6) == (True, 2, True)


@pytest.mark.parametrize("total", [6, 3], ids=["all-start", "only-one-starts"])
def test_workers_that_start_one_after_the_other_cause_one_rescale(total: int) -> None:
    """Each rescale pauses the job. A job that waits for three more workers must not pause three times."""

    def slots(now: float) -> int:
        return min(total, 2 + max(0, int(now - 1_200) // 20))

    job = SimulatedJob(chain(), step(1_400, 3_800), parallelism=2, slots=slots, splits=64).run(1_500)
    [(at, old, new)] = job.rescales
    assert (old, new) == (2, total)
    assert at <= 1_200 + 20 * (total - 2) + past.SLOTS_SETTLE_MS / 1e3 + 20


def test_a_recommending_autoscaler_changes_nothing() -> None:
    job = SimulatedJob(
        chain(), step(1_400, 4_200), parallelism=2, settings=AutoscalerSettings(is_active=False), splits=64
    ).run(1_500)
    assert job.rescales == []
    assert job.decisions[-1].wanted > 2


JOBS = int(os.environ.get("PENSTOCK_SIMULATED_JOBS", "40"))
"""Number of random jobs of the default tests. `make test-all` also runs 1,000 of them."""


def random_job(seed: int) -> SimulatedJob:
    """Return a job with random vertices, load, limits and faults."""
    chance = random.Random(seed)
    speeds = [chance.uniform(500, 8_000) for _ in range(chance.randint(2, 5))]
    vertices = [Vertex(f"v{index}", speed, chance.choice([1.0, 1.0, 0.5, 2.0])) for index, speed in enumerate(speeds)]
    base = chance.uniform(500, 4_000)
    load = chance.choice(
        [
            step(base, base * chance.uniform(0.2, 4)),
            ramp(base, base * chance.uniform(0.3, 4), 600, 2_400),
            spike(base, base * 4, 900, chance.uniform(5, 120)),
            lambda now: base * (1 + 0.5 * math.sin(now / 600)),
        ]
    )
    return SimulatedJob(
        vertices,
        load,
        parallelism=chance.randint(1, 8),
        splits=chance.choice([None, 8, 24, 64]),
        max_parallelism=chance.choice([16, 128]),
        pause_s=chance.uniform(1, 5),
        noise=chance.uniform(0, 0.05),
        knows_lag=chance.random() < 0.85,
        restarts=tuple(float(chance.randint(300, 3_000)) for _ in range(chance.choice([0, 0, 1, 3]))),
        seed=seed,
        decide_every_s=15,
    )


@pytest.mark.slow
def test_a_thousand_random_jobs_obey_their_limits() -> None:
    obey_limits(range(1_000))


def test_random_jobs_obey_their_limits() -> None:
    obey_limits(range(JOBS))


def obey_limits(jobs: range) -> None:
    for seed in jobs:
        job = random_job(seed).run(3_600)
        highest = min(job.settings.max_parallelism, job.max_parallelism)
        changes = [new - old for _, old, new in job.rescales]
        assert all(1 <= new <= highest for _, _, new in job.rescales), seed
        assert len(job.rescales) <= 8, (seed, job.rescales)
        turns = sum(one > 0 and other < 0 for one, other in pairwise(changes))
        assert turns <= 1, f"job {seed} oscillates: {job.rescales}"
        downs = [at for at, old, new in job.rescales if new < old]
        assert all(job.lags[int(at) - 1] * 1e3 <= job.settings.max_lag_ms for at in downs), seed
        assert all(later - earlier >= 600 for earlier, later in pairwise(downs)), seed
