"""A batch job that processes its stored input, on real processes. Faults, a rescale and a stop in the middle lose nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common import WatermarkStrategy
from penstock.common.job_status import JobStatus
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.jobmanager.process.session.session import SubmitOptions
from tests.integration.engine.selfcheck.driver import Driver, configuration, environment, submitted

if TYPE_CHECKING:
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS, OF_EACH = 40, 60
DATA = [(key, 7 * n + key) for n in reversed(range(OF_EACH)) for key in range(KEYS)]
PAUSE_S = 0.02
"""Pause per record, half a minute in total."""


class Counts(KeyedProcessFunction):
    """A function that emits the count of records for each record of a key, at the end of the key's time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: Any, ctx: Any) -> None:
        time.sleep(PAUSE_S)
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self.count.value()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_batch_job_survives_faults_in_the_middle_of_its_work(
    executor: EmbeddedExecutor, runner: str, tmp_path: Path, backend: str
) -> None:
    def start(submit: SubmitOptions | None = None) -> Driver:
        env = environment(configuration(runner, tmp_path.as_uri(), state__backend__type=backend), 2)
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
        timed = env.from_collection(DATA).assign_timestamps_and_watermarks(strategy)
        counted = timed.key_by(lambda value: value[0]).process(Counts()).uid("counts")
        files = FileSink.for_row_format(f"{tmp_path.as_uri()}/out", str)
        counted.sink_to(files.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()).uid("out")
        return submitted(executor, env, "batch", submit)

    driver = start()
    driver.wait_for(lambda: is_read(driver), "the end of the input")
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    driver.ask("rescale", parallelism=3)
    driver.running(1)
    driver.wait_for(lambda: bool(written(tmp_path)), "a first commit")
    savepoint = driver.ask("stop").location
    assert savepoint is not None
    driver.master.wait(30)
    assert driver.master.history.status is JobStatus.FINISHED
    assert 0 < sum(written(tmp_path).values()) < len(DATA)
    start(SubmitOptions(restore_path=savepoint)).finished()
    assert written(tmp_path) == Counter(str((key, moment, OF_EACH)) for key, moment in DATA)


def is_read(driver: Driver) -> bool:
    sources = driver.master.parts.sources
    return bool(sources) and all(source.exhausted for source in sources.values())


def written(folder: Path) -> Counter[str]:
    return Counter(line for path in (folder / "out").rglob("part-*") for line in path.read_text().splitlines())
