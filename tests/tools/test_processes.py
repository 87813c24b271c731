"""Processes of the tools that outlive the command that starts them."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from tools import processes


def test_a_started_process_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)  # a program that flock(1) starts has such a file
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
