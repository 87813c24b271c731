"""A simulated job for the autoscaler: a fluid model of vertices with limited speed, a backlog in the source, and pauses of rescales.

Time passes in steps of one second, so a day takes seconds. Intermediate queues are empty, as with back pressure: the slowest vertex
limits the source. Measurements have noise, and can be broken on purpose.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.decision import Decision
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.samples import PastRescale, Sample, VertexSample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings

SAMPLE_S = 5


@dataclass
class Vertex:
    """A vertex of the simulated job. `speed`: records per second that a subtask can process."""

    name: str
    speed: float
    selectivity: float = 1.0
    hot_share: float = 0.0
    """Share of the records that one subtask gets, if it is more than an equal share."""
    external_limit: float = math.inf
    """Records per second that an external system accepts from all subtasks together."""
    fixed: int | None = None


@dataclass
class SimulatedJob:
    """A chain of vertices behind a source."""

    vertices: list[Vertex]
    load: Callable[[float], float]
    """Arrivals in records per second at a time in seconds."""
    parallelism: int = 1
    splits: int | None = None
    max_parallelism: int = 128
    slots: Callable[[float], int] = lambda now: 1000
    pause_s: float = 2.8
    restart_s: float = 15.0
    noise: float = 0.03
    knows_lag: bool = True
    seed: int = 1
    settings: AutoscalerSettings = field(default_factory=lambda: AutoscalerSettings(is_enabled=True))
    breaks: Callable[[float, Sample], Sample | None] = lambda now, sample: sample
    """Changes a sample before it is recorded. None means that it is lost."""
    restarts: tuple[float, ...] = ()
    decide_every_s: int = 10

    lag: float = 0.0
    attempt: int = 1
    down_until: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    rescales: list[tuple[float, int, int]] = field(default_factory=list)
    slot_seconds: float = 0.0
    seconds_behind: int = 0
    """Seconds with a lag above the target."""
    lags: list[float] = field(default_factory=list)
    """Lag in seconds of load at each second."""
    paused_s: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.history = History(self.settings)
        self._pending: PastRescale | None = None
        self._counts: dict[str, list[float]] = {}
        self._since = 0.0

    def run(self, seconds: float) -> SimulatedJob:
        now = 0.0
        while now < seconds:
            self._second(now)
            now += 1
            if now >= self.down_until:
                self._finish_rescale(now)
                if now - self._since >= SAMPLE_S:
                    self._sample(now)
                    if now % self.decide_every_s < SAMPLE_S and self.history.samples:
                        self._decide(now)
        return self

    # --- the job ----------------------------------------------------------------------------------------------

    def subtasks(self, vertex: Vertex) -> int:
        return vertex.fixed or self.parallelism

    def capacity(self, index: int) -> float:
        """Return the records per second that a vertex can process, as records of the source."""
        vertex, count = self.vertices[index], self.subtasks(self.vertices[index])
        share = self.share(index)
        rate = min(vertex.speed / share, vertex.external_limit)
        for before in self.vertices[:index]:
            rate /= before.selectivity
        return rate if count else 0.0

    def share(self, index: int) -> float:
        """Return the share of the records of the busiest subtask."""
        vertex, count = self.vertices[index], self.subtasks(self.vertices[index])
        if index == 0 and self.splits:
            return math.ceil(self.splits / count) / self.splits
        return max(1 / count, vertex.hot_share)

    def _second(self, now: float) -> None:
        arriving = self.load(now)
        self.slot_seconds += self.parallelism
        if now in self.restarts:
            self.attempt += 1
            self.down_until = now + self.restart_s
            self._counts, self._since = {}, self.down_until
        up = now >= self.down_until
        self.paused_s += not up
        capacity = min(self.capacity(index) for index in range(len(self.vertices)))
        available = self.lag + arriving
        read = min(available, capacity) if up else 0.0
        self.lag = available - read
        age = self.lag / max(arriving, 1e-9) if self.lag > 1 else 0.0
        self.lags.append(age)
        self.seconds_behind += age * 1e3 > self.settings.max_lag_ms
        if up:
            self._count(read, capacity)

    def _count(self, read: float, capacity: float) -> None:
        is_full = self.lag > 0
        rate = read
        for index, vertex in enumerate(self.vertices):
            count = self.subtasks(vertex)
            if vertex.external_limit < math.inf:  # the external system shares its time among the subtasks
                slow = max(1 / vertex.speed, count / vertex.external_limit)
            else:
                slow = 1 / vertex.speed
            busy = rate * slow / count
            hottest = min(1.0, rate * slow * self.share(index))
            out = rate * vertex.selectivity
            blocked = max(0.0, 1 - busy) if is_full and index == 0 and self.capacity(0) > capacity * 1.01 else 0.0
            sums = self._counts.setdefault(vertex.name, [0.0] * 5)
            for at, value in enumerate((rate, out, min(1.0, busy), blocked, hottest)):
                sums[at] += value
            rate = out

    # --- its measurements -------------------------------------------------------------------------------------

    def _noisy(self, value: float) -> float:
        return value * max(0.0, 1 + self.random.gauss(0, self.noise))

    def _sample(self, now: float) -> None:
        seconds = now - self._since
        self._since = now
        counts, self._counts = self._counts, {}
        if not counts:
            return
        vertices = []
        for index, vertex in enumerate(self.vertices):
            rate, out, busy, blocked, hottest = (value / seconds for value in counts[vertex.name])
            factor = self._noisy(1.0)
            vertices.append(
                VertexSample(
                    id=str(index),
                    name=vertex.name,
                    level=index,
                    parallelism=self.subtasks(vertex),
                    inputs=(str(index - 1),) if index else (),
                    rate_in=rate,
                    rate_out=out,
                    busy=min(1.0, busy * factor),
                    back_pressured=blocked,
                    idle=max(0.0, 1 - busy - blocked),
                    busiest=((0, min(1.0, hottest * factor)),),
                    is_fixed=vertex.fixed is not None,
                    lag=(self.lag if self.knows_lag else None) if not index else None,
                    splits=self.splits if not index else None,
                )
            )
        sample = self.breaks(
            now,
            Sample(
                at_ms=int(now * 1e3),
                time_ms=int(now * 1e3),
                interval_ms=int(seconds * 1e3),
                attempt=self.attempt,
                parallelism=self.parallelism,
                requested=self.parallelism,
                max_parallelism=self.max_parallelism,
                slots=self.slots(now),
                vertices=tuple(vertices),
            ),
        )
        if sample is not None:
            self.history.add_sample(sample)

    # --- its autoscaler ---------------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        decision = decide(self.settings, self.history)
        self.decisions.append(decision)
        if decision.rescales and self.settings.is_active:
            pause = max(0.5, self.random.gauss(self.pause_s, 0.2))
            self.rescales.append((now, self.parallelism, decision.next))
            self._pending = PastRescale(0, self.parallelism, decision.next, int(pause * 1e3))
            self.parallelism = decision.next
            self.attempt += 1
            self.down_until = now + pause
            self._counts, self._since = {}, self.down_until

    def _finish_rescale(self, now: float) -> None:
        if self._pending is not None:
            self.history.add_rescale(replace(self._pending, at_ms=int(now * 1e3)))
            self._pending = None

    @property
    def reasons(self) -> list[str]:
        return [decision.reason.value for decision in self.decisions]


def step(before: float, after: float, at: float = 900.0) -> Callable[[float], float]:
    return lambda now: before if now < at else after


def ramp(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda now: low + (high - low) * min(1.0, max(0.0, (now - start) / (end - start)))


def sine_day(low: float, high: float) -> Callable[[float], float]:
    """Return the load of a day that begins at its lowest load."""
    return lambda now: low + (high - low) * (1 - math.cos(2 * math.pi * now / 86_400)) / 2


def spike(base: float, height: float, at: float, seconds: float) -> Callable[[float], float]:
    return lambda now: height if at <= now < at + seconds else base
