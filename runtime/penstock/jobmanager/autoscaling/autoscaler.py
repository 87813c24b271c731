"""The autoscaler of a running job: it samples the metrics, decides, publishes the decision and requests the rescale.

It runs in the job's thread, after an epoch, so no lock protects the measurements. REST's threads read the published decisions, and
replace the settings. A decision and its rescale use the same settings. The
decisions are computed also if the autoscaler is disabled: a decision takes one to two ms, every five seconds. The recording and the
decisions are limited in size.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.common.config.memory import task_manager_memory
from penstock.common.configuration import Configuration
from penstock.jobmanager.autoscaling.decide import decide
from penstock.jobmanager.autoscaling.decision import Decision
from penstock.jobmanager.autoscaling.history import History
from penstock.jobmanager.autoscaling.memory import advise
from penstock.jobmanager.autoscaling.recording import record
from penstock.jobmanager.autoscaling.samples import PastRescale
from penstock.jobmanager.autoscaling.sampling import MeasuredJob, Sampler
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock.jobmanager.job.requests import Operation
from penstock.metrics.reading import JobScope
from penstock.rest.facts import HotKey

SAMPLE_MS = 5_000
DECISIONS = 200
"""Number of decisions that are kept. Equal decisions that follow each other count once."""
MEMORY_SAMPLES = 120
"""Number of samples for the advice on memory: those of ten minutes."""
RETRY_MS = 60_000
"""Time after a failed request before the next one."""
TRIGGER = "autoscaler"

logger = logging.getLogger(__name__)


@dataclass
class Published:
    """Decision, and for how long it was repeated."""

    first: Decision
    last: Decision
    count: int = 1
    failure: str = ""
    """Failure of the rescale that it requested."""

    def to_json(self) -> dict[str, Any]:
        values = self.last.to_json()
        values |= {"since": self.first.time_ms, "count": self.count, "failure": self.failure}
        return values


class Autoscaler:
    """Autoscaler of one job.

    Raises:
        InvalidJob: a setting is not valid.
    """

    def __init__(self, job: MeasuredJob) -> None:
        self.settings = AutoscalerSettings.from_configuration(job.settings.configuration)
        self.configuration_id = ""
        """Id that a client gave to its settings. Empty means that the settings are those of the configuration."""
        self._job = job
        self._history = History(self.settings)
        self._sampler = Sampler(self.settings.shows_keys)
        self._rescales = 0
        self._own_rescales = 0
        self._decisions: deque[Published] = deque(maxlen=DECISIONS)
        self._request: Operation | None = None
        self._not_before_ms = 0

    # --- in the job's thread ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Take a sample if one is due, decide, and request a rescale if the mode allows it. A defect here never fails the job."""
        now = self._job.clock.monotonic_ms()
        if not self._sampler.is_due(self._job.attempt, now, SAMPLE_MS):
            return
        settings = self.settings
        self._history.settings, self._sampler.shows_keys = settings, settings.shows_keys
        try:
            self._note_rescales(now)
            sample = self._sampler.take(self._job, now)
            if sample is not None:
                self._history.add_sample(sample)
                self._on_decision(settings, decide(settings, self._history), now)
        except Exception:
            logger.exception("the autoscaler of job %s could not decide", self._job.job_id)

    def _note_rescales(self, now_ms: int) -> None:
        """Record the rescales since the last call, with their measured pauses."""
        history = self._job.history
        count = history.rescale_count - self._rescales
        self._rescales = history.rescale_count
        for rescale in list(history.rescales)[-count:] if count > 0 else []:
            self._own_rescales += rescale.trigger == TRIGGER
            self._history.add_rescale(
                PastRescale(
                    now_ms, rescale.old_parallelism, rescale.new_parallelism, rescale.duration_ms, rescale.trigger
                )
            )

    def _on_decision(self, settings: AutoscalerSettings, decision: Decision, now_ms: int) -> None:
        self._check_request(now_ms)
        last = self._decisions[-1] if self._decisions else None
        if last is not None and _is_same(last.last, decision):
            last.last, last.count = decision, last.count + 1
        else:
            self._decisions.append(Published(decision, decision))
        hot = decision.hot_key
        self._job.metrics.store.set_facts(
            JobScope(self._job.job_id),
            {
                "wantedParallelism": decision.wanted,
                "numAutoscalerRescales": self._own_rescales,
                "hotKeyShare": 0.0 if hot is None or hot.hot_key_share is None else round(hot.hot_key_share, 4),
            },
        )
        is_active = settings.is_enabled and settings.is_active
        if decision.rescales and is_active and self._request is None and now_ms >= self._not_before_ms:
            self._job.history.event(self._job.clock.now_ms(), f"autoscaler: {decision.message}")
            self._request = Operation("rescale", {"parallelism": decision.next, "trigger": TRIGGER})
            self._job.request(self._request)

    def _check_request(self, now_ms: int) -> None:
        """Forget a request that is done. A failed one is repeated later."""
        if self._request is None or not self._request.is_done:
            return
        if self._request.failure:
            self._not_before_ms = now_ms + RETRY_MS
            self._decisions[-1].failure = self._request.failure
            self._job.history.event(
                self._job.clock.now_ms(), f"the autoscaler could not rescale the job: {self._request.failure}"
            )
        self._request = None

    # --- from other threads -----------------------------------------------------------------------------------

    def configure(self, keys: Mapping[str, Any], configuration_id: str) -> None:
        """Replace the settings of the running job by these keys. A key that is missing has its default. If the job starts again in another
        JobManager, its configuration applies again.

        Raises:
            InvalidJob: a key or value is not valid. The settings then do not change.
        """
        self.settings, self.configuration_id = AutoscalerSettings.from_request(keys), configuration_id

    @property
    def mode(self) -> str:
        """Return `active`, `recommend` or `disabled`."""
        if not self.settings.is_enabled:
            return "disabled"
        return "active" if self.settings.is_active else "recommend"

    def describe(self) -> dict[str, Any]:
        """Return the state for REST: the newest decision, and all decisions, the newest first."""
        decisions = [one.to_json() for one in reversed(list(self._decisions))]
        newest = decisions[0] if decisions else {}
        settings = self.settings
        return {
            "mode": self.mode,
            "configuration": dict(settings.keys),
            "configurationId": self.configuration_id,
            "current": self._job.parallelism,
            "requested": self._job.scheduler.wanted,
            "wanted": newest.get("wanted", self._job.parallelism),
            "slotsAvailable": self._job.runner.available_slots(),
            "minParallelism": settings.min_parallelism,
            "maxParallelism": min(settings.max_parallelism, self._job.graph.max_parallelism),
            "reason": newest.get("reason", "TOO_FEW_SAMPLES"),
            "message": newest.get("message", "No measurements exist yet."),
            "hotKey": newest.get("hotKey"),
            "memory": self._memory(),
            "decisions": decisions,
        }

    def _memory(self) -> dict[str, Any]:
        job, samples = self._job, list(self._history.samples)
        of_attempt = [one.memory for one in samples if one.attempt == job.attempt and one.memory is not None]
        memory = task_manager_memory(Configuration(job.settings.configuration))
        return advise(memory, of_attempt[-MEMORY_SAMPLES:], uses_rocksdb=job.settings.backend == "rocksdb")

    def hot_key_of(self, vertex_id: str) -> HotKey | None:
        """Return the hot key of a vertex according to the newest decision."""
        decisions = list(self._decisions)[-1:]
        found = [
            one for decision in decisions for one in decision.last.inputs if one.id == vertex_id and one.has_hot_key
        ]
        for one in found:
            return HotKey(one.hot_key, one.hot_key_group or 0, one.hot_key_subtask or 0, one.hot_key_share or 0.0)
        return None

    def recording(self) -> Iterator[str]:
        """Yield the lines of the recording of the last hour."""
        return record(self._job.program.name, self.settings.keys, self._history)


def _is_same(before: Decision, now: Decision) -> bool:
    return (before.current, before.wanted, before.reason) == (now.current, now.wanted, now.reason)
