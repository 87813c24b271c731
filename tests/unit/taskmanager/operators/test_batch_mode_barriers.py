"""Batch mode: barriers pass while operators process their stored input, so a job can be saved, rescaled, killed and
stopped."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.common.errors import RestoreRefused
from penstock.common.job_status import JobStatus
from penstock.datastream import RuntimeExecutionMode
from penstock.datastream.connectors.file_system import FileSink
from penstock.datastream.functions import BroadcastProcessFunction, KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.job_master import JobMaster
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.jobmanager.runners.in_process import InProcessRunner
from tests.in_process import InProcess, environment, started, until

KEYS, OF_EACH = 20, 20
DATA = [(key, 7 * n + key) for n in reversed(range(OF_EACH)) for key in range(KEYS)]
ONE_KEY = [(0, time) for _, time in DATA]
SEEN: list[Any] = []
GO = threading.Event()


def work(value: Any) -> None:
    """Work slowly, so that checkpoints and the actions of a test occur in the middle of the job."""
    SEEN.append(value)
    GO.wait(0.01 if len(SEEN) < 100 else 0.05)


class Counts(KeyedProcessFunction):
    """A function that emits the number of its key's records for each of them, and whether they arrived in order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value: Any, ctx: Any) -> None:
        work(value)
        assert (self.last.value() or 0) <= value[1]
        self.last.update(value[1])
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self.count.value()


def program(folder: Path, data: list[Any], backend: str = "hashmap", mode: str = "BATCH") -> StreamExecutionEnvironment:
    env = environment(
        folder,
        **{
            "state.backend.type": backend,
            "execution.checkpointing.interval": "20 ms",
            "penstock.epoch.target": "10 ms",
        },
    )
    env.configure(Configuration({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}))
    env.set_runtime_mode(RuntimeExecutionMode[mode]).set_parallelism(2)
    strategy: Any = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value: value[1])
    timed = env.from_collection(data).assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    counted = timed.key_by(lambda value: value[0]).process(Counts()).uid("counts")
    counted.sink_to(FileSink.for_row_format(f"file://{folder}/out", str).build()).uid("out")
    return env


def expected(data: list[Any]) -> Counter[str]:
    of_key = Counter(key for key, _ in data)
    return Counter(str((key, time, of_key[key])) for key, time in set(data))


def found(folder: Path) -> Counter[str]:
    return Counter(line for path in (folder / "out").rglob("part-*") for line in path.read_text().splitlines())


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()
    GO.clear()


Job = tuple[JobMaster, list[Any]]


@pytest.fixture(params=[("rocksdb", DATA), ("hashmap", ONE_KEY)], ids=["many keys", "one key"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    """A job in the middle of its work, with checkpoints, and its input."""
    backend, data = request.param
    master = started(program(tmp_path, data, backend))
    in_the_middle(master)
    return master, data


def in_the_middle(master: JobMaster) -> None:
    until(lambda: len(SEEN) > 30, master)
    before = completed(master)
    until(lambda: completed(master) > before + 1, master)


def completed(master: JobMaster) -> int:
    return int(master.checkpoints.coordinator.history.overview()["counts"]["completed"])


def ask(master: JobMaster, kind: str, **arguments: Any) -> Operation:
    operation = master.request(Operation(kind, arguments))
    assert operation.wait(30)
    assert operation.failure is None
    return operation


def finished(master: JobMaster) -> None:
    GO.set()
    assert master.wait(60) is JobStatus.FINISHED, master.error


def test_a_failed_job_continues_from_its_position(job: Job, tmp_path: Path) -> None:
    master, data = job
    runner = master.runner
    assert isinstance(runner, InProcessRunner)
    runner.lost = True
    until(lambda: master.history.restarts == 1, master)
    finished(master)
    assert found(tmp_path) == expected(data)
    assert len(SEEN) < len(data) + 100, "records before the checkpoint were processed again"


def test_a_job_continues_after_a_rescale_and_a_stop(job: Job, tmp_path: Path) -> None:
    master, data = job
    ask(master, "rescale", parallelism=3)
    in_the_middle(master)
    ask(master, "rescale", parallelism=1)
    savepoint = ask(master, "stop").location
    assert savepoint is not None
    assert master.wait(30) is JobStatus.FINISHED
    assert len(SEEN) < len(data)
    finished(started(program(tmp_path, data), SubmitOptions(restore_path=savepoint)))
    assert found(tmp_path) == expected(data)
    assert len(SEEN) == len(data)


def test_a_job_is_cancelled_before_its_end(job: Job) -> None:
    master, data = job
    ask(master, "cancel")
    assert master.wait(10) is JobStatus.CANCELED
    assert len(SEEN) < len(data)


def test_a_drain_processes_the_remaining_input(tmp_path: Path) -> None:
    in_order = sorted(DATA, key=lambda value: value[1])
    master = started(program(tmp_path, in_order))
    in_the_middle(master)
    GO.set()
    savepoint = ask(master, "stop", drain=True).location
    assert savepoint is not None
    assert master.wait(30) is JobStatus.FINISHED
    assert found(tmp_path) == expected(DATA)
    finished(started(program(tmp_path, in_order, mode="STREAMING"), SubmitOptions(restore_path=savepoint)))
    assert len(SEEN) == len(DATA)


@pytest.mark.parametrize("modes", [("BATCH", "STREAMING"), ("STREAMING", "BATCH")])
def test_a_savepoint_of_the_other_mode_is_refused(tmp_path: Path, modes: tuple[str, str]) -> None:
    in_order = sorted(DATA, key=lambda value: value[1])
    master = started(program(tmp_path, in_order, mode=modes[0]))
    until(lambda: len(SEEN) > 0, master)
    savepoint = ask(master, "stop").location
    assert savepoint is not None
    GO.set()
    message = rf"was taken in {modes[0].lower()} mode(.|\n)*operator: Keyed Process(.|\n)*{re.escape('execution.runtime-mode')}"
    with (
        executing_on(Session(InProcess(), SubmitOptions(restore_path=savepoint))),
        pytest.raises(RestoreRefused, match=message),
    ):
        program(tmp_path, in_order, mode=modes[1]).execute("other mode")


RULES = MapStateDescriptor("rules", str, int)


class Ruled(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        work(value)
        yield value, ctx.get_broadcast_state(RULES).get("factor")

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put("factor", value)


def test_records_that_waited_for_the_broadcast_side_are_processed_once(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.interval": "20 ms", "penstock.epoch.target": "10 ms"})
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(2)
    values = env.from_collection(list(range(400))).rebalance()
    ruled = values.connect(env.from_collection(list(range(20))).broadcast(RULES)).process(Ruled())
    ruled.sink_to(FileSink.for_row_format(f"file://{tmp_path}/out", str).build())
    master = started(env)
    in_the_middle(master)
    ask(master, "rescale", parallelism=3)
    finished(master)
    assert found(tmp_path) == Counter(str((value, 19)) for value in range(400))
    assert len(SEEN) == 400
