"""What the threads of this process do, looked at from within: once, or many times over some seconds.

A profiler from outside (py-spy) needs the right to trace the process, which a pod with the restricted profile does not have. From
within, `sys._current_frames` gives every thread's stack; it costs nothing while nobody looks. It sees what holds the interpreter's
lock only when that is given up: the time of native code that keeps it is found at the line that called it, as it should be.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

import msgspec

LONGEST_S = 60.0
HERTZ = 50
MOST_HERTZ = 200
OWN_THREAD = "penstock-stacks"
_WINDOW_S = 0.05
"""What a thread had of the processor is known by the kernel's ticks, of up to 10 ms."""
_BUSY = 0.25
"""Of that window; those who look take the interpreter's lock for some of it."""
_UNSEEN = (OWN_THREAD, "penstock-watchdog")
"""Threads that only look themselves; beginnings of their names."""


class Place(msgspec.Struct, frozen=True):
    """Whose work it is. `vertex`: as the engine calls it; empty: no job's."""

    job_id: str = ""
    vertex: str = ""
    subtask: int = -1


class Stack(msgspec.Struct, frozen=True):
    """A stack that a thread was seen with. `frames`: `module.function:line`, the outermost first. `on_cpu`: it ran, or wanted to, for
    a good part of the last moment."""

    place: Place
    thread: str
    on_cpu: bool
    frames: tuple[str, ...]


class Sample(msgspec.Struct, frozen=True):
    """So often it was seen."""

    stack: Stack
    count: int = 1


FindPlace = Callable[[Sequence[FrameType]], Place]
"""Of these frames, which have the outermost first. Called between two bytecodes of the thread that they are of."""


def nowhere(frames: Sequence[FrameType]) -> Place:
    """Of a process that runs no task."""
    return Place()


def sample(seconds: float = 0.0, hertz: int = HERTZ, find_place: FindPlace = nowhere) -> list[Sample]:
    """Stacks of all threads but those that only look, the most frequent first.

    Args:
        seconds: to look for, `LONGEST_S` at most; 0: once.
        hertz: looks in a second, `MOST_HERTZ` at most.

    >>> [seen] = [s for s in sample() if s.stack.thread == "MainThread"]
    >>> seen.stack.frames[-1].split(":")[0], seen.count
    ('penstock.common.stacks.sampling._look', 1)
    """
    hertz = max(1, min(hertz, MOST_HERTZ))
    looks = max(1, round(min(seconds, LONGEST_S) * hertz))
    seen: Counter[Stack] = Counter()
    begun = time.monotonic()
    before = deque([(begun, _cpu_times(threading.enumerate()))])
    for number in itertools.count(1):
        if seconds:
            time.sleep(max(0.0, begun + number / hertz - time.monotonic()))
        threads = threading.enumerate()
        now, spent = time.monotonic(), _cpu_times(threads)
        while len(before) > 1 and before[1][0] <= now - _WINDOW_S:
            before.popleft()
        since, had = before[0]
        busy = {name for name, used in spent.items() if used - had.get(name, used) >= (now - since) * _BUSY}
        before.append((now, spent))
        seen.update(_look(threads, busy if seconds else set(spent), find_place))
        if number >= looks or now - begun >= seconds:
            return [Sample(stack, count) for stack, count in seen.most_common()]
    raise AssertionError


def samples_of(samples: Iterable[Sample], of: Place) -> list[Sample]:
    """Those of a job, of a vertex of it, of one subtask of that: as far as `of` says.

    >>> here = Sample(Stack(Place("j", "0", 1), "MainThread", True, ()))
    >>> [len(samples_of([here], of)) for of in (Place(), Place("j"), Place("j", "0"), Place("j", "0", 2))]
    [1, 1, 1, 0]
    """
    return [
        seen
        for seen in samples
        if of.job_id in ("", seen.stack.place.job_id)
        and of.vertex in ("", seen.stack.place.vertex)
        and of.subtask in (-1, seen.stack.place.subtask)
    ]


def _look(threads: Sequence[threading.Thread], busy: set[int], find_place: FindPlace) -> list[Stack]:
    names = {thread.ident: thread for thread in threads}
    stacks = []
    for ident, innermost in sys._current_frames().items():
        thread = names.get(ident)
        name = "native" if thread is None else thread.name
        if name.startswith(_UNSEEN):
            continue
        frames = _frames(innermost)
        on_cpu = thread is None or _native_id(thread) in busy
        stacks.append(Stack(find_place(frames), name, on_cpu, tuple(map(_named, frames))))
    return stacks


def _frames(innermost: FrameType | None) -> list[FrameType]:
    frames = []
    while innermost is not None:
        frames.append(innermost)
        innermost = innermost.f_back
    return frames[::-1]


def _named(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}:{frame.f_lineno}"


def _cpu_times(threads: Sequence[threading.Thread]) -> dict[int, float]:
    """Seconds of processor time by native id, had or waited for. The kernel's files, because a thread may end at any moment: its clock
    must not be asked."""
    times = {}
    for thread in threads:
        native_id = _native_id(thread)
        try:
            with open(f"/proc/self/task/{native_id}/schedstat", "rb") as file:
                ran, waited = file.read().split()[:2]
        except (OSError, ValueError):
            continue
        times[native_id] = (int(ran) + int(waited)) / 1e9
    return times


def _native_id(thread: threading.Thread) -> int:
    """Python 3.11 does not notice that the main thread of a forked process is another one."""
    return os.getpid() if thread is threading.main_thread() else thread.native_id or -1
