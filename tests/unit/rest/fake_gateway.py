"""A cluster that exists only in memory, for tests of REST and the command line."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, SnapshotNotFound
from penstock.common.logs.log_file import LogPart
from penstock.common.stacks.edge_records import EdgeQuestion, EdgeRecord
from penstock.common.stacks.sampling import Place, Sample, Stack, filter_samples, sample
from penstock.jobmanager.autoscaling.settings import AutoscalerSettings
from penstock.metrics.reading import TaskManagerScope
from penstock.metrics.store import MetricStore, SubtaskReport
from penstock.metrics.task import TaskMetrics
from penstock.rest import facts, models
from penstock.rest.errors import Conflict, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOB_ID = "bc0b2ad61ecd4a615d92ce25390f61ad"
OLD_ID = "f00df00df00df00df00df00df00df00d"
LOG = b"""2018-10-17 21:13:15,000 INFO my.module [orders: Map #0, attempt 2]: parsed
2018-10-17 21:13:16,000 ERROR my.module [orders: Window #1, attempt 2]: late
Traceback (most recent call last):
ValueError: 7x
2018-10-17 21:13:17,000 INFO penstock.taskmanager [orders: #0, attempt 2]: sealed
"""
START = 1_539_810_794_000
"""2018-10-17 21:13:14 UTC"""
WATERMARK = 1_539_810_800_000


def source_and_count(parallelism: int = 2) -> tuple[facts.Vertex, ...]:
    def subtasks() -> tuple[facts.Subtask, ...]:
        return tuple(
            facts.Subtask(i, "RUNNING", attempt=1, host=f"host-{i}", tm_id=f"tm-{i}", start=START)
            for i in range(parallelism)
        )

    return (
        facts.Vertex("0", "Source: readings -> Map", parallelism, 128, subtasks(), operators={"src": "readings"}),
        facts.Vertex(
            "1",
            "Window -> Sink: files",
            parallelism,
            128,
            subtasks(),
            inputs=(facts.VertexInput("0", "HASH"),),
            operators={"win": "Window", "out": "Sink: files"},
        ),
    )


RUNNING = facts.Job(
    id=JOB_ID,
    name="Socket Window WordCount",
    state="RUNNING",
    start=START,
    parallelism=2,
    max_parallelism=128,
    attempt=2,
    restarts=1,
    timestamps={"CREATED": START, "RUNNING": START + 900},
    vertices=source_and_count(),
    progress=facts.Progress(
        epoch=412, epoch_ms=180.5, records_per_second=12_345.6, records=4_000_000, watermark=WATERMARK, lag=1200
    ),
    restart_strategy="exponential delay, 1 s to 60 s",
    configuration={"parallelism.default": "2", "s3.secret-key": "hunter2"},
    failures=(
        facts.Failure(START + 100, "ValueError", "could not parse '7x'", "Traceback …", "Map", "job.py:14", "host-0"),
        facts.Failure(START + 500, "ClusterError", "executor 1 was lost"),
    ),
    rescales=(facts.Rescale(START + 300, 1, 2, duration_ms=2100),),
    rescale_count=33,
    events=(facts.Event(START, "job is CREATED"), facts.Event(START + 900, "job is RUNNING")),
    accumulators=(facts.Accumulator("lines", "LongCounter", "42"),),
)
FAILED = replace(
    RUNNING,
    id=OLD_ID,
    name="Old <b>job</b>",
    state="FAILED",
    end=START + 60_000,
    vertices=(),
    progress=facts.Progress(),
)


def checkpoint(id: int, kind: str = "CHECKPOINT", status: str = "COMPLETED", **more: Any) -> dict[str, Any]:
    """Return an entry of the history, in the shape of `penstock.checkpoint.coordinator.statistics`."""
    entry: dict[str, Any] = {
        "className": status.lower(),
        "id": id,
        "status": status,
        "is_savepoint": kind != "CHECKPOINT",
        "savepointFormat": "native" if kind != "CHECKPOINT" else None,
        "trigger_timestamp": START + 1000 * id,
        "latest_ack_timestamp": START + 1000 * id + 100,
        "checkpointed_size": 200,
        "state_size": 1000,
        "end_to_end_duration": 100 + 20 * id,
        "num_subtasks": 4,
        "num_acknowledged_subtasks": 4 if status == "COMPLETED" else 1,
        "checkpoint_type": kind,
        "tasks": {},
    }
    if status == "COMPLETED":
        entry |= {"external_path": f"s3://b/j/chk-{id}", "discarded": id == 1}
    return entry | more


FAILED_CHECKPOINT = checkpoint(4, status="FAILED", failure_timestamp=START + 5000, failure_message="storage away")
HISTORY = [
    checkpoint(5, status="IN_PROGRESS"),
    FAILED_CHECKPOINT,
    checkpoint(3, "SAVEPOINT", external_path="s3://b/savepoint-x"),
    checkpoint(2),
    checkpoint(1),
]
TASK = {
    "id": 2,
    "status": "COMPLETED",
    "latest_ack_timestamp": START + 2100,
    "checkpointed_size": 100,
    "state_size": 500,
    "end_to_end_duration": 120,
    "num_subtasks": 2,
    "num_acknowledged_subtasks": 1,
}
STATS = {"min": 1, "max": 40, "avg": 20, "p50": 20.0, "p90": 39.0, "p95": 39.5, "p99": 40.0, "p999": 40.0}
SUBTASKS = {
    **TASK,
    "summary": {
        "checkpointed_size": STATS,
        "state_size": STATS,
        "end_to_end_duration": STATS,
        "checkpoint_duration": {"sync": STATS, "async": STATS},
    },
    "subtasks": [
        {
            "className": "completed",
            "index": 0,
            "status": "completed",
            "ack_timestamp": START + 2120,
            "end_to_end_duration": 120,
            "checkpointed_size": 100,
            "state_size": 500,
            "checkpoint": {"sync": 1, "async": 40},
            "alignment": {},
            "start_delay": 0,
            "unaligned_checkpoint": False,
            "aborted": False,
        },
        {"className": "pending", "index": 1, "status": "pending_or_failed"},
    ],
}


def statistics(*, empty: bool = False) -> models.CheckpointingStatistics:
    history = [] if empty else HISTORY
    return models.CheckpointingStatistics.model_validate(
        {
            "counts": {"restored": 1, "total": 12, "in_progress": 1, "completed": 10, "failed": 1}
            if history
            else dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), 0),
            "summary": {"checkpointed_size": STATS, "state_size": STATS, "end_to_end_duration": STATS},
            "latest": {
                "completed": HISTORY[3],
                "savepoint": HISTORY[2],
                "failed": HISTORY[1],
                "restored": {
                    "id": 1,
                    "restore_timestamp": START + 700,
                    "is_savepoint": False,
                    "external_path": "s3://b/j/chk-1",
                },
            }
            if history
            else {},
            "history": history,
        }
    )


class FakeInsight:
    """An implementation of `JobInsight`."""

    def __init__(self) -> None:
        self.requested: tuple[object, ...] = ()
        self.autoscaler_keys: dict[str, str] = {}
        self.autoscaler_keys_id = ""

    def past_checkpoints(self, job_id: str) -> Sequence[facts.PastCheckpoint]:
        return [facts.PastCheckpoint(2, "CHECKPOINT", "COMPLETED", START + 2000, START + 2120, 200, 1000, ("1", 1))]

    def metric_history(self, job_id: str, vertex_id: str | None) -> facts.MetricHistory:
        return facts.MetricHistory([1000, 2000], {"lag": [float("nan"), 4.0]})

    def connectors(self, job_id: str) -> facts.Connectors:
        source = facts.SourceFacts("src", "readings", 1, splits=[facts.SplitFacts("0", 0, "17", 100)])
        return facts.Connectors([source], [facts.SinkFacts("out", "Sink: files")])

    def autoscaler(self, job_id: str) -> models.AutoscalerStatus:
        decision = {
            "timestamp": START + 2000,
            "since": START + 1000,
            "count": 2,
            "current": 2,
            "wanted": 4,
            "next": 2,
            "rescales": False,
            "reason": "WAITING_FOR_SLOTS",
            "message": "The job has 2 slots.",
            "slotsAvailable": 2,
            "inputs": [{"id": "0", "name": "readings", "busy": 0.9}],
        }
        return models.AutoscalerStatus.model_validate(
            {
                "mode": "active",
                "configuration": self.autoscaler_keys,
                "configurationId": self.autoscaler_keys_id,
                "current": 2,
                "requested": 2,
                "wanted": 4,
                "slotsAvailable": 2,
                "minParallelism": 1,
                "maxParallelism": 128,
                "reason": "WAITING_FOR_SLOTS",
                "message": "The job has 2 slots.",
                "decisions": [decision],
            }
        )

    def autoscaler_recording(self, job_id: str) -> Sequence[str]:
        return ['{"autoscaler": 1}\n', '{"sample": {}}\n']

    def edges(self, job_id: str) -> Sequence[facts.Edge]:
        return [
            facts.Edge("src", "readings", None, "map", "Map", "0", True),
            facts.Edge("map", "Map", None, "win", "Window", "0", False),
            facts.Edge("map", "Map", "invalid", "bad", "Sink: bad", "0", False),
            facts.Edge("win", "Window", None, "out", "Sink: files", "1", True),
        ]

    def states(self, job_id: str) -> Sequence[facts.StateName]:
        return [facts.StateName("win", "Window", "total", "keyed value", 500)]

    def state_entries(self, job_id: str, name: str, uid: str | None, key: str | None, limit: int) -> facts.StateEntries:
        self.requested = (name, uid, key, limit)
        return facts.StateEntries(3, START, [{"key": "a", "value": 7}])

    def live_entries(self, job_id: str, name: str, uid: str | None, key: str) -> facts.StateEntries:
        self.requested = (name, uid, key, 0)
        return facts.StateEntries(0, START, [{"key": "a", "value": 8}], attempt=2)


class FakeGateway:
    """An implementation of `ClusterGateway`. Operations are done after `polls_until_done` polls."""

    def __init__(self) -> None:
        self.all_jobs = {JOB_ID: RUNNING, OLD_ID: FAILED}
        self.ready = facts.Readiness(True)
        self.insight = FakeInsight()
        self.config = {"rest.port": "8081", "s3.secret-key": "hunter2", "security.rest.token-file": "/run/token"}
        self.log_files: dict[str | None, dict[str, bytes]] = {
            None: {"jobmanager.log": b"2018-10-17 21:13:14,000 INFO penstock.job: job is RUNNING\n"},
            "tm-0": {"taskmanager.log": LOG, "taskmanager.out": b"printed\n"},
            "tm-1": {"taskmanager.log": b"", "taskmanager.out": b""},
        }
        self.measured = facts.Measurements()
        self.seen = [
            Sample(Stack(Place(JOB_ID, "0", 0), "MainThread", True, ("app.main:1", "app.parse:7")), 30),
            Sample(Stack(Place(JOB_ID, "0", 0), "MainThread", False, ("app.main:1", "app.wait:9")), 12),
            Sample(Stack(Place(JOB_ID, "0", 1), "MainThread", True, ("app.main:1", "app.parse:7")), 8),
            Sample(Stack(Place(JOB_ID, "1", 0), "MainThread", True, ("app.count:3",)), 5),
        ]
        self.questions: list[EdgeQuestion] = []
        self.on_edges = [
            EdgeRecord(START + 20, 0, "{'a': 2}", timestamp=START),
            EdgeRecord(START + 10, 1, "{'a': 1}", key="'a'"),
        ]
        self.savepoint_directory: str | None = None
        self.savepoint_failure = ""
        self.calls: list[tuple[object, ...]] = []
        self.polls_until_done = 1
        self.was_shut_down = threading.Event()
        self.savepoints = {"s3://b/savepoint-x"}
        self._operations: dict[str, facts.Operation] = {}
        self._polls: dict[str, int] = {}
        self._metrics = _metrics()

    @property
    def metrics(self) -> MetricStore:
        return self._metrics

    def readiness(self) -> facts.Readiness:
        return self.ready

    def cluster(self) -> facts.Cluster:
        workers = [
            facts.TaskManager(
                id=f"tm-{i}",
                host=f"host-{i}",
                slots=4,
                free_slots=3,
                port=7100 + i,
                last_heartbeat=START,
                cpu_cores=4,
                memory=8 * 2**30,
                memory_free=6 * 2**30,
                memory_used=(i + 1) * 2**29,
                heap=2**31,
                slots_by_job={JOB_ID: 1},
            )
            for i in range(2)
        ]
        return facts.Cluster(8, 6, workers)

    def configuration(self) -> Mapping[str, str]:
        return self.config

    def logs(self, task_manager: str | None) -> Sequence[facts.LogFile]:
        self._check_task_manager(task_manager)
        return [facts.LogFile(name, len(text), START) for name, text in self.log_files[task_manager].items()]

    def read_log(self, task_manager: str | None, name: str, start: int, most: int) -> LogPart:
        self._check_task_manager(task_manager)
        if name not in self.log_files[task_manager]:
            raise NotFound(f"the process has no log {name!r}")
        text = self.log_files[task_manager][name]
        start = max(0, len(text) + start) if start < 0 else min(start, len(text))
        data = text[start : start + most]
        return LogPart(start, start + len(data), len(text), data)

    def stacks(self, task_manager: str | None, seconds: float, hertz: int, of: Place) -> Sequence[Sample]:
        if task_manager is None:
            return sample(seconds, hertz)
        self._check_task_manager(task_manager)
        return filter_samples(self.seen, of)

    def edge_records(self, task_manager: str, question: EdgeQuestion) -> Sequence[EdgeRecord]:
        self._check_task_manager(task_manager)
        self.questions.append(question)
        return [record for record in self.on_edges if f"tm-{record.subtask}" == task_manager]

    def measurements(self) -> facts.Measurements:
        return self.measured

    def _check_task_manager(self, task_manager: str | None) -> None:
        if task_manager not in self.log_files:
            raise NotFound(f"the cluster has no TaskManager {task_manager}")

    def shut_down(self) -> None:
        self.was_shut_down.set()

    def jobs(self) -> Sequence[facts.Job]:
        return list(self.all_jobs.values())

    def job(self, job_id: str) -> facts.Job:
        if job_id == "boom":
            raise RuntimeError("a defect")
        if job_id not in self.all_jobs:
            raise NotFound(f"the cluster has no job {job_id}", remedy="see the ids with `penstock list`")
        return self.all_jobs[job_id]

    def checkpoints(self, job_id: str) -> models.CheckpointingStatistics:
        self.job(job_id)
        return statistics(empty=job_id != JOB_ID)

    def checkpoint(self, job_id: str, checkpoint_id: int) -> models.CheckpointStatistics:
        for entry in HISTORY:
            if entry["id"] == checkpoint_id:
                return models.CheckpointStatistics.model_validate(entry | {"tasks": {"1": TASK}})
        raise NotFound(f"checkpoint {checkpoint_id} of job {job_id} is not known")

    def checkpoint_subtasks(self, job_id: str, checkpoint_id: int, vertex_id: str) -> models.TaskCheckpointDetails:
        if (checkpoint_id, vertex_id) != (2, "1"):
            raise NotFound(f"nothing is known of vertex {vertex_id} in checkpoint {checkpoint_id} of job {job_id}")
        return models.TaskCheckpointDetails.model_validate(SUBTASKS)

    def checkpoint_settings(self, job_id: str) -> facts.CheckpointSettings:
        return facts.CheckpointSettings(
            10_000, 600_000, 500, 3, 2, storage="s3://b", state_backend="rocksdb", mode="at_least_once"
        )

    def trigger_savepoint(
        self, job_id: str, target_directory: str | None, *, cancel_job: bool, trigger_id: str | None
    ) -> str:
        path = self._savepoint_path(job_id, target_directory)
        self.calls.append(("savepoint", target_directory, cancel_job))
        if cancel_job and not self.savepoint_failure:
            self.cancel(job_id)
        return self._start("savepoint", job_id, trigger_id, location=path, failure=self.savepoint_failure)

    def trigger_checkpoint(self, job_id: str, *, trigger_id: str | None) -> str:
        self._running(job_id)
        self.calls.append(("checkpoint",))
        return self._start("checkpoint", job_id, trigger_id, checkpoint_id=6)

    def stop(self, job_id: str, target_directory: str | None, *, drain: bool, trigger_id: str | None) -> str:
        path = self._savepoint_path(job_id, target_directory)
        self.calls.append(("stop", target_directory, drain))
        if not self.savepoint_failure:
            self.all_jobs[job_id] = replace(self.all_jobs[job_id], state="FINISHED", end=START + 9_000)
        return self._start("stop", job_id, trigger_id, location=path, failure=self.savepoint_failure)

    def cancel(self, job_id: str) -> None:
        self._running(job_id)
        self.calls.append(("cancel",))
        self.all_jobs[job_id] = replace(self.all_jobs[job_id], state="CANCELED", end=START + 9_000)

    def rescale(self, job_id: str, parallelism: int, *, trigger_id: str | None) -> str:
        self._running(job_id)
        self.calls.append(("rescale", parallelism))
        failure = f"parallelism {parallelism} needs {parallelism} slots, the cluster has 8" if parallelism > 8 else ""
        return self._start("rescale", job_id, trigger_id, failure=failure)

    def configure_autoscaler(self, job_id: str, keys: Mapping[str, object], configuration_id: str) -> None:
        self._running(job_id)
        self.insight.autoscaler_keys = dict(AutoscalerSettings.from_request(keys).keys)
        self.insight.autoscaler_keys_id = configuration_id

    def dispose_savepoint(self, path: str, *, trigger_id: str | None) -> str:
        if path not in self.savepoints:
            raise SnapshotNotFound(f"no savepoint is at {path}")
        self.calls.append(("dispose", path))
        return self._start("dispose", "", trigger_id)

    def operation(self, request_id: str) -> facts.Operation:
        if request_id not in self._operations:
            raise NotFound(f"the cluster has no request {request_id}")
        self._polls[request_id] = self._polls.get(request_id, 0) + 1
        is_done = self._polls[request_id] >= self.polls_until_done
        return replace(self._operations[request_id], is_done=is_done)

    def _running(self, job_id: str) -> facts.Job:
        job = self.job(job_id)
        if job.state != "RUNNING":
            raise Conflict(f"job {job_id} is {job.state}", remedy="only a running job can be asked for that")
        return job

    def _savepoint_path(self, job_id: str, directory: str | None) -> str:
        self._running(job_id)
        root = directory or self.savepoint_directory
        if root is None:
            raise InvalidJob("no savepoint directory is known", remedy="give one, or set state.savepoints.dir")
        return f"{root.rstrip('/')}/savepoint-{job_id[:6]}-0123456789ab"

    def _start(
        self,
        kind: facts.OperationKind,
        job_id: str,
        trigger_id: str | None,
        *,
        location: str = "",
        failure: str = "",
        checkpoint_id: int | None = None,
    ) -> str:
        request_id = trigger_id or uuid.uuid4().hex
        self._operations[request_id] = facts.Operation(
            request_id,
            kind,
            job_id,
            location=location,
            failure=failure,
            failure_class="StorageError" if failure else "",
            checkpoint_id=checkpoint_id,
        )
        return request_id


def _metrics() -> MetricStore:
    store = MetricStore(host="master")
    store.describe_job(JOB_ID, RUNNING.name, {v.id: (v.name, v.parallelism) for v in RUNNING.vertices})
    for vertex in RUNNING.vertices:
        for subtask in vertex.subtasks:
            user = TaskMetrics()
            user.operator_group("win", "Window").add_group("MyMetrics").counter("hits").inc(5 + subtask.index)
            store.report(
                SubtaskReport(
                    JOB_ID,
                    vertex.id,
                    subtask.index,
                    attempt=1,
                    io={"numRecordsIn": 100 * (subtask.index + 1), "numBytesOut": 10, "busyTimeMs": 7.5},
                    gauges={"currentInputWatermark": WATERMARK if subtask.index else None},
                    user=user.snapshot(),
                    host=subtask.host,
                    tm_id=subtask.tm_id,
                )
            )
    store.set_facts(TaskManagerScope("tm-that-is-gone"), {"Status.Python.Memory.RSS": 100})
    return store
