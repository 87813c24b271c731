"""The end of a program: a job that was built and never run, and an execute() without a new job."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream import StreamExecutionEnvironment

if TYPE_CHECKING:
    from pathlib import Path

BUILT = """from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).print()
"""
RUN = 'env.execute("job")\n'


@pytest.mark.parametrize(
    ("text", "warns"),
    [
        (BUILT, True),
        (BUILT + RUN, False),
        (BUILT + RUN + "env.from_collection([3]).print()\n", True),
        (BUILT + "env.get_execution_plan()\n", False),
        (BUILT + "raise SystemError\n", False),
    ],
    ids=["built", "run", "run-and-built", "planned", "failed"],
)
def test_a_program_that_ends_without_execute_warns(tmp_path: Path, text: str, warns: bool) -> None:
    script = tmp_path / "job.py"
    script.write_text(text)
    command = [sys.executable, str(script), "--in-process"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ("ended without execute()" in done.stderr) == warns, done.stderr
    if warns:
        line = len(text.splitlines())
        assert f"{script}:{line} was not computed" in done.stderr
        assert "call env.execute()" in done.stderr


@pytest.mark.parametrize(
    ("text", "warns"), [(BUILT, True), (BUILT + "raise SystemError\n", False)], ids=["built", "failed"]
)
def test_penstock_run_warns_of_a_program_without_execute(tmp_path: Path, text: str, warns: bool) -> None:
    (tmp_path / "job.py").write_text(text)
    command = [sys.executable, "-m", "penstock.cli", "run", "--in-process", "job.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ("job.py:4 was not computed" in done.stderr) == warns, done.stderr
    assert done.returncode == (0 if warns else 1)


def test_an_execute_without_a_new_sink_says_that_the_last_one_took_them() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    env._take_program("first")
    with pytest.raises(InvalidJob, match="no sink was added since the last execute") as caught:
        env.execute("second")
    assert "call execute() once" in caught.value.remedy
    with pytest.raises(InvalidJob, match="the program has no sink"):
        StreamExecutionEnvironment.get_execution_environment().execute("none")
