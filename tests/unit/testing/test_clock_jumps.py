"""Checkpoints, discoveries and timeouts use a monotonic clock. A change of the machine's clock makes none early or
late."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.jobmanager.failover.restart_strategies import ExponentialDelay, FailureRate
from penstock.taskmanager.operators.gather import GatherOperator
from penstock.testing import JobHarness
from penstock.testing.operator_run import OperatorRun
from tests.clocks import JumpingClock

HOUR = 3_600_000
NOW = 1_790_000_000_000


@pytest.fixture(params=[-HOUR, HOUR], ids=["back", "forward"])
def jump(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.testing.job_harness.ManualClock", JumpingClock)


def completed(harness: JobHarness) -> int:
    return int(harness._driver.master.checkpoints.coordinator.history.overview()["counts"]["completed"])


@pytest.mark.usefixtures("jumping")
def test_checkpoints_occur_at_their_interval_and_do_not_expire(jump: int) -> None:
    configuration = {"execution.checkpointing.interval": "10s", "execution.checkpointing.timeout": "1min"}
    with JobHarness(configuration=configuration, start_time=NOW) as harness:
        harness.collect(harness.source("numbers").map(lambda n: n), "numbers")
        harness.push("numbers", 1)
        harness.advance_processing_time(by=10_500)
        assert completed(harness) == 1
        assert isinstance(harness.clock, JumpingClock)
        harness.clock.jump(jump)
        harness.advance_processing_time(by=9_000)
        assert completed(harness) == 1
        harness.push("numbers", 2)
        harness.advance_processing_time(by=22_000)
        assert completed(harness) == 4
        assert harness.restarts == 0
        history = harness._driver.master.checkpoints.coordinator.history.overview()["history"]
        assert all(0 <= entry["end_to_end_duration"] < 1_000 for entry in history)
        newest = history[0]["trigger_timestamp"]
        assert abs(newest - harness.clock.now_ms()) < 20_000, "people must see the time of day"
        assert harness.outputs("numbers") == [1, 2]


@pytest.mark.usefixtures("jumping")
def test_new_files_are_found_at_the_discovery_interval(jump: int, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"n": 1}\n')
    with JobHarness(start_time=NOW) as harness:
        source = FileSource(JsonLinesFormat(), (f"{tmp_path}/",), discovery_interval_ms=5_000)
        harness.collect(harness.environment().from_source(source, None, "files"), "records")
        harness.advance_processing_time(by=1_000)
        assert isinstance(harness.clock, JumpingClock)
        harness.clock.jump(jump)
        (tmp_path / "2.json").write_text('{"n": 2}\n')
        harness.advance_processing_time(by=5_000)
        assert harness.outputs("records") == [{"n": 1}, {"n": 2}]


def test_gathered_lists_are_emitted_after_their_timeout(jump: int) -> None:
    clock = JumpingClock(NOW)
    run = OperatorRun(GatherOperator(10, 500), clock=clock)  # type: ignore[arg-type]
    run.push("a")
    clock.jump(jump)
    clock.set(clock.now_ms() + 499)
    run.operator.advance_processing_time(clock.now_ms())
    assert run.values == []
    assert run.operator.next_processing_time() == clock.now_ms() + 1
    clock.set(clock.now_ms() + 1)
    run.operator.advance_processing_time(clock.now_ms())
    assert run.values == [["a"]]


def test_restart_strategies_may_start_right_after_a_boot() -> None:
    """The monotonic clock often starts at zero."""
    assert FailureRate(1, 60_000, 5).on_failure(0) == 5
    delays = ExponentialDelay(jitter=0.0)
    assert [delays.on_failure(at) for at in (0, 1_000, 3_000)] == [1_000, 1_500, 2_250]
