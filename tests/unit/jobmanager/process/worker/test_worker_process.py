"""A TaskManager's process: it registers with its master, runs the assigned executor, and restarts with the next master."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from penstock.jobmanager.cluster.executor.executor_process import Launch
from penstock.jobmanager.cluster.executor.jvm_readings import SOCKET
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.members.registration import (
    MAX_BYTES,
    PURPOSE,
    AskReadings,
    Beat,
    BeatAnswer,
    Ended,
    FromTaskManager,
    Killed,
    ReadingsAnswer,
    Register,
    Running,
    Start,
)
from penstock.jobmanager.cluster.sealed_server import Peer, SealedServer
from penstock.jobmanager.process.worker import master_link, worker_process
from penstock.jobmanager.process.worker.worker_process import WorkerProcess

SECRET = "s" * 32


class Master(SealedServer):
    """A master that accepts TaskManagers and assigns an executor to each."""

    def __init__(self, port: int = 0, secret: str = SECRET) -> None:
        super().__init__("127.0.0.1", port, secret, PURPOSE, MAX_BYTES)
        self.port = int(self.address.rpartition(":")[2])
        self.peers: list[Peer] = []
        self.registered: list[Register] = []
        self.received: list[FromTaskManager] = []
        self.launched = 0
        self.start()

    def admit(self, peer: Peer, frame: bytes) -> str | None:
        register = peer.name = msgspec.msgpack.decode(frame, type=Register)
        self.registered.append(register)
        self.peers.append(peer)
        return None

    def on_admitted(self, peer: Peer) -> None:
        self.launch(peer)

    def launch(self, peer: Peer) -> None:
        launch = Launch(str(self.launched), "spark://driver", "app", [], "", {}, {})
        self.launched += 1
        self.post(peer, msgspec.msgpack.encode(Start(launch)))

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        message: FromTaskManager = msgspec.msgpack.decode(frame, type=FromTaskManager)
        self.received.append(message)
        if isinstance(message, Ended):
            self.launch(peer)

    def on_disconnected(self, peer: Peer) -> None:
        self.peers.remove(peer)

    def reports_running(self, executor_id: str) -> None:
        self.post(self.peers[-1], msgspec.msgpack.encode(Running(executor_id)))

    @property
    def ended(self) -> list[Ended]:
        return [message for message in self.received if isinstance(message, Ended)]


@dataclass
class Executors:
    """The started executors, which are sleeping processes."""

    command: str = "sleep 60 & wait"
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: list[tuple[str, str]] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: int = 0
    """The number of starts that the system refuses."""

    def start(self, launch: Launch, host: str) -> subprocess.Popen[bytes]:
        self.started.append((launch.executor_id, host))
        if len(self.started) <= self.refused:
            raise OSError(errno.ENOSPC, "No space left on device")
        child = subprocess.Popen(["/bin/sh", "-c", self.command], start_new_session=True)
        self.children.append(child)
        return child

    def ended(self, launch: Launch) -> None:
        self.gone.append(launch.executor_id)


class TaskManager:
    """A WorkerProcess in a thread."""

    def __init__(
        self,
        port: int,
        command: str = "sleep 60 & wait",
        linger_s: float = 5.0,
        *,
        refused: int = 0,
        kills: MemoryKills | None = None,
        others: tuple[int, ...] = (),
    ) -> None:
        self.executors = Executors(command, refused=refused)
        masters = ",".join(f"localhost:{number}" for number in (port, *others))
        self.worker = WorkerProcess(
            masters, SECRET, 2, 2**29, self.executors.start, self.executors.ended, linger_s, kills
        )
        self.code: int | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        self.code = self.worker.run()

    def ended(self) -> int | None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.code

    def end(self) -> None:
        self.worker.end()
        assert self.ended() == 0
        wait_until(lambda: all(session_of(child) == [] for child in self.executors.children))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "POLL_S", 0.01)
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
    """Return the processes of the executor's session that are alive."""
    found = subprocess.run(
        ["ps", "-o", "pid=,stat=", "-s", str(child.pid)], capture_output=True, text=True, check=False
    )
    return [line for line in found.stdout.splitlines() if "Z" not in line.split()[1]]


