"""Metrics and traces of a job that a collector receives over HTTP in OpenTelemetry's protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import PenstockError
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import MapFunction, RuntimeContext
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session
from penstock.jobmanager.reporting.otel import OtelMetricReporter, OtelTraceReporter
from penstock.metrics.key import MetricKey
from penstock.metrics.reading import JobScope, Reading
from penstock.metrics.reporter import Span
from penstock.metrics.store import ScopeReadings
from tests.in_process import InProcess, environment, until
from tests.unit.jobmanager.reporting.otlp_receiver import OtlpReceiver, attributes


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.close()


@pytest.fixture
def session(receiver: OtlpReceiver) -> Iterator[Session]:
    session = Session(InProcess())
    yield session
    session.stop()


def start(session: Session, folder: Path, url: str, **settings: str) -> JobMaster:
    reporters = {
        "metrics.reporters": "otel",
        "metrics.reporter.otel.exporter.endpoint": url,
        "metrics.reporter.otel.service.name": "orders",
        "metrics.reporter.otel.interval": "50 ms",
        "traces.reporters": "otel",
        "traces.reporter.otel.exporter.endpoint": url,
        "traces.reporter.otel.interval": "50 ms",
    }
    env = environment(folder, **reporters, **settings)
    numbers = env.from_source(DataGeneratorSource(int, None, 200.0), None, "numbers").uid("numbers")
    numbers.key_by(lambda value: value % 4).reduce(lambda a, b: a + b).name("sums").uid("sums").print()
    with executing_on(session):
        env.execute_async("orders")
    return session.dispatcher.jobs()[-1]


def steps_of(receiver: OtlpReceiver, span: Any) -> list[Any]:
    return [one for one in receiver.spans if one.trace_id == span.trace_id and one.parent_span_id == span.span_id]


def named(receiver: OtlpReceiver, name: str) -> list[Any]:
    return [span for span in receiver.spans if span.name == name]


def test_metrics_have_their_variables(session: Session, tmp_path: Path, receiver: OtlpReceiver) -> None:
    master = start(session, tmp_path, receiver.url, **{"metrics.latency.interval": "20 ms"})
    wanted = "penstock.taskmanager.job.task.operator.source_id.latency"
    until(lambda: any(metric.name == wanted for metric in list(receiver.metrics)), master)
    by_name = {metric.name: metric for metric in list(receiver.metrics)}
    records = by_name["penstock.taskmanager.job.task.numRecordsOut"]
    assert records.WhichOneof("data") == "sum"
    assert records.sum.is_monotonic
    [first, *_] = records.sum.data_points
    assert attributes(first)["job_name"] == "orders"
    assert attributes(first)["job_id"] == master.job_id
    rate = by_name["penstock.taskmanager.job.task.numRecordsOutPerSecond"]
    assert rate.WhichOneof("data") == "gauge"
    quantiles = {attributes(point)["quantile"] for point in by_name[wanted].gauge.data_points}
    assert quantiles == {"0.5", "0.75", "0.95", "0.98", "0.99", "0.999"}
    assert by_name[f"{wanted}.count"].sum.data_points[0].as_int > 0
    assert by_name["penstock.jobmanager.job.numRestarts"].gauge.data_points[0].as_int == 0
    assert receiver.resources["/v1/metrics"][0]["service.name"] == "orders"


def test_checkpoints_starts_and_rescales_are_traces_with_steps(
    session: Session, tmp_path: Path, receiver: OtlpReceiver
) -> None:
    master = start(session, tmp_path, receiver.url, **{"parallelism.default": "2"})
    until(lambda: bool(named(receiver, "Checkpoint")), master)
    first = named(receiver, "Checkpoint")[0]
    span_attributes = attributes(first)
    assert (span_attributes["jobName"], span_attributes["checkpointStatus"], span_attributes["checkpointId"]) == (
        "orders",
        "COMPLETED",
        1,
    )
    assert {step.name for step in steps_of(receiver, first)} == {stage.name for stage in master.graph.stages}
    for step in steps_of(receiver, first):
        assert first.start_time_unix_nano <= step.start_time_unix_nano <= step.end_time_unix_nano

    [initialization] = named(receiver, "JobInitialization")
    assert attributes(initialization)["restoredFrom"] == ""
    steps = steps_of(receiver, initialization)
    assert [step.name for step in steps][-2:] == ["sending the job to its slots", "first epoch"]
    assert sum(step.end_time_unix_nano - step.start_time_unix_nano for step in steps) == (
        initialization.end_time_unix_nano - initialization.start_time_unix_nano
    )

    master.request(Operation("rescale", {"parallelism": 3, "job": master.job_id})).wait(30)
    until(lambda: bool(named(receiver, "Rescale")), master)
    [rescale] = named(receiver, "Rescale")
    span_attributes = attributes(rescale)
    assert (span_attributes["oldParallelism"], span_attributes["newParallelism"]) == (2, 3)
    assert steps_of(receiver, rescale)[0].name == "last snapshot, and end of the attempt"
    again = named(receiver, "JobInitialization")[-1]
    assert attributes(again)["restoredFrom"] != ""
    ids = [attributes(span)["checkpointId"] for span in named(receiver, "Checkpoint")]
    assert sorted(ids) == sorted(set(ids))


def test_a_job_that_ends_immediately_is_reported_too(tmp_path: Path, receiver: OtlpReceiver) -> None:
    session = Session(InProcess())
    env = environment(
        tmp_path,
        **{
            "metrics.reporters": "otel",
            "metrics.reporter.otel.exporter.endpoint": receiver.url,
            "traces.reporters": "otel",
            "traces.reporter.otel.exporter.endpoint": f"{receiver.url}/v1/traces",
        },
    )
    env.from_collection([1, 2, 3]).print()
    with executing_on(session):
        env.execute("short")
    assert receiver.metrics == []
    session.stop()
    assert any(metric.name == "penstock.taskmanager.job.task.numRecordsIn" for metric in receiver.metrics)
    assert named(receiver, "JobInitialization")


def test_data_that_a_collector_refuses_is_sent_again(session: Session, tmp_path: Path, receiver: OtlpReceiver) -> None:
    receiver.refuses = 6
    master = start(session, tmp_path, receiver.url)
    until(lambda: bool(named(receiver, "JobInitialization")), master)
    assert receiver.refuses == 0
    assert not master.is_done


class Refuses(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        raise ValueError("no such table")

    def map(self, value: int) -> int:
        return value


def test_a_failed_start_is_an_error_with_its_reason(tmp_path: Path, receiver: OtlpReceiver) -> None:
    session = Session(InProcess())
    traces = {"traces.reporters": "otel", "traces.reporter.otel.exporter.endpoint": receiver.url}
    env = environment(tmp_path, **traces, **{"restart-strategy.type": "none"})
    env.from_collection([1]).map(Refuses()).print()
    with executing_on(session), pytest.raises(PenstockError, match="no such table"):
        env.execute("refused")
    session.stop()
    [initialization] = named(receiver, "JobInitialization")
    assert initialization.status.code == initialization.status.STATUS_CODE_ERROR
    assert "no such table" in initialization.status.message
    assert attributes(initialization)["initializationStatus"] == "FAILED"


def test_a_failed_start_sends_no_secret_of_the_job_to_the_collector(tmp_path: Path, receiver: OtlpReceiver) -> None:
    class Connects(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            raise ConnectionError("login with hunter22-of-the-job failed, url redis://me:other@host")

        def map(self, value: int) -> int:
            return value

    session = Session(InProcess())
    traces = {"traces.reporters": "otel", "traces.reporter.otel.exporter.endpoint": receiver.url}
    settings = {"restart-strategy.type": "none", "database.password": "hunter22-of-the-job"}
    env = environment(tmp_path, **traces, **settings)
    env.from_collection([1]).map(Connects()).print()
    with executing_on(session), pytest.raises(PenstockError, match="login with"):
        env.execute("refused")
    session.stop()
    [initialization] = named(receiver, "JobInitialization")
    assert "login with ****** failed, url redis://me:******@host" in initialization.status.message
    assert "hunter22" not in str(receiver.spans)


def test_a_value_that_protobuf_rejects_does_not_block_the_others(receiver: OtlpReceiver) -> None:
    reporter = OtelMetricReporter()
    reporter.open({"exporter.endpoint": receiver.url})
    values = {"largest": 2**64 - 1, "\udc80": 1, "plain": 2}
    readings = tuple(Reading(MetricKey("", (), name), value) for name, value in values.items())
    reporter.report([ScopeReadings(JobScope("j"), {}, readings)])
    found = {metric.name.rpartition(".")[2]: metric.gauge.data_points[0] for metric in receiver.metrics}
    assert (found["largest"].as_double, found["?"].as_int, found["plain"].as_int) == (2.0**64, 1, 2)
    traces = OtelTraceReporter()
    traces.open({"exporter.endpoint": receiver.url})
    traces.report([Span("Checkpoint", 1, 2, error="no such file: \udc80"), Span("JobInitialization", 1, 2)])
    assert [span.status.message for span in receiver.spans] == ["no such file: ?", ""]
