"""Spark's DataFrames as source and sink of a job, on real processes: no fault loses or repeats a row."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.job_status import JobStatus
from penstock.common.types import Row
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import SubmitOptions
from penstock.taskmanager.protocol import STEP_TIMEOUT
from tests.integration.engine.selfcheck.driver import Driver, environment, settings_for, submitted

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
    from tools.servers.s3 import S3Server

# Jobs with data frames always run batched, so one cluster is enough.
pytestmark = [pytest.mark.spark, pytest.mark.parametrize("runner", ["batched"], indirect=True)]

KEYS = 5
PER_FILE = 4
"""Numbers of each key in one file, which is one micro-batch."""


class CheckSequence(KeyedProcessFunction):
    """A function that adds the previous number in its state to each number."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        last = self.last.value()
        self.last.update(value.number)
        yield Row(key=value.key, number=value.number, last=-1 if last is None else last)


class Target:
    """The target of `to_spark`: a file per checkpoint, which a repeated call replaces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.calls: Counter[int] = Counter()

    def write(self, frame: Any, checkpoint_id: int) -> None:
        self.calls[checkpoint_id] += 1
        rows = [row.asDict() for row in frame.collect()]
        draft = self.folder / f".{checkpoint_id}"
        draft.write_text(json.dumps(rows))
        draft.replace(self.folder / f"{checkpoint_id}.json")

    def rows(self) -> list[dict[str, int]]:
        return [row for file in self.folder.glob("*.json") for row in json.loads(file.read_text())]


def write_files(folder: Path, files: int) -> None:
    folder.mkdir()
    for n in range(files):
        numbers = range(n * PER_FILE, (n + 1) * PER_FILE)
        draft = folder / f".{n}"
        draft.write_text("\n".join(json.dumps({"key": key, "number": i}) for i in numbers for key in range(KEYS)))
        os.utime(draft, (1_700_000_000 + n, 1_700_000_000 + n))
        draft.replace(folder / f"{n:04}.json")


def program(env: StreamExecutionEnvironment, folder: Path, target: Target) -> None:
    def numbers(spark: Any) -> Any:
        lines = spark.readStream.schema("key long, number long").option("maxFilesPerTrigger", 1)
        return lines.json(str(folder)).where("number >= 0")

    stream = env.from_spark(numbers, bounded=True).uid("numbers")
    stream.key_by(lambda row: row.key).process(CheckSequence()).uid("check").to_spark(target.write).uid("out")


def run(
    executor: EmbeddedExecutor,
    settings: dict[str, str],
    folder: Path,
    target: Target,
    restore_path: str = "",
) -> Driver:
    env = environment(settings | {"penstock.runner": "auto"}, 2)
    program(env, folder, target)
    return submitted(executor, env, "data frames", SubmitOptions(restore_path=restore_path))


def verify(rows: list[dict[str, int]], files: int) -> None:
    found = sorted((row["key"], row["number"], row["last"]) for row in rows)
    assert found == [(key, n, n - 1) for key in range(KEYS) for n in range(files * PER_FILE)]


@pytest.mark.slow
def test_no_row_is_lost_or_repeated_if_processes_die(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    files = 40
    write_files(tmp_path / "in", files)
    target = Target(tmp_path / "out")
    driver = run(executor, settings, tmp_path / "in", target).running(2)
    assert driver.master.runner.name == "batched"
    driver.hurt(driver.kill_executor)
    driver.running(1)
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    verify(target.rows(), files)
    assert set(target.calls.values()) == {1}
    assert driver.master.history.restarts >= 2
    staged = [path for path in (tmp_path / "checkpoints").rglob("shared/*") if path.is_file()]
    assert len(staged) <= 12, "staged files that are no longer needed were not removed"


@pytest.mark.slow
def test_the_next_attempt_repeats_a_call_that_does_not_return(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    files = 4
    write_files(tmp_path / "in", files)
    go_on = tmp_path / "go-on"

    class Hangs(Target):
        def write(self, frame: Any, checkpoint_id: int) -> None:
            self.calls[checkpoint_id] += 1
            if self.calls.total() > 1:
                super().write(frame, checkpoint_id)
                return
            while not go_on.exists():
                time.sleep(0.1)

    target = Hangs(tmp_path / "out")
    driver = run(executor, settings | {"penstock.sink.commit-timeout": "20 s"}, tmp_path / "in", target)
    assert driver.master.wait(240) is JobStatus.FINISHED, driver.master.error
    go_on.touch()
    assert {failure.name for failure in driver.master.history.failures} == {STEP_TIMEOUT}
    message = driver.master.history.failures[0].message
    assert "time.sleep(0.1)" in driver.master.history.failures[0].traceback
    assert "test_dataframes.py" in message
    assert max(target.calls.values()) >= 3, "the call that hung was not repeated; a good call counts twice"
    verify(target.rows(), files)


@pytest.mark.slow
def test_a_savepoint_includes_pending_rows(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    files = 25
    write_files(tmp_path / "in", files)
    target = Target(tmp_path / "out")
    driver = run(executor, settings, tmp_path / "in", target).running(2)
    operation = driver.ask("stop")
    driver.finished()
    assert operation.location is not None
    moved = tmp_path / "moved"
    Path(operation.location.removeprefix("file://")).rename(moved)
    before = max(target.calls)
    run(executor, settings, tmp_path / "in", target, f"file://{moved}").finished()
    assert max(target.calls) > before, "checkpoint numbers did not continue after the savepoint's"
    verify(target.rows(), files)


@pytest.mark.s3
@pytest.mark.slow
def test_rows_are_staged_on_s3(
    executor: EmbeddedExecutor, settings: dict[str, str], s3: S3Server, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", 8)
    target = Target(tmp_path / "out")
    folder = f"s3://engine/{uuid.uuid4().hex}"
    on_s3 = {"execution.checkpointing.dir": f"{folder}/checkpoints", **settings_for(s3)}
    driver = run(executor, settings | on_s3, tmp_path / "in", target).running(1)
    driver.hurt(driver.kill_python_worker)
    driver.finished()
    verify(target.rows(), 8)


def test_rows_of_a_query_are_read_and_written_as_frames(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    write_files(tmp_path / "in", 3)
    target = Target(tmp_path / "out")
    run(executor, settings, tmp_path / "in", target).finished()
    verify(target.rows(), 3)


def test_a_table_is_read_once(executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path) -> None:
    env = environment(settings | {"penstock.runner": "auto"}, 2)
    rows = env.from_spark(lambda spark: spark.range(0, 10_000, 1, 3).selectExpr("id", "id % 7 as key"))
    with (
        executing_on(executor),
        rows.key_by(lambda row: row.key).map(lambda row: row.id).execute_and_collect() as found,
    ):
        assert sorted(found) == list(range(10_000))


@pytest.mark.slow
def test_the_pipelined_runner_is_refused_immediately(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    env = environment(settings | {"penstock.runner": "pipelined"}, 1)
    env.from_spark(lambda spark: spark.range(1), "rows").print()
    with executing_on(executor), pytest.raises(InvalidJob, match="the tasks of the pipelined runner") as caught:
        env.execute("refused")
    assert caught.value.operator == "rows"
    assert "test_dataframes.py" in caught.value.location


@pytest.mark.slow
def test_a_query_with_separate_state_is_refused(executor: EmbeddedExecutor, settings: dict[str, str]) -> None:
    env = environment(settings | {"penstock.runner": "batched"}, 1)
    env.from_spark(lambda spark: spark.readStream.format("rate").load().groupBy("value").count(), "counts").print()
    with executing_on(executor), pytest.raises(InvalidJob, match="keeps its own state") as caught:
        env.execute("refused")
    assert caught.value.operator == "counts"
    assert "key_by" in caught.value.remedy


@pytest.mark.slow
def test_state_survives_a_data_frame_that_takes_more_than_a_minute(
    executor: EmbeddedExecutor, settings: dict[str, str], tmp_path: Path
) -> None:
    """Take more than a minute. After a minute without work, Spark ends Python workers together with their state."""
    files = 3
    write_files(tmp_path / "in", files)

    class SlowTarget(Target):
        def write(self, frame: Any, checkpoint_id: int) -> None:
            if not self.calls:
                # on the executors, like a large write
                frame.sparkSession.sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(80))
            super().write(frame, checkpoint_id)

    target = SlowTarget(tmp_path / "out")
    driver = run(executor, settings | {"restart-strategy.type": "none"}, tmp_path / "in", target)
    assert driver.master.wait(240) is JobStatus.FINISHED, driver.master.error
    assert driver.master.history.restarts == 0
    verify(target.rows(), files)
