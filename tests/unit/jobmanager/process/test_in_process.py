"""`python job.py --in-process`: the whole job in the program's own process, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from penstock.common.configuration import (
    Configuration,
    load_configuration,
    reset_command_line,
    set_command_line,
)
from penstock.common.errors import InvalidJob
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.embedded import EmbeddedExecutor
from penstock.jobmanager.process.master_cluster import MasterClusterProvider

PROGRAM = """
import os, psutil
from penstock.datastream import StreamExecutionEnvironment

def told(value):
    return value, os.getpid() == PID

PID = os.getpid()
env = StreamExecutionEnvironment.get_execution_environment()
counted = env.from_collection(range(6)).key_by(lambda value: value % 2).reduce(lambda a, b: a + b).map(told)
print(sorted(counted.execute_and_collect()), psutil.Process().children())
"""


def environment(**settings: str) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration(settings))


def test_an_argument_of_the_script_is_enough(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(script), "--in-process"], env=dict(os.environ), capture_output=True, text=True, timeout=120
    )
    assert ended.stderr == ""
    assert ended.stdout == "[(0, True), (1, True), (2, True), (4, True), (6, True), (9, True)] []\n"


def test_the_argument_is_stronger_than_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("penstock.runner: batched\n")
    assert load_configuration(tmp_path).get_string("penstock.runner", "") == "batched"
    monkeypatch.setattr(sys, "argv", ["job.py", "--in-process"])
    assert load_configuration(tmp_path).get_string("penstock.runner", "") == "in-process"


def test_a_job_in_process_checkpoints_and_serves_rest_when_it_is_asked_to(tmp_path: Path) -> None:
    executor = EmbeddedExecutor()
    env = environment(
        **{
            "penstock.runner": "in-process",
            "rest.port": "0",
            "execution.checkpointing.interval": "50 ms",
            "execution.checkpointing.dir": tmp_path.as_uri(),
        }
    )
    env.from_collection([1, 2, 3]).print()
    with executing_on(executor):
        job = env.execute().get_job_id()
    checkpoints = httpx.get(f"{executor.rest_url}/jobs/{job}/checkpoints").json()
    executor.stop()
    assert checkpoints["counts"]["completed"] >= 1


def test_a_server_that_cannot_be_started_is_told_before_the_job_begins(tmp_path: Path) -> None:
    """It is started while the cluster is, on a thread of its own."""
    began = []
    settings = {"penstock.runner": "in-process", "rest.port": "0", "security.rest.token-file": str(tmp_path / "none")}
    env = environment(**settings)
    env.from_collection([1]).map(began.append).print()
    executor = EmbeddedExecutor()
    with executing_on(executor), pytest.raises(Exception, match="none"):
        env.execute()
    assert not began
    executor.stop()


def test_an_error_of_a_function_names_its_line() -> None:
    def broken(value: int) -> int:
        raise ValueError("of the test")

    env = environment(**{"penstock.runner": "in-process"})
    env.from_collection([1]).map(broken).print()
    with executing_on(EmbeddedExecutor()), pytest.raises(Exception, match="of the test") as raised:
        env.execute()
    assert "in broken" in str(raised.value)


def test_a_master_refuses_to_be_its_own_worker() -> None:
    settings = JobSettings.from_configuration({"penstock.runner": "in-process"})
    with pytest.raises(InvalidJob, match="in-process"):
        MasterClusterProvider(Configuration()).runner_for(1, 1, settings, dataframes=False)


def test_an_argument_of_a_program_that_a_command_started_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["job.py", "--in-process"])
    token = set_command_line({})
    try:
        assert load_configuration().get_string("penstock.runner", "auto") == "auto"
    finally:
        reset_command_line(token)
