"""The TaskManagers of a cluster, as far as the JobManager knows them. Pure but for a lock."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from penstock.jobmanager.failover.crash import MemoryKill

RECENT_S = 5.0
"""What was killed longer ago than that is not what a task has just ended of."""


@dataclass(frozen=True)
class Member:
    """A TaskManager that is there.

    Attributes:
        executor: id of the one that was started there last.
        registered: the driver has it; its slots can take tasks.
        last_heartbeat: ms since the epoch.
        heap: of its executor (bytes).
    """

    id: str
    host: str
    slots: int
    heap: int
    executor: str
    registered: bool = False
    last_heartbeat: int = 0


class Registry:
    """Who is there. Thread-safe.

    >>> registry = Registry()
    >>> registry.put(Member("tm", "10.0.0.1", 2, 2**29, "0"))
    >>> [member.executor for member in registry.seen({"0"})[0]], registry.seen({"0"})
    (['0'], ([], []))
    >>> [member.executor for member in registry.seen(set())[1]]
    ['0']
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._count = 0
        self._kills: dict[str, tuple[float, MemoryKill]] = {}
        """The last one by host, and when it was told of."""
        self._lock = threading.Lock()

    def new_executor_id(self) -> str:
        """No two executors of a cluster ever have the same."""
        with self._lock:
            self._count += 1
            return str(self._count - 1)

    def put(self, member: Member) -> None:
        with self._lock:
            self._members[member.id] = member

    def heard_of(self, member_id: str, now_ms: int) -> None:
        with self._lock:
            if member_id in self._members:
                self._members[member_id] = replace(self._members[member_id], last_heartbeat=now_ms)

    def remove(self, member_id: str) -> Member | None:
        with self._lock:
            return self._members.pop(member_id, None)

    def get(self, member_id: str) -> Member | None:
        with self._lock:
            return self._members.get(member_id)

    def members(self) -> list[Member]:
        with self._lock:
            return sorted(self._members.values(), key=lambda member: member.id)

    def has_killed(self, host: str, kill: MemoryKill) -> None:
        """The system has killed something in the container at that address."""
        with self._lock:
            self._kills[host] = time.monotonic(), kill

    def killed_on(self, host: str) -> MemoryKill | None:
        """What was killed there a moment ago, as far as a TaskManager has told of it."""
        with self._lock:
            at, kill = self._kills.get(host, (0.0, None))
            return kill if time.monotonic() - at < RECENT_S else None

    def is_at(self, host: str) -> bool:
        """A TaskManager is there that could tell."""
        with self._lock:
            return any(member.host == host for member in self._members.values())

    def seen(self, executors: set[str]) -> tuple[list[Member], list[Member]]:
        """The driver has these executors now. Returns members whose executor has come, and those whose executor was there
        and is not any more, whether it lives or not: it is to be replaced."""
        with self._lock:
            come = [m for m in self._members.values() if not m.registered and m.executor in executors]
            lost = [m for m in self._members.values() if m.registered and m.executor not in executors]
            for member in come:
                self._members[member.id] = replace(member, registered=True)
            return come, lost
