"""Knowledge from the last hour: peaks and growth of the load, pauses of rescales, and rescales that had no effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.samples import PastRescale, Sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings

HOUR_MS = 3_600_000
SLOTS_SETTLE_MS = 30_000
"""Time without a new slot after which a job that waits for several slots uses those that it has."""
REMEMBERED_MS = 24 * HOUR_MS
"""Time for which a rescale without effect prevents another one."""
TREND_MS = 1_200_000
"""Period from which the growth of the load is estimated."""
PARTS = 4
"""Number of parts of this period."""
SHORTEST_OUTLOOK_MS = 600_000
LONGEST_OUTLOOK_MS = 2 * HOUR_MS
MOST_GROWTH = 2.0
"""Limit of the expected factor, in both directions."""


def ineffective(history: History, settings: AutoscalerSettings, parallelism: int) -> dict[str, int]:
    """Return the vertices whose capacity did not grow with an earlier scale-up, and the parallelism before it.

    A vertex counts only if it was busy before and after the rescale, because otherwise its capacity was not measured.
    """
    now = history.samples[-1].at_ms
    found: dict[str, int] = {}
    for rescale in history.rescales:
        if rescale.new <= rescale.old or rescale.after is None or now - rescale.at_ms > REMEMBERED_MS:
            continue
        if parallelism < rescale.old:
            continue
        for id, before in rescale.before.items():
            after = rescale.after.get(id)
            if after is None or before <= 0:
                continue
            expected = before * (rescale.new / rescale.old - 1)
            if after - before < settings.effectiveness * expected:
                found[id] = min(found.get(id, rescale.old), rescale.old)
            else:
                found.pop(id, None)
    return found


def are_slots_arriving(samples: Sequence[Sample]) -> bool:
    """Return whether the job has had fewer available slots a short time ago, so that more workers are probably starting."""
    now = samples[-1]
    recent = [one for one in samples if now.at_ms - one.at_ms <= SLOTS_SETTLE_MS]
    return min(one.slots for one in recent) < now.slots


def paused_ms(rescales: Iterable[PastRescale], now_ms: int, period_ms: float) -> int:
    """Return the sum of the pauses in a period that ends now."""
    return sum(rescale.pause_ms for rescale in rescales if now_ms - rescale.at_ms < period_ms)


def is_within_budget(history: History, settings: AutoscalerSettings) -> bool:
    """Return whether one more rescale keeps the pauses within the budget.

    The period is an hour. If a single pause needs more than the budget of an hour, the period is longer.
    """
    pause = history.pause_ms()
    period = max(HOUR_MS, pause / settings.budget)
    return paused_ms(history.rescales, history.samples[-1].at_ms, period) + pause <= settings.budget * period


def outlook_ms(pause_ms: int, settings: AutoscalerSettings) -> float:
    """Return for how long a scale-up should last: until the budget has paid for three rescales."""
    return min(max(3 * pause_ms / settings.budget, SHORTEST_OUTLOOK_MS), LONGEST_OUTLOOK_MS)


def trend(samples: Sequence[Sample], outlook: float) -> float:
    """Return the expected factor of the load at the end of a time, from 0.5 to 2.

    The change is the smallest one between four parts of the last 20 minutes. So a step or a spike is not extrapolated.
    """
    now = samples[-1].at_ms
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    newer = samples[-1]
    for sample in islice(reversed(samples), 1, None):
        age = now - newer.at_ms
        if age >= TREND_MS:
            break
        if age >= 0 and newer.attempt == sample.attempt:
            parts[PARTS - 1 - age * PARTS // TREND_MS].append(_arrival(sample, newer))
        newer = sample
    if not all(parts):
        return 1.0
    means = [sum(part) / len(part) for part in parts]
    changes = [after - before for before, after in pairwise(means)]
    change = min(changes) if min(changes) > 0 else min(0.0, max(changes))
    if means[-1] <= 0:
        return 1.0
    factor = 1 + change / (TREND_MS / PARTS) * outlook / means[-1]
    return min(MOST_GROWTH, max(1 / MOST_GROWTH, factor))


def _arrival(before: Sample, sample: Sample) -> float:
    """Return the records per second that arrived at all sources during a sample."""
    total = 0.0
    lags = {vertex.id: vertex.lag for vertex in before.vertices}
    for vertex in sample.vertices:
        if not vertex.inputs:
            total += vertex.rate_in
            lag = lags.get(vertex.id)
            if lag is not None and vertex.lag is not None:
                total += (vertex.lag - lag) / sample.interval_ms * 1e3
    return max(0.0, total)


def peak_slots(samples: Sequence[Sample], period_ms: int, bucket_ms: int) -> float:
    """Return the largest number of busy subtasks per level in a period, as a mean over buckets of time. Fixed vertices do not count."""
    now = samples[-1].at_ms
    buckets: dict[int, dict[int, list[float]]] = {}
    for sample in reversed(samples):
        age = now - sample.at_ms
        if age >= period_ms:
            break
        levels: dict[int, float] = {}
        for vertex in sample.vertices:
            if not vertex.is_fixed:
                level = 0 if sample.levels_take_turns else vertex.level
                levels[level] = levels.get(level, 0.0) + min(1.0, vertex.busy) * vertex.parallelism
        for level, slots in levels.items():
            buckets.setdefault(age // bucket_ms, {}).setdefault(level, []).append(slots)
    return max(
        (sum(values) / len(values) for levels in buckets.values() for values in levels.values()),
        default=0.0,
    )


def observed_ms(samples: Sequence[Sample], period_ms: int) -> int:
    """Return how much of a period that ends now the samples cover."""
    now = samples[-1].at_ms
    return sum(sample.interval_ms for sample in samples if now - sample.at_ms < period_ms)
