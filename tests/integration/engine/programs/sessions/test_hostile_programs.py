"""Programs that harm their process, the session's other processes, or the connection to the session. The other jobs must not notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.engine.programs.sessions.session_programs import COUNT, ENDLESS
from tests.session_process import SessionProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ANSWER_S = 3.0
"""Time in seconds in which the session must answer requests about other jobs."""

BEFORE_EXECUTE = "env.execute("
HANGS = (
    ENDLESS.replace("env.execute(", "env.execute_async(")
    + "import ctypes\nctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL\n"
)
OF_CONNECTION = """
import os
import socket
import stat


def connection():
    for fd in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                found = socket.socket(fileno=os.dup(fd))
                if found.family == socket.AF_UNIX:
                    return found
        except OSError:
            pass


"""


def before_execute(source: str, program: str = ENDLESS) -> str:
    """Return a program with additional lines before its job starts."""
    start, _, end = program.rpartition(BEFORE_EXECUTE)
    return f"{start}{source}\n{BEFORE_EXECUTE}{end}"


@pytest.fixture(scope="module")
def endless(session: SessionProcess) -> str:
    """Return a job of another program, which must run until the last test has ended."""
    job_id = session.run(session.upload("other.py", ENDLESS), "other")
    session.wait_until(lambda: session.output(job_id), "records of the other job")
    return job_id


@pytest.fixture
def other(session: SessionProcess, endless: str) -> Iterator[str]:
    """Return the other program's job, and check after the test that it has not noticed anything."""
    before = session.processes()
    assert len(before) == 1
    yield endless
    printed = len(session.output(endless))
    session.wait_until(lambda: session.processes() == before, "the end of all other processes")
    session.wait_until(lambda: len(session.output(endless)) > printed, "more records of the other job")
    assert session.http.get(f"/jobs/{endless}/exceptions").json()["root-exception"] is None
    session.wait_until(lambda: free_slots(session) == total_slots(session) - 1, "the slots of ended jobs are free")


def cancel(session: SessionProcess, job_id: str) -> None:
    assert session.http.patch(f"/jobs/{job_id}").status_code == 202
    session.wait_for(job_id, "CANCELED")


def free_slots(session: SessionProcess) -> int:
    return int(session.http.get("/overview").json()["slots-available"])


def total_slots(session: SessionProcess) -> int:
    return int(session.http.get("/overview").json()["slots-total"])


def check_answers(session: SessionProcess, other: str) -> None:
    for path in ("/jobs/overview", f"/jobs/{other}", f"/jobs/{other}/status", "/overview", "/taskmanagers", "/jars"):
        started = time.monotonic()
        assert session.http.get(path).status_code == 200, path
        assert time.monotonic() - started < ANSWER_S, path


def test_a_program_that_hangs_with_the_gil_delays_no_other_job_and_can_be_cancelled(
    session: SessionProcess, other: str
) -> None:
    job_id = session.run(session.upload("hangs.py", HANGS), "hangs")
    time.sleep(2)
    for _ in range(3):
        check_answers(session, other)
    listed = {job["jid"]: job["state"] for job in session.http.get("/jobs/overview").json()["jobs"]}
    assert set(listed) >= {job_id, other}
    request = session.http.post(f"/jobs/{other}/savepoints", json={}).json()["request-id"]
    started = time.monotonic()
    session.wait_until(
        lambda: session.http.get(f"/jobs/{other}/savepoints/{request}").json()["status"]["id"] == "COMPLETED",
        "a savepoint of the other job",
    )
    assert time.monotonic() - started < 10
    cancel(session, job_id)


def test_a_stopped_process_delays_no_other_job_and_can_be_cancelled(session: SessionProcess, other: str) -> None:
    (process,) = session.processes()
    job_id = session.run(session.upload("stopped.py", ENDLESS), "stopped")
    (stopped,) = session.processes() - {process}
    stopped.suspend()
    for _ in range(300):  # more calls than the buffer of a connection takes
        session.http.get("/jobs/overview")
    check_answers(session, other)
    metrics = session.http.get("/metrics")
    assert metrics.status_code == 200
    assert f'job_id="{other}"' in metrics.text
    cancel(session, job_id)


