"""Functions find a program's archives under relative paths, only in the Python workers of its jobs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.folders.private_folder import private_folder
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.serialization import Encoder
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate cache for archives only. A cluster that starts during the test still finds the engine's classes."""
    monkeypatch.setattr("penstock.common.program.archives.cache_folder", lambda name: private_folder(tmp_path / name))


def with_archive(folder: Path) -> StreamExecutionEnvironment:
    """Return an environment with an archive, like PyFlink's test."""
    (folder / "content").mkdir()
    (folder / "content" / "data.txt").write_text("2")
    archive = shutil.make_archive(str(folder / "archive"), "zip", folder / "content")
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 100))
    env.add_python_archive(archive, "data")
    return env


def add_from_file(pair: tuple[str, int]) -> tuple[str, int]:
    with open("data/data.txt", encoding="utf-8") as file:
        return pair[0], pair[1] + int(file.read())


def leave_a_file(pair: tuple[str, int]) -> tuple[str, int]:
    with open("mine", "a", encoding="utf-8") as file:
        file.write("mine")
    return os.getcwd(), add_from_file(pair)[1]


def results(executor: EmbeddedExecutor, stream: Any) -> list[Any]:
    with executing_on(executor):
        return sorted(stream.execute_and_collect())


def test_functions_read_an_archive_and_other_jobs_keep_their_folder(executor: EmbeddedExecutor, tmp_path: Path) -> None:
    plain = StreamExecutionEnvironment.get_execution_environment
    before = results(executor, plain().from_collection([1]).map(lambda _: os.getcwd()))
    env = with_archive(tmp_path)
    pairs = env.from_collection([("a", 0), ("b", 0), ("c", 1), ("d", 1), ("e", 2)])
    expected = [("a", 4), ("b", 4), ("c", 5), ("d", 5), ("e", 6)]
    found = pairs.map(add_from_file).key_by(lambda pair: pair[0]).map(add_from_file)
    assert results(executor, found) == expected
    assert results(executor, plain().from_collection([1]).map(lambda _: os.getcwd())) == before


def test_files_that_functions_write_are_private_to_their_process_and_removed_with_the_task(
    executor: EmbeddedExecutor, tmp_path: Path
) -> None:
    found = results(
        executor, with_archive(tmp_path).from_collection([("a", 0), ("b", 0)]).rebalance().map(leave_a_file)
    )
    assert [number for _, number in found] == [2, 2]
    archives = tmp_path / "archives"
    assert [file.name for file in archives.rglob("*") if file.is_file()] == ["data.txt"]
    folders = {Path(folder) for folder, _ in found}
    assert not any(folder.is_relative_to(archives) for folder in folders)
    deadline = time.monotonic() + 10
    while any(folder.exists() for folder in folders):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_relative_paths_of_files_start_at_the_programs_folder(executor: EmbeddedExecutor, tmp_path: Path) -> None:
    env = with_archive(tmp_path)
    out = os.path.relpath(tmp_path / "out")
    sink = FileSink.for_row_format(out, Encoder.simple_string_encoder()).build()
    env.from_collection([("a", 0)]).map(add_from_file).sink_to(sink)
    with executing_on(executor):
        env.execute()
    assert [part.read_text() for part in (tmp_path / "out").rglob("*part*") if part.is_file()] == ["('a', 2)\n"]


def test_an_archive_that_workers_cannot_reach_is_reported_immediately(
    executor: EmbeddedExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = with_archive(tmp_path)
    monkeypatch.setattr(
        "penstock.jobmanager.process.session.program_settings.working_folder", lambda _: "/only/elsewhere"
    )
    with pytest.raises(InvalidJob, match="/only/elsewhere, which this worker cannot read"):
        results(executor, env.from_collection([("a", 0)]).map(add_from_file))
