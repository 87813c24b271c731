"""The soak's clock: the wall clock jumps, and the monotonic clock does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.faults.clock import SettableClock

_PROGRAM = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""


def test_only_the_wall_clock_of_a_running_process_jumps(tmp_path: Path) -> None:
    clock = SettableClock(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clock.environment},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        for shift in (0, -3600, 7200):
            clock.set(shift)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            assert abs(wall - time.time() - shift) < 5
            assert abs(monotonic - time.monotonic()) < 5
        process.stdin.close()
