"""The JobManager's registry of TaskManagers. Pure except for a lock."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from penstock.jobmanager.failover.crash import MemoryKill

RECENT_S = 5.0
"""Age in seconds up to which an out-of-memory kill can explain the failure of a task."""


@dataclass(frozen=True)
class Member:
    """TaskManager that is connected.

    Attributes:
        executor: id of its newest executor.
        registered: whether the executor is registered with the driver.
        follows: whether its slots can take tasks. The slots of a TaskManager that still follows another master cannot.
        last_heartbeat: ms since the epoch.
        heap: heap of its executor, in bytes.
    """

    id: str
    host: str
    slots: int
    heap: int
    executor: str
    registered: bool = False
    follows: bool = True
    last_heartbeat: int = 0


class Registry:
    """Registry of the connected TaskManagers. Thread-safe.

    >>> registry = Registry()
    >>> registry.put(Member("tm", "10.0.0.1", 2, 2**29, "0"))
    >>> [member.executor for member in registry.compare_executors({"0"})[0]], registry.compare_executors({"0"})
    (['0'], ([], []))
    >>> [member.executor for member in registry.compare_executors(set())[1]]
    ['0']
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._count = 0
        self._kills: dict[str, tuple[float, MemoryKill]] = {}
        """Last kill by host, and the time of its report."""
        self._lock = threading.Lock()

    def new_executor_id(self) -> str:
        """Return an executor id that is unique in the cluster."""
        with self._lock:
            self._count += 1
            return str(self._count - 1)

    def put(self, member: Member) -> None:
        with self._lock:
            self._members[member.id] = member

    def record_heartbeat(self, member_id: str, now_ms: int) -> None:
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

    def reserved_executors(self) -> set[str]:
        """Return the executors whose slots cannot take tasks yet."""
        with self._lock:
            return {member.executor for member in self._members.values() if not member.follows}

    def has_killed(self, host: str, kill: MemoryKill) -> None:
        """Record an out-of-memory kill in the container at that address."""
        with self._lock:
            self._kills[host] = time.monotonic(), kill

    def killed_on(self, host: str) -> MemoryKill | None:
        """Return the kill that a TaskManager on that host reported in the last few seconds, or None."""
        with self._lock:
            at, kill = self._kills.get(host, (0.0, None))
            return kill if time.monotonic() - at < RECENT_S else None

    def is_at(self, host: str) -> bool:
        """Return whether a TaskManager that can report kills is on that host."""
        with self._lock:
            return any(member.host == host for member in self._members.values())

    def compare_executors(self, executors: set[str]) -> tuple[list[Member], list[Member]]:
        """Compare the members with the executors that the driver has now.

        Return members whose executor has registered since the last call, and members whose executor has been removed. A
        removed executor must be replaced even if its process lives.
        """
        with self._lock:
            come = [m for m in self._members.values() if not m.registered and m.executor in executors]
            lost = [m for m in self._members.values() if m.registered and m.executor not in executors]
            for member in come:
                self._members[member.id] = replace(member, registered=True)
            return come, lost
