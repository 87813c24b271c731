"""`python job.py --in-process`: the whole job in the program's own process, without Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from penstock.cli.client import RestClient
from penstock.common.configuration import (
    Configuration,
    load_configuration,
    reset_command_line,
    set_command_line,
)
from penstock.common.credentials.local_token import find_token
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.folders.private_folder import temporary_folder
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.settings import JobSettings
from penstock.jobmanager.process.master.master_cluster import MasterClusterProvider
from penstock.jobmanager.process.session.embedded import READ_OUTCOME_S, EmbeddedExecutor

PROGRAM = """
import os, psutil
from penstock.datastream import StreamExecutionEnvironment

def with_is_driver(value):
    return value, os.getpid() == PID

PID = os.getpid()
env = StreamExecutionEnvironment.get_execution_environment()
counted = env.from_collection(range(6)).key_by(lambda value: value % 2).reduce(lambda a, b: a + b).map(with_is_driver)
print(sorted(counted.execute_and_collect()), psutil.Process().children())
"""


def environment(**settings: str) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(Configuration(settings))


def test_an_argument_of_the_script_selects_the_mode(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(script), "--in-process"], env=dict(os.environ), capture_output=True, text=True, timeout=120
    )
    assert ended.stderr == ""
    assert ended.stdout == "[(0, True), (1, True), (2, True), (4, True), (6, True), (9, True)] []\n"


def test_the_argument_overrides_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("penstock.runner: batched\n")
    assert load_configuration(tmp_path).get_string("penstock.runner", "") == "batched"
    monkeypatch.setattr(sys, "argv", ["job.py", "--in-process"])
    assert load_configuration(tmp_path).get_string("penstock.runner", "") == "in-process"


def test_a_job_in_process_takes_checkpoints_and_serves_rest_on_request(tmp_path: Path) -> None:
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
    assert httpx.get(f"{executor.rest_url}/jobs/{job}/checkpoints").status_code == 401
    client = RestClient(executor.rest_url)
    checkpoints = client.checkpoints(str(job)).model_dump()
    page, _, token = executor.dashboard_url.partition("/#token=")
    assert page == client.url
    assert httpx.post(f"{page}/login", json={"token": token}).is_success
    assert httpx.get(f"{page}/jobs", headers={"Authorization": f"Bearer {token}"}).is_success
    folder = temporary_folder() / "rest"
    files = [file for file in folder.glob("*_*") if file.is_file() and file.read_text() == token]
    assert (folder.stat().st_mode & 0o777, [file.stat().st_mode & 0o777 for file in files]) == (0o700, [0o600])
    executor.stop()
    assert not [file for file in folder.rglob("*") if file.is_file() and file.read_text() == token]
    assert find_token(page) is None
    assert checkpoints["counts"]["completed"] >= 1


def test_a_server_that_cannot_start_is_reported_before_the_job_starts(tmp_path: Path) -> None:
    """The server starts together with the cluster, on a separate thread."""
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
        raise ValueError("an error of the test")

    env = environment(**{"penstock.runner": "in-process"})
    env.from_collection([1]).map(broken).print()
    with executing_on(EmbeddedExecutor()), pytest.raises(Exception, match="of the test") as raised:
        env.execute()
    assert "in broken" in str(raised.value)


def test_a_master_refuses_to_be_its_own_worker() -> None:
    settings = JobSettings.from_configuration({"penstock.runner": "in-process"})
    with pytest.raises(InvalidJob, match="in-process"):
        MasterClusterProvider(Configuration()).runner_for(1, 1, settings, dataframes=False)


def test_settings_without_effect_cause_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "penstock.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_CONF_DIR", raising=False)
    keys = {"execution.foo": "1", "checkpoint.interval": "1s", "my.threshold": "2", "spark.executor.cores": "1"}
    env = environment(**{"penstock.runner": "in-process"}, **keys)
    executor = EmbeddedExecutor()
    with executing_on(executor):
        for _ in range(2):
            env.from_collection([1]).print()
            env.execute()
    executor.stop()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "the configuration key 'execution.foo' has no effect, because no such option exists",
        "the configuration key 'checkpoint.interval' has no effect, because no such option exists. "
        "Did you mean 'execution.checkpointing.interval'?",
        f"{tmp_path}/penstock.yaml is not read. To use it, set the environment variable PENSTOCK_CONF_DIR={tmp_path}",
    ]


def test_a_misspelt_argument_causes_a_warning(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM.partition("counted")[0])
    for word, is_warned in (("--in-proces", True), ("--in-progress", False)):
        ended = subprocess.run([sys.executable, str(script), word], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ("write --in-process to run the job without Spark" in ended.stderr) is is_warned


def test_an_argument_after_a_command_belongs_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["job.py", "--in-process"])
    token = set_command_line({})
    try:
        assert load_configuration().get_string("penstock.runner", "auto") == "auto"
    finally:
        reset_command_line(token)


UNBOUNDED = """
import sys
from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource

settings = {"penstock.runner": "in-process", "rest.port": sys.argv[1], "execution.checkpointing.dir": sys.argv[2]}
env = StreamExecutionEnvironment.get_execution_environment(Configuration(settings))
env.from_source(DataGeneratorSource(int, None, 100.0), None, "numbers").uid("numbers").add_sink(lambda value: None)
env.execute("numbers")
"""


@pytest.mark.parametrize("action", ["stop", "cancel"])
def test_a_client_reads_the_outcome_of_a_request_that_ends_the_process(action: str, tmp_path: Path) -> None:
    (script := tmp_path / "job.py").write_text(UNBOUNDED)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    url, folder = f"http://localhost:{port}", (tmp_path / "state").as_uri()
    with subprocess.Popen([sys.executable, str(script), str(port), folder]) as process:
        try:
            deadline = time.monotonic() + 60
            while not (running := running_job(url)):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            client = RestClient(url)
            if action == "stop":
                outcome = client.wait(client.stop(running, folder), "the stop", 30)
                assert outcome.location is not None
                assert outcome.location.startswith(folder)
            else:
                client.cancel(running)
            assert client.wait_until_ended(running, 30) == ("FINISHED" if action == "stop" else "CANCELED")
            client.close()
            began = time.monotonic()
            process.wait(30)
            assert time.monotonic() - began < READ_OUTCOME_S, "no client is connected, so the server must not wait"
        finally:
            process.kill()


def running_job(url: str) -> str:
    """Return the id of the running job, or an empty string if no job runs yet."""
    try:
        with closing(RestClient(url)) as client:
            return next((job.jid for job in client.jobs() if job.state == "RUNNING"), "")
    except PenstockError:
        return ""
