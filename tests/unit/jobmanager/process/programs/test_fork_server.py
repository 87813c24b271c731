"""The process that forks the processes of programs, with a program that only a test has."""

from __future__ import annotations

import os
import queue
import signal
import socket
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from penstock.common.errors import ClusterError
from penstock.jobmanager.process.programs.process import fork_server
from penstock.jobmanager.process.programs.process.fork_server import ForkServer

pytestmark = pytest.mark.timeout(120)

WAIT_S = 60.0


class Processes:
    """Processes of a real server. Each waits for the session's first message, as processes of programs do."""

    def __init__(self) -> None:
        self.server = ForkServer()
        self.exits: queue.Queue[tuple[int, int | None]] = queue.Queue()
        self._ends: dict[int, socket.socket] = {}

    def fork(self) -> int:
        here, there = socket.socketpair()
        reading, writing = os.pipe()
        name = len(self._ends)
        try:
            pid = self.server.fork(there, writing, lambda code: self.exits.put((name, code)))
        finally:
            there.close()
            os.close(writing)
            os.close(reading)
        self._ends[name] = here
        return pid

    def hang_up(self, name: int) -> None:
        """Close the connection of a process, which ends with code 1 then."""
        self._ends[name].close()

    def next_exit(self) -> tuple[int, int | None]:
        return self.exits.get(timeout=WAIT_S)

    def close(self) -> None:
        for end in self._ends.values():
            end.close()
        self.server.close()


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


def until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_exit_codes_and_signals_are_reported_to_the_right_process(processes: Processes) -> None:
    first, second = processes.fork(), processes.fork()
    until(lambda: os.getsid(first) == first)
    assert first != second
    os.kill(second, signal.SIGTERM)
    assert processes.next_exit() == (1, -signal.SIGTERM)
    processes.hang_up(0)
    assert processes.next_exit() == (0, 1)


def test_kill_ends_a_process_with_its_group_and_ignores_ended_ones(processes: Processes) -> None:
    pid = processes.fork()
    processes.server.kill(pid)
    assert processes.next_exit() == (0, -signal.SIGKILL)
    processes.server.kill(pid)
    processes.server.kill(os.getpid())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_server_replaces_one_that_was_killed_or_stopped(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    first = processes.fork()
    parent = psutil.Process(first).parent()
    assert parent is not None
    monkeypatch.setattr(fork_server, "FORK_S", 5.0)
    os.kill(parent.pid, number)
    if number == signal.SIGSTOP:
        until(lambda: parent.status() == psutil.STATUS_STOPPED)
    second = processes.fork()
    assert not is_gone(second)
    assert not is_gone(first)
    processes.server.kill(first)
    name, _ = processes.next_exit()
    assert name == 0
    processes.server.kill(second)
    assert processes.next_exit() == (1, -signal.SIGKILL)


def test_an_exit_is_reported_after_the_end_of_the_server(processes: Processes) -> None:
    pid = processes.fork()
    parent = psutil.Process(pid).parent()
    assert parent is not None
    parent.kill()
    os.kill(pid, signal.SIGKILL)
    name, code = processes.next_exit()
    assert (name, code) in ((0, None), (0, -signal.SIGKILL))


def test_nothing_starts_after_close(processes: Processes) -> None:
    pid = processes.fork()
    processes.server.kill(pid)
    processes.server.close()
    with pytest.raises(ClusterError, match="shutting down"):
        processes.fork()


def test_processes_that_the_machine_refuses_are_an_error(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    processes.fork()
    server = processes.server._server
    assert server is not None
    take = server._take
    monkeypatch.setattr(server, "_take", lambda number, code: take(11, fork_server._NOT_FORKED))
    with pytest.raises(ClusterError, match="cannot start a process for the program: Resource temporarily unavailable"):
        processes.fork()
