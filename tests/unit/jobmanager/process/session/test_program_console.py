"""Output of `python job.py`: prints and logs name their operator, failures and Ctrl-C show no code of the engine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import logging, sys, time
from penstock.datastream import StreamExecutionEnvironment

def show(value):
    if "debug" in sys.argv:
        breakpoint()
    print("seen", value)
    print("to stderr", value, file=sys.stderr)
    logging.getLogger("shop").warning("low %s", value)
    if "wait" in sys.argv:
        time.sleep(0.2)
    if "fail" in sys.argv:
        return value // 0
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
print("begins")
env.from_collection(range(20 if "wait" in sys.argv else 2)).rebalance().map(show).name("Show").print()
env.execute("shop")
print("ends")
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (path := tmp_path / "job.py").write_text(PROGRAM)
    return str(path)


def run(*words: str, keys: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words, "--in-process"]
    return subprocess.run(command, input=keys, capture_output=True, text=True, timeout=120)


def test_prints_and_log_records_of_functions_name_their_operator_and_subtask(script: str) -> None:
    ended = run(script)
    assert ended.stdout.splitlines() == ["begins", "[Show #0] seen 0", "[Show #0] seen 1", "0", "1", "ends"]
    assert ended.stderr.splitlines() == [
        "[Show #0] to stderr 0",
        "[Show #0] WARNING shop: low 0",
        "[Show #0] to stderr 1",
        "[Show #0] WARNING shop: low 1",
    ]


def test_a_debugger_in_a_function_writes_its_own_lines(script: str) -> None:
    ended = run(script, "debug", keys="p value + 40\nc\nc\n")
    assert "(Pdb) 40\n" in ended.stdout
    assert "[Show #0] (Pdb)" not in ended.stdout
    assert "seen 1\n" in ended.stdout


def test_a_failure_has_only_frames_of_the_program(script: str) -> None:
    ended = run(script, "fail")
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("[Show")]
    files = [line.split('"')[1] for line in lines if line.startswith("  File ")]
    assert files == [script, script], ended.stderr
    assert "  operator: Show" in lines
    failing = PROGRAM.splitlines().index("        return value // 0") + 1
    assert any("raised ZeroDivisionError" in line and f"(at {script}:{failing} in show)" in line for line in lines)


def test_development_mode_shows_the_frames_of_the_engine(script: str) -> None:
    assert "session.py" in run("-X", "dev", script, "fail").stderr


@pytest.mark.parametrize("command", [[], ["-m", "penstock.cli", "run", "--in-process"]])
def test_ctrl_c_ends_with_one_line_and_cancels_the_job(script: str, command: list[str]) -> None:
    words = [*command, script, "wait", *([] if command else ["--in-process"])]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores SIGINT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "seen" in line:
                break
        process.send_signal(signal.SIGINT)
        _, written = process.communicate(timeout=60)
    lines = [line for line in written.splitlines() if not line.startswith("[Show")]
    assert len(lines) == 1, written
    assert lines[0].startswith("interrupted: job 'shop' (")
    assert process.returncode in (130, -signal.SIGINT)
