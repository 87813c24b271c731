"""The memory of processes."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock.common.system.memory_use import used_memory, used_with_children

MB = 2**20
HOLD = "import sys; kept = bytearray(b'x') * (80 << 20); print('ready', flush=True); sys.stdin.read()"


def started(source: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_the_memory_of_a_process_includes_what_it_has_allocated() -> None:
    with started(HOLD) as process:
        assert 80 * MB < used_memory(process.pid) < 120 * MB
        assert used_with_children(process.pid) == used_memory(process.pid)
    assert used_memory(process.pid) == 0
    assert used_memory() > MB


def test_the_memory_of_descendants_counts() -> None:
    source = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {HOLD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print('ready', flush=True); sys.stdin.read()"
    )
    with started(source) as process:
        assert used_memory(process.pid) < 60 * MB
        assert used_with_children(process.pid) > 80 * MB


def test_an_allocation_far_above_the_limit_fails_and_the_limit_can_be_removed() -> None:
    source = (
        "import sys\n"
        "from penstock.common.system.memory_use import limit_data\n"
        "limit_data(100 << 20)\n"
        "try:\n    bytes(3 << 30)\n"
        "except MemoryError:\n    print('refused')\n"
        "limit_data(0)\n"
        "print(len(memoryview(bytes(2 << 30))) >> 30)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.split() == ["refused", "2"]
