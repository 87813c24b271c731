"""A TaskManager with a leader and a standby: its warm executor, and the order in which slots change hands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.common.config.memory import MIB, WARM_EXECUTOR, task_manager_memory
from penstock.common.configuration import Configuration
from penstock.jobmanager.cluster.executor.memory_kills import MemoryKills
from penstock.jobmanager.cluster.members.registration import AskWarm, Ended, Follows, FromTaskManager, Leads, OnStandby
from penstock.jobmanager.cluster.sealed_server import Peer
from penstock.jobmanager.process.worker import master_link, master_search, warm_executor, worker_process
from penstock.jobmanager.process.worker.warm_executor import WarmExecutorPolicy, machine_memory
from tests.unit.jobmanager.process.worker.test_worker_process import (
    Executors,
    Master,
    TaskManager,
    free_port,
    wait_until,
)

LIMIT = 1000 * MIB


class Elected(Master):
    """A master in an election. `term` None means that it is on standby."""

    def __init__(self, name: str, term: int | None = None, port: int = 0) -> None:
        self.name, self.term = name, term
        self.running_when_followed: list[int] = []
        self.executors: Executors | None = None
        super().__init__(port)

    def on_admitted(self, peer: Peer) -> None:
        self.post(peer, msgspec.msgpack.encode(self.role()))

    def role(self) -> OnStandby | Leads:
        return OnStandby(self.name) if self.term is None else Leads(self.name, self.term)

    def lead(self, term: int) -> None:
        self.term = term
        for peer in self.peers:
            self.post(peer, msgspec.msgpack.encode(self.role()))

    def on_frame(self, peer: Peer, frame: bytes) -> None:
        message: FromTaskManager = msgspec.msgpack.decode(frame, type=FromTaskManager)
        if isinstance(message, Follows) and self.executors is not None:
            children = self.executors.children
            self.running_when_followed.append(sum(child.poll() is None for child in children))
        if isinstance(message, AskWarm) or (isinstance(message, Follows) and not self.launched):
            self.launch(peer)
        super().on_frame(peer, frame)

    def has_received(self, message: FromTaskManager) -> bool:
        return message in self.received


class Memory:
    """The memory that a policy sees."""

    def __init__(self, used: int = 0) -> None:
        self.used = used

    def __call__(self) -> tuple[int, int]:
        return self.used, LIMIT


class WarmTaskManager(TaskManager):
    """A TaskManager that may keep a warm executor."""

    def __init__(
        self, *masters: Elected, ports: tuple[int, ...] = (), mode: str = "auto", memory: Memory | None = None
    ) -> None:
        self.memory = memory or Memory()
        self.mode = mode
        port, *others = (*(master.port for master in masters), *ports)
        super().__init__(port, others=tuple(others))
        for master in masters:
            master.executors = self.executors

    def _run(self) -> None:
        self.worker._warm = WarmExecutorPolicy(self.mode, self.memory)
        super()._run()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "POLL_S", 0.01)
    monkeypatch.setattr(worker_process, "STANDBY_POLL_S", 0.05)
    monkeypatch.setattr(worker_process, "WATCH_S", 0.01)
    monkeypatch.setattr(warm_executor, "DELAY_S", 0.1)


@pytest.fixture
def masters() -> Iterator[tuple[Elected, Elected]]:
    leader, standby = Elected("a", term=1), Elected("b")
    yield leader, standby
    leader.close()
    standby.close()


def wait_for_warm(leader: Elected, standby: Elected) -> None:
    wait_until(lambda: leader.has_received(Follows()) and leader.launched == 1)
    leader.reports_running("0")
    wait_until(lambda: standby.has_received(AskWarm()))


def test_a_standby_gets_a_warm_executor_after_the_leaders_executor_runs(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_until(lambda: leader.launched == 1 and bool(standby.registered))
    time.sleep(0.3)
    assert not standby.has_received(AskWarm())
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    assert manager.worker.is_ready
    assert not standby.has_received(Follows())
    manager.end()
    assert len(manager.executors.gone) == 2


def test_the_executor_of_a_lost_leader_ends_before_the_worker_follows_the_next_one(
    masters: tuple[Elected, Elected],
) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    standby.reports_running("0")
    leader.close()
    standby.lead(2)
    wait_until(lambda: standby.has_received(Follows()))
    assert standby.running_when_followed == [1]
    assert manager.executors.children[0].poll() is not None
    assert manager.executors.children[1].poll() is None
    wait_until(lambda: manager.worker.is_ready)
    assert len(manager.executors.children) == 2
    manager.end()


def test_a_newer_leader_replaces_a_leader_that_hangs(masters: tuple[Elected, Elected]) -> None:
    frozen, standby = masters
    manager = WarmTaskManager(frozen, standby)
    wait_for_warm(frozen, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    standby.lead(2)
    wait_until(lambda: standby.has_received(Follows()))
    assert standby.running_when_followed == [1]
    wait_until(lambda: len(frozen.registered) >= 2)  # the worker looks for the next standby
    time.sleep(0.2)
    assert frozen.received.count(Follows()) == 1, "it has a lower term"
    assert frozen.launched == 1
    manager.end()


def test_a_worker_keeps_its_leader_if_another_master_claims_an_older_term(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    leader.term = 5
    manager = WarmTaskManager(leader, standby, mode="false")
    wait_until(lambda: leader.has_received(Follows()) and bool(standby.registered))
    standby.lead(4)
    time.sleep(0.3)
    assert not standby.has_received(Follows())
    assert len(manager.executors.children) == 1
    manager.end()


def test_a_warm_executor_ends_with_its_standby_and_the_next_standby_gets_another(
    masters: tuple[Elected, Elected],
) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    standby.close()
    wait_until(lambda: manager.executors.children[1].poll() is not None)
    assert manager.executors.children[0].poll() is None
    following = Elected("c", port=standby.port)
    wait_until(lambda: len(manager.executors.children) == 3)
    assert manager.executors.children[0].poll() is None
    manager.end()
    following.close()


def test_a_second_standby_gets_no_executor(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    second = Elected("c")
    manager = WarmTaskManager(leader, standby, second)
    wait_until(lambda: leader.launched == 1 and bool(standby.registered or second.registered))
    leader.reports_running("0")
    wait_until(lambda: len(manager.executors.children) == 2)
    time.sleep(0.4)
    assert standby.launched + second.launched == 1
    manager.end()
    second.close()


def test_a_leader_without_a_warm_executor_starts_one(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby, mode="false")
    wait_until(lambda: leader.launched == 1 and bool(standby.registered))
    leader.reports_running("0")
    time.sleep(0.3)
    assert standby.launched == 0
    leader.close()
    standby.lead(2)
    wait_until(lambda: len(manager.executors.children) == 2)
    assert standby.running_when_followed == [0]
    manager.end()


def test_a_warm_executor_ends_if_memory_becomes_scarce(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    manager.memory.used = int(LIMIT * 0.95)
    wait_until(lambda: manager.executors.children[1].poll() is not None)
    assert manager.executors.children[0].poll() is None
    manager.memory.used = 0
    time.sleep(0.3)
    assert len(manager.executors.children) == 2, "it pauses"
    manager.end()


def test_no_warm_executor_starts_without_memory(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby, memory=Memory(int(LIMIT * 0.7)))
    wait_until(lambda: leader.launched == 1 and bool(standby.registered))
    leader.reports_running("0")
    time.sleep(0.4)
    assert not standby.has_received(AskWarm())
    manager.end()


def test_warm_executors_that_cannot_run_do_not_end_the_worker(
    masters: tuple[Elected, Elected], caplog: pytest.LogCaptureFixture
) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_until(lambda: leader.launched == 1 and bool(standby.registered))
    wait_until(lambda: len(manager.executors.children) == 1)
    manager.executors.command = "exit 3"
    leader.reports_running("0")
    wait_until(lambda: "no warm executor can run (3)" in caplog.text)
    assert sum(isinstance(message, Ended) for message in standby.received) == master_link.USELESS - 1
    assert manager.executors.children[0].poll() is None
    assert manager.code is None
    manager.end()


def test_failed_warm_executors_do_not_count_when_their_master_leads(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    for number in (2, 3):
        manager.executors.children[-1].kill()
        wait_until(lambda number=number: len(manager.executors.children) == number + 1)
    leader.close()
    standby.lead(2)
    wait_until(lambda: standby.has_received(Follows()))
    manager.executors.children[-1].kill()
    wait_until(lambda: len(manager.executors.children) == 5)
    assert manager.code is None
    manager.end()


def test_the_end_of_the_worker_does_not_wait_for_its_warm_executor(masters: tuple[Elected, Elected]) -> None:
    leader, standby = masters
    manager = WarmTaskManager(leader, standby)
    manager.worker._linger_s = 1_000.0
    wait_until(lambda: len(manager.executors.children) == 1)
    manager.executors.command = "trap '' TERM; while :; do sleep 1; done"
    wait_for_warm(leader, standby)
    wait_until(lambda: len(manager.executors.children) == 2)
    time.sleep(0.2)
    manager.end()
    assert [child.returncode for child in manager.executors.children] == [-15, -9]


def test_two_connections_to_one_master_are_reduced_to_one(masters: tuple[Elected, Elected]) -> None:
    """Several masters may have one address. The worker tries the address again, and may reach the same master."""
    leader, _ = masters
    manager = WarmTaskManager(leader)
    wait_until(lambda: len(leader.registered) >= 4)
    assert leader.registered[-1].masters == ("a",)
    assert leader.launched == 1
    assert len(manager.executors.children) == 1
    assert manager.executors.children[0].poll() is None
    manager.end()


def test_a_master_without_an_election_gets_no_second_connection() -> None:
    master, other = Master(), Master()
    manager = TaskManager(master.port, others=(other.port,))
    wait_until(lambda: bool(manager.executors.children))
    time.sleep(0.3)
    assert (len(master.registered), len(other.registered)) == (1, 0)
    manager.end()
    master.close()
    other.close()


def test_the_policy_waits_after_the_start_of_the_leaders_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_executor, "DELAY_S", 5.0)
    policy = WarmExecutorPolicy("true", lambda: (LIMIT, LIMIT))
    now = time.monotonic()
    assert not policy.may_start(None)
    assert not policy.may_start(now)
    assert policy.may_start(now - 6.0)
    assert not policy.must_end(), "its memory is reserved"
    policy.pause()
    assert not policy.may_start(now - 6.0)


def test_the_memory_of_a_container_in_use_does_not_count_the_file_cache(tmp_path: Path) -> None:
    for name, text in {
        "memory.events": "oom_kill 0\n",
        "memory.max": str(LIMIT),
        "memory.current": str(600 * MIB),
        "memory.stat": f"anon 1\ninactive_file {200 * MIB}\n",
    }.items():
        (tmp_path / name).write_text(text)
    container = MemoryKills(str(tmp_path), str(tmp_path / "own"))
    policy = WarmExecutorPolicy.of(Configuration(), container)
    assert (container.used, container.limit) == (400 * MIB, LIMIT)
    assert policy.may_start(0.0)
    (tmp_path / "memory.current").write_text(str(900 * MIB))
    assert not policy.may_start(0.0)
    assert not policy.must_end()
    (tmp_path / "memory.current").write_text(str(1150 * MIB))
    assert policy.must_end()


def test_unknown_memory_starts_no_warm_executor(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: many kB\n")
    assert machine_memory(str(tmp_path / "meminfo")) == machine_memory(str(tmp_path / "none")) == (0, 0)
    assert not WarmExecutorPolicy("auto", lambda: (0, 0)).may_start(0.0)
    used, size = machine_memory()
    assert 0 < used < size


def test_a_warm_executor_that_is_always_kept_is_part_of_the_containers_memory() -> None:
    base = {"taskmanager.memory.process.size": "2gb", "high-availability.type": "file"}
    auto = task_manager_memory(Configuration(base))
    always = task_manager_memory(Configuration({**base, "penstock.worker.warm-executor": "true"}))
    alone = task_manager_memory(
        Configuration({"taskmanager.memory.process.size": "2gb", "penstock.worker.warm-executor": "true"})
    )
    assert always.framework - auto.framework == WARM_EXECUTOR
    assert (auto.python_per_slot or 0) - (always.python_per_slot or 0) >= WARM_EXECUTOR - MIB
    assert alone == task_manager_memory(Configuration({"taskmanager.memory.process.size": "2gb"}))


def test_the_worker_finds_a_standby_that_comes_late(masters: tuple[Elected, Elected]) -> None:
    leader, _ = masters
    port = free_port()
    manager = WarmTaskManager(leader, ports=(port,))
    wait_until(lambda: leader.launched == 1)
    leader.reports_running("0")
    time.sleep(0.2)
    late = Elected("late", port=port)
    wait_until(lambda: len(manager.executors.children) == 2)
    assert all(child.poll() is None for child in manager.executors.children)
    manager.end()
    late.close()


def test_a_connection_that_the_master_ignores_is_dropped_although_the_first_one_has_ended(
    masters: tuple[Elected, Elected], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master ignores the second connection of a TaskManager. It then assigns no executor there."""
    leader, _ = masters

    def on_admitted(peer: Peer) -> None:
        if "a" in leader.registered[-1].masters and not ignored:
            ignored.append(peer)
            leader.peers[0].hang_up()
            time.sleep(0.1)  # the worker sees the end before the role
        leader.post(peer, msgspec.msgpack.encode(leader.role()))

    ignored: list[Peer] = []
    monkeypatch.setattr(leader, "on_admitted", on_admitted)
    manager = WarmTaskManager(leader)
    wait_until(lambda: bool(ignored))
    wait_until(lambda: ignored[0] not in leader.peers)
    manager.end()


def test_an_unexpected_error_does_not_end_the_search(
    masters: tuple[Elected, Elected], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_twice(master: str) -> list[tuple[str, int, Any]]:
        failures.append(master)
        if len(failures) <= 2:
            raise UnicodeError("label empty or too long")
        return resolve(master)

    failures: list[str] = []
    resolve = master_search._resolve
    monkeypatch.setattr(master_search, "_resolve", fails_twice)
    leader, _ = masters
    manager = WarmTaskManager(leader)
    wait_until(lambda: leader.has_received(Follows()))
    assert caplog.text.count("the search for the master at") == 1
    manager.end()
