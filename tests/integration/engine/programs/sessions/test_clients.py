"""Clients that run programs on a session cluster: the command line and remote environments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.programs.sessions.session_programs import ENDLESS, counts_are_right, numbers
from tests.session_process import RUNTIME, SessionProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ENDS = """
import sys

from penstock.common.errors import PenstockError
from penstock.datastream import StreamExecutionEnvironment


def job(name, function):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(function).print()
    return env, name


end = sys.argv[1]
env, name = job("first", lambda n: n)
env.execute(name)
print("between")
env, name = job("second", lambda n: 1 // (n - n) if end in ("handled", "late") else n * 10)
if end == "late":
    env.execute_async(name)
elif end == "handled":
    try:
        env.execute(name)
    except PenstockError:
        print("handled it")
else:
    env.execute(name)
print("after")
if end == "exit":
    sys.exit(7)
if end == "raise":
    raise ValueError("not today")
"""


def run_command(session: SessionProcess, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    token = session.folder / "token-of-test"
    token.write_text(session.token)
    command = [sys.executable, "-m", "penstock.cli", "run", "-m", session.url, "--token-file", str(token), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(RUNTIME)}
    return subprocess.run(
        command, cwd=session.folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.parametrize(
    ("end", "code", "told", "state"),
    [
        ("well", 0, "", "FINISHED"),
        ("exit", 7, "sys.exit(7)", "FAILED"),
        ("raise", 1, "ValueError: not today", "FAILED"),
        ("handled", 0, "", "FINISHED"),
        ("late", 1, "ZeroDivisionError", "FAILED"),
    ],
)
def test_the_command_follows_a_program_until_its_end_and_has_its_exit_code(
    session: SessionProcess, end: str, code: int, told: str, state: str
) -> None:
    (session.folder / "ends.py").write_text(ENDS)
    done = run_command(session, "ends.py", end)
    assert done.returncode == code, done.stdout + done.stderr
    for line in ("between", "after"):
        assert line in done.stdout.splitlines()
    assert told in done.stderr
    applications = session.http.get("/applications/overview").json()["applications"]
    assert applications[-1]["status"] == state
    details = session.http.get(f"/applications/{applications[-1]['id']}").json()
    assert [job["name"] for job in details["jobs"]] == ["first", "second"]
    assert details["exit-code"] == code


def test_the_command_can_leave_a_program_which_is_then_cancelled_as_a_whole(session: SessionProcess) -> None:
    (session.folder / "goes_on.py").write_text(ENDLESS + "env.execute('a second job')\n")
    done = run_command(session, "-d", "goes_on.py", "left")
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.split()[-1]
    session.wait_for(job_id, "RUNNING")
    (application,) = [
        one
        for one in session.http.get("/applications/overview").json()["applications"]
        if one["jobs"] == {"RUNNING": 1}
    ]
    assert (application["name"], application["status"]) == ("left", "RUNNING")
    assert session.http.post(f"/applications/{application['id']}/cancel").status_code == 202

    def state() -> str:
        return str(session.http.get(f"/applications/{application['id']}").json()["status"])

    session.wait_until(lambda: state() == "CANCELED", "the end of the program")
    assert session.state(job_id) == "CANCELED"
    assert [job["jid"] for job in session.http.get(f"/applications/{application['id']}").json()["jobs"]] == [job_id]
    assert not session.processes()


REMOTE = """
import sys

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Counts(KeyedProcessFunction):
    def open(self, ctx):
        self.number = ctx.get_state(ValueStateDescriptor("number", Types.LONG()))

    def process_element(self, n, ctx):
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield n, number


env = StreamExecutionEnvironment.create_remote_environment("localhost", int(sys.argv[1]), token=sys.argv[2])
env.enable_checkpointing(300)
numbers = env.from_source(DataGeneratorSource(lambda n: n, None, 200), WatermarkStrategy.no_watermarks(), "numbers")
counts = numbers.uid("numbers").key_by(lambda n: n % 2).process(Counts()).uid("counts")
if sys.argv[3] == "collects":
    for record in counts.execute_and_collect():
        print(record, flush=True)
else:
    counts.print()
    print(env.execute_async("remote").get_job_id())
"""


def start_remote(session: SessionProcess, kind: str) -> subprocess.Popen[str]:
    (session.folder / "remote.py").write_text(REMOTE)
    command = [sys.executable, "remote.py", session.url.rsplit(":", 1)[1], session.token, kind]
    environment = {**os.environ, "PYTHONPATH": str(RUNTIME)}
    return subprocess.Popen(
        command, cwd=session.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_job_of_a_remote_environment_has_its_own_process_and_continues_after_a_restart(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    try:
        printed, errors = start_remote(session, "prints").communicate(timeout=100)
        job_id = printed.strip()
        assert len(job_id) == 32, errors
        (process,) = session.processes()
        session.wait_until(
            lambda: "checkpoint 2 is complete" in session.http.get(f"/jobs/{job_id}/log").text, "checkpoint"
        )
        process.kill()  # the session goes on, and starts the program again
        session.wait_until(lambda: session.processes() - {process}, "another process")
        session.wait_for(job_id, "RUNNING")
        session.stop()
        session.start()
        session.wait_for(job_id, "RUNNING")
        session.wait_until(lambda: len(session.output(job_id)) > 50, "records")
        assert min(numbers(session.output(job_id))) > 0
        assert counts_are_right(session.output(job_id))
        assert session.http.get(f"/programs/{job_id}").json()["status"] == "RUNNING"
        session.http.patch(f"/jobs/{job_id}")
        session.wait_for(job_id, "CANCELED")
        session.wait_until(lambda: not session.processes(), "the end of the process")
        assert session.http.get(f"/programs/{job_id}").json()["status"] == "CANCELED"
        session.wait_until(lambda: not list((tmp_path / "programs").rglob("graphs/*")), "the graph is removed")
    finally:
        session.stop()


def test_a_client_that_reads_records_gets_an_error_if_the_process_of_its_job_crashes(session: SessionProcess) -> None:
    client = start_remote(session, "collects")
    assert client.stdout is not None
    assert client.stdout.readline()
    (process,) = session.processes()
    process.kill()
    _, errors = client.communicate(timeout=100)
    assert client.returncode == 1
    assert "signal 9 (SIGKILL)" in errors
    session.wait_until(lambda: not session.processes(), "no process")
