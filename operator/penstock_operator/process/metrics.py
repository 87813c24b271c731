"""The operator's metrics in the text format of Prometheus: counters, gauges and histograms.

Names and labels are a public interface, because dashboards and alerts depend on them. The number of label values is
limited, except for namespace and name of a FlinkJob. When a FlinkJob is deleted, its series are removed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

from penstock_operator.process.durations import Attempts, Downtimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock_operator.process.durations import Attempt
    from penstock_operator.reconcile.job_loop import Transition
    from penstock_operator.snapshot.loop import SnapshotTransition

Labels = tuple[str, ...]


_REASON = re.compile("[A-Z_]{1,40}")


class Metric:
    """A counter or gauge, with one number per combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), kind: str = "counter") -> None:
        self.name, self.text, self.labels, self.kind = name, text, tuple(labels), kind
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Increase a counter."""
        self.values[labels] += by

    def set(self, *labels: str, to: float) -> None:
        """Set a gauge."""
        self.values[labels] = to

    def forget(self, *prefix: str) -> None:
        """Drop all series whose labels start with this prefix."""
        for labels in [known for known in self.values if known[: len(prefix)] == prefix]:
            del self.values[labels]

    def lines(self) -> Iterator[str]:
        """Yield the metric in the text format of Prometheus."""
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{_braces(zip(self.labels, labels, strict=True))} {_number(value)}"


class Histogram:
    """A histogram of durations in seconds."""

    def __init__(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self.name, self.text, self.labels, self.buckets = name, text, tuple(labels), tuple(buckets)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = defaultdict(float)

    def observe(self, *labels: str, value: float) -> None:
        """Record one duration."""
        counts = self.counts.setdefault(labels, [0] * (len(self.buckets) + 1))
        counts[bisect_left(self.buckets, value)] += 1
        self.sums[labels] += value

    def lines(self) -> Iterator[str]:
        """Yield the metric in the text format of Prometheus."""
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} histogram"
        for labels, counts in sorted(self.counts.items()):
            pairs, total = list(zip(self.labels, labels, strict=True)), 0
            for bound, count in zip([*map(_number, self.buckets), "+Inf"], counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_braces([*pairs, ('le', bound)])} {total}"
            yield f"{self.name}_sum{_braces(pairs)} {_number(self.sums[labels])}"
            yield f"{self.name}_count{_braces(pairs)} {total}"


_JOB = ("namespace", "name")
_SHORT = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (1, 2, 5, 10, 20, 30, 45, 60, 120, 300, 600, 1800)
_TRIGGERS = frozenset({"manual", "nonce", "periodic"})
"""Known triggers of FlinkSnapshots. The trigger is read from a label, which a user may set to any value."""


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self._add_jobs()
        self._add_durations()
        self.errors = Metric(
            "penstock_reconcile_errors_total", "Reconcile passes that ended in an error", ("kind", "reason")
        )
        self.requests = Metric("penstock_api_requests_total", "Requests to the Kubernetes API", ("verb", "kind"))
        self.leader = Metric("penstock_leader", "Whether this operator is the leader", (), "gauge")
        self.leader.set(to=0)
        self._attempts, self._downtimes = Attempts(), Downtimes()

    def _add_jobs(self) -> None:
        self.jobs = Metric(
            "penstock_flinkjob_phase", "1 for the current phase of a FlinkJob", (*_JOB, "phase"), "gauge"
        )
        self.phase_since = Metric(
            "penstock_flinkjob_phase_since_seconds",
            "Start time of the phase of the FlinkJob (Unix time)",
            _JOB,
            "gauge",
        )
        self.ready = Metric("penstock_flinkjob_ready", "Whether the FlinkJob is Ready", _JOB, "gauge")
        self.stalled = Metric(
            "penstock_flinkjob_stalled", "Whether the FlinkJob waits for an action of a user", _JOB, "gauge"
        )
        self.running = Metric(
            "penstock_flinkjob_running", "Whether a job that should run processes records now", _JOB, "gauge"
        )
        self.restarts = Metric("penstock_flinkjob_restarts", "Failovers of the running incarnation", _JOB, "gauge")
        self.parallelism = Metric(
            "penstock_flinkjob_parallelism", "Parallelism of the running incarnation", _JOB, "gauge"
        )
        self.wanted = Metric(
            "penstock_flinkjob_wanted_parallelism", "Parallelism that the load needs (autoscaler)", _JOB, "gauge"
        )
        self.limited = Metric(
            "penstock_flinkjob_autoscaling_limited",
            "Whether the FlinkJob does not get the parallelism that its load needs",
            _JOB,
            "gauge",
        )
        self.decision = Metric(
            "penstock_flinkjob_autoscaler_decision",
            "1 for the reason of the newest decision of the autoscaler",
            (*_JOB, "reason"),
            "gauge",
        )
        self.autoscaled = Metric(
            "penstock_autoscaler_rescales_total", "Rescales of FlinkJobs by their autoscaler", ("direction",)
        )
        self.checkpoint = Metric(
            "penstock_flinkjob_last_checkpoint_seconds",
            "Completion time of the newest checkpoint (Unix time)",
            _JOB,
            "gauge",
        )

    def _add_durations(self) -> None:
        self.operations = Histogram(
            "penstock_operation_seconds", "Duration of operations on FlinkJobs", ("kind", "outcome"), _LONG
        )
        self.steps = Histogram(
            "penstock_operation_step_seconds",
            "Duration of the steps of operations, with all attempts and waits",
            ("kind", "step"),
            _LONG,
        )
        self.downtime = Histogram(
            "penstock_downtime_seconds",
            "Time from the stop of the old incarnation to the first RUNNING of the new one, by the result of the operation",
            ("kind", "outcome"),
            _LONG,
        )
        self.snapshots = Histogram(
            "penstock_snapshot_seconds",
            "Duration of attempts to take savepoints and checkpoints, including those of upgrades",
            ("type", "trigger", "outcome"),
            _LONG,
        )
        self.rescales = Histogram(
            "penstock_rescale_seconds",
            "Duration of attempts of live rescales, from their checkpoint to RUNNING. It is an upper bound of the downtime",
            ("outcome",),
            _LONG,
        )
        self.passes = Histogram(
            "penstock_reconcile_seconds", "Duration of one reconcile pass of an object", ("kind",), _SHORT
        )

    def render(self) -> str:
        """Return the page that Prometheus scrapes."""
        metrics = (m for m in vars(self).values() if isinstance(m, Metric | Histogram))
        return "\n".join(line for metric in metrics for line in metric.lines()) + "\n"

    def note(self, transition: Transition) -> None:
        """Record the changes of a pass."""
        before, after, job = transition.before, transition.after, (transition.namespace, transition.name)
        self.jobs.forget(*job)
        self.jobs.set(*job, after.phase, to=1)
        if after.phase_since is not None:
            self.phase_since.set(*job, to=after.phase_since.timestamp())
        for metric, kind in ((self.ready, "Ready"), (self.stalled, "Stalled")):
            found = after.condition(kind)
            metric.set(*job, to=float(found is not None and found.status == "True"))
        if after.running is None or after.running.finished_at is not None:
            self.running.forget(*job)
        else:
            self.running.set(*job, to=float(after.job_state == "RUNNING"))
        self.restarts.set(*job, to=after.restarts)
        if after.last_checkpoint is not None and after.last_checkpoint.time is not None:
            self.checkpoint.set(*job, to=after.last_checkpoint.time.timestamp())
        self._autoscaler(transition)
        self._operation(transition)
        attempt = self._attempts.ended(transition)
        if attempt is not None:
            self._attempt(attempt, transition)
        downtime = self._downtimes.ended(transition)
        if downtime is not None:
            self.downtime.observe(downtime.operation.kind, downtime.outcome, value=downtime.seconds)
        if before.history[:1] != after.history[:1]:
            entry = after.history[0]
            seconds = (entry.finished_at - entry.started_at).total_seconds()
            self.operations.observe(entry.kind, entry.outcome, value=seconds)

    def _autoscaler(self, transition: Transition) -> None:
        before, after, job = transition.before.running, transition.after, (transition.namespace, transition.name)
        running, found = after.running, after.autoscaling
        self.decision.forget(*job)
        if running is None or running.finished_at is not None:
            self.parallelism.forget(*job)
        else:
            self.parallelism.set(*job, to=running.parallelism)
        if found is None:
            self.wanted.forget(*job)
            self.limited.forget(*job)
            return
        self.wanted.set(*job, to=found.wanted)
        self.limited.set(*job, to=float(found.limited is not None))
        self.decision.set(*job, found.reason if _REASON.fullmatch(found.reason) else "OTHER", to=1)
        if before is None or running is None or found.mode != "active" or before.job_id != running.job_id:
            return
        if before.parallelism != running.parallelism:
            self.autoscaled.add("up" if running.parallelism > before.parallelism else "down")

    def _operation(self, transition: Transition) -> None:
        before, after = transition.before.operation, transition.after.operation
        if before is None or (after is not None and after.id == before.id and after.step == before.step):
            return
        seconds = (transition.now - before.step_since).total_seconds()
        self.steps.observe(before.kind, before.step, value=max(seconds, 0.0))

    def _attempt(self, attempt: Attempt, transition: Transition) -> None:
        op, seconds = attempt.operation, attempt.seconds
        if op.step == "Stop":
            self.snapshots.observe("savepoint", op.kind.lower(), attempt.outcome, value=seconds)
            return
        rescaled = transition.seen.engine.rescaled
        if attempt.outcome == "Completed" and rescaled is not None and rescaled.parallelism == op.target_parallelism:
            seconds = rescaled.took.total_seconds()
        self.rescales.observe(attempt.outcome, value=seconds)

    def note_snapshot(self, transition: SnapshotTransition) -> None:
        """Record the changes of a pass over a FlinkSnapshot."""
        before, after = transition.before, transition.after
        if before.state != "InProgress" or after.state == "InProgress" or before.started_at is None:
            return
        trigger = transition.trigger if transition.trigger in _TRIGGERS else "manual"
        outcome = "Completed" if after.state == "Completed" else "Failed"
        seconds = (transition.now - before.started_at).total_seconds()
        self.snapshots.observe(transition.kind, trigger, outcome, value=max(seconds, 0.0))

    def forget(self, namespace: str, name: str) -> None:
        """Drop the series of a FlinkJob that no longer exists."""
        state = (self.jobs, self.phase_since, self.ready, self.stalled, self.running, self.restarts, self.checkpoint)
        gauges = (*state, self.parallelism, self.wanted, self.limited, self.decision)
        for metric in gauges:
            metric.forget(namespace, name)
        self._attempts.forget(namespace, name)
        self._downtimes.forget(namespace, name)


def _braces(pairs: Iterable[tuple[str, str]]) -> str:
    text = ",".join(f'{key}="{_escape(value)}"' for key, value in pairs)
    return f"{{{text}}}" if text else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
