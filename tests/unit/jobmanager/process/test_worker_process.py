"""A TaskManager's process: it waits for its master, ends its Worker when the master has gone, and begins anew."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.jobmanager.cluster.credentials import Credentials
from penstock.jobmanager.process import worker_process
from penstock.jobmanager.process.worker_process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


class TestTls:
    """The master takes TLS connections only, and ends others after some seconds."""

    def master(self, credentials: Credentials) -> Master:
        master = Master.__new__(Master)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(credentials.certificate, credentials.private_key)
        plain = socket.create_server(("127.0.0.1", 0))
        master.listener = context.wrap_socket(plain, server_side=True)
        master.port = plain.getsockname()[1] if plain.fileno() >= 0 else master.listener.getsockname()[1]
        master.peers = []
        threading.Thread(target=master._serve, daemon=True).start()
        return master

    def test_a_master_of_this_cluster_is_watched_until_it_goes(self, tmp_path: Path) -> None:
        credentials = Credentials.create("s" * 32, tmp_path / "private")
        master, started = self.master(credentials), Started()
        running = Running(WorkerProcess(f"127.0.0.1:{master.port}", started, tls=credentials.client_context()))
        wait_until(lambda: len(started.children) == 1)
        time.sleep(0.3)  # in which TLS says more, and the master does not
        assert started.children[0].poll() is None
        master.stop()
        wait_until(lambda: started.children[0].poll() is not None)
        running.worker.end()
        assert running.ended() == 0
        assert len(started.children) == 1

    def test_who_is_not_of_this_cluster_is_not_taken_for_the_master(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        other = self.master(Credentials.create("o" * 32, tmp_path / "other"))
        credentials = Credentials.create("s" * 32, tmp_path / "private")
        started = Started()
        running = Running(WorkerProcess(f"127.0.0.1:{other.port}", started, tls=credentials.client_context()))
        wait_until(lambda: "security.spark.secret-file" in caplog.text)
        running.worker.end()
        assert running.ended() == 0
        assert not started.children
        assert caplog.text.count("does not prove to be this cluster's master") == 1
        other.stop()


def test_it_is_ready_while_a_worker_runs_for_a_master_and_alive_while_it_waits() -> None:
    master, started = Master(), Started()
    worker = WorkerProcess(f"127.0.0.1:{master.port}", started)
    assert (worker.is_alive, worker.is_ready) == (True, False)
    running = Running(worker)
    wait_until(lambda: worker.is_ready)
    master.stop()
    wait_until(lambda: not worker.is_ready)
    assert worker.is_alive
    worker.end()
    assert running.ended() == 0


def test_a_loop_that_is_stuck_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess("127.0.0.1:1", Started())
    now = time.monotonic()
    monkeypatch.setattr(worker_process.time, "monotonic", lambda: now + worker_process.STUCK_S + 1)
    assert not worker.is_alive
