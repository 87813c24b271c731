"""Spans of the operations on jobs. Each operation has one span, from its start to its end, with a span for each step.

The spans are created from the changes of passes (`Transition`), after the status is written. So no operation waits for
a trace. Steps that completed in a former operator process are missing. The start of the operation is in the status, so
the span of the operation is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.api.status.operation import HistoryEntry, Operation
    from penstock_operator.reconcile.job_loop import Transition

Value = str | int | bool


@dataclass(frozen=True)
class Span:
    """A span. `error` is empty if the operation or step succeeded."""

    name: str
    start: datetime
    end: datetime
    attributes: dict[str, Value]
    steps: tuple[Span, ...] = ()
    error: str = ""


@dataclass
class _UnderWay:
    id: str
    steps: list[Span] = field(default_factory=list)


class OperationTraces:
    """Collector of the spans of operations in progress.

    Args:
        send: receives the span of an operation that has ended. It must neither wait nor raise an error.
    """

    def __init__(self, send: Callable[[Span], None]) -> None:
        self._send = send
        self._under_way: dict[tuple[str, str], _UnderWay] = {}

    def note(self, transition: Transition) -> None:
        """Record the changes of a pass."""
        job, before, after = (transition.namespace, transition.name), transition.before, transition.after
        was, now = before.operation, after.operation
        if was is None or (now is not None and (now.id, now.step) == (was.id, was.step)):
            return
        known = self._under_way.get(job)
        if known is None or known.id != was.id:
            known = self._under_way[job] = _UnderWay(was.id)
        known.steps.append(_step(was, transition.now))
        if now is None or now.id != was.id:
            del self._under_way[job]
            self._send(_operation(transition, was, known.steps))

    def forget(self, namespace: str, name: str) -> None:
        """Drop the data of a FlinkJob that no longer exists. The operation Delete ends only in this way, so its span is
        never sent.
        """
        self._under_way.pop((namespace, name), None)


def _step(was: Operation, ended: datetime) -> Span:
    attributes: dict[str, Value] = {"flinkjob.attempts": was.attempt} if was.attempt else {}
    return Span(was.step, min(was.step_since, ended), ended, attributes)


def _operation(transition: Transition, was: Operation, steps: list[Span]) -> Span:
    entry = _entry(transition.before, transition.after)
    outcome = "Abandoned" if entry is None else entry.outcome
    found: dict[str, Value | None] = {
        "k8s.namespace.name": transition.namespace,
        "flinkjob.name": transition.name,
        "flinkjob.operation.id": was.id,
        "flinkjob.outcome": outcome,
        "flinkjob.reason": was.reason,
        "flinkjob.revision": was.target_revision,
        "flinkjob.generation": was.target_generation or None,
        "flinkjob.parallelism": was.target_parallelism,
        "flinkjob.job.id": was.job_id,
        "flinkjob.stopped.job.id": was.stop_job_id,
        "flinkjob.restored.from": None if was.restore is None else was.restore.path,
    }
    attributes = {name: value for name, value in found.items() if value not in (None, "")}
    error = "" if outcome == "Succeeded" else (entry.message if entry is not None and entry.message else outcome)
    return Span(
        was.kind,
        min(was.started_at, transition.now),
        transition.now,
        attributes,
        tuple(steps),
        error,
    )


def _entry(before: FlinkJobStatus, after: FlinkJobStatus) -> HistoryEntry | None:
    """Return the new entry of the history, or None."""
    return after.history[0] if after.history[:1] != before.history[:1] else None
