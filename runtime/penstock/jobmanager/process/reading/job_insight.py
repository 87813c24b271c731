"""Data of a job for the dashboard, in addition to Flink's REST API (`rest.insight.JobInsight`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from penstock.checkpoint.savepoint.contents import OperatorContents
from penstock.checkpoint.savepoint.entries import columns, plain
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.common.errors import PenstockError, StateNotFound
from penstock.graph.operations import Sink
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.process.reading.key_texts import check_type, readings
from penstock.jobmanager.process.reading.live_state import LiveState
from penstock.jobmanager.process.reading.state_cache import StateCache
from penstock.rest import facts, models
from penstock.rest.errors import BadRequest, NotFound

T = TypeVar("T")
MAX_SPLITS = 100
"""Maximum number of splits of a source that are shown."""
MAX_BYTES = 64 * 2**20
"""Maximum size in bytes of a subtask's state to read, because this process keeps it in memory."""
ATTEMPTS = 5
"""Maximum number of attempts to read a checkpoint while newer checkpoints replace it."""
MAX_READ = 200_000
"""Maximum number of entries that a search reads."""


class JobInsights:
    """Insights into the jobs of a Dispatcher.

    Args:
        find: function that returns the job with an id, or raises `NotFound`.
        clean: function that removes secrets from a text.
    """

    def __init__(self, find: Callable[[str], JobMaster], clean: Callable[[str], str] = str) -> None:
        self._find = find
        self._clean = clean
        self._cache = StateCache()
        self._live = LiveState()

    def past_checkpoints(self, job_id: str) -> list[facts.PastCheckpoint]:
        past = self._find(job_id).checkpoints.coordinator.history.past()
        return [
            facts.PastCheckpoint(
                entry.id,
                entry.kind,
                entry.status,
                entry.trigger_timestamp,
                entry.end_timestamp or facts.NOT_YET,
                entry.checkpointed_size,
                entry.state_size,
                entry.slowest,
                self._clean(entry.failure_message),
                entry.path,
            )
            for entry in past
        ]

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        past = self._find(job_id).metrics.past
        times, series = past.of_job() if vertex_id is None else past.of_vertex(int(vertex_id))
        return facts.MetricHistory(times, series)

    def connectors(self, job_id: str) -> facts.Connectors:
        job = self._find(job_id)
        trigger = job.checkpoints.coordinator.history.overview()["trigger"]
        return facts.Connectors(
            sources=[source.describe(MAX_SPLITS) for source in list(job.parts.sources.values())],
            sinks=[
                facts.SinkFacts(node.uid, node.name) for node in job.graph.operators if isinstance(node.operation, Sink)
            ],
            pending_commits=trigger["pending_commits"],
            uncommitted_checkpoints=trigger["uncommitted_checkpoints"],
            committing=job.parts.commits.committing,
        )

    def autoscaler(self, job_id: str) -> models.AutoscalerStatus:
        return models.AutoscalerStatus.model_validate(self._find(job_id).autoscaler.describe())

    def autoscaler_recording(self, job_id: str) -> list[str]:
        return list(self._find(job_id).autoscaler.recording())

    def edges(self, job_id: str) -> list[facts.Edge]:
        graph = self._find(job_id).graph
        found = []
        for node in graph.operators:
            vertex = str(graph.stage_of(node.index).id)
            for edge in node.outputs:
                spec = None if edge.exchange is None else graph.exchanges[edge.exchange]
                targets = [edge.target] if spec is None else [target.operator for target in spec.targets]
                found += [
                    facts.Edge(
                        node.uid,
                        node.name,
                        edge.side_tag,
                        graph.operators[target].uid,
                        graph.operators[target].name,
                        vertex,
                        spec is None,
                    )
                    for target in targets
                ]
        return found

    # --- state ------------------------------------------------------------------------------------------------

    def states(self, job_id: str) -> list[facts.StateName]:
        job = self._find(job_id)
        published = {of: name for name, owners in job.metrics.queryable().items() for of in owners}
        found = _read_newest(job, _names)
        return [replace(state, queryable=published.get((state.uid, state.name), "")) for state in found]

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        job = self._find(job_id)
        published = job.metrics.queryable()
        if name not in published:
            known = ", ".join(sorted(published)) or "no state of the job has this name"
            raise NotFound(
                f"no state has the queryable name {name!r}, and tasks only answer for queryable names",
                remedy=f"queryable names: {known}. Set one with set_queryable, or use consistency=checkpoint, which needs none",
            )
        owner, state = self._owner(job_id, name, uid)
        return self._live.entries(job, owner, state, key)

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        job = self._find(job_id)
        owner, state = self._owner(job_id, name, uid)

        def look(newest: Newest, options: dict[str, Any]) -> facts.StateEntries:
            contents = self._cache.contents(newest.path, owner, options)
            if contents.sizes()["largest"] > MAX_BYTES:
                raise BadRequest(
                    f"a subtask of the operator has {contents.sizes()['largest'] >> 20} MiB of state, too much for the memory of the "
                    "JobManager",
                    remedy=f"read the state outside of the JobManager: penstock state read {newest.path} --uid {owner} --name {state!r}",
                )
            found = list(islice(_entries(self._cache, newest.path, contents, state, key), limit + 1))
            if key is not None and not found:
                check_type(_keys(self._cache.sample(newest.path, contents, state)), state, key)
            return facts.StateEntries(newest.checkpoint_id, newest.timestamp, found[:limit], len(found) > limit)

        return _read_newest(job, look)

    def _owner(self, job_id: str, name: str, uid: str | None) -> tuple[str, str]:
        """Return operator and state. The name may be a queryable name, which takes precedence, or the name of a state."""
        owners = self._find(job_id).metrics.queryable().get(name, [])
        if not owners:
            if uid is not None:
                return uid, name
            owners = [(state.uid, name) for state in self.states(job_id) if state.name == name]
        found = [owner for owner in owners if uid in (None, owner[0])]
        if len(found) == 1:
            return found[0]
        if found:
            uids = " or ".join(of for of, _ in found)
            raise BadRequest(f"several operators have a state {name!r}", remedy=f"choose one: ?uid={uids}")
        known = ", ".join(
            sorted({text for state in self.states(job_id) for text in (state.queryable, state.name) if text})
        )
        raise NotFound(
            f"no operator has a state {name!r}", remedy=f"existing states: {known}" if known else "the job has no state"
        )


