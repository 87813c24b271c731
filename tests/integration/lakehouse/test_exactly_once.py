"""Rows -> table, each row exactly once, under any fault at any time."""

from __future__ import annotations

import random
import signal
import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.datastream.connectors.file_system import FileSink
from penstock.jobmanager.job.requests import Operation
from tests.in_process import environment, run, started, until
from tests.integration.lakehouse.lakes import COUNT, Lake, committer_of, voted, writer_of
from tests.integration.lakehouse.tabled_job import remaining


def log_of(lake: Lake) -> str:
    return (lake.folder / "job.log").read_text()[-3000:]


def commits(lake: Lake) -> int:
    """Count commits by the file names in the table's folder: a table may be incomplete while it is created."""
    return len([*lake.folder.rglob("_delta_log/*.json"), *lake.folder.rglob("snap-*.avro")])


def assert_each_once(lake: Lake) -> None:
    ids = lake.ids()
    assert len(ids) == len(set(ids)), "rows came twice"
    assert ids == list(range(COUNT)), f"{COUNT - len(ids)} rows are lost"
    assert lake.by_duckdb("select count(distinct id), count(*) from files") == [(COUNT, COUNT)]


@pytest.mark.parametrize(
    "moment", [pytest.param("before", marks=pytest.mark.slow), "within", pytest.param("after", marks=pytest.mark.slow)]
)
def test_a_job_killed_at_any_moment_of_a_commit_is_committed_once_by_its_successor(
    lake: Lake, job: Any, moment: str
) -> None:
    assert job(2, moment).wait(60) == -signal.SIGKILL, log_of(lake)
    assert job(1, moment).wait(60) == 0, log_of(lake)
    assert_each_once(lake)


@pytest.mark.parametrize("lake", [pytest.param("delta", marks=pytest.mark.slow), "iceberg"], indirect=True)
@pytest.mark.parametrize(
    "moment", [pytest.param("before", marks=pytest.mark.slow), "within", pytest.param("after", marks=pytest.mark.slow)]
)
def test_each_key_has_its_last_row_after_a_job_is_killed_at_any_moment_of_a_commit(
    lake: Lake, job: Any, moment: str
) -> None:
    assert job(2, moment, keyed=True).wait(60) == -signal.SIGKILL, log_of(lake)
    assert job(1, moment, keyed=True).wait(60) == 0, log_of(lake)
    assert sorted(lake.table().to_pylist(), key=itemgetter("id")) == remaining(COUNT)


@pytest.mark.slow
def test_a_randomly_killed_job_continues_at_any_parallelism(lake: Lake, job: Any) -> None:
    chance = random.Random(11)
    for parallelism in (2, 3, 1, 2):
        process, before = job(parallelism), commits(lake)
        while process.poll() is None and commits(lake) < before + 2:
            time.sleep(0.05)
        time.sleep(0.3 * chance.random())  # kill the job at a random moment of its checkpoints
        process.kill()
        process.wait()
    assert job(2).wait(90) == 0, log_of(lake)
    assert_each_once(lake)


class FailsOnce:
    """A map function that raises once, after some records."""

    count = 0

    def __call__(self, record: Any) -> Any:
        FailsOnce.count += 1
        if FailsOnce.count == 250:
            raise RuntimeError("as ordered")
        return record


def test_a_table_is_copied_into_another_one_across_a_failure_and_a_rescale(lake: Lake, tmp_path: Path) -> None:
    sink = lake.sink()
    committer, writer = committer_of(sink, "writes"), writer_of(sink, job="writes")
    committer.commit(voted(writer, 1, *range(200)))
    FailsOnce.count = 0
    other = type(lake)(tmp_path / "other")
    other.folder.mkdir()
    env = environment(tmp_path)
    env.set_parallelism(1)
    env.set_max_parallelism(4)
    stream = env.from_source(lake.source(follow=100), WatermarkStrategy.no_watermarks(), "in").uid("in")
    stream.map(FailsOnce()).uid("map").sink_to(other.sink()).uid("out")
    master = started(env)
    until(
        lambda: bool(list(other.folder.rglob("metadata/*.json")) + list(other.folder.rglob("_delta_log/*.json"))),
        master,
    )
    for number in range(2, 6):
        committer.commit(voted(writer, number, *range(number * 100, number * 100 + 100)))
        until(lambda end=number * 100 + 100: other.ids()[-1:] == [end - 1], master)
        if number == 3:
            master.request(Operation("rescale", {"parallelism": 3}))
    master.request(Operation("cancel"))
    master.wait(30)
    assert FailsOnce.count > 600
    assert other.ids() == list(range(600))


def test_a_snapshot_is_a_bounded_input(lake: Lake, tmp_path: Path) -> None:
    sink = lake.sink()
    committer_of(sink).commit(voted(writer_of(sink), 1, *range(100)))
    env = environment(tmp_path)
    stream = env.from_source(lake.source({"id": int}), WatermarkStrategy.no_watermarks(), "in")
    files = FileSink.for_bulk_format(str(tmp_path / "out"), ParquetWriterFactory({"id": int})).build()
    stream.filter(lambda row: row["id"] % 2 == 0).sink_to(files)
    master = run(env)
    assert master.history.status.value == "FINISHED"
    assert len(list((tmp_path / "out").rglob("*.parquet"))) >= 1
