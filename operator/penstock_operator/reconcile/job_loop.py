"""One pass over one FlinkJob: read → observe → decide → tell → write the status → act; again while there is something to do.

A job at rest is looked at in the copy that the watch streams feed, and no further: `penstock_operator.reconcile.at_rest`.

The order is the whole point. The status with the intent is written before the action, under the resourceVersion it
was decided on: if anybody wrote in between, the API server refuses, and the pass starts again from what is there now.
So two processes can never act on the same decision, and a process that dies leaves behind what it was about to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock_operator.api.status import Ownership, parse_status, unreadable
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
from penstock_operator.reconcile.cache import Cache
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.decide.actions import applied_again
from penstock_operator.reconcile.decide.context import Context, Subject
from penstock_operator.reconcile.loop import Loop
from penstock_operator.reconcile.observation import UNREAD, Observation
from penstock_operator.reconcile.observe.dependents import is_lasting
from penstock_operator.reconcile.observe.look import observe
from penstock_operator.reconcile.observe.manifests import labels_of, parse_time
from penstock_operator.reconcile.ownership import LINGER, Claim, claim
from penstock_operator.reconcile.presets.defaults import held, spec_with_defaults
from penstock_operator.reconcile.report.writes import write_due
from penstock_operator.resources.names import FINALIZER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime, timedelta

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.api.status import FlinkJobStatus
    from penstock_operator.kube.cluster import Manifest
    from penstock_operator.reconcile.decide.actions import Action
    from penstock_operator.reconcile.decide.decision import Decision
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.reconcile.presets.defaults import Preset

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Transition:
    """What a pass changed; for metrics."""

    namespace: str
    name: str
    before: FlinkJobStatus
    after: FlinkJobStatus
    action: Action | None
    now: datetime
    seen: Observation


class JobLoop(Loop):
    """Reconciles one FlinkJob."""

    kind = FLINKJOB

    def __init__(
        self,
        namespace: str,
        name: str,
        ports: Ports,
        watch: Callable[[Transition], None] = lambda transition: None,
        complain: Callable[[Exception], None] = log_unexpected,
    ) -> None:
        super().__init__(namespace, name, ports, complain)
        self._watch = watch
        self.cache = Cache()
        self._uid: str | None = None

    @property
    def job(self) -> str:
        """Itself."""
        return self.name

    async def reconcile(self) -> timedelta | None:
        """First it is seen whether there is anything to do at all; None: the FlinkJob is gone, or another operator's."""
        pause = await self._rest()
        if pause is not None:
            return pause
        return await super().reconcile()

    def look_closer(self) -> None:
        """Compare Services, ConfigMap and so on at the next pass."""
        self.cache.dependents_at, self.cache.rests = None, False

    def is_echo(self, version: str) -> bool:
        """Whether an event tells of nothing but our own last write."""
        return version == self.cache.wrote

    async def _rest(self) -> timedelta | None:
        """The time until the next look, if the copy shows that there is nothing to do; None: look at what is there."""
        ports, now = self._ports, self._ports.now()
        if not at_rest.may_be_at_rest(self.cache, now, ports.settings.dependents_resync):
            return None
        self.cache.rests = False
        manifest = await ports.watched.get(FLINKJOB, self.namespace, self.name)
        if manifest is None or manifest["metadata"]["uid"] != self._uid or not at_rest.looks_at_rest(manifest):
            return None
        ctx = self._context(manifest, await ports.presets.of(self.namespace))
        aside = self.cache.aside()
        if ctx.status.operator != self.cache.owner or not ports.shard.selects(labels_of(manifest)):
            return None
        try:
            ctx = replace(ctx, seen=await observe(ctx, ports, aside, ports.watched))
            decision = decide(ctx)
        except NotLeader:
            raise
        except Exception:  # the look that follows meets it again, and tells
            log.debug("%s/%s: a look at the copy failed", self.namespace, self.name, exc_info=True)
            return None
        self.cache.token, self.cache.silent_since = aside.token, aside.silent_since
        if not at_rest.is_at_rest(ctx, decision, self._teller.is_told):
            return None
        try:
            await self._write_decided(manifest, ctx, decision)
        except Conflict:
            return None
        self.cache.rests = True
        self._watch(Transition(self.namespace, self.name, ctx.status, decision.status, None, ctx.now, ctx.seen))
        return decision.requeue

    async def _step(self) -> tuple[timedelta | None, bool]:
        try:
            return await self._take_step()
        except Conflict:
            self.cache.last = None
            raise

    async def _take_step(self) -> tuple[timedelta | None, bool]:
        self.cache.rests = False
        try:
            manifest = await self._ports.cluster.get(FLINKJOB, self.namespace, self.name)
        except Unavailable:
            self.cache.unread_since = None
            raise
        if manifest is None:
            return None, False
        ctx = self._context(manifest, await self._ports.presets.of(self.namespace))
        verdict = await self._own(manifest, ctx)
        if verdict is not Claim.OURS:
            return self._elsewhere(verdict)
        ctx = replace(ctx, seen=await self._observe(ctx))
        self.cache.last = None
        decision = self._decide(ctx)
        await self._tell(ctx.subject.uid, decision.events)
        await self._write_decided(manifest, ctx, decision)
        after, action = decision.status, decision.action
        self._watch(Transition(self.namespace, self.name, ctx.status, after, action, ctx.now, ctx.seen))
        if decision.action is not None:
            try:
                self.cache.last = await Actor(ctx, self._ports, self.cache, self._complain).act(decision.action)
            finally:
                self.cache.acted_at = self._ports.now()
            if ctx.status.operation is None and self.cache.last.ok:
                self.cache.repaired(applied_again(decision.action), ctx.seen, ctx.now)
            return decision.requeue, decision.requeue is None
        self.cache.rests = decision.requeue is not None and not ctx.seen.failure
        return decision.requeue, decision.requeue is None

    async def _own(self, manifest: Manifest, ctx: Context) -> Claim:
        """What is written about it is all that is done in this step."""
        cache, shard, owner = self.cache, self._ports.shard, ctx.status.operator
        if cache.owner_since is None or owner != cache.owner:
            cache.owner, cache.owner_since = owner, ctx.now
        verdict = claim(
            shard,
            labels_of(manifest),
            owner,
            waited=ctx.now - cache.owner_since,
            quiet=ctx.now - cache.acted_at if cache.acted_at else LINGER,
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
        log.info("%s/%s is looked after by %s", self.namespace, self.name, owner.name if owner else "another operator")
        await self._write(manifest, status)

    def _elsewhere(self, verdict: Claim) -> tuple[timedelta | None, bool]:
        """How the pass ends over a job that is not ours, or not yet."""
        if verdict in (Claim.LEAVE, Claim.RELEASE):
            return None, False
        return self._ports.settings.progress, verdict is not Claim.WAIT

    async def _observe(self, ctx: Context) -> Observation:
        try:
            seen = await observe(ctx, self._ports, self.cache)
            if not any(UNREAD in flaw for flaw in seen.missing):
                self.cache.unread_since = None
            return seen
        except Denied as error:  # a right that is missing; the status can be written all the same
            self._complain(error)
            return Observation(failure=f"{error}; its Role lacks that right")
        except Unavailable as error:  # for a moment, or of one kind of object for good
            self.cache.unread_since = self.cache.unread_since or ctx.now
            if not is_lasting(self.cache.unread_since, self._ports):
                raise
            return Observation(failure=f"{error}; the API server answers for the FlinkJob itself")
        except (KubeError, NotLeader):
            raise  # without the API nothing can be written either; the controller comes back
        except Exception as error:
            self._complain(error)
            return Observation(failure=unexpected(error))

    def _decide(self, ctx: Context) -> Decision:
        try:
            return decide(ctx)
        except Exception as error:
            self._complain(error)
            return decide(replace(ctx, seen=Observation(failure=unexpected(error))))

    def _context(self, manifest: Manifest, current: Preset) -> Context:
        meta = manifest["metadata"]
        if self._uid != meta["uid"]:
            self._uid, self.cache, self._teller = meta["uid"], Cache(), self._new_teller()
        now = self._ports.now()
        subject = Subject(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            generation=int(meta.get("generation", 1)),
            created=parse_time(meta.get("creationTimestamp")) or now,
            deleting="deletionTimestamp" in meta,
            deleting_since=parse_time(meta.get("deletionTimestamp")),
            finalizer=FINALIZER in (meta.get("finalizers") or ()),
        )
        spec: FlinkJobSpec | None = None
        defaults: Mapping[str, Any] = {}
        problems: tuple[Problem, ...] = ()
        status = parse_status(manifest.get("status"))
        try:
            spec, defaults = spec_with_defaults(manifest.get("spec") or {}, subject, held(status), current)
            problems = check_own_identity(spec, self._ports.settings.own_identity)
            spec = None if problems else spec
        except SpecError as error:
            problems = error.problems
        except Exception as error:
            self._complain(error)
            remedy = "Take back what was edited last: the operator cannot read it"
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
            unreadable=lost,
            deletion=deletion,
            settings=self._ports.settings,
        )

    async def _write_decided(self, manifest: Manifest, ctx: Context, decision: Decision) -> None:
        """If it is worth a write now, or something is done next; what cannot be read stays."""
        pause, now = self._ports.settings.volatile_write, self._ports.now()
        urgent = decision.action is not None and manifest.get("status") != decision.status.to_manifest()
        due = urgent or write_due(ctx.status, decision.status, since=self.cache.written_at, now=now, pause=pause)
        if not (due or not manifest.get("status")):
            return
        decided, kept = decision.status.to_manifest(), dict(ctx.unreadable)
        if "operation" in decided:  # of a deletion, which is begun whatever was going on
            kept.pop("operation", None)
        stored = await self._write(manifest, {**decided, **kept})
        self.cache.written_at, self.cache.wrote = now, str(stored["metadata"].get("resourceVersion"))
