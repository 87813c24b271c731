"""Programs that harm their process, the session's other processes, or the connection to the session. The other jobs must not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.programs.test_session_programs import ENDLESS
from tests.session_process import SessionProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ANSWER_S = 3.0
"""Time in seconds in which the session must answer requests about other jobs."""

HANGS = (
    ENDLESS.replace("env.execute(", "env.execute_async(")
    + "import ctypes\nctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL\n"
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    session = SessionProcess(tmp_path_factory.mktemp("session"))
    session.start()
    yield session
    session.stop()


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
