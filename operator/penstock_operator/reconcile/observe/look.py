"""Look at everything a decision needs: cluster, then the job's master, then storage. Reads only.

Which of the reads are fresh, and which may come from a copy, is said in `penstock_operator.reconcile.at_rest`.

What does not answer is recorded as that, and the pass goes on: a master that hangs must not keep the operator from
seeing that its node is gone.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from penstock_operator.api.pod_template import MAIN_CONTAINER
from penstock_operator.engine.account import Progress
from penstock_operator.engine.client import Glance
from penstock_operator.errors import EngineError, EngineUnreachable, KubeError, NotLeader, StorageError, in_words
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKSNAPSHOT, POD, REVISION, SECRET, Manifest
from penstock_operator.reconcile.decide.health.rules import restart_due
from penstock_operator.reconcile.decide.savepoints.asked import late_folders
from penstock_operator.reconcile.decide.steps.dispose import time_left
from penstock_operator.reconcile.decide.storage_settings import disposal_specs, storage_specs
from penstock_operator.reconcile.observation import CheckPod, Deployment, Engine, Observation, Storage
from penstock_operator.reconcile.observe import manifests
from penstock_operator.reconcile.observe.dependents import flaws_around
from penstock_operator.reconcile.observe.scope import engine_scope, storage_scope
from penstock_operator.resources.deployments import master_deployment, worker_deployment
from penstock_operator.resources.names import (
    INCARNATION,
    JOB,
    ROLE,
    Owner,
    incarnation_prefix,
    savepoint_folder,
)
from penstock_operator.storage.snapshots import Left, StoredSnapshot, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock_operator.api.flinkjob import FlinkJobSpec
    from penstock_operator.engine.client import EngineClient
    from penstock_operator.kube.cluster import Cluster
    from penstock_operator.kube.watched import WatchedObjects
    from penstock_operator.reconcile.cache import Cache
    from penstock_operator.reconcile.decide.context import Context
    from penstock_operator.reconcile.observe.scope import Scope
    from penstock_operator.reconcile.ports import Ports
    from penstock_operator.storage.protocol import Storage as StoragePort

_T = TypeVar("_T")

LOG_BYTES = 256 * 1024
OTHER_SETTINGS = "; and with the settings of another revision: "


async def observe(ctx: Context, ports: Ports, cache: Cache, copy: WatchedObjects | None = None) -> Observation:
    """Everything that one decision is based on; with `copy` what is watched comes from there: see `reconcile.at_rest`."""
    owner, source = owner_of(ctx), copy or ports.cluster
    mine = {JOB: owner.name}
    deployments, pods, revisions, snapshots = await asyncio.gather(
        source.list(DEPLOYMENT, owner.namespace, mine),
        source.list(POD, owner.namespace, mine),
        source.list(REVISION, owner.namespace, mine),
        source.list(FLINKSNAPSHOT, owner.namespace, mine),
    )
    ours = [d for d in deployments if manifests.is_made_for(owner, d)]
    own_pods = [p for p in pods if manifests.is_made_for(owner, p)]
    seen = Observation(
        foreign=manifests.foreign([*deployments, *pods], owner.uid),
        pods=tuple(manifests.pod(p) for p in own_pods if manifests.labels_of(p).get(ROLE) in ("master", "worker")),
        check=await _check(own_pods, owner, source),
        leaving=manifests.leaving_checks(own_pods),
        revisions=manifests.revisions([r for r in revisions if manifests.is_made_for(owner, r)]),
        snapshots=tuple(manifests.snapshot(s) for s in snapshots),
        last=cache.last,
    )
    seen = _deployments(replace(ctx, seen=seen), ours, ports)
    engine = await _engine(replace(ctx, seen=seen), ports, cache)
    seen = replace(seen, engine=engine)
    seen = replace(seen, storage=await _storage(replace(ctx, seen=seen), ports))
    if ctx.status.asked_savepoints:
        seen = replace(seen, late=await _late(replace(ctx, seen=seen), ports))
    around = replace(ctx, seen=seen)
    missing = cache.missing if copy is not None else await flaws_around(around, owner, ours, ports, cache)
    seen = replace(seen, missing=missing)
    generation = ctx.subject.generation
    seen = replace(
        seen, edited=generation != ctx.status.observed_generation or cache.applied_for not in (None, generation)
    )
    return replace(seen, repairs=cache.still_due(seen))


def owner_of(ctx: Context) -> Owner:
    """The FlinkJob as the owner of objects."""
    return Owner(ctx.subject.namespace, ctx.subject.name, ctx.subject.uid)


def _deployments(ctx: Context, live: list[Manifest], ports: Ports) -> Observation:
    found = {manifests.labels_of(m).get(ROLE): m for m in live}
    master, worker = found.get("master"), found.get("worker")
    running, owner, lost = ctx.status.running, owner_of(ctx), ports.settings.lost_node_toleration
    incarnation = ctx.running_incarnation if running is not None else None
    seen = ctx.seen
    if master is not None:
        wanted = master_deployment(owner, incarnation, lost) if incarnation else None
        seen = replace(seen, master=_judged(master, wanted))
    if worker is not None:
        count = ctx.running_workers(incarnation.parallelism) if incarnation else 0
        wanted = worker_deployment(owner, incarnation, count, lost) if incarnation else None
        seen = replace(seen, worker=_judged(worker, wanted))
    return seen


def _judged(live: Manifest, wanted: Manifest | None) -> Deployment:
    view = manifests.deployment(live)
    if wanted is None or manifests.annotations_of(wanted).get(INCARNATION) != view.job_id:
        return view
    return replace(view, drift=manifests.drift(wanted, live))


async def _check(pods: list[Manifest], owner: Owner, source: Cluster | WatchedObjects) -> CheckPod | None:
    found = [
        p for p in pods if manifests.labels_of(p).get(ROLE) == "check" and "deletionTimestamp" not in p["metadata"]
    ]
    if not found:
        return None
    newest = max(found, key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["name"]))
    if not manifests.check_has_ended(newest):
        return manifests.check_pod(newest, None)
    log = await source.log(owner.namespace, newest["metadata"]["name"], MAIN_CONTAINER, LOG_BYTES)
    return manifests.check_pod(newest, log)


async def _engine(ctx: Context, ports: Ports, cache: Cache) -> Engine:
    running, seen = ctx.status.running, ctx.seen
    alive = any(p.ip and not p.terminating for p in seen.pods_of("master"))
    if running is None or seen.master is None or not alive:
        cache.silent_since = None
        return Engine(error="there is no master", absent=True)
    try:
        if cache.token is None:
            cache.token = await _token(owner_of(ctx), ports)
        client = ports.engines(ctx.subject.namespace, ctx.subject.name, cache.token)
        async with asyncio.timeout(_limit(ctx)):
            engine = await _ask(client, running.job_id, engine_scope(ctx.status))
    except Exception as error:  # a master that says what nobody understands is no reason to leave its job alone
        if isinstance(error, EngineError) and error.status == 401:
            cache.token = None
        now = ports.now()
        cache.silent_since = cache.silent_since or now
        return Engine(error=in_words(error), silent_for=now - cache.silent_since)
    cache.silent_since = None
    return engine


async def _ask(client: EngineClient, job_id: str, scope: Scope) -> Engine:
    glance = await client.glance(job_id) or await _pieces(client, job_id)
    if isinstance(glance, str):
        return Engine(reachable=True, error=glance)
    engine = Engine(
        reachable=True,
        job_id=job_id,
        state=glance.job.state,
        parallelism=glance.job.parallelism,
        checkpoints=glance.checkpoints,
        restarts=glance.progress.restarts,
        rescaled=glance.progress.rescaled,
        exception=glance.exception,
        end_of_input=glance.end_of_input,
    )
    if scope.restarts is not None and engine.restarts > scope.restarts and not engine.exception:
        engine = replace(engine, exception=await _told(client.exception(job_id), ""))
    if scope.workers:
        engine = replace(
            engine,
            slots_total=await client.slots(),
            parallelism=await client.parallelism(job_id),
            busy_workers=await _told(client.busy_workers(), frozenset()),
        )
    if scope.request:
        request = await client.request(job_id, scope.request_kind, scope.request)
        engine = replace(engine, request=request)
    return engine


async def _pieces(client: EngineClient, job_id: str) -> Glance | str:
    """The same from a master of an earlier version; in words, if it does not know the job."""
    jobs = await client.jobs()
    job = next((j for j in jobs if j.id == job_id), None)
    if job is None:
        others = f"; it knows {', '.join(j.id for j in jobs[:3])}" if jobs else ""
        return f"the master does not know job {job_id} (yet){others}"
    points = await client.checkpoints(job_id)
    progress = await _told(client.progress(job_id), Progress())
    exception = await _told(client.exception(job_id), "") if job.state != "RUNNING" else ""
    return Glance(job, points, progress, exception)


async def _told(answer: Awaitable[_T], otherwise: _T) -> _T:
    """What a master may leave unanswered without harm: one of another version does not know every question."""
    try:
        return await answer
    except EngineUnreachable:
        raise
    except EngineError:
        return otherwise


async def _token(owner: Owner, ports: Ports) -> str | None:
    return (await read_secret(ports, owner.namespace, owner.secrets)).get("rest-token")


async def read_secret(ports: Ports, namespace: str, name: str) -> dict[str, str]:
    """The content of a Secret; empty if it does not exist. What is not text in it (a keystore, say) is left out."""
    secret = await ports.cluster.get(SECRET, namespace, name)
    data = (secret or {}).get("data") or {}
    found = {}
    for key, value in data.items():
        with contextlib.suppress(UnicodeDecodeError):
            found[key] = base64.b64decode(value).decode()
    return found


async def open_storage(ports: Ports, namespace: str, spec: FlinkJobSpec) -> StoragePort:
    """The storage of a job, with the credentials it names."""
    name = spec.storage.secret_name
    try:
        secret = await read_secret(ports, namespace, name) if name else {}
    except KubeError as error:
        msg = f"the Secret {name} (storage.secretName) cannot be read: {error}"
        raise StorageError(msg) from error
    if name and not secret:
        msg = f"the Secret {name} (storage.secretName) does not exist or is empty"
        raise StorageError(msg)
    return ports.storages(spec, secret)


async def ask_storage(
    ports: Ports,
    namespace: str,
    specs: Sequence[FlinkJobSpec],
    ask: Callable[[StoragePort, FlinkJobSpec], Awaitable[_T]],
) -> _T:
    """The answer of storage, opened with the settings of the first spec with which it answers."""
    errors: list[str] = []
    for spec in specs:
        try:
            return await ask(await open_storage(ports, namespace, spec), spec)
        except NotLeader:
            raise
        except (
            Exception
        ) as error:  # whatever a driver raises: storage has not answered, and that is all there is to know
            errors.append(in_words(error))
    raise StorageError(OTHER_SETTINGS.join(errors))


async def _storage(ctx: Context, ports: Ports) -> Storage:
    scope = storage_scope(ctx.status, ctx.seen.engine, ctx.seen.master, restart=restart_due(ctx))
    if not (scope.newest or scope.left or scope.seal or scope.verify):
        return Storage()
    specs = storage_specs(ctx)
    if ctx.status.operation is not None and ctx.status.operation.step == "Verify":
        specs = tuple(s for s in (ctx.effective_spec,) if s is not None)
    if not specs:
        return Storage(error="no valid spec says where the storage is")
    own = specs[0]

    async def read(storage: StoragePort, spec: FlinkJobSpec) -> Storage:
        found = await _read(storage, own.storage.checkpoints, scope)
        if scope.left:
            found = replace(found, left=await _left(ctx, storage, spec))
        if spec is not own and not _has_it(found, scope):
            raise StorageError(f"{spec.storage.checkpoints} answers, but has nothing of the job that runs")
        return found

    try:
        async with asyncio.timeout(_limit(ctx)):
            return await ask_storage(ports, ctx.subject.namespace, specs, read)
    except StorageError as error:
        return Storage(asked=True, error=str(error))
    except TimeoutError:
        return Storage(asked=True, error="checkpoint storage did not answer in the time that the deletion has")


async def _late(ctx: Context, ports: Ports) -> dict[str, StoredSnapshot | None]:
    """What has become of savepoints that nobody waits for any more; nothing of those that storage says nothing about."""
    found: dict[str, StoredSnapshot | None] = {}
    folders = set(late_folders(ctx.status, ctx.now))
    for entry in ctx.status.asked_savepoints:
        if entry.directory not in folders:
            continue
        specs, folder = disposal_specs(ctx, entry.revision), entry.directory
        try:
            async with asyncio.timeout(_limit(ctx)):
                made = await ask_storage(ports, ctx.subject.namespace, specs, lambda s, _, f=folder: s.savepoints(f))  # type: ignore[misc]
        except (StorageError, TimeoutError):
            break
        found[folder] = made[0] if made else None
    return found


def _limit(ctx: Context) -> float | None:
    """Seconds that an answer may take: what deletion has left, but so much that there can be one."""
    left = time_left(ctx)
    return None if left is None else max(left.total_seconds(), 1.0)


async def _read(storage: StoragePort, root: str, scope: Scope) -> Storage:
    newest: StoredSnapshot | None = None
    verdicts: dict[str, Verdict] = {}
    if scope.newest_of:
        newest = await storage.newest_complete(root, scope.newest_of)
    for path in scope.verify:
        verdicts[path] = await storage.verify(path)
    sealed = (await storage.savepoints(scope.seal))[:1] if scope.seal else []
    return Storage(asked=True, newest=newest, sealed=sealed[0] if sealed else None, verdicts=verdicts)


async def _left(ctx: Context, storage: StoragePort, spec: FlinkJobSpec) -> Left:
    """What earlier FlinkJobs of the name have left: in the folders of the name, and wherever a FlinkSnapshot says."""
    subject, places = ctx.subject, spec.storage
    prefix = incarnation_prefix(subject.namespace, subject.name)
    found = await storage.left_by(
        places.checkpoints, prefix, places.savepoints, savepoint_folder(subject.namespace, subject.name)
    )
    running = ctx.status.running
    own = {running.job_id} if running is not None else set()
    known = {snapshot.path for snapshot in found.snapshots}
    more = [
        snapshot
        for snapshot in ctx.seen.snapshots
        if snapshot.kind == "savepoint" and snapshot.state == "Completed" and snapshot.path and not snapshot.deleting
    ]
    noted: list[StoredSnapshot] = []
    for snapshot in more:
        if snapshot.path is None or snapshot.path in known or (running is not None and snapshot.made_by in own):
            continue
        verdict = await storage.verify(snapshot.path)
        torn = "" if verdict.ok else verdict.reason
        time = verdict.time or snapshot.completed_at
        noted.append(StoredSnapshot(snapshot.path, verdict.checkpoint_id, snapshot.made_by, time, torn=torn))
    return Left(
        tuple(job_id for job_id in found.incarnations if job_id not in own),
        tuple(s for s in (*found.snapshots, *noted) if s.job_id not in own),
    )


def _has_it(found: Storage, scope: Scope) -> bool:
    """What may be another store proves something by what it has, and nothing by what it has not.

    Other settings than the job's own may open another one although they name the same endpoint, or none: a Secret may name
    one, and if the job's own Secret is gone nobody knows which.
    """
    newest = found.newest is not None or not scope.newest_of
    sealed = found.sealed is not None or not scope.seal
    return newest and sealed and all(v.ok for v in found.verdicts.values())
