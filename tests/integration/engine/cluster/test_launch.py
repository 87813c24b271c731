"""A program as its user starts it: `python job.py`, `penstock run`. The command line uses the running JobManager."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import sys

from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.number_seq import NumberSequenceSource

last = int(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_source(NumberSequenceSource(1, last), WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(lambda n: (n % 3, n)).key_by(0).sum(1).print()
env.execute("sums")
"""

ENDLESS = """
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(DataGeneratorSource(int, None, 100.0), WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(lambda n: (n % 3, n)).key_by(0).sum(1).print()
env.execute("endless")
"""

ENDS_ITS_PROCESS = """
import sys

from penstock.common import WatermarkStrategy
from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment(Configuration({"rest.port": "-1"}))
numbers = env.from_source(DataGeneratorSource(int, None, 100.0), WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda n: n % 3).map(lambda n: sys.exit(3) if n == 7 else n).name("exits").print()
env.execute("exits")
"""

RUNTIME = Path(__file__).parents[4] / "runtime"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(RUNTIME)}


def launched(command: list[str], folder: Path, code: int = 0) -> str:
    """Return the output of a command that ended with this exit code and left no process."""
    log = folder / "printed"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    found = process.wait(180)
    printed = log.read_text()
    assert found == code, printed[-3000:]
    until(lambda: not members(process.pid), "some processes did not end")
    return printed


def members(session: int) -> list[str]:
    """Return the processes that a process and its children started, as far as they stayed in its session."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found.append((folder / "cmdline").read_text().replace("\0", " ")[:120])
        except (OSError, IndexError):
            continue  # the process has just ended
    return found


def sums(printed: str) -> dict[int, int]:
    """Return the highest sum of each key."""
    found: dict[int, int] = {}
    for key, value in re.findall(r"^(?:\d+> )?\((\d+), (\d+)\)$", printed, re.MULTILINE):
        found[int(key)] = max(found.get(int(key), 0), int(value))
    return found


def test_a_function_that_exits_is_reported_with_its_line_and_no_java_text(tmp_path: Path) -> None:
    script = tmp_path / "exits.py"
    script.write_text(ENDS_ITS_PROCESS)
    printed = launched([sys.executable, str(script)], tmp_path, code=1)
    assert f"SystemExit: 3 (at {script}:11 in <lambda>)" in printed
    assert "operator: exits" in printed
    assert "java." not in printed
    assert "Exception in thread" not in printed


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(["job.py"], id="python", marks=pytest.mark.slow),
        pytest.param(["-m", "penstock.cli", "run", "job.py"], id="penstock-run"),
    ],
)
def test_a_program_runs_and_leaves_nothing_behind(way: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    printed = launched([sys.executable, *way, "3000"], tmp_path)
    assert sums(printed) == {key: sum(n for n in range(1, 3001) if n % 3 == key) for key in range(3)}, printed[-2000:]
    assert "java." not in printed
    assert "incubator" not in printed


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Detached]:
    (tmp_path / "job.py").write_text(ENDLESS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    job = Detached(tmp_path, f"http://127.0.0.1:{port}")
    settings = [f"-Drest.port={port}", f"-Dexecution.checkpointing.dir={tmp_path.as_uri()}/checkpoints"]
    printed = job.penstock("run", "-d", *settings, "-Dexecution.checkpointing.interval=1s", "job.py")
    job.id = re.findall(r"JobID (\w{32})", printed)[0]
    job.process = int(re.findall(r"process id is (\d+)", printed)[0])
    yield job
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.process, signal.SIGKILL)


@dataclass
class Detached:
    """A program that `penstock run -d` started."""

    folder: Path
    url: str
    id: str = ""
    process: int = 0

    def penstock(self, *arguments: str) -> str:
        """Return the output of a command, which must succeed."""
        command = [sys.executable, "-m", "penstock.cli", *arguments]
        # `run` would send the program to a session cluster at this address.
        environment = ENVIRONMENT if arguments[0] == "run" else {**ENVIRONMENT, "PENSTOCK_MASTER": self.url}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout


def until(reached: Callable[[], bool], message: str) -> None:
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end, message
        time.sleep(0.2)


def test_the_command_line_controls_a_detached_program(detached: Detached) -> None:
    penstock, savepoints = detached.penstock, f"{detached.folder.as_uri()}/savepoints"
    until(lambda: f"{detached.id} : endless (RUNNING)" in penstock("list"), "the job is not running")
    assert "endless" in penstock("info", "endless")
    savepoint = re.findall(r"Path: (\S+)", penstock("savepoint", detached.id, savepoints))[0]
    assert "chk-" in penstock("checkpoints", detached.id)
    stopped = re.findall(r"Path: (\S+)", penstock("stop", "-p", savepoints, detached.id))[0]
    assert stopped != savepoint
    for path in (savepoint, stopped):
        penstock("savepoint", "verify", "--checksums", path)
    until(lambda: not members(detached.process), "some processes did not end with the job")
