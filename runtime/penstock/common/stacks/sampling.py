"""The stacks of this process's threads, sampled from inside: once, or many times over some seconds.

An external profiler (py-spy) needs the permission to trace the process, which a pod with the restricted profile does
not have. Inside the process, `sys._current_frames` returns the stack of every thread. It costs nothing while no
sampling runs.

The sampler runs only while no other thread holds the GIL. If native code keeps the GIL, the sample shows the line that
called the native code. This is the correct place.
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
MAX_HERTZ = 200
OWN_THREAD = "penstock-stacks"
_WINDOW_S = 0.05
"""Window in which a thread's processor time is measured. The kernel counts this time in ticks of up to 10 ms."""
_BUSY = 0.25
"""Share of the window above which a thread counts as busy. The share is small, because sampling holds the GIL for a
part of the window.
"""
_UNSEEN = (OWN_THREAD, "penstock-watchdog")
"""Beginnings of the names of threads that only sample."""


class Place(msgspec.Struct, frozen=True):
    """The job, vertex and subtask of a stack. `vertex` is the engine's id. If it is empty, the stack belongs to no job."""

    job_id: str = ""
    vertex: str = ""
    subtask: int = -1


class Stack(msgspec.Struct, frozen=True):
    """A stack of a thread. `frames` has `module.function:line`, the outermost first.

    `on_cpu`: the thread was running or ready to run for a good part of the last window.
    """

    place: Place
    thread: str
    on_cpu: bool
    frames: tuple[str, ...]


class Sample(msgspec.Struct, frozen=True):
    """A stack and the number of times that it was seen."""

    stack: Stack
    count: int = 1


FindPlace = Callable[[Sequence[FrameType]], Place]
"""Function that finds the place of a thread's frames. The first frame is the outermost. The call runs between two
bytecodes of the sampled thread.
"""


def nowhere(frames: Sequence[FrameType]) -> Place:
    """Return an empty place: the process runs no task."""
    return Place()


def sample(seconds: float = 0.0, hertz: int = HERTZ, find_place: FindPlace = nowhere) -> list[Sample]:
    """Return the stacks of all threads except those that only sample, the most frequent first.

    Args:
        seconds: sampling time, at most `LONGEST_S`; 0 means one sample.
        hertz: samples per second, at most `MAX_HERTZ`.

    >>> [seen] = [s for s in sample() if s.stack.thread == "MainThread"]
    >>> seen.stack.frames[-1].split(":")[0], seen.count
    ('penstock.common.stacks.sampling._sample_once', 1)
    """
    hertz = max(1, min(hertz, MAX_HERTZ))
    looks = max(1, round(min(seconds, LONGEST_S) * hertz))
    seen: Counter[Stack] = Counter()
    started = time.monotonic()
    before = deque([(started, _cpu_times(threading.enumerate()))])
    for number in itertools.count(1):
        if seconds:
            time.sleep(max(0.0, started + number / hertz - time.monotonic()))
        threads = threading.enumerate()
        now, spent = time.monotonic(), _cpu_times(threads)
        while len(before) > 1 and before[1][0] <= now - _WINDOW_S:
            before.popleft()
        since, had = before[0]
        busy = {name for name, used in spent.items() if used - had.get(name, used) >= (now - since) * _BUSY}
        before.append((now, spent))
        seen.update(_sample_once(threads, busy if seconds else set(spent), find_place))
        if number >= looks or now - started >= seconds:
            return [Sample(stack, count) for stack, count in seen.most_common()]
    raise AssertionError


def filter_samples(samples: Iterable[Sample], of: Place) -> list[Sample]:
    """Return the samples of a job, a vertex or a subtask, according to the fields that `of` sets.

    >>> here = Sample(Stack(Place("j", "0", 1), "MainThread", True, ()))
    >>> [len(filter_samples([here], of)) for of in (Place(), Place("j"), Place("j", "0"), Place("j", "0", 2))]
    [1, 1, 1, 0]
    """
    return [
        seen
        for seen in samples
        if of.job_id in ("", seen.stack.place.job_id)
        and of.vertex in ("", seen.stack.place.vertex)
        and of.subtask in (-1, seen.stack.place.subtask)
    ]


def _sample_once(threads: Sequence[threading.Thread], busy: set[int], find_place: FindPlace) -> list[Stack]:
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
    """Return the seconds that each thread was running or ready to run, by native id.

    The values come from files of the kernel. A thread may end at any moment, and reading the clock of an ended thread
    is not safe.
    """
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
    """Return the native id. In Python 3.11 the main thread of a forked process still has the id of its parent."""
    return os.getpid() if thread is threading.main_thread() else thread.native_id or -1
