"""Programs that clients send to a session cluster: one real session with its cluster, and the processes of the programs."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.programs.sessions.session_programs import COUNT, ENDLESS, counts_are_right, numbers
from tests.session_process import SessionProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def zipped(files: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def wheel(version: str) -> bytes:
    info = f"tally-{version}.dist-info"
    return zipped(
        {
            "tally.py": f"VERSION = {version!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tally\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
    )


def test_a_program_runs_to_its_end_and_stays_visible(session: SessionProcess) -> None:
    program = session.upload("count.py", COUNT)
    job_id = session.run(program, "6")
    session.wait_for(job_id, "FINISHED")
    printed = session.output(job_id)
    assert printed[-1] == "the program has ended"
    assert sorted(printed[:-1]) == ["(0, 0)", "(0, 2)", "(0, 6)", "(1, 1)", "(1, 4)", "(1, 9)"]
    assert "job is FINISHED" in session.http.get(f"/jobs/{job_id}/log").text
    details = session.http.get(f"/jobs/{job_id}").json()
    assert details["name"] == "count"
    assert session.http.get(f"/jobs/{job_id}/checkpoints").status_code == 200
    assert session.http.get(f"/jobs/{job_id}/exceptions").json()["root-exception"] is None
    listed = {job["jid"]: job["state"] for job in session.http.get("/jobs/overview").json()["jobs"]}
    assert listed[job_id] == "FINISHED"
    session.wait_until(lambda: not session.processes(), "the process of the program has ended")
    assert session.http.get("/overview").json()["slots-available"] > 0


def test_two_programs_use_different_versions_of_a_package(session: SessionProcess) -> None:
    job = """
import tally
from helper import Seen
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
print("main", tally.VERSION)
env.from_collection([1]).key_by(lambda n: n).process(Seen()).print()
env.execute()
"""
    helper = """
from penstock.datastream import KeyedProcessFunction


class Seen(KeyedProcessFunction):
    def process_element(self, n, ctx):
        import tally
        yield "task", tally.VERSION
