"""What one decision is made from, what follows from that, and the few ways in which it can end.

Every step function takes a `Context` and returns a `Decision` by one of: `wait` (nothing to do yet), `act` (do this
now), `advance` (the step is done), `finish` (the operation is done). None of them changes anything: they build the
next status.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock_operator.api.flinkjob import Deletion
from penstock_operator.api.status import ErrorInfo, HistoryEntry, Operation, Rejected, Superseded
from penstock_operator.reconcile.decide.actions import Action
from penstock_operator.reconcile.decide.decision import Decision, Event
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.spec_diff import fingerprint, revision_hash
from penstock_operator.reconcile.observation import Observation
from penstock_operator.resources.incarnation import Incarnation, worker_count
from penstock_operator.resources.names import Owner, incarnation_prefix
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import FlinkJobStatus, OperationKind, StepName
    from penstock_operator.errors import Problem
    from penstock_operator.reconcile.observation import ActionResult

ATTEMPT_FAILED = frozenset({"SavepointFailed", "SavepointTimeout", "RescaleFailed", "RescaleTimeout"})
"""Reasons why an attempt failed that is made again; told until one succeeds, also while the next one is under way."""

SUPERSEDED_KEPT = 20
"""Incarnations that are remembered for removal of their checkpoints; more than that never pile up by themselves."""


@dataclass(frozen=True)
class Subject:
    """The FlinkJob itself, without spec and status."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: datetime
    deleting: bool = False
    deleting_since: datetime | None = None
    finalizer: bool = False

    @property
    def owner(self) -> Owner:
        """The FlinkJob as the owner of objects."""
        return Owner(self.namespace, self.name, self.uid)

    def revision_name(self, spec: FlinkJobSpec) -> str:
        """Name of the ControllerRevision of a spec."""
        return f"{self.name}-{revision_hash(spec)}"


