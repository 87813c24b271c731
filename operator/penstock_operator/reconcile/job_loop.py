"""One pass over one FlinkJob: read, observe, decide, emit events, write the status, act. These steps repeat while
something is left to do.

For a job at rest, the pass only reads the copy that the watch streams update. See
`penstock_operator.reconcile.at_rest`.

The order is essential. Before the action, the pass writes the status with the intent. The write uses the
resourceVersion that the decision used. If another client wrote in between, the API server refuses the write, and the
pass starts again with the current object. So two processes can never act on the same decision. If a process crashes,
the status contains the next action.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock_operator.api.cluster_ref import ClusterRef
from penstock_operator.api.status.flinkjob_status import Ownership, parse_status, unreadable
from penstock_operator.api.validation import check_own_identity, parse_deletion
from penstock_operator.errors import (
    Conflict,
    Denied,
    KubeError,
    NotLeader,
    Problem,
    SpecError,
    Unavailable,
    log_unexpected,
    unexpected,
)
from penstock_operator.kube.cluster import FLINKJOB
from penstock_operator.reconcile import at_rest
from penstock_operator.reconcile.act.actor import Actor
from penstock_operator.reconcile.act.session import SessionActor
from penstock_operator.reconcile.cache import Cache
from penstock_operator.reconcile.clock import taken_over
from penstock_operator.reconcile.cluster_source import ClusterSource
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide.actions import applied_again
from penstock_operator.reconcile.decide.context import Context, Subject
from penstock_operator.reconcile.loop import Loop
from penstock_operator.reconcile.observation import UNREAD, Observation
from penstock_operator.reconcile.observe.dependents import is_lasting
from penstock_operator.reconcile.observe.look import observe
from penstock_operator.reconcile.observe.manifests import labels_of, parse_time
from penstock_operator.reconcile.ownership import QUIET_BEFORE_RELEASE, Claim, claim
from penstock_operator.reconcile.presets.defaults import of_session_job, recorded_defaults, spec_with_defaults
from penstock_operator.reconcile.program_source import ProgramSource
from penstock_operator.reconcile.report.writes import write_due
from penstock_operator.resources.names import FINALIZER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status.flinkjob_status import FlinkJobStatus
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.decide.actions import Action
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.ports import Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transition:
    """The change of the status in one pass, for metrics."""

    namespace: str
    name: str
    before: FlinkJobStatus
    after: FlinkJobStatus
    action: Action | None
    now: datetime
    seen: Observation


class JobLoop(Loop):
    """Reconcile loop of one FlinkJob."""

    kind = FLINKJOB

    def __init__(
        self,
        namespace: str,
        name: str,
        ports: Ports,
        watch: Callable[[Transition], None] = lambda transition: None,
        report_error: Callable[[Exception], None] = log_unexpected,
    ) -> None:
        super().__init__(namespace, name, ports, report_error)
        self._watch = watch
        limits = ports.settings.tenants
        self._cluster_source = ClusterSource(ports.cluster, namespace, name)
        self._program_source = ProgramSource(ports.cluster, namespace, limits, ports.resolve_ref)
        self.cache = Cache()
        self._uid: str | None = None

    @property
    def job(self) -> str:
        """Name of the FlinkJob."""
        return self.name

    def uses(self, namespace: str, cluster: str) -> bool:
        """Return whether the FlinkJob named this FlinkCluster in the last pass."""
        return self.cache.cluster == (namespace, cluster)

    async def reconcile(self) -> timedelta | None:
        """Check whether anything is to be done, then take steps. Return None if the FlinkJob is gone or belongs to
        another operator.
        """
        pause = await self._rest()
        if pause is not None:
            return pause
        return await super().reconcile()

    def read_all_objects(self) -> None:
        """Compare Services, ConfigMap and other objects in the next pass."""
        self.cache.dependents_at, self.cache.is_at_rest = None, False

    def is_echo(self, version: str) -> bool:
        """Return whether an event only reports the last write of this loop."""
        return version == self.cache.written_version

    async def _rest(self) -> timedelta | None:
        """Return the time until the next pass if the copy shows a job at rest. Return None if fresh reads are
        necessary.
        """
        ports, now = self._ports, self._ports.now()
        if not at_rest.may_be_at_rest(self.cache, now, ports.settings.dependents_resync):
            return None
        self.cache.is_at_rest = False
        manifest = await ports.watched.get(FLINKJOB, self.namespace, self.name)
        if manifest is None or manifest["metadata"]["uid"] != self._uid or not at_rest.looks_at_rest(manifest):
            return None
        ctx = await self._context(manifest)
        copy = self.cache.for_stale_data()
        if ctx.status.operator != self.cache.owner or not ports.shard.selects(labels_of(manifest)):
            return None
        try:
            ctx = replace(ctx, seen=await observe(ctx, ports, copy, ports.watched))
            decision = decide(ctx)
        except NotLeader:
            raise
        except Exception:  # the fresh read that follows fails too, and reports the error
            log.debug("%s/%s: the check of the cached copy failed", self.namespace, self.name, exc_info=True)
            return None
        self.cache.token, self.cache.silent_since, self.cache.newest = copy.token, copy.silent_since, copy.newest
        self.cache.wanted = copy.wanted
        if not at_rest.is_at_rest(ctx, decision, self._event_recorder.is_sent):
            return None
        try:
            await self._write_decided(manifest, ctx, decision)
        except Conflict:
            return None
        self.cache.is_at_rest = True
        self._watch(Transition(self.namespace, self.name, ctx.status, decision.status, None, ctx.now, ctx.seen))
        return decision.requeue

    async def _step(self) -> tuple[timedelta | None, bool]:
        try:
            return await self._take_step()
        except Conflict:
            self.cache.last = None
            raise

    async def _take_step(self) -> tuple[timedelta | None, bool]:
        self.cache.is_at_rest = False
        try:
            manifest = await self._ports.cluster.get(FLINKJOB, self.namespace, self.name)
        except Unavailable:
            self.cache.unread_since = None
            raise
        if manifest is None:
            return None, False
        ctx = await self._context(manifest)
        verdict = await self._own(manifest, ctx)
        if verdict is not Claim.OURS:
            self.cache.has_read_status, self.cache.newest = False, None
            return self._elsewhere(verdict)
        ctx = replace(ctx, seen=await self._observe(ctx))
        self.cache.last = None
        decision = self._decide(ctx)
        await self._record_events(ctx.subject.uid, decision.events)
        await self._write_decided(manifest, ctx, decision)
        after, action = decision.status, decision.action
        self._watch(Transition(self.namespace, self.name, ctx.status, after, action, ctx.now, ctx.seen))
        if decision.action is not None:
            try:
                actor = (SessionActor if ctx.is_in_cluster else Actor)(ctx, self._ports, self.cache, self._report_error)
                self.cache.last = await actor.act(decision.action)
            finally:
                self.cache.acted_at = self._ports.now()
            if self.cache.last.ok:
                again = [thing for thing in applied_again(decision.action) if thing in ctx.seen.flaws]
                self.cache.record_repairs(again, ctx.seen, ctx.now)
            return decision.requeue, decision.requeue is None
        self.cache.is_at_rest = decision.requeue is not None and not ctx.seen.failure
        return decision.requeue, decision.requeue is None

    async def _own(self, manifest: Manifest, ctx: Context) -> Claim:
        """Determine the owner of the job, and write it to the status if necessary. If the owner is another operator, the
        step does nothing else.
        """
        cache, shard, owner = self.cache, self._ports.shard, ctx.status.operator
        if cache.owner_since is None or owner != cache.owner:
            cache.owner, cache.owner_since = owner, ctx.now
        verdict = claim(
            shard,
            labels_of(manifest),
            owner,
            waited=ctx.now - cache.owner_since,
            quiet=ctx.now - cache.acted_at if cache.acted_at else QUIET_BEFORE_RELEASE,
            lost=cache.owned,
        )
        cache.owned = (cache.owned or verdict is Claim.OURS) and verdict not in (Claim.RELEASE, Claim.LEAVE)
        if verdict is Claim.LEAVE:
            cache.owner_since = None
        former = owner.name if owner is not None and verdict is Claim.TAKE_FROM else None
        if verdict is Claim.RELEASE:
            await self._write_owner(manifest, None)
        elif verdict in (Claim.TAKE, Claim.TAKE_FROM, Claim.SETTLE):
            await self._write_owner(manifest, Ownership(name=shard.operator, taken_from=former))
        return verdict

    async def _write_owner(self, manifest: Manifest, owner: Ownership | None) -> None:
        status = {k: v for k, v in (manifest.get("status") or {}).items() if k != "operator"}
        if owner is not None:
            status["operator"] = owner.to_manifest()
        log.info("%s/%s is managed by %s", self.namespace, self.name, owner.name if owner else "another operator")
        await self._write(manifest, status)

    def _elsewhere(self, verdict: Claim) -> tuple[timedelta | None, bool]:
        """Return the result of a step for a job that does not belong to this operator, or does not yet belong to it."""
        if verdict in (Claim.LEAVE, Claim.RELEASE):
            return None, False
        return self._ports.settings.progress, verdict is not Claim.WAIT

    async def _observe(self, ctx: Context) -> Observation:
        try:
            seen = await observe(ctx, self._ports, self.cache)
            if not any(UNREAD in flaw for flaw in seen.missing):
                self.cache.unread_since = None
            return seen
        except Denied as error:  # a missing permission; the operator can still write the status
            self._report_error(error)
            return Observation(failure=f"{error}; the Role of the operator does not have that right")
        except Unavailable as error:  # temporary, or permanent for one kind of object
            self.cache.unread_since = self.cache.unread_since or ctx.now
            if not is_lasting(self.cache.unread_since, self._ports):
                raise
            return Observation(failure=f"{error}; the API server returns the FlinkJob itself")
        except (KubeError, NotLeader):
            raise  # without the API no status can be written either; the controller retries
        except Exception as error:
            self._report_error(error)
            return Observation(failure=unexpected(error))

    def _decide(self, ctx: Context) -> Decision:
        try:
            return decide(ctx)
        except Exception as error:
            self._report_error(error)
            return decide(replace(ctx, seen=Observation(failure=unexpected(error))))

    async def _context(self, manifest: Manifest) -> Context:
        """Return the input of the decision, without observations. Raise a `KubeError` if the API server does not respond."""
        current = await self._ports.presets.of(self.namespace)
        meta = manifest["metadata"]
        if self._uid != meta["uid"]:
            self._uid, self.cache, self._event_recorder = meta["uid"], Cache(), self._new_event_recorder()
        now, deleting = self._ports.now(), "deletionTimestamp" in meta
        self.cache.deleting_since = (self.cache.deleting_since or now) if deleting else None
        subject = Subject(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            generation=int(meta.get("generation", 1)),
            created=parse_time(meta.get("creationTimestamp")) or now,
            deleting=deleting,
            deleting_since=self.cache.deleting_since,
            finalizer=FINALIZER in (meta.get("finalizers") or ()),
        )
        spec: FlinkJobSpec | None = None
        defaults: Mapping[str, Any] = {}
        problems: tuple[Problem, ...] = ()
        status = self._watched_status(parse_status(manifest.get("status")), now)
        git = status.git
        raw = manifest.get("spec") or {}
        ref = ClusterRef.named(raw.get("cluster"), self.namespace)
        self.cache.cluster = (ref.namespace, ref.name) if ref is not None else None
        try:
            if not deleting:
                raw, git = await self._program_source.with_content(raw, status.git)
                raw = await self._cluster_source.with_cluster(raw, status)
                current = of_session_job(current) if raw.get("cluster") else current
            spec, defaults = spec_with_defaults(raw, subject, recorded_defaults(status), current, self.cache.specs)
            limits = self._ports.settings
            problems = (*check_own_identity(spec, limits.own_identity), *limits.tenants.problems(spec))
            spec = None if problems else spec
        except SpecError as error:
            problems = (
                () if deleting and ref is not None else error.problems
            )  # the fields of the FlinkCluster are missing
        except (KubeError, NotLeader):
            raise
        except Exception as error:
            self._report_error(error)
            remedy = "Revert the last edit of the spec, which the operator cannot read"
            problems = (Problem("spec", unexpected(error), remedy),)
        deletion = parse_deletion(manifest.get("spec"))
        lost = unreadable(manifest.get("status"), status)
        return Context(
            subject,
            spec,
            status,
            now,
            problems=problems,
            defaults=defaults,
            git=git,
            unreadable=lost,
            deletion=deletion,
            settings=self._ports.settings,
        )

    def _watched_status(self, status: FlinkJobStatus, now: datetime) -> FlinkJobStatus:
        """Return the status with deadlines of this process's clock. The next decision writes the changed deadlines."""
        if self.cache.has_read_status:
            return status
        taken = taken_over(status, now, self._ports.settings.backoff_limit)
        self.cache.has_read_status = taken == status
        return taken

    async def _write_decided(self, manifest: Manifest, ctx: Context, decision: Decision) -> None:
        """Write the status if it has important changes or if an action follows. Keep fields that cannot be read."""
        pause, now = self._ports.settings.volatile_write, self._ports.now()
        acts = decision.action is not None or not self.cache.has_read_status
        urgent = acts and manifest.get("status") != decision.status.to_manifest()
        due = urgent or write_due(ctx.status, decision.status, since=self.cache.written_at, now=now, pause=pause)
        if not (due or not manifest.get("status")):
            return
        decided, kept = decision.status.to_manifest(), dict(ctx.unreadable)
        for field in ("operation", "running"):  # a deletion may replace these fields even if they cannot be read
            if field in decided:
                kept.pop(field, None)
        stored = await self._write(manifest, {**decided, **kept})
        self.cache.has_read_status = True
        self.cache.written_at, self.cache.written_version = now, str(stored["metadata"].get("resourceVersion"))
