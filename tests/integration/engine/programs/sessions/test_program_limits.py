"""Limits of programs in a session cluster: a program that exceeds one fails, and its neighbor does not notice."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.programs.sessions.session_programs import ENDLESS, counts_are_right
from tests.session_process import SessionProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

GROW = """
kept = []
while True:
    kept.append(bytearray(1 << 20))
    time.sleep(0.001)
"""
IN_TASK = """
import time
from penstock.datastream import StreamExecutionEnvironment

kept = []

def grow(n):
    while True:
        kept.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.001)

def grow_at_once(n):
    return len(bytes(40 << 30))

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(FUNCTION).print()
env.execute("grows")
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    limits = {
        "penstock.program.memory.limit": "400mb",
        "penstock.program.memory.worker-limit": "300mb",
        "penstock.program.max-unpacked-size": "4mb",
    }
    session = SessionProcess(tmp_path_factory.mktemp("session"), settings=limits)
    session.start()
    yield session
    session.stop()


@pytest.fixture
def neighbor(session: SessionProcess) -> Iterator[str]:
    """A job of another program. It must not fail, restart or stop during the test."""
    job_id = session.run(session.upload("neighbor.py", ENDLESS), "neighbor")
    session.wait_until(lambda: session.output(job_id), "records of the neighbor")
    yield job_id
    printed = len(session.output(job_id))
    session.wait_until(lambda: len(session.output(job_id)) > printed, "more records of the neighbor")
    assert session.http.get(f"/jobs/{job_id}/exceptions").json()["root-exception"] is None
    session.http.patch(f"/jobs/{job_id}")
    session.wait_for(job_id, "CANCELED")
    assert counts_are_right(session.output(job_id))


def refused(session: SessionProcess, name: str, content: str | bytes, code: str = "INVALID_JOB", **body: Any) -> str:
    answer = session.http.post(f"/jars/{session.upload(name, content)}/run", json=body)
    assert (answer.status_code, answer.headers["X-Penstock-Error"]) == (400, code), answer.text
    return str(answer.text)


def test_a_program_that_allocates_without_end_is_ended(session: SessionProcess, neighbor: str) -> None:
    started = time.monotonic()
    text = refused(session, "grows.py", f"import time\n{GROW}", "MEMORY_LIMIT")
    assert time.monotonic() - started < 60
    assert "above its limit of 400 MiB (penstock.program.memory.limit)" in text
    session.wait_until(lambda: len(session.processes()) == 1, "the end of the process")


def test_processes_that_a_program_starts_count_too(session: SessionProcess, neighbor: str) -> None:
    text = refused(
        session,
        "parent.py",
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {'import time' + GROW!r}])\n",
        "MEMORY_LIMIT",
    )
    assert "above its limit of 400 MiB" in text
    session.wait_until(lambda: len(session.processes()) == 1, "the end of both processes")


def test_a_job_fails_if_its_program_exceeds_the_limit_after_each_restart(
    session: SessionProcess, neighbor: str
) -> None:
    program = ENDLESS.replace("env.execute(", "env.execute_async(") + f"import time\n{GROW}"
    job_id = session.run(session.upload("later.py", program), "later")
    session.wait_for(job_id, "FAILED")
    assert "above its limit of 400 MiB" in session.http.get(f"/jobs/{job_id}/exceptions").json()["root-exception"]


def test_a_function_that_allocates_without_end_fails_only_its_job(session: SessionProcess, neighbor: str) -> None:
    source = IN_TASK.replace("FUNCTION", "grow")
    job_id = session.run(session.upload("task.py", source), flinkConfiguration={"restart-strategy.type": "none"})
    session.wait_for(job_id, "FAILED")
    text = session.http.get(f"/jobs/{job_id}/exceptions").json()["root-exception"]
    assert "above its limit of 300 MiB (penstock.program.memory.worker-limit)" in text
    assert "in grow" in text


def test_one_allocation_far_above_the_limit_fails_at_its_line(session: SessionProcess, neighbor: str) -> None:
    source = IN_TASK.replace("FUNCTION", "grow_at_once")
    job_id = session.run(session.upload("task.py", source), flinkConfiguration={"restart-strategy.type": "none"})
    session.wait_for(job_id, "FAILED")
    text = session.http.get(f"/jobs/{job_id}/exceptions").json()["root-exception"]
    assert "MemoryError" in text
    assert "in grow_at_once" in text


def test_a_program_cannot_raise_the_limits_of_the_cluster(session: SessionProcess) -> None:
    body: dict[str, Any] = {"flinkConfiguration": {"penstock.program.memory.limit": "401mb"}}
    text = refused(session, "count.py", ENDLESS, **body)
    assert "penstock.program.memory.limit is 401mb, but this cluster allows at most 400mb" in text
    source = ENDLESS.replace(
        "get_execution_environment()",
        "get_execution_environment(Configuration({'penstock.program.memory.worker-limit': '1gb'}))",
    )
    source = f"from penstock.common.configuration import Configuration\n{source}"
    text = refused(session, "count.py", source, programArgsList=["name"])
    assert "penstock.program.memory.worker-limit is 1gb, but this cluster allows at most 300mb" in text


def test_an_archive_that_unpacks_to_too_much_is_refused(session: SessionProcess, tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("job.py", "")
        archive.writestr("zeros", bytes(5 << 20))
    text = refused(session, "bomb.zip", out.getvalue())
    assert "with 'zeros' it unpacks to more than 4 MiB" in text
    assert "penstock.program.max-unpacked-size" in text
