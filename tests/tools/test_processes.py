"""Processes of the tools that outlive who started them."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from tools import processes


def test_a_lock_of_who_starts_it_is_not_held_by_what_goes_on(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)  # as a program has it that was started by flock(1)
    fcntl.flock(lock, fcntl.LOCK_EX)
    pid = processes.spawn(["sleep", "30"], environment=dict(os.environ), log=tmp_path / "log")
    try:
        time.sleep(0.2)
        os.close(lock)
        again = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
    finally:
        os.kill(pid, signal.SIGKILL)
        processes.reap(pid)
