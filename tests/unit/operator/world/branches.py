"""One moment of a world, gone on from many times: what came before it is played once.

A flow is played again for each of its calls, hundreds of times in all, and half of each time is the same deployment.
So each case goes on in a forked process, which has the world as it was and cannot touch that of another case; on a
machine with several cores some run at once.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import traceback
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
R = TypeVar("R")


def some(calls: int) -> range:
    """Numbers of the calls that are struck: all from 1 to `calls`, or every so many from a random one on."""
    stride = int(os.environ.get("PENSTOCK_FAULTS_STRIDE", "1"))
    return range(random.randint(1, min(stride, calls)), calls + 1, stride)


def each(cases: Iterable[T], go_on: Callable[[T], R]) -> list[R]:
    """What `go_on` returns for every case, in their order; AssertionError with what failed, and for which cases."""
    waiting, running = list(enumerate(cases)), dict[int, tuple[int, int]]()
    results: dict[int, tuple[bool, Any]] = {}
    at_once = len(os.sched_getaffinity(0))
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                number, case = waiting.pop(0)
                pid, pipe = _fork(go_on, case)
                running[pipe] = (pid, number)
            pipe, (pid, number) = next(iter(running.items()))
            answer = _read(pipe)
            os.waitpid(pid, 0)
            del running[pipe]
            results[number] = pickle.loads(answer) if answer else (False, "the process ended without an answer")
    finally:
        for pipe, (pid, _) in running.items():
            os.close(pipe)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    failed = [text for _, (ok, text) in sorted(results.items()) if not ok]
    if failed:
        raise AssertionError(f"{len(failed)} of {len(results)} cases failed; the first:\n" + "\n\n".join(failed[:3]))
    return [value for _, (_, value) in sorted(results.items())]


def _fork(go_on: Callable[[T], R], case: T) -> tuple[int, int]:
    """Process id, and the pipe from which its answer can be read until it closes it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        gc.disable()
        answer = (True, go_on(case))
    except BaseException as error:
        story = "".join(traceback.format_exception(error)[-4:])
        answer = (False, f"case {case!r}: {story}")
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)


def _read(pipe: int) -> bytes:
    with os.fdopen(pipe, "rb") as answer:
        return answer.read()