@dataclass(frozen=True)
class Context:
    """All that `decide` may know."""

    subject: Subject
    spec: FlinkJobSpec | None
    status: FlinkJobStatus
    now: datetime
    seen: Observation = field(default_factory=Observation)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What is preset, and contained in the spec."""
    problems: tuple[Problem, ...] = ()
    unreadable: Mapping[str, Any] = field(default_factory=dict)
    """Of the status what cannot be read and nothing may be decided without."""
    deletion: Deletion | None = None
    """What the manifest says of deletion, also where something else in it is not valid."""
    settings: Settings = field(default_factory=Settings)
    events: tuple[Event, ...] = ()

    @property
    def op(self) -> Operation:
        """The operation in progress; only step functions ask, and they run only if there is one."""
        if self.status.operation is None:
            msg = "there is no operation in progress"
            raise AssertionError(msg)
        return self.status.operation

    @cached_property
    def desired_revision(self) -> str | None:
        """The revision the spec asks for, if the spec is valid."""
        return self.subject.revision_name(self.spec) if self.spec else None

    def revision_spec(self, name: str | None) -> FlinkJobSpec | None:
        """The spec that a revision was made from; the current one if it is that revision."""
        if name is None:
            return None
        if self.spec is not None and name == self.desired_revision:
            return self.spec
        return self.seen.revisions.spec(name)

    @cached_property
    def running_spec(self) -> FlinkJobSpec | None:
        """What the running revision was made from."""
        running = self.status.running
        return self.revision_spec(running.revision if running else None)

    @cached_property
    def effective_spec(self) -> FlinkJobSpec | None:
        """The current spec, or while that is invalid the running revision's; the last valid one's if nothing runs."""
        if self.spec is not None or self.status.running is not None:
            return self.spec or self.running_spec
        stored = (self.revision_spec(name) for name in reversed(list(self.seen.revisions)))
        return next((spec for spec in stored if spec is not None), None)

    @property
    def deletion_policy(self) -> Deletion:
        """What is to become of job and storage."""
        spec = self.effective_spec
        return self.deletion or (spec.deletion if spec is not None else Deletion())

    @cached_property
    def running_incarnation(self) -> Incarnation | None:
        """What the running pods were made from; None if nothing runs, or nobody can read its revision."""
        running, spec = self.status.running, self.running_spec
        if running is None or spec is None:
            return None
        allowed = (self.spec or spec).job.allow_non_restored_state
        return Incarnation(
            running.revision,
            spec,
            running.job_id,
            running.restored_from,
            running.parallelism,
            allowed,
            warm=running.warm,
            door=running.door,
        )

    def running_workers(self, parallelism: int) -> int:
        """Worker pods that the running incarnation needs for a parallelism."""
        base = self.running_spec or self.spec
        return worker_count(base, self.spec or base, parallelism) if base is not None else parallelism

    @cached_property
    def is_rejected(self) -> bool:
        """The spec as it is has been tried and given up."""
        rejected = self.status.rejected
        return rejected is not None and self.spec is not None and rejected.fingerprint == fingerprint(self.spec)

    def failed_action(self, *names: str) -> ActionResult | None:
        """The result of the action just tried, if it was one of these and failed."""
        last = self.seen.last
        return last if last is not None and not last.ok and last.action in names else None

    @property
    def past_deadline(self) -> bool:
        """The step in progress has a deadline and it has passed."""
        return self.op.deadline is not None and self.now >= self.op.deadline

    def digest(self, *parts: object, length: int = 32) -> str:
        """An id that is the same whenever it is computed from the same parts."""
        text = "|".join([self.subject.uid, *map(str, parts)])
        return hashlib.sha256(text.encode()).hexdigest()[:length]

    def new_job_id(self, operation: str) -> str:
        """The job id of the incarnation that an operation starts; those of one name begin alike."""
        prefix = incarnation_prefix(self.subject.namespace, self.subject.name)
        return prefix + self.digest(operation, "job", length=32 - len(prefix))

    # --- building the next status -----------------------------------------------------------------------------------

    def with_status(self, **changes: Any) -> Context:
        """The same context with another status."""
        return replace(self, status=self.status.model_copy(update=changes))

    def with_op(self, **changes: Any) -> Context:
        """The same context with a changed operation."""
        return self.with_status(operation=self.op.model_copy(update=changes))

    def retire(self, successor: str | None = None) -> Context:
        """The same context with the running incarnation among those whose checkpoints can go later."""
        running = self.status.running
        known = {s.job_id for s in self.status.superseded}
        if running is None or running.job_id == successor or running.job_id in known:
            return self
        retired = Superseded(job_id=running.job_id, revision=running.revision)
        return self.with_status(superseded=(*self.status.superseded, retired)[-SUPERSEDED_KEPT:])

    def tell(self, reason: str, message: str, *, warning: bool = False, key: str = "") -> Context:
        """The same context with one more event."""
        op = self.status.operation
        where = (
            f"{op.id}/{op.step}/{op.attempt}"
            if op
            else f"{self.subject.generation}/{self.status.running and self.status.running.job_id}"
        )
        event = Event(reason, self.clip(message), "Warning" if warning else "Normal", key or f"{where}/{reason}")
        return replace(self, events=(*self.events, event))

    def clip(self, text: str) -> str:
        """Text from outside, kept short."""
        limit = self.settings.text_limit
        return text if len(text) <= limit else f"{text[: limit - 1]}…"

    def failed(self, reason: str, message: str) -> Context:
        """The same context with the error noted in the status."""
        return self.with_status(error=ErrorInfo(reason=reason, message=self.clip(message), time=self.now))

    # --- the ways a decision ends -----------------------------------------------------------------------------------

    def done(self, action: Action | None = None, *, after: timedelta | None = None) -> Decision:
        """Write this status, do this action, come back then."""
        return Decision(self.status, action, self.events, after)

    def wait(self, message: str, *, blocked: str | None = None, after: timedelta | None = None) -> Decision:
        """Nothing to do until something changes; `blocked` if that has to be done by a person."""
        op = self.op
        ctx = self.with_op(message=self.clip(message), blocked=blocked)
        if blocked and op.blocked != blocked:
            ctx = ctx.failed(blocked, message).tell(blocked, message, warning=True)
        return ctx.done(after=after or self.settings.progress)

    def wait_for_storage(self, doing: str) -> Decision:
        """Storage has not answered: wait, and say so when it lasts."""
        error = self.seen.storage.error
        if not error:
            return self.wait(doing)
        remedy = "Look at the operator's access to it (storage.secretName or workload identity) and at s3.endpoint"
        return self.wait(f"{doing}: {error}. {remedy}", blocked="StorageUnavailable", after=self.settings.backoff_first)

    @property
    def lasting(self) -> str | None:
        """Why earlier attempts of this step failed, once a person has been told."""
        return self.op.blocked if self.op.blocked in ATTEMPT_FAILED else None

    def pending(self, message: str, *, after: timedelta | None = None) -> Decision:
        """Wait for an attempt; what a person has been told of the earlier ones stays, word for word."""
        if self.lasting:
            return self.wait(self.op.message, blocked=self.lasting, after=after)
        return self.wait(message, after=after)

    def act(self, action: Action, message: str = "") -> Decision:
        """Do this now; the intent is in the status that is written first. What blocks is told until it does not."""
        ctx = self.with_op(message=self.clip(message)) if message and not self.op.blocked else self
        return ctx.done(action)

    def begin(self, kind: OperationKind, reason: str, **fields: Any) -> Context:
        """Start an operation at its first step (or at the one given)."""
        fields.setdefault("step", FLOWS[kind][0])
        fields.setdefault("target_generation", self.subject.generation)
        ident = self.digest(kind, self.now.isoformat(), self.subject.generation, length=10)
        operation = Operation(
            id=ident, kind=kind, reason=self.clip(reason), started_at=self.now, step_since=self.now, **fields
        )
        return self.with_status(operation=operation).tell(
            f"{kind}Started", reason, warning=kind in ("Rollback", "Recover")
        )

    def advance(self, step: StepName | None = None, *, deadline: datetime | None = None, **changes: Any) -> Decision:
        """Go to the next step of the flow (or the one given), with fresh attempts and deadline."""
        op = self.op
        flow = FLOWS[op.kind]
        following = step or flow[flow.index(op.step) + 1]
        fresh: dict[str, Any] = {
            "step": following,
            "step_since": self.now,
            "deadline": deadline,
            "attempt": 0,
            "retry_at": None,
            "trigger_id": None,
            "request_id": None,
            "message": "",
            "blocked": None,
        }
        return self.with_op(**{**fresh, **changes}).done()

    def end(self, outcome: str, message: str = "") -> Context:
        """The operation is over; it goes to the history."""
        op = self.op
        entry = HistoryEntry.model_validate(
            {
                "kind": op.kind,
                "outcome": outcome,
                "revision": op.target_revision,
                "generation": op.target_generation,
                "startedAt": op.started_at,
                "finishedAt": self.now,
                "message": self.clip(message or op.message),
            }
        )
        history = (entry, *self.status.history)[: self.settings.history]
        return self.with_status(operation=None, history=history)

    def retry(self, reason: str, message: str, **changes: Any) -> Decision:
        """The attempt failed; make another after a pause.

        A person is told by events of the first ones, and from then on by `Stalled`, whose message changes by number and
        time of the next attempt only. A reason that was not told before makes one more event.
        """
        op = self.op
        attempt = max(op.attempt, 1)
        pause = self.settings.backoff(attempt)
        blocked = reason if attempt >= self.settings.stalled_attempts else None
        ctx = self.failed(reason, message)
        if not self.lasting:
            ctx = ctx.tell(reason, f"{message}. Next attempt in {pause}", warning=True)
        elif self.lasting != reason:
            ctx = ctx.tell(reason, message, warning=True, key=f"{op.id}/{op.step}/{reason}")
        upcoming = self.now + pause
        text = f"{self.clip(message)}. Attempt {attempt + 1} at {upcoming:%H:%M:%S} UTC"
        ctx = ctx.with_op(retry_at=upcoming, message=text, blocked=blocked, attempt=attempt, **changes)
        return ctx.done(after=pause)

    def rejection(self, reason: str, message: str) -> Rejected | None:
        """The current spec as one that was given up with the operation; None if it is not valid."""
        if self.spec is None:
            return None
        return Rejected(
            fingerprint=fingerprint(self.spec),
            revision=self.op.target_revision or "",
            generation=self.op.target_generation,
            reason=reason,
            message=self.clip(message),
            time=self.now,
        )

    def reject(self, reason: str, message: str) -> Decision:
        """Give this spec up until something in it changes; whatever runs is left alone."""
        rejected = self.rejection(reason, message)
        text = self.clip(message)
        ctx = self.failed(reason, text)
        ctx = ctx.tell(reason, f"{text}. The spec is not tried again until it changes", warning=True)
        ctx = ctx.end("Failed", text)
        return (ctx.with_status(rejected=rejected) if rejected is not None else ctx).done()
