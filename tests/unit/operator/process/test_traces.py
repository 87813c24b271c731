"""Traces of the operator's operations with their steps, as a collector receives them or without a collector."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.process import otlp
from penstock_operator.process.otlp import NoTraces, OtlpSpans, sink_of
from penstock_operator.process.traces import OperationTraces, Span
from tests.unit.jobmanager.reporting.otlp_receiver import OtlpReceiver, attributes
from tests.unit.operator.world import Image, World, flinkjob
from tests.unit.operator.world.scenarios.scenario import rejected, running, suspended

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

BETWEEN_STEPS = timedelta(seconds=5)


def traced(scenario: Callable[[World], Coroutine[Any, Any, None]], traces: OperationTraces) -> None:
    """Run a scenario that starts with a running job, and trace it."""

    async def main() -> None:
        world = World()
        world.watch = traces.note
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        await world.run(25)
        await scenario(world)

    asyncio.run(main())


def spans_of(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> list[Span]:
    found: list[Span] = []
    traced(scenario, OperationTraces(found.append))
    return found


async def upgrade(world: World) -> None:
    world.edit(image="job:2")
    await world.until(lambda: running(world, image="job:2"))
    await world.run(60)


def test_an_upgrade_is_a_span_with_its_steps_in_order() -> None:
    deployed, upgraded = spans_of(upgrade)
    assert [deployed.name, upgraded.name] == ["Deploy", "Upgrade"]
    assert upgraded.error == ""
    names = [step.name for step in upgraded.steps]
    assert names[0] == "Check"
    assert [name for name in names if name in ("Stop", "Seal", "Teardown", "Start", "Watch")] == [
        "Stop",
        "Seal",
        "Teardown",
        "Start",
        "Watch",
    ]
    assert upgraded.start <= upgraded.steps[0].start
    for one, following in zip(upgraded.steps, upgraded.steps[1:], strict=False):
        assert one.start <= one.end <= following.start + BETWEEN_STEPS
    assert upgraded.steps[-1].end == upgraded.end
    reported = upgraded.attributes
    assert (reported["k8s.namespace.name"], reported["flinkjob.name"], reported["flinkjob.outcome"]) == (
        "default",
        "weather",
        "Succeeded",
    )
    assert "savepoint" in str(reported["flinkjob.restored.from"])
    assert reported["flinkjob.job.id"] != reported["flinkjob.stopped.job.id"]


def test_the_span_of_a_rescale_contains_the_new_parallelism() -> None:
    async def rescale(world: World) -> None:
        world.edit(job={"parallelism": 3})
        await world.until(lambda: world.status()["history"][0]["kind"] == "Rescale")

    span = spans_of(rescale)[-1]
    assert (span.name, span.attributes["flinkjob.parallelism"]) == ("Rescale", 3)
    assert "Rescale" in [step.name for step in span.steps]


def test_a_failed_upgrade_has_an_error_and_its_rollback_is_a_span() -> None:
    async def fail(world: World) -> None:
        world.images["job:bad"] = Image(checkpoints=False)
        world.edit(image="job:bad", rollback={"after": "40s"})
        await world.until(lambda: rejected(world) and world.status()["phase"] == "Running")

    spans = spans_of(fail)
    failed = next(span for span in spans if span.name == "Upgrade")
    assert (failed.attributes["flinkjob.outcome"], bool(failed.error)) == ("Failed", True)
    assert spans[-1].name == "Rollback"
    assert spans[-1].error == ""


def test_an_operation_started_by_another_operator_has_its_true_start_and_the_observed_steps() -> None:
    found: list[Span] = []

    async def taken_over(world: World) -> None:
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status().get("operation", {}).get("step") == "Teardown")
        world.watch = OperationTraces(found.append).note
        await world.until(lambda: suspended(world))

    traced(taken_over, OperationTraces(lambda span: None))
    (span,) = found
    assert [step.name for step in span.steps] == ["Teardown"]
    assert span.start < span.steps[0].start


# --- export to the collector ------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.close()


def test_a_collector_receives_the_traces(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    sink = sink_of(instance="operator-0")
    assert isinstance(sink, OtlpSpans)
    traced(upgrade, OperationTraces(sink.send))
    sink.close()
    [upgraded] = [span for span in receiver.spans if span.name == "Upgrade"]
    assert attributes(upgraded)["flinkjob.name"] == "weather"
    steps = [span for span in receiver.spans if span.parent_span_id == upgraded.span_id]
    assert {"Check", "Stop", "Teardown", "Start", "Watch"} <= {step.name for step in steps}
    assert {step.trace_id for step in steps} == {upgraded.trace_id}
    assert upgraded.start_time_unix_nano <= min(step.start_time_unix_nano for step in steps)
    [resource, *_] = receiver.resources["/v1/traces"]
    assert (resource["service.name"], resource["service.instance.id"]) == ("penstock-operator", "operator-0")


def test_an_unavailable_collector_delays_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(otlp, "CLOSE_S", 0.2)
    sink, found = sink_of(), list[Span]()
    traced(upgrade, OperationTraces(found.append))
    began = time.perf_counter()
    for span in found * 1_000:
        sink.send(span)
    assert time.perf_counter() - began < 2.0
    sink.close()
    assert time.perf_counter() - began < 4.0


@pytest.mark.parametrize(
    "env",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}],
)
def test_without_a_collector_no_traces_exist(env: dict[str, str]) -> None:
    assert isinstance(sink_of(env), NoTraces)


def test_without_its_packages_the_log_has_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert isinstance(sink_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}), NoTraces)
    assert "install penstock-streaming[otel]" in caplog.text


def test_a_failed_export_is_only_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(otlp, "CLOSE_S", 0.0)
    sink = OtlpSpans()
    sink.send(None)  # type: ignore[arg-type]
    sink.close()
    assert "a trace could not be sent" in caplog.text
