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
from penstock.state.key_groups import key_group
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


def test_other_settings_take_effect_in_the_running_job(tmp_path: Path) -> None:
    job = ticking(tmp_path)
    try:
        until(lambda: bool(job.autoscaler.describe()["decisions"]), job)
        keys = {**FAST, "job.autoscaler.enabled": "true", "job.autoscaler.vertex.max-parallelism": 1}
        del keys["parallelism.default"]
        job.autoscaler.configure(keys, "v2")
        status = status_of(job)
        assert (status.mode, status.max_parallelism, status.configuration_id) == ("active", 1, "v2")
        with pytest.raises(InvalidJob, match=r"job\.autoscaler\.utilization\.max"):
            job.autoscaler.configure({**keys, "job.autoscaler.utilization.max": "0.5"}, "v3")
        assert status_of(job).configuration_id == "v2"
        until(lambda: bool(job.history.rescales), job)
        [rescale] = job.history.rescales
        assert (rescale.old_parallelism, rescale.new_parallelism, rescale.trigger) == (2, 1, "autoscaler")
        assert '"job.autoscaler.vertex.max-parallelism": "1"' in next(job.autoscaler.recording())
        job.autoscaler.configure({}, "v4")
        assert status_of(job).mode == "disabled"
        assert job.history.restarts == 0
    finally:
        job.request(Operation("cancel"))
        job.wait(30)


def test_contradictory_settings_are_refused_before_the_job_starts(tmp_path: Path) -> None:
    with pytest.raises(InvalidJob, match=r"job\.autoscaler\.utilization\.max"):
        ticking(tmp_path, **{"job.autoscaler.utilization.max": "0.5"})


def keyed_job(folder: Path, **settings: str) -> JobMaster:
    env = environment(folder, **{**FAST, **settings})
    source = DataGeneratorSource(lambda index: index, records_per_second=2000)
    stream = env.from_source(source, None, "Ticks").uid("ticks")
    counts = stream.key_by(lambda n: "popular" if n % 10 < 6 else f"k{n % 977}").reduce(max)
    counts.name("Count").uid("count").print()
    return started(env)


def hot_key_of(job: JobMaster) -> models.HotKey | None:
    return status_of(job).hot_key


def test_the_hot_key_of_a_running_job_is_in_rest_in_the_metrics_and_in_the_dashboard(tmp_path: Path) -> None:
    job = keyed_job(tmp_path)
    try:
        until(lambda: hot_key_of(job) is not None, job)
        hot = hot_key_of(job)
        assert hot is not None
        assert (hot.key, hot.key_group) == ("'popular'", key_group("popular", 128))
        assert hot.share == pytest.approx(0.6, abs=0.1)
        assert hot.subtask == hot.key_group * 2 // 128
        facts = job.metrics.store.values(JobScope(job.job_id))
        assert facts["hotKeyShare"] == pytest.approx(0.6, abs=0.1)
        of_vertex = [job.autoscaler.hot_key_of(str(stage.id)) for stage in job.graph.stages]
        assert [one.key for one in of_vertex if one is not None] == ["'popular'"]
    finally:
        job.request(Operation("cancel"))
        job.wait(30)


def test_the_texts_of_keys_can_be_hidden(tmp_path: Path) -> None:
    job = keyed_job(tmp_path, **{"penstock.autoscaler.key-texts": "false"})
    try:
        until(lambda: hot_key_of(job) is not None, job)
        hot = hot_key_of(job)
        assert hot is not None
        assert (hot.key, hot.key_group) == ("(hidden)", key_group("popular", 128))
        assert "popular" not in "".join(job.autoscaler.recording())
    finally:
        job.request(Operation("cancel"))
        job.wait(30)


def test_the_memory_of_a_running_job_is_measured_with_the_reads_of_its_cache(tmp_path: Path) -> None:
    rocksdb = "state.backend.rocksdb.metrics.block-cache-"
    settings = {"state.backend.type": "rocksdb", f"{rocksdb}hit": "true", f"{rocksdb}miss": "true"}
    job = keyed_job(tmp_path, **settings)
    try:
        until(lambda: any(one.memory and one.memory.state for one in list(job.autoscaler._history.samples)), job)
        memory = job.autoscaler._history.samples[-1].memory
        assert memory is not None
        assert memory.python > 10 * 2**20
        assert memory.cache_hits is not None
        assert memory.cache_misses is not None
        advice = status_of(job).memory
        assert advice is not None
        assert (advice.python.advice, advice.process_size) == ("UNKNOWN", None)
        assert advice.python.used == memory.python
        assert advice.rocksdb is not None
        assert advice.rocksdb.advice == "UNKNOWN"
    finally:
        job.request(Operation("cancel"))
        job.wait(30)