def test_the_worker_registers_when_the_master_listens_and_starts_its_executor() -> None:
    port = free_port()
    manager = TaskManager(port)
    time.sleep(0.1)
    assert manager.executors.started == []
    master = Master(port)
    wait_until(lambda: bool(manager.executors.started))
    assert manager.executors.started == [("0", "127.0.0.1")]
    register = master.registered[0]
    assert (register.host, register.slots, register.heap) == ("127.0.0.1", 2, 2**29)
    wait_until(lambda: Beat() in master.received)
    manager.end()
    assert manager.executors.gone == ["0"]
    master.close()


def test_the_executor_ends_with_its_master_and_another_starts_with_the_next() -> None:
    master = Master()
    manager = TaskManager(master.port)
    wait_until(lambda: len(manager.executors.children) == 1)
    master.close()
    wait_until(lambda: manager.executors.children[0].poll() is not None)
    again = Master(master.port)
    wait_until(lambda: len(manager.executors.children) == 2)
    assert again.registered[0].id == master.registered[0].id
    manager.end()
    again.close()


def test_the_end_of_an_executor_is_reported_and_another_starts() -> None:
    master = Master()
    manager = TaskManager(master.port)
    for number in range(5):
        wait_until(lambda number=number: len(manager.executors.children) == number + 1)
        master.reports_running(str(number))
        wait_until(lambda: manager.worker.is_ready)
        manager.executors.children[number].kill()
        wait_until(lambda number=number: len(master.ended) == number + 1)
    assert [message.executor_id for message in master.ended] == ["0", "1", "2", "3", "4"]
    manager.end()
    master.close()


def test_a_memory_kill_is_reported_before_the_end_that_follows(tmp_path: Path) -> None:
    (tmp_path / "memory.events").write_text("oom 0\noom_kill 0\n")
    (tmp_path / "memory.max").write_text(str(2**28))
    kills = MemoryKills(str(tmp_path), str(tmp_path / "own"))
    master = Master()
    manager = TaskManager(master.port, kills=kills)
    wait_until(lambda: len(manager.executors.children) == 1)
    (tmp_path / "memory.events").write_text("oom 1\noom_kill 1\n")
    manager.executors.children[0].kill()
    wait_until(lambda: len(master.ended) == 1)
    assert [message for message in master.received if not isinstance(message, Beat)] == [Killed(2**28), Ended("0", -9)]
    manager.end()
    master.close()


def test_executors_that_never_run_end_the_process_with_their_exit_code() -> None:
    master = Master()
    manager = TaskManager(master.port, "exit 3")
    assert manager.ended() == 3
    assert len(manager.executors.children) == master_link.USELESS
    master.close()


def test_a_failed_start_of_an_executor_is_reported_and_another_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    master = Master()
    manager = TaskManager(master.port, refused=master_link.USELESS - 1)
    wait_until(lambda: bool(manager.executors.children))
    assert [message.code for message in master.ended] == [master_link.NOT_STARTED] * (master_link.USELESS - 1)
    assert manager.executors.gone == ["0", "1"]
    assert len(master.registered) == 1
    assert "executor 0 cannot be started: [Errno 28] No space left on device" in caplog.text
    manager.end()
    master.close()


def test_executors_that_can_never_start_end_the_process() -> None:
    master = Master()
    manager = TaskManager(master.port, refused=1_000)
    assert manager.ended() == master_link.NOT_STARTED
    assert len(manager.executors.started) == master_link.USELESS
    master.close()


def test_the_worker_pauses_before_it_registers_again_if_no_executor_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "POLL_S", 0.5)
    master = Master()
    started = time.monotonic()
    manager = TaskManager(master.port)

    def registers_again() -> bool:
        for peer in list(master.peers):
            peer.hang_up()
        return len(master.registered) > 1

    wait_until(registers_again)
    assert time.monotonic() - started >= 0.5
    manager.end()
    master.close()


def test_an_executor_that_does_not_end_is_killed() -> None:
    master = Master()
    manager = TaskManager(master.port, "trap '' TERM; while :; do sleep 1; done", linger_s=0.2)
    wait_until(lambda: bool(manager.executors.children))
    time.sleep(0.1)
    manager.end()
    master.close()


