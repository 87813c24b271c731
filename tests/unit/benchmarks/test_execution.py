from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.comparison import ratios
from benchmarks.execution import RunFailed, execute

if TYPE_CHECKING:
    from pathlib import Path

BURN = "t = time.process_time()\nwhile time.process_time() - t < {}: pass\n"


def program(body: str) -> list[str]:
    return [sys.executable, "-c", "import json, subprocess, sys, time\n" + body]


def test_cpu_time_excludes_the_start_and_includes_child_processes(tmp_path: Path) -> None:
    body = (
        BURN.format(0.5)
        + "begin = time.time()\n"
        + f"subprocess.run([sys.executable, '-c', 'import time' + chr(10) + {BURN.format(0.8)!r}])\n"
        + "print('RESULT ' + json.dumps({'begin': begin, 'end': time.time(), 'count': 7}))\n"
        + "time.sleep(0.2)\n"
    )
    run = execute(program(body), {}, 1_000_000, tmp_path / "log")
    assert 0.55 < run.cpu_s < 1.25
    assert run.result == {"count": 7}
    assert run.memory_mb


def test_a_failed_program_shows_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no such thing"):
        execute(program("raise ValueError('no such thing')"), {}, 1, tmp_path / "log")


def test_ratios_divide_penstock_by_the_peer() -> None:
    figures = {"penstock": {"cpu_us_per_record": 2.0}, "bytewax": {"cpu_us_per_record": 8.0}}
    assert ratios("w1", figures) == {"bytewax": {"penstock": 0.25, "goal": 1.0, "met": True}}
