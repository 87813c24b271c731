"""The recorded measurements of a job: samples of about an hour, and its rescales with their measured effect."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from penstock.jobmanager.autoscaling.samples import PastRescale, Sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock.jobmanager.autoscaling.window import LEAST_SAMPLES, contiguous, estimates, problem_of

SAMPLES = 720
"""Number of samples that are kept: those of an hour."""
RESCALES = 64
"""Number of rescales that are kept."""


class History:
    """Measurements that a decision uses. Its content depends only on the calls of `add_sample` and `add_rescale`."""

    def __init__(self, settings: AutoscalerSettings, samples: int = SAMPLES) -> None:
        self.settings = settings
        """Settings in effect. Only the thread that adds samples replaces them."""
        self.samples: deque[Sample] = deque(maxlen=samples)
        self.rescales: deque[PastRescale] = deque(maxlen=RESCALES)

    def add_sample(self, sample: Sample) -> None:
        """Add a sample. If it completes the first window after a rescale, its effect is known."""
        self.samples.append(sample)
        if self.rescales and self.rescales[-1].after is None:
            window = self.window()
            last = self.rescales[-1]
            if self.is_full(window) and window[0].at_ms > last.at_ms and sample.parallelism == last.new:
                self.rescales[-1] = replace(last, after=_true_rates(window, self.settings))

    def add_rescale(self, rescale: PastRescale) -> None:
        """Add a completed rescale. The samples of the attempt before it tell what the vertices could process."""
        before = [sample for sample in self.samples if sample.at_ms <= rescale.at_ms - rescale.pause_ms]
        while before and before[-1].parallelism != rescale.old:
            before.pop()
        since = before[-1].at_ms - self.settings.window_ms if before else 0
        window, _ = contiguous(before, since)
        self.rescales.append(replace(rescale, before=_true_rates(window, self.settings) or rescale.before))

    def window(self, ms: int = 0) -> list[Sample]:
        """Return the samples of the window that a decision uses, the oldest first."""
        return self.trusted(ms)[0]

    def trusted(self, ms: int = 0) -> tuple[list[Sample], str]:
        """Return the samples of the newest window of one attempt, and why they do not fill it: `attempt`, `clock` or empty.

        Args:
            ms: length of the window. 0 means the length in the settings.
        """
        if not self.samples:
            return [], ""
        newest = self.samples[-1]
        samples, why = contiguous(self.samples, newest.at_ms - (ms or self.settings.window_ms))
        began = self._began_at(newest.attempt)
        if began is not None:
            kept = [s for s in samples if s.at_ms - s.interval_ms >= began + self.settings.stabilization_ms]
            if len(kept) < len(samples):
                samples, why = kept, why or "attempt"
        return samples, why

    def _began_at(self, attempt: int) -> int | None:
        """Return when the first sample of an attempt began, or None if it is older than the history."""
        first: Sample | None = None
        for sample in reversed(self.samples):
            if sample.attempt != attempt:
                break
            first = sample
            if self.samples[-1].at_ms - sample.at_ms > self.settings.window_ms + self.settings.stabilization_ms:
                return None
        return None if first is None else first.at_ms - first.interval_ms

    def is_full(self, window: Sequence[Sample]) -> bool:
        """Return whether the samples cover a window."""
        covered = sum(sample.interval_ms for sample in window)
        return len(window) >= LEAST_SAMPLES and covered >= 0.9 * self.settings.window_ms

    def pause_ms(self) -> int:
        """Return the expected pause of a rescale: the longest of the last three."""
        last = [rescale.pause_ms for rescale in self.rescales][-3:]
        return max(last, default=self.settings.rescale_ms)


def _true_rates(window: Sequence[Sample], settings: AutoscalerSettings) -> dict[str, float]:
    """Return the true processing rates of the vertices that were busy."""
    if not window or problem_of(window):
        return {}
    return {
        id: estimate.true_rate
        for id, estimate in estimates(window, settings.max_lag_ms).items()
        if estimate.true_rate is not None and (estimate.busy >= 0.5 or estimate.is_observed)
    }
