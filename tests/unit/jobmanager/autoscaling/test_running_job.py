"""The autoscaler of a job in the test's process: it samples, decides, publishes, and rescales if it is active."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.jobmanager.autoscaling.recording import replay
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.reading.job_insight import JobInsights
from penstock.metrics.reading import JobScope
from penstock.rest import models
from tests.in_process import environment, started, until

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobmanager.job.job_master import JobMaster

FAST = {
    "parallelism.default": "2",
    "job.autoscaler.metrics.window": "15s",
    "job.autoscaler.stabilization.interval": "0s",
}


@pytest.fixture(autouse=True)
def samples_come_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobmanager.autoscaling.autoscaler.SAMPLE_MS", 300)


def ticking(folder: Path, **settings: str) -> JobMaster:
    env = environment(folder, **{**FAST, **{key.replace("__", "."): value for key, value in settings.items()}})
    source = DataGeneratorSource(lambda index: index, records_per_second=200)
    env.from_source(source, None, "Ticks").uid("ticks").rebalance().map(slow).name("Slow").uid("slow").print()
    return started(env)


def slow(value: int) -> int:
    time.sleep(0.001)
    return value


def status_of(job: JobMaster) -> models.AutoscalerStatus:
    def find(job_id: str) -> Any:
        assert job_id == job.job_id
        return job

    return JobInsights(find).autoscaler(job.job_id)


def test_a_disabled_autoscaler_publishes_decisions_and_a_recording(tmp_path: Path) -> None:
    job = ticking(tmp_path)
    try:
        until(lambda: bool(job.autoscaler.describe()["decisions"]), job)
        status = status_of(job)
        assert (status.mode, status.current, status.wanted) == ("disabled", 2, 2)
        [decision] = status.decisions
        assert (decision.reason, decision.rescales) == ("TOO_FEW_SAMPLES", False)
        names = {one["name"] for one in decision.inputs}
        assert any("Ticks" in name for name in names), names
        assert job.metrics.store.values(JobScope(job.job_id))["wantedParallelism"] == 2
        decisions = list(replay(job.autoscaler.recording(), {}))
        assert decisions[-1].reason.value == "TOO_FEW_SAMPLES"
    finally:
        job.request(Operation("cancel"))
        job.wait(30)


def test_an_active_autoscaler_requests_the_rescale_in_the_usual_way(tmp_path: Path) -> None:
    job = ticking(tmp_path, job__autoscaler__enabled="true", **{"job.autoscaler.vertex.max-parallelism": "1"})
    try:
        until(lambda: bool(job.history.rescales), job)
        [rescale] = job.history.rescales
        assert (rescale.old_parallelism, rescale.new_parallelism, rescale.trigger) == (2, 1, "autoscaler")
        until(lambda: bool(job.metrics.store.values(JobScope(job.job_id)).get("numAutoscalerRescales")), job)
        assert any("outside of the limits 1 to 1" in event.text for event in job.history.events)
        assert job.history.restarts == 0
    finally:
        job.request(Operation("cancel"))
        job.wait(30)


def test_contradictory_settings_are_refused_before_the_job_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"job\.autoscaler\.utilization\.max"):
        ticking(tmp_path, **{"job.autoscaler.utilization.max": "0.5"})
