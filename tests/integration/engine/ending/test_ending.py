"""Jobs end in bounded time, whatever their functions do, and release all of their resources."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.job_status import JobStatus
from penstock.connectors.simple.number_seq import NumberSequenceSource
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.functions import MapFunction
from penstock.functions.accumulators import Histogram, LongCounter
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from tests.integration.engine.selfcheck.driver import environment

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


class Counts(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen, self.digits = LongCounter(), Histogram()
        runtime_context.add_accumulator("seen", self.seen)
        runtime_context.add_accumulator("digits", self.digits)

    def map(self, value: int) -> int:
        self.seen.add(1)
        self.digits.add(value % 10)
        return value


def control_threads() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name in ("penstock-control", "penstock-stream"))


def test_a_job_releases_its_resources_and_reports_its_accumulators(
    executor: EmbeddedExecutor, settings: dict[str, str]
) -> None:
    before = control_threads()
    env = environment(settings, 2)
    env.from_source(NumberSequenceSource(1, 100), None, "numbers").map(Counts()).rebalance().map(str).print()
    with executing_on(executor):
        result = env.execute("counted")
    assert result.get_accumulator_result("seen") == 100
    assert result.get_accumulator_result("digits") == dict.fromkeys(range(10), 10)
    assert control_threads() == before
    master = executor.session.dispatcher.jobs()[-1]
    usage = master.metrics.usage_by_slot()
    assert all(rss > 10_000_000 and machine is not None and machine.cpu_cores for rss, machine, _ in usage.values())
    assert all(cpu > 0 for _, _, cpu in usage.values())
    assert len(usage) == 2
    assert master.runner.task_managers == []
    slots = sum(len(worker.slots) for worker in executor.provider.task_managers())
    assert master.runner.available_slots() == slots >= 2


def test_a_hung_function_does_not_keep_its_job_alive(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    reached = tmp_path / "reached"

    def hang(value: int) -> int:
        reached.touch()
        time.sleep(3600)
        return value

    env = environment(settings | {"restart-strategy.type": "none"}, 2)
    env.from_source(NumberSequenceSource(1, 100), None, "numbers").rebalance().map(hang).print()
    with executing_on(executor):
        client = env.execute_async("hangs")
    master = executor.session.dispatcher.job(client.get_job_id().digits)
    assert master is not None
    patience = time.monotonic() + 120
    while not reached.exists():
        assert time.monotonic() < patience
        time.sleep(0.05)
    master.request(Operation("cancel"))
    assert master.wait(60) is JobStatus.CANCELED
    again = environment(settings, 2)
    numbers = again.from_source(NumberSequenceSource(1, 10), None, "numbers")
    with executing_on(executor), numbers.execute_and_collect() as found:
        assert sorted(found) == list(range(1, 11))


def test_a_hung_function_is_detected_by_its_checkpoints(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    """Let a function hang once while the job runs. Its Python worker is killed, and the job continues."""
    reached = tmp_path / "reached"

    def hang_once(value: int) -> int:
        # This value is late in every split, so it comes after the first epoch, which has a separate limit.
        if value % 1_000 == 900 and not reached.exists():
            reached.touch()
            time.sleep(3600)
        return value

    settings |= {
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.timeout": "3 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    env = environment(settings, 2)
    source = DataGeneratorSource(int, 2_000, 500.0)
    numbers = env.from_source(source, None, "numbers").rebalance().map(hang_once).name("hangs")
    with executing_on(executor), numbers.execute_and_collect() as found:
        assert sorted(found) == list(range(2_000))
    master = executor.session.dispatcher.jobs()[-1]
    expired = [
        failure.message for failure in master.history.failures if "not complete after 3000 ms" in failure.message
    ]
    assert expired
    assert all("has not finished the epoch in slot" in message for message in expired)
    assert any("hangs" in message.split("has run for")[1] for message in expired)


class ClosesInItsTime(MapFunction):
    """A function that flushes at the end, well within its time limit."""

    def __init__(self, closed: Path) -> None:
        self.closed = closed

    def map(self, value: int) -> int:
        return value

    def close(self) -> None:
        time.sleep(0.8)
        self.closed.touch()


@pytest.mark.slow
def test_functions_that_close_in_turn_each_get_their_time(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    env = environment(settings | {"task.cancellation.timeout": "1 s"}, 1)
    stream = env.from_source(NumberSequenceSource(1, 10), None, "numbers")
    for number in range(9):
        stream = stream.map(ClosesInItsTime(tmp_path / f"closed-{number}"))
    with executing_on(executor), stream.execute_and_collect() as found:
        assert sorted(found) == list(range(1, 11))
    executor.session.dispatcher.jobs()[-1].wait(60)
    assert len(list(tmp_path.glob("closed-*"))) == 9