def test_an_executor_of_a_lost_master_does_not_delay_the_next_master() -> None:
    first, second = Master(), Master()
    manager = TaskManager(
        first.port, "trap '' TERM; while :; do sleep 1; done", linger_s=1_000.0, others=(second.port,)
    )
    wait_until(lambda: bool(manager.executors.children))
    time.sleep(0.1)
    first.close()
    wait_until(lambda: len(manager.executors.children) == 2)
    assert manager.executors.children[0].poll() is not None
    assert len(second.registered) == 1
    manager.worker._linger_s = 0.2
    manager.end()
    second.close()


def test_the_worker_leaves_a_master_that_stops_to_answer_heartbeats() -> None:
    frozen, second = Master(), Master()
    manager = TaskManager(frozen.port, others=(second.port,))
    wait_until(lambda: bool(frozen.peers))
    for _ in range(30):
        frozen.post(frozen.peers[-1], msgspec.msgpack.encode(BeatAnswer(0.5)))
        time.sleep(0.05)
    assert not second.registered
    assert len(frozen.registered) == 1
    wait_until(lambda: len(second.registered) == 1)
    assert len(frozen.registered) == 1
    manager.end()
    frozen.close()
    second.close()


def test_the_current_executor_ends_when_another_is_assigned() -> None:
    master = Master()
    manager = TaskManager(master.port)
    wait_until(lambda: len(manager.executors.children) == 1)
    master.launch(master.peers[0])
    wait_until(lambda: len(manager.executors.children) == 2)
    assert manager.executors.children[0].poll() is not None
    assert manager.executors.gone == ["0"]
    assert not master.ended
    manager.end()
    master.close()


def test_an_executor_that_is_assigned_twice_starts_once() -> None:
    master = Master()
    manager = TaskManager(master.port)
    wait_until(lambda: len(manager.executors.children) == 1)
    master.launched = 0
    master.launch(master.peers[0])
    master.launch(master.peers[0])
    wait_until(lambda: len(manager.executors.started) == 2)
    assert [executor for executor, _ in manager.executors.started] == ["0", "1"]
    assert manager.executors.gone == ["0"]
    manager.end()
    master.close()


def test_a_peer_without_the_secret_is_not_accepted_as_master(caplog: pytest.LogCaptureFixture) -> None:
    other = Master(secret="o" * 32)
    manager = TaskManager(other.port)
    wait_until(lambda: "security.spark.secret-file" in caplog.text)
    time.sleep(0.1)
    assert caplog.text.count("cannot prove that it is the master of this cluster") == 1
    manager.end()
    assert not manager.executors.children
    assert not other.registered
    other.close()


def test_the_worker_is_ready_while_its_executor_runs_and_alive_while_it_waits() -> None:
    master = Master()
    manager = TaskManager(master.port)
    wait_until(lambda: bool(manager.executors.children))
    assert (manager.worker.is_alive, manager.worker.is_ready) == (True, False)
    master.reports_running("0")
    wait_until(lambda: manager.worker.is_ready)
    master.close()
    wait_until(lambda: not manager.worker.is_ready)
    assert manager.worker.is_alive
    manager.end()


def test_a_stuck_loop_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerProcess("127.0.0.1:1", SECRET, 1, 0, Executors().start)
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + worker_process.STUCK_S + 1)
    assert not worker.is_alive


def test_the_worker_forwards_the_metrics_of_its_executors_jvm(tmp_path: Path) -> None:
    speaks = f"""cd {tmp_path}; exec {sys.executable} -c '
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("{SOCKET}")
server.listen()
open("listens", "w").close()
while True:
    asking, _ = server.accept()
    asking.sendall(b"Status.JVM.Threads.Count 34")
    asking.close()
'"""
    master = Master()
    manager = TaskManager(master.port, speaks)
    wait_until((tmp_path / "listens").exists)
    master.post(master.peers[-1], msgspec.msgpack.encode(AskReadings(7)))
    wait_until(lambda: ReadingsAnswer(7, "Status.JVM.Threads.Count 34") in master.received)
    manager.end()
    master.close()


def test_an_executor_without_a_task_reports_no_metrics() -> None:
    master = Master()
    manager = TaskManager(master.port)
    wait_until(lambda: bool(manager.executors.children))
    master.post(master.peers[-1], msgspec.msgpack.encode(AskReadings(8)))
    wait_until(lambda: ReadingsAnswer(8) in master.received)
    manager.end()
    master.close()
