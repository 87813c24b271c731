"""Uses of the machine's clock, which a user can change. Code reads it only for displayed times and for processing time.

Displayed times are those that people or other systems see. Durations use `time.monotonic`, `time.perf_counter` or
`Clock.monotonic_ms`. Examples are timeouts, intervals, idleness, ages and delays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "runtime" / "penstock"
_MAY_READ = re.compile(r"\btime_ns\b|\bnow_ms\b|\btime\.time\b|\bfrom time\b|\b(now|utcnow|today)\b")
"""The text of every read. Most modules have none, and parsing all of them takes seconds."""
READS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}

ALLOWED = {
    "checkpoint/leadership/fencing.py::Candidate.claim": "a time in the claim, for people",
    "cli/live.py::LiveView.note": "the time of day before a line",
    "common/logs/log_file.py::LogFile.write": "time of modification that the log listing shows",
    "connectors/cassandra/cluster.py::Stamps.__call__": "write timestamps that Cassandra compares",
    "connectors/cassandra/requests.py::Clock.take": "write timestamps that Cassandra compares; never one lower than before",
    "connectors/simple/datagen.py::GeneratorSplitReader.next_record_at": "next_record_at is a processing time; computed from a monotonic time",
    "connectors/delta/target.py::DeltaTarget.describe": "modification time in the table's log",
    "connectors/core/function.py::clock_of": "processing time of sink functions and buckets",
    "connectors/http/request.py::_after_s": "Retry-After may be a date",
    "connectors/http/source.py::PollReader.next_record_at": "next_record_at is a processing time; computed from a monotonic time",
    "connectors/iceberg/target.py::IcebergTarget.describe": "modification time in the table's metadata",
    "connectors/kafka/client.py::_expiry": "confluent-kafka takes a token's expiry as seconds since the epoch",
    "connectors/kafka/sink/producer.py::KafkaProducer._note": "begin of a transaction in its committable, which another process reads",
    "connectors/kinesis/retention.py::now_ms": "compared with arrival times of records, which the service gives",
    "connectors/kinesis/shards.py::ShardEnumerator.discover": "position in the stream by time",
    "connectors/kinesis/settings.py::_start_ms": "position in the stream by time",
    "connectors/lakehouse/commits.py::TableCommitter._check_files": "compared with modification times in committables, which outlive processes",
    "connectors/postgres/cdc/stream.py::ChangesReader.next_record_at": "next_record_at is a processing time: now",
    "connectors/tables/source.py::KeyRangeReader.next_record_at": "next_record_at is a processing time; computed from a monotonic time",
    "connectors/redis/stream_sink.py::StagingWriter.prepare_commit": "time in a committable, for people",
    "connectors/tables/row_writers.py::StagingWriter.prepare_commit": "time in a committable, for people",
    "connectors/sqs/source.py::QueueReader.__init__": "ages of message ids, which are part of checkpoints",
    "connectors/sqs/source.py::QueueReader._take": "ages of message ids, which are part of checkpoints",
    "functions/operator_context.py::SystemClock.now_ms": "processing time is this",
    "functions/state/checkpointed.py::FunctionCheckpoints.snapshot": "timestamp that Flink's interface gives functions",
    "jobmanager/cluster/local_cluster.py::_now_ms": "last heartbeat of a TaskManager, for people",
    "jobmanager/cluster/resource_manager.py::_now_ms": "last heartbeat of a TaskManager, for people",
    "jobmanager/cluster/spark_cluster.py::SparkCluster.workers": "last heartbeat of a TaskManager, for people",
    "jobmanager/job/epoch_loop.py::EpochLoop._commands": "processing time of a manual clock, for the tasks",
    "jobmanager/job/epoch_loop.py::EpochLoop._monotonic": "turns a processing time into a monotonic one",
    "jobmanager/job/job_master.py::JobMaster.__init__": "offset between the clocks, to show times",
    "jobmanager/job/job_master.py::JobMaster._now": "times of events in the history, for people",
    "jobmanager/job/job_metrics.py::JobMetrics._remember": "times on the axis of charts",
    "jobmanager/job/job_requests.py::JobRequests._now": "times of events in the history, for people",
    "jobmanager/job/starting/start_steps.py::StartSteps.begin": "times of the steps of a start, for people",
    "jobmanager/autoscaling/autoscaler.py::Autoscaler._check_request": "times of events in the history, for people",
    "jobmanager/autoscaling/autoscaler.py::Autoscaler._on_decision": "times of events in the history, for people",
    "jobmanager/autoscaling/sampling.py::Sampler.take": "time of a sample in a recording, for people",
    "jobmanager/process/election/kubernetes_lease.py::_now": "times in a Lease, for people; members compare only their own monotonic times",
    "jobmanager/process/programs/applications.py::Applications.close": "end of a program, for people",
    "jobmanager/process/programs/jars.py::SessionJars.__init__": "age of uploads in storage, which outlive the process",
    "jobmanager/process/programs/running_program.py::RunningProgram.lost_job": "end of a job, for people",
    "jobmanager/process/programs/running_program.py::_initializing": "start of a job, for people",
    "jobmanager/process/programs/running_program.py::RunningProgram.show_waiting": "times of a job that starts again, for people",
    "jobmanager/process/programs/store/program_store.py::ProgramStore.put_bundle": "time of an upload, for people",
    "jobmanager/process/programs/programs.py::ProgramRunner.run": "time of a submission, for people and for the order of restarts",
    "jobmanager/process/session/dispatcher.py::Dispatcher.__init__": "start time of the cluster, for people",
    "jobmanager/process/reading/live_state.py::LiveState.entries": "time of an answer, for people",
    "jobmanager/reporting/otel.py::OtelMetricReporter.open": "OTLP carries times since the epoch",
    "jobmanager/reporting/otel.py::OtelMetricReporter.report": "OTLP carries times since the epoch",
    "jobmanager/reporting/otel_logs.py::OtelLogReporter._to_otel": "OTLP carries times since the epoch",
    "jobmanager/runners/in_process.py::InProcessRunner._hang": "moves a test's manual clock",
    "rest/clock.py::now_ms": "the time that answers carry",
    "rest/transport/tls.py::RenewedContext._renew": "the end of a certificate is a time of day",
    "rest/transport/tls.py::_checked": "the end of a certificate is a time of day",
    "rest/sessions.py::Access.__init__": "expiry inside cookies, which outlive this process",
    "state/timers/table_timer_service.py::TimerService.current_processing_time": "processing-time timers use the time of day",
    "state/ttl/expiry.py::Lifetime.__init__": "expiry in state, which outlives processes; Flink's definition, too",
    "taskmanager/watching/edge_taps.py::_Tap.__call__": "the time of day at which a record passed, which `penstock peek` shows",
    "taskmanager/watching/latency.py::LatencyTracking.__init__": "markers cross machines, whose monotonic clocks differ",
    "taskmanager/level.py::LevelTask._begin": "processing-time timers use the time of day",
    "taskmanager/level.py::LevelTask._end": "processing-time timers use the time of day",
    "taskmanager/level.py::LevelTask.advance_processing_time": "processing-time timers use the time of day",
    "taskmanager/local_state/files.py::_sweep_job": "compared with modification times of files",
    "taskmanager/operators/async_io/async_wait.py::AsyncWaitOperator.next_processing_time": "next_processing_time is a processing time: now",
    "taskmanager/operators/connectors/sink.py::SinkOperator.next_wake": "next_wake is a processing time: soon",
    "taskmanager/operators/connectors/source.py::SourceOperator._is_ahead": "next_record_at is a processing time",
    "taskmanager/operators/connectors/source.py::SourceOperator.next_wake": "next_wake is a processing time; computed from a monotonic time",
    "taskmanager/operators/event_time/watermarks.py::TimestampsAndWatermarksOperator.next_processing_time": "next_processing_time is a processing time; computed from a monotonic time",
    "taskmanager/operators/gather.py::GatherOperator.next_processing_time": "next_processing_time is a processing time; computed from a monotonic time",
    "taskmanager/operators/process.py::UserTimers.current_processing_time": "processing time of functions",
    "taskmanager/operators/window/contexts.py::Clocks.__init__": "processing time of windows",
    "taskmanager/operators/window/grouped.py::GroupedWindows._times": "processing time of windows",
    "taskmanager/operators/window/grouped.py::GroupedWindows.process_columns": "processing time of windows",
    "taskmanager/operators/window/sessions.py::SessionWindows.process": "processing time of windows",
    "taskmanager/stream_task.py::StreamTask._next_flush": "senders on one machine flush at the same moment; the pause itself is monotonic",
    "taskmanager/stream_task.py::StreamTask._until": "remaining time until a processing time, computed again in every turn",
    "testing/driver.py::JobDriver._fail_over": "moves a test's manual clock",
    "testing/driver.py::JobDriver.advance": "moves a test's manual clock",
    "testing/job_harness.py::JobHarness.advance_processing_time": "moves a test's manual clock",
    "testing/job_harness.py::JobHarness.snapshot": "processing time at which a restore continues",
    "sql/expressions/compiler.py::now_micros": "CURRENT_TIMESTAMP is the time of day",
    "sql/tables/datagen.py::_Field.moment": "generated timestamps are near the present",
}
"""Module and function -> the reason why it may read the machine's clock."""


