"""`python job.py` without settings for TaskManagers: all tasks run in the driver's JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sys
from penstock.common.configuration import Configuration
from penstock.datastream import StreamExecutionEnvironment

settings = Configuration({"rest.port": "-1", "pipeline.auto-generate-uids": sys.argv[1]})
env = StreamExecutionEnvironment.get_execution_environment(settings)
env.from_collection([1, 2]).map(lambda value: value + 1).print()
env.execute()
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_jobs_in_one_jvm_survive_their_python_workers_and_rescales_and_leave_nothing(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "tests.integration.engine.embedded_jobs", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-10000:]


@pytest.mark.parametrize(("generates_uids", "output", "code"), [("true", "2\n3\n", 0), ("false", "", 1)])
def test_a_program_leaves_no_files_also_if_its_job_is_refused(
    tmp_path: Path, generates_uids: str, output: str, code: int
) -> None:
    """The JVM starts before the job is checked."""
    script, temporary = tmp_path / "job.py", tmp_path / "tmp"
    script.write_text(PROGRAM)
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command: list[str | Path] = [sys.executable, script, generates_uids]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert (ended.stdout, ended.returncode) == (output, code), ended.stderr
    assert list(temporary.glob("penstock-cluster-*")) == []
    assert not [process for process in psutil.process_iter(["environ"]) if _uses(process, temporary)]


def _uses(process: psutil.Process, folder: Path) -> bool:
    return (process.info["environ"] or {}).get("TMPDIR") == str(folder)