class Newest(NamedTuple):
    """Newest complete checkpoint."""

    path: str
    checkpoint_id: int
    timestamp: int


def _newest(job: JobMaster) -> Newest:
    newest = job.checkpoints.coordinator.history.newest()
    if newest is None:
        raise StateNotFound(
            "no checkpoint is complete yet, and lookups read the newest checkpoint",
            remedy="trigger a checkpoint, or set execution.checkpointing.interval",
        )
    return Newest(newest.external_path, newest.id, newest.latest_ack_timestamp)


def _read_newest(job: JobMaster, look: Callable[[Newest, dict[str, Any]], T]) -> T:
    """Read the newest checkpoint. If a newer checkpoint replaces it during the read and it is deleted, read the newer checkpoint instead."""
    for _ in range(ATTEMPTS - 1):
        newest = _newest(job)
        try:
            return look(newest, job.settings.object_store_options)
        except PenstockError:
            if _newest(job) == newest:
                raise
    return look(_newest(job), job.settings.object_store_options)


def _names(newest: Newest, options: dict[str, Any]) -> list[facts.StateName]:
    manifest = resolve(newest.path, options, check_files=False).manifest
    found = []
    for operator in manifest.operators:
        if operator.uid in manifest.states or operator.uid in manifest.sources:
            contents = OperatorContents(newest.path, operator.uid, options)
            size = contents.sizes()["total"]
            found += [
                facts.StateName(operator.uid, operator.name, name, kind, size)
                for name, kind in contents.names().items()
            ]
    return found


def _entries(
    cache: StateCache, path: str, contents: OperatorContents, name: str, key: str | None
) -> Iterator[Mapping[str, object]]:
    if key is None:
        yield from map(columns, contents.rows(name))
        return
    looked_at = 0
    for value in readings(key):
        group = contents.group_of(name, value)
        in_group = map(columns, contents.rows(name)) if group is None else cache.group(path, contents, name, group)
        for entry in in_group:
            if entry.get("key") == plain(value):
                yield entry
            looked_at += 1
            if looked_at == MAX_READ:
                return


def _keys(entries: Sequence[Mapping[str, object]]) -> list[object]:
    return [entry["key"] for entry in entries if "key" in entry]
