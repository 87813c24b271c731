"""The input of a decision, the values derived from it, and the few ways in which a decision can end.

Every step function takes a `Context` and returns a `Decision`. These methods create a `Decision`:

- `wait`: nothing to do yet
- `act`: execute an action now
- `advance`: the step is complete
- `end`, then `done`: the operation is complete

These methods change nothing. They only build the next status.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock_operator.api.autoscaling import Autoscaling
from penstock_operator.api.flinkjob import Deletion
from penstock_operator.api.status.flinkjob_status import ErrorInfo
from penstock_operator.api.status.operation import HistoryEntry, Operation, Rejected
from penstock_operator.api.status.snapshots import Superseded
from penstock_operator.reconcile.decide.actions import Action
from penstock_operator.reconcile.decide.decision import Decision, Event
from penstock_operator.reconcile.decide.flows import FLOWS
from penstock_operator.reconcile.decide.spec_diff import fingerprint, former_revision_hash, revision_hash
from penstock_operator.reconcile.observation import Observation
from penstock_operator.redaction import without_secrets
from penstock_operator.resources.incarnation import Incarnation, worker_count
from penstock_operator.resources.memory import with_worker_memory
from penstock_operator.resources.names import Owner, incarnation_prefix
from penstock_operator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus, ResolvedRef
    from penstock_operator.api.status.operation import OperationKind, StepName
    from penstock_operator.errors import Problem
    from penstock_operator.reconcile.observation import ActionResult

ATTEMPT_FAILED = frozenset({"SavepointFailed", "SavepointTimeout", "RescaleFailed", "RescaleTimeout"})
"""Reasons of failed attempts that are repeated. They are reported until an attempt succeeds, also while the next
attempt is in progress.
"""

SUPERSEDED_KEPT = 20
"""Maximum number of former incarnations whose checkpoints are still to be deleted. The list never gets this long in
normal operation.
"""


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
        """Return the name of the ControllerRevision of a spec."""
        return f"{self.name}-{revision_hash(spec)}"

    def revision_names(self, spec: FlinkJobSpec) -> frozenset[str]:
        """Return the names that this version and earlier versions of the operator give to the ControllerRevision of a spec."""
        return frozenset((self.revision_name(spec), f"{self.name}-{former_revision_hash(spec)}"))


@dataclass(frozen=True)
class Context:
    """The complete input of `decide`."""

    subject: Subject
    spec: FlinkJobSpec | None
    status: FlinkJobStatus
    now: datetime
    seen: Observation = field(default_factory=Observation)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The defaults of the platform that are included in the spec."""
    git: ResolvedRef | None = None
    """The commit that a branch or tag in the spec stands for."""
    problems: tuple[Problem, ...] = ()
    unreadable: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that cannot be parsed, but that every decision needs."""
    deletion: Deletion | None = None
    """The section `deletion` of the manifest, even if another part of the manifest is not valid."""
    settings: Settings = field(default_factory=Settings)
    events: tuple[Event, ...] = ()

    @property
    def op(self) -> Operation:
        """The operation in progress. Only step functions use it, and they only run if an operation exists."""
        if self.status.operation is None:
            msg = "there is no operation in progress"
            raise AssertionError(msg)
        return self.status.operation

    @cached_property
    def desired_revision(self) -> str | None:
        """The revision of the current spec, if the spec is valid. If an earlier version of the operator gave this revision
        another name, the name stays, so that the job does not restart.
        """
        if self.spec is None:
            return None
        name, status = self.subject.revision_name(self.spec), self.status
        used = (
            status.operation and status.operation.target_revision,
            status.running and status.running.revision,
            status.stable_revision,
        )
        return next((known for known in used if known and name in (known, self._name_now(known))), name)

    def _name_now(self, revision: str) -> str | None:
        """Return the name that a stored revision would get from this version of the operator."""
        stored = self.seen.revisions.spec(revision)
        return None if stored is None else self.subject.revision_name(stored)

    def revision_spec(self, name: str | None) -> FlinkJobSpec | None:
        """Return the spec of a revision. Return the current spec if it is that revision."""
        if name is None:
            return None
        if self.spec is not None and name == self.desired_revision:
            return self.spec
        return self.seen.revisions.spec(name)

    @cached_property
    def running_spec(self) -> FlinkJobSpec | None:
        """The spec of the running revision."""
        running = self.status.running
        return self.revision_spec(running.revision if running else None)

    @cached_property
    def effective_spec(self) -> FlinkJobSpec | None:
        """The current spec if it is valid. Otherwise the spec of the running revision, or the last valid spec if
        nothing runs.
        """
        if self.spec is not None or self.status.running is not None:
            return self.spec or self.running_spec
        stored = (self.revision_spec(name) for name in reversed(list(self.seen.revisions)))
        return next((spec for spec in stored if spec is not None), None)

    @property
    def is_in_cluster(self) -> bool:
        """Whether a FlinkCluster runs the job, so that the job has no pods."""
        running, spec = self.status.running, self.effective_spec
        return (running is not None and running.cluster is not None) or (spec is not None and spec.cluster is not None)

    @property
    def deletion_policy(self) -> Deletion:
        """The rules for the job and its storage on deletion."""
        spec = self.effective_spec
        return self.deletion or (spec.deletion if spec is not None else Deletion())

    @cached_property
    def running_incarnation(self) -> Incarnation | None:
        """The input of the running pods. None if nothing runs, or if the revision cannot be read."""
        running, spec = self.status.running, self.running_spec
        if running is None or spec is None:
            return None
        allowed = self.allowed_to_drop(running.revision, spec)
        return Incarnation(
            running.revision,
            with_worker_memory(spec, running.worker_memory),
            running.job_id,
            running.restored_from,
            running.parallelism,
            allowed,
            warm=running.warm,
            checks=running.checks,
            service_suffix=running.service_suffix,
        )

    def allowed_to_drop(self, revision: str, spec: FlinkJobSpec) -> tuple[str, ...]:
        """Return the uids of operators whose state an incarnation that starts again may drop.

        Before its first checkpoint, an incarnation needs the permissions with which its revision was recorded. The
        current spec may have lost them, because they are not part of a revision's name.
        """
        found = (self.seen.revisions.spec(revision), self.spec or spec)
        return tuple(dict.fromkeys(uid for s in found if s is not None for uid in s.job.allow_non_restored_state))

    def first_parallelism(self, spec: FlinkJobSpec) -> int:
        """Return the parallelism with which a new incarnation of a spec starts. If the autoscaler sets the parallelism,
        return the one that it chose last. The spec only has that of the first start.
        """
        auto, chosen = self.autoscaling, self.status.autoscaling
        if not auto.sets_parallelism:
            return spec.job.parallelism
        return auto.within_limits(chosen.parallelism if chosen is not None else spec.job.parallelism)

    @cached_property
    def autoscaling(self) -> Autoscaling:
        """The section `autoscaling` for the running job. A change takes effect without a restart, so this is the
        section of the current spec.
        """
        spec = self.spec or self.running_spec
        return Autoscaling() if spec is None else spec.autoscaling

    @cached_property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler sets the parallelism of the running incarnation. If the spec is not valid, the engine
        keeps its mode.
        """
        known = self.status.autoscaling
        if self.running_spec is None:
            return False
        if self.spec is None and known is not None:
            return known.mode == "active"
        return self.autoscaling.sets_parallelism

    def running_workers(self, parallelism: int) -> int:
        """Return the number of worker pods that the running incarnation needs for a parallelism."""
        base = self.running_spec or self.spec
        return worker_count(base, self.spec or base, parallelism) if base is not None else parallelism

    @cached_property
    def is_rejected(self) -> bool:
        """Whether the current spec was tried and given up."""
        rejected = self.status.rejected
        if rejected is None or self.spec is None:
            return False
        return rejected.fingerprint in (fingerprint(self.spec), fingerprint(self.spec, former_revision_hash))

    def failed_action(self, *names: str) -> ActionResult | None:
        """Return the result of the last action if it was one of these actions and failed."""
        last = self.seen.last
        return last if last is not None and not last.ok and last.action in names else None

    @property
    def past_deadline(self) -> bool:
        """Whether the step in progress has a deadline that has passed."""
        return self.op.deadline is not None and self.now >= self.op.deadline

    def digest(self, *parts: object, length: int = 32) -> str:
        """Return an id that only depends on the FlinkJob and the parts."""
        text = "|".join([self.subject.uid, *map(str, parts)])
        return hashlib.sha256(text.encode()).hexdigest()[:length]

    def new_job_id(self, operation: str) -> str:
        """Return the job id of the incarnation that an operation starts. All job ids of FlinkJobs with the same name
        have a common prefix.
        """
        prefix = incarnation_prefix(self.subject.namespace, self.subject.name)
        return prefix + self.digest(operation, "job", length=32 - len(prefix))

    # --- the next status --------------------------------------------------------------------------------------------

    def with_status(self, **changes: Any) -> Context:
        """Return the same context with a changed status."""
        return replace(self, status=self.status.model_copy(update=changes))

    def with_op(self, **changes: Any) -> Context:
        """Return the same context with a changed operation."""
        return self.with_status(operation=self.op.model_copy(update=changes))

    def retire(self, successor: str | None = None) -> Context:
        """Return the same context, with the running incarnation added to the former incarnations. The checkpoints of
        former incarnations can be deleted later.
        """
        running = self.status.running
        known = {s.job_id for s in self.status.superseded}
        if running is None or running.job_id == successor or running.job_id in known:
            return self
        return self._retired(
            Superseded(job_id=running.job_id, revision=running.revision, empty=not running.may_have_checkpoint)
        )

    def _retired(self, incarnation: Superseded) -> Context:
        known_ones = [*self.status.superseded, incarnation]
        while (
            len(known_ones) > SUPERSEDED_KEPT
        ):  # drop incarnations without a checkpoint first: an old folder may have the last good one
            known_ones.remove(next((s for s in known_ones if s.empty), known_ones[0]))
        return self.with_status(superseded=tuple(known_ones))

    def with_event(self, reason: str, message: str, *, warning: bool = False, key: str = "") -> Context:
        """Return the same context with one more event."""
        op = self.status.operation
        where = (
            f"{op.id}/{op.step}/{op.attempt}"
            if op
            else f"{self.subject.generation}/{self.status.running and self.status.running.job_id}"
        )
        event = Event(reason, self.clip(message), "Warning" if warning else "Normal", key or f"{where}/{reason}")
        return replace(self, events=(*self.events, event))

    def clip(self, text: str) -> str:
        """Return the text of another system, limited in length and without secrets."""
        text = without_secrets(text)
        limit = self.settings.text_limit
        return text if len(text) <= limit else f"{text[: limit - 1]}…"

    def failed(self, reason: str, message: str) -> Context:
        """Return the same context with the error in the status."""
        return self.with_status(error=ErrorInfo(reason=reason, message=self.clip(message), time=self.now))

    # --- the ways a decision ends -----------------------------------------------------------------------------------

    def done(self, action: Action | None = None, *, after: timedelta | None = None) -> Decision:
        """Return the decision to write this status, execute this action, and continue after this time."""
        return Decision(self.status, action, self.events, after)

    def wait(self, message: str, *, blocked: str | None = None, after: timedelta | None = None) -> Decision:
        """Return the decision to wait for a change. `blocked` is the reason if the change needs a user's action."""
        op = self.op
        ctx = self.with_op(message=self.clip(message), blocked=blocked)
        if blocked and op.blocked != blocked:
            ctx = ctx.failed(blocked, message).with_event(blocked, message, warning=True)
        return ctx.done(after=after or self.settings.progress)

    def wait_for_storage(self, doing: str) -> Decision:
        """Return the decision to wait for the response of storage. Report an error."""
        error = self.seen.storage.error
        if not error:
            return self.wait(doing)
        remedy = "Check the operator's access to the storage (storage.secretName or workload identity) and s3.endpoint"
        return self.wait(f"{doing}: {error}. {remedy}", blocked="StorageUnavailable", after=self.settings.backoff_first)

    @property
    def reported_failure(self) -> str | None:
        """The reason why earlier attempts of this step failed, if it was reported as `Stalled`."""
        return self.op.blocked if self.op.blocked in ATTEMPT_FAILED else None

    def pending(self, message: str, *, after: timedelta | None = None) -> Decision:
        """Return the decision to wait for an attempt. Keep the reported message about earlier attempts unchanged."""
        if self.reported_failure:
            return self.wait(self.op.message, blocked=self.reported_failure, after=after)
        return self.wait(message, after=after)

    def act(self, action: Action, message: str = "") -> Decision:
        """Return the decision to execute an action now. The status with the intent is written first. A blocking
        reason stays until it is resolved.
        """
        ctx = self.with_op(message=self.clip(message)) if message and not self.op.blocked else self
        return ctx.done(action)

    def begin(self, kind: OperationKind, reason: str, **fields: Any) -> Context:
        """Return the context with a new operation at its first step, or at the given step."""
        fields.setdefault("step", FLOWS[kind][0])
        fields.setdefault("target_generation", self.subject.generation)
        ident = self.digest(kind, self.now.isoformat(), self.subject.generation, length=10)
        operation = Operation(
            id=ident, kind=kind, reason=self.clip(reason), started_at=self.now, step_since=self.now, **fields
        )
        return self.with_status(operation=operation).with_event(
            f"{kind}Started", reason, warning=kind in ("Rollback", "Recover")
        )

    def advance(self, step: StepName | None = None, *, deadline: datetime | None = None, **changes: Any) -> Decision:
        """Return the decision to continue with the next step of the flow, or with the given step. The number of
        attempts is reset, and the deadline is replaced.
        """
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
        """Return the context without the operation, which is added to the history."""
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
        return self._with_unreleased().with_status(operation=None, history=history)

    def _with_unreleased(self) -> Context:
        """Return the same context, and add an incarnation that was never released to the former incarnations. So no
        later pass adopts it.
        """
        op = self.op
        job_id = op.job_id if op.checked_apart and op.step == "Check" else op.standby
        if op.kind != "Deploy" or job_id is None or self.status.running is not None:
            return self
        return self._retired(Superseded(job_id=job_id, revision=op.target_revision, empty=True))

    def retry(self, reason: str, message: str, **changes: Any) -> Decision:
        """Return the decision to repeat a failed attempt after a pause.

        Events report the first failures. After that, `Stalled` reports them. In its message, only the number of
        attempts and the time of the next attempt then change. A new reason emits one more event.
        """
        op = self.op
        attempt = max(op.attempt, 1)
        pause = self.settings.backoff(attempt)
        blocked = reason if attempt >= self.settings.stalled_attempts else None
        ctx = self.failed(reason, message)
        if not self.reported_failure:
            ctx = ctx.with_event(reason, f"{message}. Next attempt in {pause}", warning=True)
        elif self.reported_failure != reason:
            ctx = ctx.with_event(reason, message, warning=True, key=f"{op.id}/{op.step}/{reason}")
        upcoming = self.now + pause
        text = f"{self.clip(message)}. Attempt {attempt + 1} at {upcoming:%H:%M:%S} UTC"
        ctx = ctx.with_op(retry_at=upcoming, message=text, blocked=blocked, attempt=attempt, **changes)
        return ctx.done(after=pause)

    def rejection(self, reason: str, message: str) -> Rejected | None:
        """Return the current spec as a spec that was given up with the operation. Return None if the spec is not
        valid.
        """
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
        """Return the decision to give up this spec until it changes. The running job is not changed."""
        rejected = self.rejection(reason, message)
        text = self.clip(message)
        ctx = self.failed(reason, text)
        ctx = ctx.with_event(
            reason, f"{text}. The operator does not try this spec again until it changes", warning=True
        )
        ctx = ctx.end("Failed", text)
        return (ctx.with_status(rejected=rejected) if rejected is not None else ctx).done()
