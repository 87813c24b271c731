"""The metrics of one subtask over about the last minute."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.metrics.histogram import LogHistogram
from penstock.metrics.key import MetricKey, decode_key
from penstock.metrics.loads import SubtaskLoad
from penstock.metrics.reading import AnyReading, DistributionReading, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.metrics.metricbase import Scalar

RECENT_SECONDS = 10.0
"""Seconds over which the engine's own rates are computed."""
DISTRIBUTION_SECONDS = 60.0
"""Seconds that a distribution's percentiles cover."""

PER_SECOND = {
    "numRecordsIn": "numRecordsInPerSecond",
    "numRecordsOut": "numRecordsOutPerSecond",
    "numBytesIn": "numBytesInPerSecond",
    "numBytesOut": "numBytesOutPerSecond",
    "busyTimeMs": "busyTimeMsPerSecond",
    "backPressuredTimeMs": "backPressuredTimeMsPerSecond",
    "idleTimeMs": "idleTimeMsPerSecond",
}
"""Counters of the engine that are also read as rates."""

_COPIES = 30
_QUIET_SECONDS = 2.0
"""If the last report is older than this number of seconds, rates treat the time since the report as time without events."""
_QUIET_REPORTS = 2.5
"""The same limit, as a number of intervals between reports. The larger of the two limits applies. A subtask reports once in each epoch,
which can take many seconds.
"""


@dataclass
class _Counts:
    """Counts at one moment. Counts only grow, so a rate compares the current counts with an earlier copy of them."""

    time: float
    io: dict[str, float] = field(default_factory=dict)
    meters: dict[str, int] = field(default_factory=dict)
    distributions: dict[str, LogHistogram] = field(default_factory=dict)

    def copy(self) -> _Counts:
        return _Counts(self.time, dict(self.io), dict(self.meters), dict(self.distributions))


class SubtaskSeries:
    """The metrics of one attempt of one subtask."""

    def __init__(self, attempt: int, host: str = "", tm_id: str = "") -> None:
        self.attempt = attempt
        self.host = host
        self.tm_id = tm_id
        self.operator_names: dict[str, str] = {}
        self._now = _Counts(0.0)
        self._spans: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, Scalar] = {}
        self._user_gauges: dict[str, Scalar] = {}
        self._copies: deque[_Counts] = deque()
        self._interval = 0.0
        """Seconds between the last two reports."""

    def take(
        self,
        now: float,
        io: Mapping[str, float],
        gauges: Mapping[str, Scalar],
        user: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Add a report (see `store.SubtaskReport`) at the time `now` (s)."""
        counts = self._now
        self._interval = now - counts.time if self._copies else 0.0
        counts.time = now
        for name, n in io.items():
            counts.io[name] = counts.io.get(name, 0) + n
        self._gauges.update(gauges)
        for key, (n, span) in user.get("m", {}).items():
            counts.meters[key] = n
            self._spans[key] = span
        for key, wire in user.get("d", {}).items():
            counts.distributions[key] = LogHistogram.from_wire(wire)
        self._counters.update(user.get("c", {}))
        self._user_gauges.update(user.get("g", {}))
        self.operator_names.update(user.get("names", {}))
        self._keep_copy(now)

    def set_gauges(self, values: Mapping[str, Scalar]) -> None:
        """Set gauges of the subtask that are not part of its reports."""
        self._gauges.update(values)

    def io_total(self, name: str) -> float:
        """Return the value of a counter of the engine, counted since the attempt's start."""
        return self._now.io.get(name, 0)

    def io_rate(self, name: str, now: float, seconds: float = RECENT_SECONDS) -> float:
        """Return the rate per second of a counter of the engine, over the last `seconds`."""
        base, elapsed = self._base(now, seconds)
        return _rate(self._now.io.get(name, 0) - base.io.get(name, 0), elapsed)

    def gauge(self, name: str) -> Scalar:
        return self._gauges.get(name)

    def load(self, subtask: int, now: float) -> SubtaskLoad:
        """Return the load of the subtask at the time `now` (s)."""
        base, elapsed = self._base(now, RECENT_SECONDS)
        io = self._now.io

        def rate(name: str) -> float:
            return _rate(io.get(name, 0) - base.io.get(name, 0), elapsed)

        watermark = self._gauges.get("currentInputWatermark")
        return SubtaskLoad(
            subtask,
            self.tm_id,
            self.host,
            int(io.get("numRecordsIn", 0)),
            int(io.get("numRecordsOut", 0)),
            rate("numRecordsIn"),
            rate("numRecordsOut"),
            min(1.0, rate("busyTimeMs") / 1e3),
            min(1.0, rate("backPressuredTimeMs") / 1e3),
            watermark if isinstance(watermark, int) else None,
        )

    def readings(self, now: float) -> Iterator[AnyReading]:
        """Yield all readings at the time `now` (s)."""
        for name, total in self._now.io.items():
            yield Reading(MetricKey("", (), name), _whole(total), "counter")
            if name in PER_SECOND:
                yield Reading(MetricKey("", (), PER_SECOND[name]), self.io_rate(name, now))
        for name, value in self._gauges.items():
            yield Reading(MetricKey("", (), name), value)
        for key, n in self._counters.items():
            yield Reading(decode_key(key), n)
        for key, value in self._user_gauges.items():
            yield Reading(decode_key(key), value)
        for key, n in self._now.meters.items():
            base, elapsed = self._base(now, self._spans[key])
            meter = decode_key(key)
            yield Reading(meter, _rate(n - base.meters.get(key, 0), elapsed))
            yield Reading(meter._replace(name=f"{meter.name}_count"), n, "counter")
        base, _ = self._base(now, DISTRIBUTION_SECONDS)
        for key, histogram in self._now.distributions.items():
            before = base.distributions.get(key) if now - base.time >= DISTRIBUTION_SECONDS else None
            recent = histogram if before is None else histogram.minus(before)
            yield DistributionReading(decode_key(key), recent.summary(), histogram.count, histogram.sum)

    def _keep_copy(self, now: float) -> None:
        reach = max(DISTRIBUTION_SECONDS, *self._spans.values()) if self._spans else DISTRIBUTION_SECONDS
        copies = self._copies
        if not copies or now - copies[-1].time >= reach / _COPIES:
            copies.append(self._now.copy())
        while len(copies) > 1 and now - copies[1].time >= reach:
            copies.popleft()

    def _base(self, now: float, seconds: float) -> tuple[_Counts, float]:
        """Return the counts of `seconds` ago, or the oldest available counts, and their age (s)."""
        if not self._copies:
            return self._now, 0.0
        is_quiet = now - self._now.time >= max(_QUIET_SECONDS, _QUIET_REPORTS * self._interval)
        end = now if is_quiet else self._now.time
        base = self._copies[0]
        for copy in reversed(self._copies):
            if end - copy.time >= seconds:
                base = copy
                break
        return base, end - base.time


def _rate(n: float, elapsed: float) -> float:
    return n / elapsed if elapsed > 0 else 0.0


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value