"""
    jobs = {}
    for version in ("1.0", "2.0"):
        files: dict[str, str | bytes] = {
            "job.py": job,
            "helper.py": helper,
            "requirements.txt": f"tally=={version}\n",
            f"wheels/tally-{version}-py3-none-any.whl": wheel(version),
        }
        jobs[version] = session.run(session.upload("job.zip", zipped(files)))
    for version, job_id in jobs.items():
        session.wait_for(job_id, "FINISHED")
        assert session.output(job_id) == [f"main {version}", f"('task', '{version}')"]


def test_two_programs_that_arrive_at_once_both_run(session: SessionProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    program = session.upload("count.py", COUNT)
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda count: session.run(program, count), ("2", "4")))
    for job_id in jobs:
        session.wait_for(job_id, "FINISHED")
    assert [len(session.output(job_id)) for job_id in jobs] == [3, 5]


def test_a_killed_process_continues_from_its_checkpoint(session: SessionProcess) -> None:
    job_id = session.run(session.upload("endless.py", ENDLESS), "killed")
    session.wait_until(lambda: "checkpoint 2 is complete" in session.http.get(f"/jobs/{job_id}/log").text, "checkpoint")
    (process,) = session.processes()
    process.kill()
    session.wait_until(lambda: session.processes() - {process}, "another process")
    before = max(numbers(session.output(job_id)))
    session.wait_until(lambda: max(numbers(session.output(job_id))) > before + 200, "records after the kill")
    assert counts_are_right(session.output(job_id))
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")


def test_a_savepoint_stops_a_job_and_starts_another_program(session: SessionProcess) -> None:
    job_id = session.run(session.upload("endless.py", ENDLESS), "stopped")
    session.wait_until(lambda: len(session.output(job_id)) > 50, "records")
    request = session.http.post(f"/jobs/{job_id}/stop", json={}).json()["request-id"]
    outcome: dict[str, Any] = {}

    def is_done() -> bool:
        outcome.update(session.http.get(f"/jobs/{job_id}/savepoints/{request}").json())
        return bool(outcome["status"]["id"] == "COMPLETED")

    session.wait_until(is_done, "the savepoint")
    session.wait_until(lambda: not session.processes(), "the end of the process")
    assert is_done()  # the outcome is known after the end of the process
    path = outcome["operation"]["location"]
    last = max(numbers(session.output(job_id)))
    changed = session.upload("changed.py", ENDLESS + "# changed\n")
    second = session.run(changed, "continued", savepointPath=path)
    session.wait_until(lambda: len(session.output(second)) > 20, "records of the second program")
    assert min(numbers(session.output(second))) == last + 1
    assert counts_are_right(session.output(second))
    session.http.patch(f"/jobs/{second}")
    session.wait_for(second, "CANCELED")


def test_a_session_that_was_killed_runs_its_programs_again(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    try:
        job_id = session.run(session.upload("endless.py", ENDLESS), "restarted")
        session.wait_until(
            lambda: "checkpoint 2 is complete" in session.http.get(f"/jobs/{job_id}/log").text, "checkpoint"
        )
        session.stop(signal.SIGKILL)
        session.start()
        session.wait_for(job_id, "RUNNING")
        session.wait_until(lambda: len(session.output(job_id)) > 50, "records")
        assert min(numbers(session.output(job_id))) > 0
        assert counts_are_right(session.output(job_id))
        session.stop()  # an orderly end keeps the program, too
        session.start()
        session.wait_for(job_id, "RUNNING")
        session.http.patch(f"/jobs/{job_id}")
        session.wait_for(job_id, "CANCELED")
        session.stop()
        session.start()
        assert session.http.get("/jobs/overview").json()["jobs"] == []
    finally:
        session.stop()


def test_a_rescaled_job_keeps_its_parallelism_after_a_crash_and_a_restart(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()

    def parallelism(job_id: str) -> int:
        details = session.http.get(f"/jobs/{job_id}").json()
        return max((vertex["parallelism"] for vertex in details.get("vertices", ())), default=0)

    try:
        job_id = session.run(session.upload("endless.py", ENDLESS), "rescaled", parallelism=1)
        session.wait_until(lambda: len(session.output(job_id)) > 5, "records")
        assert session.http.patch(f"/jobs/{job_id}/rescaling?parallelism=2").status_code == 200
        session.wait_until(lambda: parallelism(job_id) == 2, "the rescale")
        (process,) = session.processes()
        process.kill()
        session.wait_until(lambda: session.processes() - {process}, "another process")
        session.wait_until(lambda: parallelism(job_id) == 2, "the same parallelism after a crash")
        session.stop(signal.SIGKILL)
        session.start()
        session.wait_until(lambda: parallelism(job_id) == 2, "the same parallelism after a restart")
        session.wait_until(lambda: len(session.output(job_id)) > 20, "records")
        lines = session.output(job_id)
        assert {line[:3] for line in lines} == {"1> ", "2> "}
        assert counts_are_right([line[3:] for line in lines])
        session.http.patch(f"/jobs/{job_id}")
        session.wait_for(job_id, "CANCELED")
        session.wait_until(lambda: not list((tmp_path / "programs").rglob("programs/*.json")), "the removed program")
    finally:
        session.stop()


def test_the_autoscaler_of_a_job_is_configured_while_the_job_runs(session: SessionProcess) -> None:
    job_id = session.run(session.upload("endless.py", ENDLESS), "autoscaled", parallelism=1)
    session.wait_until(lambda: len(session.output(job_id)) > 5, "records")
    path = f"/jobs/{job_id}/autoscaler"
    keys = {
        "job.autoscaler.enabled": True,
        "job.autoscaler.vertex.min-parallelism": 2,
        "job.autoscaler.metrics.window": "15s",
        "job.autoscaler.stabilization.interval": "0s",
    }
    body = {"configuration": keys, "configurationId": "v1"}
    refused = session.http.put(f"{path}/configuration", json={"configuration": {**keys, "rest.port": 1}})
    assert (refused.status_code, "rest.port" in refused.text) == (400, True), refused.text
    assert session.http.put(f"{path}/configuration", json=body).status_code == 200
    found = session.http.get(path).json()
    assert (found["mode"], found["configurationId"], found["minParallelism"]) == ("active", "v1", 2)
    session.wait_until(lambda: session.http.get(path).json()["current"] == 2, "the rescale by the autoscaler")
    session.wait_for(job_id, "RUNNING")
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1", "has ended without a job"),
        ("raise ValueError('not today')", "ValueError: not today"),
        ("import sys; sys.exit(3)", "sys.exit(3)"),
        ("import no_such_module", "no_such_module"),
        ("def broken(:", "SyntaxError"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
    ],
)
def test_a_program_without_a_job_is_refused(session: SessionProcess, source: str, expected: str) -> None:
    program = session.upload("bad.py", source)
    answer = session.http.post(f"/jars/{program}/run")
    assert answer.status_code == 400, answer.text
    assert expected in answer.text
    stored = session.folder / "programs"
    session.wait_until(lambda: all(name.suffix != ".json" for name in stored.rglob("programs/*")), "no stored program")


def test_the_plan_of_a_program_is_its_graph(session: SessionProcess) -> None:
    program = session.upload("count.py", COUNT)
    plan = session.http.get(f"/jars/{program}/plan", params={"programArg": "5"}).json()["plan"]
    assert plan["name"] == "count"
    assert len(plan["nodes"]) == 2
    session.wait_until(lambda: not session.processes(), "the end of the process")


def test_a_job_continues_after_its_program_was_deleted(session: SessionProcess) -> None:
    program = session.upload("deleted.py", ENDLESS)
    job_id = session.run(program, "kept")
    assert session.http.delete(f"/jars/{program}").status_code == 200
    assert program not in session.http.get("/jars").text
    assert session.http.post(f"/jars/{program}/run").status_code == 404
    (process,) = session.processes()
    process.kill()
    session.wait_until(lambda: session.processes() - {process}, "another process")
    session.wait_for(job_id, "RUNNING")
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")
    session.wait_until(lambda: not session.processes(), "the end of the process")


def test_a_program_that_crashes_again_and_again_fails(session: SessionProcess) -> None:
    crash = ENDLESS.replace("env.execute(", "env.execute_async(") + "import os\nos._exit(9)\n"
    job_id = session.run(session.upload("crash.py", crash), "crashing")
    session.wait_for(job_id, "FAILED")
    exceptions = session.http.get(f"/jobs/{job_id}/exceptions").json()
    assert "exit code 9" in exceptions["root-exception"]
    assert session.http.get(f"/jobs/{job_id}").json()["state"] == "FAILED"
    assert session.http.get("/overview").json()["slots-available"] > 0


def test_a_cancelled_job_ends_once(session: SessionProcess) -> None:
    job_id = session.run(session.upload("endless.py", ENDLESS), "cancelled")
    session.wait_until(lambda: len(session.output(job_id)) > 5, "records")
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")
    session.wait_until(lambda: not session.processes(), "the end of the process")
    time.sleep(2.0)  # a process that is started again would begin the job now
    assert session.state(job_id) == "CANCELED"
    assert not session.processes()
    assert session.http.get(f"/jobs/{job_id}/log").text.count("INITIALIZING") == 1


def test_a_program_that_starts_is_cancelled_by_the_id_of_its_first_job(session: SessionProcess) -> None:
    program = session.upload("late.py", f"import time\n\ntime.sleep(600)\n{ENDLESS}")
    job_id = "5" * 32
    body = {"jobId": job_id, "programArgsList": ["late"]}
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(session.http.post, f"/jars/{program}/run", json=body)
        session.wait_until(session.processes, "the start of the program")
        assert session.http.get(f"/jobs/{job_id}/summary").json()["state"] == "INITIALIZING"
        assert session.http.patch(f"/jobs/{job_id}").status_code == 202
        answer = start.result(30)
    assert "the program was cancelled" in answer.text
    session.wait_until(lambda: not session.processes(), "the end of the process")
    assert session.http.patch(f"/jobs/{job_id}").status_code == 404
    assert job_id not in session.http.get("/jobs/overview").text


def test_the_threads_of_a_program_are_visible_before_and_after_its_job_is_accepted(session: SessionProcess) -> None:
    waits = "import pathlib, sys, time\n\ndef wait_for(name):\n    while not pathlib.Path(name).exists():\n        time.sleep(0.05)\n\n"
    begin, finish = session.folder / "begin", session.folder / "finish"
    source = f"{waits}wait_for({str(begin)!r})\n{ENDLESS.replace('env.execute(', 'env.execute_async(')}\nwait_for({str(finish)!r})\n"
    program, job_id = session.upload("waits.py", source), "6" * 32

    def waits_at(line: int) -> bool:
        dump = session.http.get(f"/jobs/{job_id}/thread-dump")
        if dump.status_code != 200:
            return False
        main = [one for one in dump.json()["threadInfos"] if one["threadName"] == "MainThread"]
        return any(
            f":{line}\n" in one["stringifiedThreadInfo"] and "wait_for" in one["stringifiedThreadInfo"] for one in main
        )

    with ThreadPoolExecutor(1) as pool:
        body = {"jobId": job_id, "programArgsList": ["waiting"]}
        start = pool.submit(session.http.post, f"/jars/{program}/run", json=body)
        session.wait_until(lambda: waits_at(7), "the threads of a program that starts")
        begin.touch()
        assert start.result(60).status_code == 200
    session.wait_until(lambda: waits_at(source.count("\n")), "the threads of a program with a job")
    folded = session.http.get(f"/jobs/{job_id}/flamegraph", params={"seconds": 0.5, "format": "folded"}).text
    assert "wait_for" in folded
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")
    assert session.http.get(f"/jobs/{job_id}/thread-dump").status_code == 409
    finish.touch()
    session.wait_until(lambda: not session.processes(), "the end of the process")


def test_two_jobs_of_a_program_run_at_once(session: SessionProcess) -> None:
    twice = ENDLESS.replace("env.execute(sys.argv[1])", "").replace(
        "env = Stream", "def build(name):\n    env = Stream"
    )
    head, _, body = twice.partition("def build(name):\n")
    lines = "".join(f"{line if line.startswith('    ') else '    ' + line}\n" for line in body.strip().splitlines())
    program = f"{head}def build(name):\n{lines}    return env.execute_async(name)\n\n\nfirst, second = build('one'), build('two')\n"
    first = session.run(session.upload("twice.py", program))

    def states() -> dict[str, str]:
        return {job["name"]: job["state"] for job in session.http.get("/jobs/overview").json()["jobs"]}

    session.wait_until(lambda: (states().get("one"), states().get("two")) == ("RUNNING", "RUNNING"), "both jobs run")
    jobs = session.http.get("/jobs/overview").json()["jobs"]
    for job in jobs:
        if job["name"] in ("one", "two"):
            session.http.patch(f"/jobs/{job['jid']}")
    session.wait_for(first, "CANCELED")
    session.wait_until(lambda: not session.processes(), "the end of the process")


ODD = """
import enum
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    key: int
    value: object


