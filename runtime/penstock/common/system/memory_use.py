"""Memory of processes, read from /proc."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

ROOM = 1 << 30
"""Room above a limit in bytes for threads, and for memory that libraries reserve and do not use."""
_USED = ("RssAnon:", "RssShmem:", "VmSwap:")


def used_memory(pid: int | str = "self") -> int:
    """Return the bytes that a process has allocated and used, also in swap, without mapped files. 0 means that the process has ended."""
    return sum(_status(pid, _USED))


def used_with_children(pid: int) -> int:
    """Return the bytes that a process and all processes that it has started use."""
    return sum(used_memory(one) for one in _tree(pid))


def limit_data(limit: int) -> None:
    """Let a single allocation of this process that is much larger than a limit fail with `MemoryError`.

    The kernel compares reserved memory with this limit, also memory that is not used. So the limit has room, and a watchdog must check the used
    memory. 0 removes the limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = sum(_status("self", ("VmData:",))) + limit + ROOM if limit else hard
    resource.setrlimit(resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _status(pid: int | str, names: tuple[str, ...]) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as lines:
        found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(names)]
    return found


def _tree(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of its descendants."""
    waiting, seen = [pid], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        yield one
        waiting += _children(one)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as children:
                found += map(int, children.read().split())
    return found
