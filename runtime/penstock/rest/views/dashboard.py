"""The dashboard's data in addition to Flink's shapes."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.common.config.option_table import FORMER_KEYS, OPTIONS
from penstock.common.logs.redaction import without_secrets
from penstock.rest import facts, models
from penstock.rest.views.checkpoints import last_completed
from penstock.rest.views.ids import vertex_id
from penstock.rest.views.insight import cause_name, raised_at, stacktrace
from penstock.rest.views.states import subtask_state, vertex_state
from penstock.rest.views.vertices import back_pressure_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.metrics.loads import SubtaskLoad
    from penstock.metrics.store import MetricStore

LOAD_COLUMNS = (
    "subtask",
    "taskManager",
    "host",
    "recordsIn",
    "recordsOut",
    "inPerSecond",
    "outPerSecond",
    "busy",
    "backPressured",
    "watermark",
    "state",
    "backPressure",
    "firstKeyGroup",
    "lastKeyGroup",
)


def live_job(
    job: facts.Job,
    checkpoints: models.CheckpointingStatistics,
    interval_ms: int,
    cluster: facts.Cluster,
    metrics: MetricStore,
    now: int,
) -> models.LiveJob:
    last = last_completed(checkpoints)
    counts, progress = checkpoints.counts, job.progress
    newest = job.failures[-1] if job.failures else None
    vertices = [_vertex(vertex, metrics.loads(job.id, vertex.id)) for vertex in job.vertices]
    return models.LiveJob(
        now=now,
        id=job.id,
        name=job.name,
        state=job.state,
        start_step=job.start_step,
        end_step=job.end_step,
        start=job.start,
        end=job.end,
        attempt=job.attempt,
        restarts=job.restarts,
        rescales=job.rescale_count,
        last_rescale=_rescale(job.rescales[-1]) if job.rescales else None,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        records=progress.records,
        records_per_second=sum(vertex.in_per_second for vertex in vertices if not vertex.inputs),
        lag=progress.lag,
        watermark=progress.watermark,
        epoch=progress.epoch,
        epoch_duration=progress.epoch_ms,
        slots_total=cluster.slots_total,
        slots_available=cluster.slots_available,
        rescale_limit=_rescale_limit(job, cluster),
        checkpoints={"completed": counts.completed, "failed": counts.failed, "inProgress": counts.in_progress},
        last_checkpoint=None
        if last is None
        else {
            "id": last.id,
            "at": last.latest_ack_timestamp,
            "duration": last.end_to_end_duration,
            "size": last.checkpointed_size,
            "stateSize": last.state_size,
        },
        checkpoint_interval=interval_ms,
        failures=len(job.failures),
        last_failure=None if newest is None else f"{newest.name}: {newest.message}"[:500],
        vertices=vertices,
    )


def _rescale_limit(job: facts.Job, cluster: facts.Cluster) -> int:
    """Return the highest parallelism that a rescale can request. The slots limit the parallelism, unless the cluster can start more slots."""
    if job.can_add_slots:
        if job.slot_limit is None:
            return job.max_parallelism
        of_others = max(0, cluster.slots_total - cluster.slots_available - job.parallelism)
        return max(job.parallelism, min(job.max_parallelism, job.slot_limit - of_others))
    return max(job.parallelism, min(job.max_parallelism, job.parallelism + cluster.slots_available))


def _vertex(vertex: facts.Vertex, loads: Sequence[SubtaskLoad]) -> models.LiveVertex:
    rates = [load.in_per_second for load in loads]
    mean = sum(rates) / len(rates) if rates else 0.0
    return models.LiveVertex(
        id=vertex_id(vertex.id),
        name=vertex.name,
        operators=[{"uid": uid, "name": name} for uid, name in vertex.operators.items()],
        inputs=[{"id": vertex_id(edge.vertex_id), "strategy": edge.ship_strategy} for edge in vertex.inputs],
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        status=vertex_state(s.state for s in vertex.subtasks),
        records_in=sum(load.records_in for load in loads),
        records_out=sum(load.records_out for load in loads),
        in_per_second=sum(rates),
        out_per_second=sum(load.out_per_second for load in loads),
        busy=_mean([load.busy for load in loads]),
        busiest=max((load.busy for load in loads), default=0.0),
        back_pressured=_mean([load.back_pressured for load in loads]),
        skew=max(rates) / mean if mean > 0 else 1.0,
        watermark=min((load.watermark for load in loads if load.watermark is not None), default=None),
        hot_key=None if vertex.hot_key is None else _hot_key(vertex.hot_key),
    )


def _hot_key(hot: facts.HotKey) -> dict[str, Any]:
    return {"key": hot.key, "keyGroup": hot.key_group, "subtask": hot.subtask, "share": hot.share}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def vertex_load(vertex: facts.Vertex, loads: Sequence[SubtaskLoad]) -> models.VertexLoad:
    by_subtask = {load.subtask: load for load in loads}
    rows: list[list[Any]] = []
    for subtask in vertex.subtasks:
        load = by_subtask.get(subtask.index)
        known: list[Any] = [0, 0, 0.0, 0.0, 0.0, 0.0, None]
        if load is not None:
            known = [
                load.records_in,
                load.records_out,
                round(load.in_per_second, 1),
                round(load.out_per_second, 1),
                round(load.busy, 3),
                round(load.back_pressured, 3),
                load.watermark,
            ]
        known += [subtask_state(subtask.state), back_pressure_level(0.0 if load is None else load.back_pressured)]
        groups = key_groups(subtask.index, vertex.parallelism, vertex.max_parallelism)
        rows.append([subtask.index, subtask.tm_id, subtask.host, *known, *groups])
    return models.VertexLoad(columns=list(LOAD_COLUMNS), rows=rows)


def key_groups(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """Return the first and the last key group of a subtask, as Flink's KeyGroupRangeAssignment does.

    >>> [key_groups(index, 3, 128) for index in range(3)]
    [(0, 42), (43, 85), (86, 127)]
    """
    first = (index * max_parallelism + parallelism - 1) // parallelism
    return first, ((index + 1) * max_parallelism - 1) // parallelism


def history(found: facts.MetricHistory) -> models.History:
    series = {
        name: [None if math.isnan(value) else round(value, 4) for value in values]
        for name, values in found.series.items()
    }
    return models.History(times=list(found.times), series=series)


def timeline(job: facts.Job, past: Sequence[facts.PastCheckpoint], now: int) -> models.Timeline:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    return models.Timeline(
        now=now,
        start=job.start,
        end=job.end,
        states=[{"at": change.timestamp, "state": change.state} for change in job.states],
        checkpoints=[_past(checkpoint, names) for checkpoint in past],
        rescales=[_rescale(rescale) for rescale in job.rescales],
        failures=[
            {
                "at": f.timestamp,
                "name": f.name,
                "cause": cause_name(f),
                "message": f.message[:1000],
                "task": f.task,
                "host": f.host,
                "where": raised_at(f) or f.location,
                "builtAt": f.location,
                "trace": stacktrace(f),
            }
            for f in job.failures
        ],
        events=[{"at": event.timestamp, "text": event.text} for event in job.events],
    )


def _rescale(rescale: facts.Rescale) -> dict[str, Any]:
    return {
        "at": rescale.timestamp,
        "from": rescale.old_parallelism,
        "to": rescale.new_parallelism,
        "trigger": rescale.trigger,
        "duration": rescale.duration_ms,
        "outcome": rescale.outcome,
    }


def _past(checkpoint: facts.PastCheckpoint, names: Mapping[str, str]) -> dict[str, Any]:
    vertex, subtask = checkpoint.slowest
    return {
        "id": checkpoint.id,
        "kind": checkpoint.kind,
        "status": checkpoint.status,
        "at": checkpoint.trigger,
        "end": checkpoint.end,
        "size": checkpoint.size,
        "stateSize": checkpoint.state_size,
        "slowest": "" if subtask < 0 else f"{names.get(vertex, vertex)} #{subtask}",
        "failure": checkpoint.failure,
        "path": checkpoint.path,
    }


def settings(cluster: Mapping[str, str], job: Mapping[str, str]) -> models.JobSettingList:
    """Return every known key and all other keys that are set. A job's configuration includes the cluster's
    configuration."""
    cluster = {FORMER_KEYS.get(key, key): value for key, value in cluster.items()}
    job = {FORMER_KEYS.get(key, key): value for key, value in job.items()}
    defaults = {
        option.key: "" if option.default in (None, [], {}) else option.write(option.default)
        for option in OPTIONS.values()
    }
    in_effect = without_secrets({**defaults, **cluster, **job})
    found = []
    for key, value in sorted(in_effect.items()):
        source = "default"
        if key in job and job[key] != cluster.get(key):
            source = "job"
        elif key in cluster or key in job:
            source = "cluster" if key in cluster else "job"
        meaning = OPTIONS[key].doc if key in OPTIONS else ""
        found.append(models.Setting(key=key, value=value, source=source, meaning=meaning))
    return models.JobSettingList(settings=found)


def connectors(found: facts.Connectors) -> models.JobConnectors:
    return models.JobConnectors(
        sources=[
            {
                "uid": source.uid,
                "name": source.name,
                "splitCount": source.split_count,
                "unassigned": source.unassigned,
                "lag": source.lag,
                "splits": [asdict(split) for split in source.splits],
            }
            for source in found.sources
        ],
        sinks=[{"uid": sink.uid, "name": sink.name} for sink in found.sinks],
        pending_commits=found.pending_commits,
        uncommitted_checkpoints=found.uncommitted_checkpoints,
        committing=found.committing,
    )