@dataclass
class Box:
    key: int
    value: object


class Last(KeyedProcessFunction):
    def open(self, ctx):
        self.last = ctx.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, one, ctx):
        before = self.last.value()
        self.last.update((type(one.value).__name__, repr(one.value)[:50]))
        yield type(one).__name__, type(one.value).__name__, repr(one.value)[:50], before


VALUES = [math.nan, None, 2**100, -0.0, np.float64(1.5), np.int8(-3), "\\ud800x"[1:], b"\\0", Decimal("0.10"), Colour.RED, (1, [2]), {"a": 1}]

if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    things = [kind(n % 2, value) for n, value in enumerate(VALUES) for kind in (Pair, Box)]
    env.from_collection(things).rebalance().key_by(lambda one: one.key).process(Last()).print()
    env.execute("odd")
"""


def test_a_program_has_the_same_output_as_on_this_machine(session: SessionProcess, tmp_path: Path) -> None:
    script = tmp_path / "odd.py"
    script.write_text(ODD)
    local = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    job_id = session.run(session.upload("odd.py", ODD))
    session.wait_for(job_id, "FINISHED")
    assert len(session.output(job_id)) == 24
    assert session.output(job_id) == [line.partition(" | ")[2] or line for line in local.stdout.splitlines()]


def test_secrets_of_a_program_do_not_appear_in_its_output(session: SessionProcess) -> None:
    secret = "hunter2-hunter2"
    source = COUNT.replace(
        'print("the program', 'import logging\nlogging.warning(f"key {sys.argv[2]}")\nprint(sys.argv[2], "the program'
    )
    job_id = session.run(session.upload("secret.py", source), "2", secret, flinkConfiguration={"s3.secret-key": secret})
    session.wait_for(job_id, "FINISHED")
    session.wait_until(lambda: not session.processes(), "the end of the process")
    assert session.output(job_id)[-1].endswith("the program has ended")
    log = session.http.get(f"/jobs/{job_id}/log").text
    assert "WARNING" in log
    assert secret not in log + "".join(session.output(job_id))
    assert secret not in session.http.get(f"/jobs/{job_id}").text


def test_a_start_that_is_open_at_the_end_of_the_session_gets_503(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    program = session.upload("slow.py", "import time\n\nprint('waits', flush=True)\ntime.sleep(600)\n")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(session.http.post, f"/jars/{program}/run")
        session.wait_until(session.processes, "the process of the program")
        assert session.process is not None
        session.process.send_signal(signal.SIGTERM)
        assert answer.result(60).status_code == 503, answer.result().text
        assert "shutting down" in answer.result().text
    session.stop()
    assert not list((tmp_path / "programs").rglob("programs/*.json"))
