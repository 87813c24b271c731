"""The decision of the autoscaler: a pure function of the settings and the recorded measurements.

Problem. The parallelism must follow the load. A rescale pauses the job, a wrong one pauses it for nothing, and measurements are noisy,
late, or wrong after a restart.

Solution. `decide` predicts the load at every parallelism from a window of measurements (`model`).

1. Measurements that cannot be trusted lead to no decision: after a restart or a rescale, with impossible values, without input.
2. The job is scaled up if its limiting vertex is busier than the upper limit. It is also scaled up if the lag is above its target and
   the job would not read it in time. The new parallelism has the target utilization for the expected load, and processes the lag in the catch-up time.
3. No rescale without a predicted gain. A hot key, one hot subtask, too few splits, a fixed parallelism or an external system that limits the
   job are named instead.
4. The job is scaled down if it was below the lower limit for the whole scale-down interval, and its lag is within the target.
5. Rescales must fit into the budget of pauses. Only a scale-up that the lag requires is not limited.

Invariants. A decision has the measurements that it used, also if nothing happens. It depends on nothing but its arguments.
docs/autoscaling.md has the user's view. Prior art: DS2 (Kalavri et al., OSDI '18) and the autoscaler of Flink's Kubernetes operator.
"""

from __future__ import annotations

import math

from penstock.jobmanager.autoscaling import past, texts
from penstock.jobmanager.autoscaling.decision import Cost, Decision, Gain, Input, Reason, input_of
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.model import Limit, LoadModel, VertexLoad, explains, is_hot, model_of
from penstock.jobmanager.autoscaling.samples import Sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock.jobmanager.autoscaling.window import FULL, VertexEstimate, estimates, lag_growth, lag_ms, problem_of

CHANGING = 0.25
"""Relative difference of the arrivals of the two halves of a window above which the load is still changing."""
FULL_SPEED = 0.95
"""Load at which the job processes its lag."""
FULLEST = 0.85
"""Largest load for which a falling load is given a smaller parallelism."""
LARGE_STEP = 0.4
"""Largest ratio of the new and the old parallelism for a scale-down while the load is falling."""
LEAST_GAIN = 1.05
"""Factor by which a scale-up must increase the capacity."""


def decide(settings: AutoscalerSettings, history: History) -> Decision:
    """Return the decision for the newest sample.

    Raises:
        ValueError: the history has no sample.
    """
    if not history.samples:
        raise ValueError("the history has no sample")
    latest = history.samples[-1]
    window, why = history.trusted()
    refusal = _unusable(history, window, why)
    if refusal is not None:
        reason, message = refusal
        inputs: tuple[Input, ...] = ()
        if window and not problem_of(window):
            inputs = tuple(input_of(one) for one in estimates(window, settings.max_lag_ms).values())
        current = latest.parallelism
        return Decision(latest.at_ms, latest.time_ms, current, current, current, reason, message, latest.slots, inputs)
    return _Situation(settings, history, window).decide()


def _unusable(history: History, window: list[Sample], why: str) -> tuple[Reason, str] | None:
    """Return why the measurements do not allow a decision, or None."""
    latest = history.samples[-1]
    if latest.status != "RUNNING":
        return Reason.NOT_RUNNING, f"The job is {latest.status}, so its measurements do not show its load."
    problem = problem_of(window or [latest])
    if problem:
        return Reason.BROKEN_METRICS, f"The measurements are wrong: {problem}. The parallelism stays as it is."
    if latest.parallelism < latest.requested:
        return Reason.FEWER_SLOTS, texts.fewer_slots(latest)
    if not history.is_full(window):
        return _too_short(history, why)
    sources = [vertex for sample in window for vertex in sample.vertices if not vertex.inputs]
    if not any(vertex.rate_in > 0 for vertex in sources):
        return Reason.NO_INPUT, texts.no_input(latest)
    return None


