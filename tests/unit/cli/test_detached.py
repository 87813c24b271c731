"""`penstock run -d --in-process` with the real engine: other commands find the job, and SIGTERM leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.common.folders.owned_folder import OwnedFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import time
from penstock.datastream import StreamExecutionEnvironment

def slow(x):
    time.sleep(0.05)
    return x

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(list(range({count}))).map(slow).name("Slow").key_by(lambda x: x % 2).map(lambda x: -x).print()
env.execute("slow")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(PROGRAM.format(count=20_000))
    return tmp_path


def penstock(folder: Path, *words: str) -> str:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PENSTOCK_")}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        env=environment | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def run(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the process id and the URL of a detached job without Spark."""
    settings = ["-D", "rest.port=0", "-D", f"execution.checkpointing.dir={(folder / 'checkpoints').as_uri()}"]
    settings += ["-D", "execution.checkpointing.interval=100ms"]
    shown = penstock(folder, "run", "-d", "--in-process", *settings, str(folder / "job.py"))
    found = re.search(r"process id is ([0-9]+)", shown)
    at = re.search(r"JobManager is at (\S+)\.", shown)
    assert found, shown
    pid = int(found[1])
    try:
        assert at, shown
        yield pid, at[1]
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_commands_find_a_detached_job_without_spark(folder: Path, run: tuple[int, str]) -> None:
    _, url = run
    deadline = time.monotonic() + 60
    while "slow (RUNNING)" not in (shown := penstock(folder, "list", "-m", url)):
        assert "slow" in shown
        assert time.monotonic() < deadline
    assert "Slow" in penstock(folder, "peek", "-m", url, "slow")


def test_a_detached_job_serves_rest_without_a_configured_port(folder: Path) -> None:
    (folder / "job.py").write_text(PROGRAM.format(count=20))
    penstock(folder, "run", "-d", "--in-process", str(folder / "job.py"))
    report = next(folder.glob("penstock-run-*/job.json")).read_text()
    assert '"url": "http://' in report


def test_sigterm_of_a_detached_job_keeps_its_checkpoints_and_removes_its_token(
    folder: Path, run: tuple[int, str]
) -> None:
    pid, _ = run
    deadline = time.monotonic() + 30
    while not list(folder.glob("checkpoints/*/chk-*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(pid, signal.SIGTERM)
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(pid)
    assert list(folder.glob("checkpoints/*/chk-*"))
    assert [path for path in folder.rglob("rest/*") if path.is_file()] == []
    assert not list(folder.glob("penstock-log-*"))


def test_the_logs_of_the_newest_runs_are_kept(folder: Path) -> None:
    (folder / "job.py").write_text(PROGRAM.format(count=1))
    ended = [OwnedFolder(str(folder), "penstock-run-", sweeps=False) for _ in range(8)]
    for age, one in enumerate(ended):
        os.utime(one.path, (1000 - age, 1000 - age))
        one.release_lock()
    penstock(folder, "run", "-d", "--in-process", "-D", "rest.port=-1", str(folder / "job.py"))
    kept = {str(path) for path in folder.glob("penstock-run-*")}
    assert {one.path for one in ended[:5]} < kept
    assert len(kept) == 6