def reads_of(module: Path) -> Iterator[str]:
    """Yield `path::function` of every place in a module that reads the machine's clock."""
    name, code = module.relative_to(RUNTIME).as_posix(), module.read_text()
    if not _MAY_READ.search(code):
        return

    def walk(node: ast.AST, function: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{function}.{child.name}" if function else child.name
            elif isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name):
                if (child.value.id, child.attr) in READS or (child.attr == "now_ms" and child.value.id == "clock"):
                    yield f"{name}::{function}"
            elif isinstance(child, ast.Attribute) and child.attr == "now_ms":
                yield f"{name}::{function}"
            elif isinstance(child, ast.ImportFrom) and child.module == "time":
                for alias in child.names:
                    if ("time", alias.name) in READS:
                        yield f"{name}::import of time.{alias.name}"
            yield from walk(child, inner)

    yield from walk(ast.parse(code), "")


def test_the_machines_clock_is_read_only_with_a_reason() -> None:
    found = {read for module in sorted(RUNTIME.rglob("*.py")) for read in reads_of(module)}
    new, gone = sorted(found - set(ALLOWED)), sorted(set(ALLOWED) - found)
    assert not new, f"use a monotonic clock for durations, or add the reason to ALLOWED: {new}"
    assert not gone, f"no longer read the machine's clock, remove them from ALLOWED: {gone}"


def test_the_reason_is_specific() -> None:
    assert all(len(reason.split()) >= 3 for reason in ALLOWED.values())