def _too_short(history: History, why: str) -> tuple[Reason, str]:
    latest = history.samples[-1]
    attempt = [sample for sample in history.samples if sample.attempt == latest.attempt]
    began = attempt[0].at_ms - attempt[0].interval_ms
    if why == "clock":
        return Reason.CLOCK_JUMP, "The times of the samples have a gap or go back. A new window has started."
    if why == "attempt" and history.rescales and history.rescales[-1].at_ms >= began - 1_000:
        return Reason.RECENT_RESCALE, "The job was rescaled. Its new load is being measured."
    if why == "attempt" and len(attempt) < len(history.samples):
        return Reason.RECENT_RESTART, "The job was restarted. Its load is being measured."
    return Reason.TOO_FEW_SAMPLES, "The window of measurements is not complete yet."


class _Situation:
    """A moment with usable measurements."""

    def __init__(self, settings: AutoscalerSettings, history: History, window: list[Sample]) -> None:
        self.settings = settings
        self.history = history
        self.latest = latest = window[-1]
        self.current = latest.parallelism
        self.highest = max(1, min(settings.max_parallelism, latest.max_parallelism))
        self.lowest = min(settings.min_parallelism, self.highest)
        self.found = estimates(window, settings.max_lag_ms)
        self.sources = [one for one in self.found.values() if one.arrival is not None]
        self.lag_ms = max((lag_ms(one) for one in self.sources), default=0.0)
        self.is_behind = self.lag_ms > settings.max_lag_ms
        halves = [_arrivals(self.found, half) for half in (window[: len(window) // 2], window[len(window) // 2 :])]
        before, after = (sum(half.values()) for half in halves)
        self.is_changing = abs(after - before) > CHANGING * max(before, 1e-9)
        arrivals = {one.id: one.arrival or 0.0 for one in self.sources}
        self.arrivals = halves[1] if self.is_changing and after > before else arrivals
        self.pause_ms = history.pause_ms()
        self.flat = past.ineffective(history, settings, self.current)
        self.steady = self._model(self.arrivals)
        self.catching_up = self._model({one.id: self._with_lag(one) for one in self.sources})
        self.trend = past.trend(history.samples, past.outlook_ms(self.pause_ms, settings))

    def _model(self, arrivals: dict[str, float]) -> LoadModel:
        return model_of(self.latest, self.found, arrivals, self.flat)

    def _with_lag(self, source: VertexEstimate) -> float:
        """Return the rate at which the source reads all of its lag in the catch-up time, also the lag of a rescale."""
        arrival = self.arrivals[source.id]
        if not self.settings.catch_up_ms or source.lag is None:
            return arrival
        return arrival + (source.lag + arrival * self.pause_ms / 1e3) / self.settings.catch_up_ms * 1e3

    # --- the decision -----------------------------------------------------------------------------------------

    def decide(self) -> Decision:
        if not self.lowest <= self.current <= self.highest:
            wanted = min(max(self.current, self.lowest), self.highest)
            return self._rescale(wanted, Reason.OUTSIDE_LIMITS, texts.outside(self.current, self.lowest, self.highest))
        load = self.steady.at(self.current)
        is_too_slow = self.is_behind and self.catching_up.at(self.current) > 1.0
        hot = next((one for one in self.found.values() if is_hot(one)), None)
        if load > self.settings.upper or is_too_slow:
            return self._scale_up(load, hot)
        if hot is not None and (self.is_behind or (hot.hottest or (0, 0.0))[1] >= FULL):
            return self._hot(hot)
        if self.is_behind:
            return self._behind()
        return self._maybe_scale_down(load)

    def _scale_up(self, load: float, hot: VertexEstimate | None) -> Decision:
        wanted = self._wanted_up()
        limiting = self.steady.bottleneck(self.current)
        before, after = self._capacity(self.current, hot), self._capacity(wanted, hot)
        if wanted <= self.current or after < LEAST_GAIN * before:
            return self._no_gain(limiting, hot, wanted)
        message = texts.up(self.current, wanted, limiting, load, self.lag_ms, self.settings)
        if self.is_changing and not self.is_behind:
            return self._stay(Reason.LOAD_IS_CHANGING, texts.changing(wanted), wanted)
        is_urgent = self.is_behind or load >= FULL
        if not is_urgent and not past.is_within_budget(self.history, self.settings):
            return self._stay(Reason.BUDGET_SPENT, texts.budget(message, self._cost()), wanted)
        return self._rescale(wanted, Reason.SCALE_UP, message)

    def _wanted_up(self) -> int:
        """Return the parallelism for the present load, for the load that is expected later, and for the lag."""
        settings = self.settings
        factor = 1.0 if self.is_changing else max(1.0, self.trend)
        expected = self._model({id: rate * factor for id, rate in self.arrivals.items()})
        return max(
            self.current,
            self.steady.smallest(settings.target, self.lowest, self.highest),
            expected.smallest((settings.target + settings.upper) / 2, self.lowest, self.highest),
            self.catching_up.smallest(FULL_SPEED, self.lowest, self.highest),
        )

    def _no_gain(self, limiting: VertexLoad, hot: VertexEstimate | None, wanted: int) -> Decision:
        if limiting.is_held_by_key():
            return self._stay(Reason.HOT_KEY, texts.hot_key(limiting.estimate))
        if hot is not None:
            return self._hot(hot)
        if self.current >= self.highest:
            return self._stay(Reason.AT_MAX_PARALLELISM, texts.at_max(self.highest, self.latest, self.settings))
        reason = {
            Limit.FIXED: Reason.FIXED_PARALLELISM,
            Limit.SPLITS: Reason.SPLITS,
            Limit.INEFFECTIVE: Reason.INEFFECTIVE,
            None: Reason.NO_GAIN,
        }[limiting.limit]
        return self._stay(reason, texts.no_gain(limiting, self.current, wanted))

    def _hot(self, hot: VertexEstimate) -> Decision:
        if explains(hot):
            return self._stay(Reason.HOT_KEY, texts.hot_key(hot))
        return self._stay(Reason.HOT_SUBTASK, texts.hot(hot))

    def _behind(self) -> Decision:
        """Stay, because more parallelism is not needed to read the lag in time."""
        if self.steady.scalable().smallest(self.settings.target, self.lowest, self.highest) < self.current:
            return self._stay(Reason.LAG_ABOVE_TARGET, texts.lag_above(self.lag_ms, self.settings))
        return self._stay(Reason.CATCHING_UP, texts.catching_up(self.lag_ms, self.settings))

    def _maybe_scale_down(self, load: float) -> Decision:
        settings, samples = self.settings, self.history.samples
        scalable = self.steady.scalable()
        if not scalable.loads:
            return self._stay(Reason.WITHIN_TARGET, texts.all_fixed())
        peak = past.peak_slots(samples, settings.scale_down_ms, settings.window_ms)
        now, wanted = self._wanted_down(scalable, 0.0), self._wanted_down(scalable, peak)
        if now >= self.current or scalable.at(self.current) >= settings.lower:
            return self._stay(Reason.WITHIN_TARGET, texts.within(self.steady, self.current, load, settings))
        last = max((one.at_ms for one in self.history.rescales), default=None)
        if (
            wanted >= self.current
            or peak / self.current >= settings.lower
            or (last is not None and self.latest.at_ms - last < settings.scale_down_ms)
            or past.observed_ms(samples, settings.scale_down_ms) < 0.9 * settings.scale_down_ms
            or self.is_changing
        ):
            return self._stay(Reason.SCALE_DOWN_DELAYED, texts.delayed(now, settings), now)
        if self.trend > 1.0:
            return self._stay(Reason.SCALE_DOWN_DELAYED, texts.growing(wanted), wanted)
        if self.trend < 1.0 and wanted > LARGE_STEP * self.current:
            return self._stay(Reason.SCALE_DOWN_DELAYED, texts.falling(wanted), wanted)
        message = texts.down(self.current, wanted, load, settings)
        if not past.is_within_budget(self.history, settings):
            return self._stay(Reason.BUDGET_SPENT, texts.budget(message, self._cost()), wanted)
        return self._rescale(wanted, Reason.SCALE_DOWN, message)

    def _wanted_down(self, scalable: LoadModel, peak: float) -> int:
        """Return the parallelism for the load of the scale-down interval, or for a lower one if the load is falling."""
        target = self.settings.target if self.trend >= 1.0 else min(FULLEST, self.settings.target / self.trend)
        target = min(target, self.settings.upper)
        return max(
            scalable.smallest(target, self.lowest, self.highest),
            min(self.highest, math.ceil(peak / target)),
        )

    # --- its parts --------------------------------------------------------------------------------------------

    def _capacity(self, parallelism: int, hot: VertexEstimate | None) -> float:
        """Return the records per second of all sources that the job could read."""
        load = self.steady.at(parallelism)
        if hot is not None and hot.hottest is not None and hot.rate_in > 0 and not explains(hot):
            target = next(one.target for one in self.steady.loads if one.estimate.id == hot.id)
            load = max(load, hot.hottest[1] * target / hot.rate_in)
        return sum(self.arrivals.values()) / load if load > 0 else 0.0

    def _cost(self) -> Cost:
        now = self.latest.at_ms
        return Cost(
            pause_ms=self.pause_ms,
            delayed_records=sum(self.arrivals.values()) * self.pause_ms / 1e3,
            paused_ms=past.paused_ms(self.history.rescales, now, past.HOUR_MS),
            budget_ms=int(self.settings.budget * past.HOUR_MS),
        )

    def _rescale(self, wanted: int, reason: Reason, message: str) -> Decision:
        """Rescale to the wanted parallelism, or to the available slots if they are more than the job has."""
        possible = max(min(wanted, self.latest.slots), min(wanted, self.current))
        is_short = self.current < possible < wanted and past.are_slots_arriving(self.history.samples)
        if (possible == self.current and wanted > self.current) or is_short:
            return self._stay(Reason.WAITING_FOR_SLOTS, texts.waiting(message, wanted, self.latest.slots), wanted)
        if possible < wanted:
            message = texts.partly(message, possible, self.latest.slots)
        return self._decision(wanted, possible, reason, message)

    def _stay(self, reason: Reason, message: str, wanted: int | None = None) -> Decision:
        return self._decision(self.current if wanted is None else wanted, self.current, reason, message)

    def _decision(self, wanted: int, next_parallelism: int, reason: Reason, message: str) -> Decision:
        loads = {load.estimate.id: load for load in self.steady.loads}
        gain = Gain(self._capacity(self.current, None), self._capacity(wanted, None), self.current - wanted)
        return Decision(
            self.latest.at_ms,
            self.latest.time_ms,
            self.current,
            wanted,
            next_parallelism,
            reason,
            message,
            self.latest.slots,
            tuple(input_of(one, loads[id].target, loads[id].at(wanted)) for id, one in self.found.items()),
            gain if wanted != self.current else None,
            self._cost(),
        )


def _arrivals(found: dict[str, VertexEstimate], half: list[Sample]) -> dict[str, float]:
    """Return the arrivals of the sources in a part of the window."""
    total = sum(sample.interval_ms for sample in half)
    arrivals = {}
    for index, one in enumerate(found.values()):
        if one.arrival is None:
            continue
        of = [(sample.interval_ms, sample.vertices[index]) for sample in half]
        rate = sum(ms * vertex.rate_in for ms, vertex in of) / total if total else 0.0
        arrivals[one.id] = max(0.0, rate + lag_growth([(ms, vertex.lag) for ms, vertex in of]))
    return arrivals
