"""A TaskManager's process: it waits for its master, ends its Worker when the master has gone, and begins anew."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager import worker_process
from penstock.jobmanager.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable


class Master:
    """Something that listens."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.peers: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                self.peers.append(self.listener.accept()[0])
            except OSError:
                return

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for peer in self.peers:
            peer.close()


class Started:
    """The Workers that were started: processes that sleep."""

    def __init__(self, command: str = "sleep 60 & wait") -> None:
        self.command = command
        self.children: list[subprocess.Popen[bytes]] = []
        self.masters: list[str] = []

    def __call__(self, master: str) -> subprocess.Popen[bytes]:
        self.masters.append(master)
        child = subprocess.Popen(["/bin/sh", "-c", self.command], start_new_session=True)
        self.children.append(child)
        return child


class Running:
    """A WorkerProcess in a thread."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = self.worker.run()

    def ended(self) -> int | None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.code


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "LOOK_S", 0.01)
    monkeypatch.setattr(worker_process, "WATCH_S", 0.01)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def session_of(child: subprocess.Popen[bytes]) -> list[str]:
    """Processes of the Worker's session that are alive."""
    found = subprocess.run(
        ["ps", "-o", "pid=,stat=", "-s", str(child.pid)], capture_output=True, text=True, check=False
    )
    return [line for line in found.stdout.splitlines() if "Z" not in line.split()[1]]


def test_worker_is_started_when_the_master_listens_and_with_its_address() -> None:
    started, port = Started(), free_port()
    running = Running(WorkerProcess(f"localhost:{port}", started))
    time.sleep(0.1)
    assert started.masters == []
    master = Master(port)
    wait_until(lambda: bool(started.masters))
    assert started.masters == [f"127.0.0.1:{port}"]
    running.worker.end()
    assert running.ended() == 0
    wait_until(lambda: session_of(started.children[0]) == [])
    master.stop()


def test_worker_ends_with_its_master_and_another_begins_with_the_next() -> None:
    started, master = Started(), Master()
    running = Running(WorkerProcess(f"127.0.0.1:{master.port}", started))
    wait_until(lambda: len(started.children) == 1)
    master.stop()
    wait_until(lambda: started.children[0].poll() is not None)
    again = Master(master.port)
    wait_until(lambda: len(started.children) == 2)
    running.worker.end()
    assert running.ended() == 0
    again.stop()


def test_worker_that_ends_by_itself_ends_the_process() -> None:
    started, master = Started("exit 3"), Master()
    assert Running(WorkerProcess(f"127.0.0.1:{master.port}", started)).ended() == 3
    master.stop()


def test_worker_that_does_not_end_is_killed() -> None:
    started, master = Started("trap '' TERM; while :; do sleep 1; done"), Master()
    running = Running(WorkerProcess(f"127.0.0.1:{master.port}", started, linger_s=0.2))
    wait_until(lambda: bool(started.children))
    time.sleep(0.1)
    running.worker.end()
    assert running.ended() == 0
    wait_until(lambda: session_of(started.children[0]) == [])
    master.stop()