def test_a_stopped_process_continues(session: SessionProcess, other: str) -> None:
    (process,) = session.processes()
    job_id = session.run(session.upload("continued.py", ENDLESS), "continued")
    (stopped,) = session.processes() - {process}
    stopped.suspend()
    check_answers(session, other)
    stopped.resume()
    session.wait_until(lambda: session.http.get(f"/jobs/{job_id}/checkpoints").status_code == 200, "an answer")
    cancel(session, job_id)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_program_that_ends_or_stops_the_fork_server_stops_no_program(
    session: SessionProcess, other: str, number: int
) -> None:
    source = f"import os\nos.kill(os.getppid(), {int(number)})\n"
    job_id = session.run(session.upload("patricide.py", before_execute(source)), "patricide")
    session.wait_until(lambda: session.output(job_id), "records of the job")
    after = session.run(session.upload("count.py", COUNT), "4")
    session.wait_for(after, "FINISHED")
    crashing = session.run(session.upload("endless.py", ENDLESS), "crashing")
    cancel(session, crashing)
    cancel(session, job_id)


def test_processes_that_a_program_leaves_are_ended(session: SessionProcess, other: str, tmp_path: Path) -> None:
    source = f"""
import os
import time

if os.fork() == 0:
    with open({str(tmp_path / "child")!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""
    job_id = session.run(session.upload("forks.py", before_execute(source, COUNT)), "4")
    session.wait_for(job_id, "FINISHED")
    child = int((tmp_path / "child").read_text())
    session.wait_until(lambda: not psutil.pid_exists(child), "the end of the child")


def test_a_forked_copy_of_a_program_does_not_end_its_job(session: SessionProcess, other: str) -> None:
    source = "import os\n\nif os.fork() == 0:\n    raise SystemExit(0)\n"
    job_id = session.run(session.upload("forks.py", before_execute(source, COUNT)), "4")
    session.wait_for(job_id, "FINISHED")
    assert len(session.output(job_id)) == 5


def test_a_program_that_closes_all_files_is_refused(session: SessionProcess, other: str) -> None:
    program = session.upload("closes.py", before_execute("import os\nos.closerange(3, 4096)"))
    answer = session.http.post(f"/jars/{program}/run")
    assert answer.status_code in (400, 503), answer.text


@pytest.mark.parametrize(
    "frame",
    [
        "b'\\xff' * 64",
        "b'\\x00\\x00\\x00\\x05hello'",
        "b'\\x00\\x00\\x00\\x04' + bytes([0x94, 0x00, 0x01, 0x01])",
        "b'\\x00\\x01\\x00\\x00' + b'\\x91' * 65536",
    ],
)
def test_a_malformed_message_harms_only_its_program(session: SessionProcess, other: str, frame: str) -> None:
    program = session.upload("malformed.py", before_execute(OF_CONNECTION + f"connection().sendall({frame})\n"))
    answer = session.http.post(f"/jars/{program}/run", json={"programArgsList": ["malformed"]})
    check_answers(session, other)
    if answer.status_code == 200:  # the message came after the acceptance of the job
        session.http.patch(f"/jobs/{answer.json()['jobid']}")


def test_a_program_cannot_report_on_jobs_of_others(session: SessionProcess, other: str) -> None:
    source = f"""
from penstock.jobmanager.process.programs import rpc

peer = next(thing for thing in __import__("gc").get_objects() if isinstance(thing, rpc.Connection))
try:
    peer.call("job_started", {{"job_id": "{other}", "name": "stolen"}})
except Exception as error:
    print("refused:", error)
