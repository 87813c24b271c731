from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable

from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.leader_link import MAX_CONNECTIONS, LeaderLink, LinkWatcher, connect

CHILD = """
import sys
from penstock.jobmanager.process.election.leader_link import LeaderLink
print(LeaderLink("127.0.0.1").address, flush=True)
sys.stdin.read()
"""


def eventually(condition: Callable[[], object], patience_s: float = 20.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_the_death_of_the_leaders_process_is_reported() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        leader = Holder("a", link=child.stdout.readline().strip())
        dead: list[str] = []
        watcher = LinkWatcher(lambda: leader, dead.append).start()
        try:
            assert eventually(lambda: watcher._connected_to == "a")
            time.sleep(0.6)
            assert not dead
            child.kill()
            assert eventually(lambda: dead[:1] == ["a"])
        finally:
            watcher.stop()


def test_a_refused_connection_to_a_leader_that_was_never_reached_proves_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    dead: list[str] = []
    watcher = LinkWatcher(lambda: Holder("a", link=f"127.0.0.1:{port}"), dead.append).start()
    time.sleep(1.2)
    watcher.stop()
    assert not dead


def test_a_broken_connection_to_a_living_leader_proves_nothing() -> None:
    link = LeaderLink("127.0.0.1")
    dead: list[str] = []
    watcher = LinkWatcher(lambda: Holder("a", link=link.address), dead.append).start()
    try:
        assert eventually(lambda: len(link._connections) == 1)
        link._connections[0].close()
        assert eventually(lambda: len(link._connections) == 2)
        assert not dead
    finally:
        watcher.stop()
        link.close()


def test_connections_are_bounded() -> None:
    link = LeaderLink("127.0.0.1")
    opened = [connect(link.address) for _ in range(MAX_CONNECTIONS + 5)]
    try:
        assert eventually(lambda: opened[4].recv(1) == b"")
        assert eventually(lambda: len(link._connections) == MAX_CONNECTIONS)
    finally:
        link.close()
        for connection in opened:
            connection.close()