peer.notify("describe_job", "{other}", "stolen", {{}})
peer.notify("no_such_function", 1)
peer.notify("report", "nothing")
"""
    job_id = session.run(session.upload("thief.py", before_execute(source, COUNT)), "4")
    session.wait_for(job_id, "FINISHED")
    assert any("does not belong to this program" in line for line in session.output(job_id))
    assert session.http.get(f"/jobs/{other}").json()["name"] == "other"
    names = [job["name"] for job in session.http.get("/jobs/overview").json()["jobs"] if job["jid"] == other]
    assert names == ["other"]


def test_output_without_line_ends_and_binary_output_are_shown(session: SessionProcess, other: str) -> None:
    source = "import sys\nsys.stdout.write('x' * 3_000_000)\nsys.stdout.flush()\nsys.stdout.buffer.write(bytes(range(256)))\n"
    job_id = session.run(session.upload("prints.py", before_execute(source, COUNT)), "4")
    session.wait_for(job_id, "FINISHED")
    found, position = b"", 0
    while True:
        answer = session.http.get(f"/jobs/{job_id}/output", params={"from": position})
        assert answer.status_code == 200
        found += answer.content
        if int(answer.headers["X-Penstock-Log-End"]) <= position:
            break
        position = int(answer.headers["X-Penstock-Log-End"])
    assert found.count(b"x") >= 3_000_000
    assert bytes(range(0x80, 0x100)) in found
    assert found.endswith(b"the program has ended\n")


@pytest.mark.parametrize(
    "name", ["", "a/b", "ü 字 🙂", "line\\nline", "\\x00\\x1b[31m", "<script>", "\\ud800", "n" * 5000]
)
def test_jobs_may_have_any_name(session: SessionProcess, other: str, name: str) -> None:
    program = session.upload("named.py", COUNT.replace('"count"', f'"{name}"'))
    answer = session.http.post(f"/jars/{program}/run", json={"programArgsList": ["4"]})
    check_answers(session, other)
    if answer.status_code != 200:
        assert "name" in answer.text
        return
    session.wait_for(answer.json()["jobid"], "FINISHED")


def test_a_deep_recursion_harms_only_its_program(session: SessionProcess, other: str) -> None:
    # A call through `max` uses the stack of the thread. Calls between Python functions would fill the memory of the machine instead.
    source = (
        "import sys\n\nsys.setrecursionlimit(10**9)\n\n\ndef down(n):\n    return max([n], key=down)\n\n\ndown(0)\n"
    )
    answer = session.http.post(f"/jars/{session.upload('deep.py', source)}/run")
    assert answer.status_code == 400, answer.text
    assert "signal 11 (SIGSEGV)" in answer.text


def test_a_crash_is_noticed_after_the_end_of_the_fork_server(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    job_id = session.run(session.upload("endless.py", ENDLESS), "survives")
    session.wait_until(lambda: "checkpoint 2 is complete" in session.http.get(f"/jobs/{job_id}/log").text, "checkpoint")
    (process,) = session.processes()
    parent = process.parent()
    assert parent is not None
    parent.kill()
    process.kill()
    session.wait_until(lambda: session.processes(), "another process")
    session.wait_for(job_id, "RUNNING")
    cancel(session, job_id)
    session.wait_until(lambda: free_slots(session) == total_slots(session), "all slots are free")
    session.stop()


def test_the_end_of_the_session_ends_a_program_that_hangs(tmp_path: Path) -> None:
    session = SessionProcess(tmp_path)
    session.start()
    session.run(session.upload("hangs.py", HANGS), "hangs")
    time.sleep(2)
    (hanging,) = session.processes()
    session.stop()
    assert not hanging.is_running() or hanging.status() == psutil.STATUS_ZOMBIE
    assert os.listdir(tmp_path / "programs" / "session" / "programs")  # it continues at the next start
    session.start()
    session.wait_until(session.processes, "the process of the program")
    time.sleep(2)
    found = list(session.processes())
    found += [parent for one in found if (parent := one.parent()) is not None]
    session.stop(signal.SIGKILL)
    assert len(found) == 2
    _, left = psutil.wait_procs(found, 60)
    assert left == []
