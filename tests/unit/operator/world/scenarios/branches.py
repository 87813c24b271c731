"""One world that continues many times from the same state, so that the common start is played once.

A sweep plays a flow again for each of its calls, hundreds of times in total. Half of that time is the same deployment,
and half of the rest is the part before the call. Each case therefore continues in a forked process (`each`). It has a
copy of the world and cannot affect other cases.

`at_calls` sweeps over the calls of one flow. One process plays the flow without a fault. At each call it forks a
process, in which the
fault occurs. Some processes run concurrently on a machine with several cores.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import random
import select
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from tests.unit.operator.world.faults import Fault

T = TypeVar("T")
R = TypeVar("R")

Answer = tuple[bool, Any]
"""Whether a case succeeded, and its result or the text of its failure."""


def some(calls: int = sys.maxsize - 1) -> range:
    """Return the numbers of the calls that get a fault: all from 1 to `calls`, or every n-th one from a random start.

    Without `calls`, the range has no practical end. The flow itself shows how many calls it has.
    """
    stride = int(os.environ.get("PENSTOCK_FAULTS_STRIDE", "1"))
    return range(random.randint(1, min(stride, calls)), calls + 1, stride)


def each(cases: Iterable[T], go_on: Callable[[T], R]) -> list[R]:
    """Return the result of `go_on` for every case in order. Raise AssertionError with the failures and their cases."""
    processes = Processes()
    try:
        for number, case in enumerate(cases):
            processes.make_room()
            writing = processes.fork(number)
            if writing is not None:
                _answer(writing, _outcome(partial(go_on, case), f"case {case!r}"))
        processes.collect()
    finally:
        processes.kill()
    return _values(processes.answers)


def at_calls(numbers: range, fault: Fault, play: Callable[[], Awaitable[R]]) -> list[R]:
    """Return the results of `play` with the fault at each of these calls that it reaches.

    If a flow ends before the first of them, the calls from its first one on with the same stride get the fault.
    It raises the errors of `each`.
    """
    results = _played(numbers, fault, play)
    return results or _played(range(1, numbers.stop, numbers.step), fault, play)


def _played(numbers: range, fault: Fault, play: Callable[[], Awaitable[R]]) -> list[R]:
    processes = Processes(lead=True)
    try:
        writing = processes.fork(0)
        if writing is not None:
            trunk = _Trunk(writing, numbers)
            fault.branches = trunk.branches
            _answer(writing, _outcome(lambda: asyncio.run(trunk.play(play)), "before any call"))
        processes.collect()
    finally:
        processes.kill()
    [(well, found)] = processes.answers.values()
    if not well:
        raise AssertionError(found)
    return _values(found)


class Processes:
    """Forked processes, at most one per core at a time, and their answers."""

    def __init__(self, *, lead: bool = False) -> None:
        """Create the processes. Each process leads a group if `lead` is set, and its own forks end with it."""
        self._lead = lead
        self._running: dict[int, tuple[int, int]] = {}
        """The process id and the number by the pipe from which the answer can be read."""
        self._most = len(os.sched_getaffinity(0))
        self.answers: dict[int, Answer] = {}

    def fork(self, number: int) -> int | None:
        """Fork, and return the pipe for the answer in the new process, and None in the old one."""
        reading, writing = os.pipe()
        pid = os.fork()
        if self._lead:
            with suppress(OSError):  # the second of the two
                os.setpgid(pid, pid)
        if pid:
            os.close(writing)
            self._running[reading] = (pid, number)
            return None
        self._running.clear()
        gc.disable()
        return writing

    def make_room(self) -> None:
        """Wait until one more process can run."""
        while len(self._running) >= self._most:
            self._take()

    def collect(self) -> None:
        """Wait for all answers."""
        while self._running:
            self._take()

    def kill(self) -> None:
        """Kill the processes that still run."""
        for pipe, (pid, _) in self._running.items():
            os.close(pipe)
            (os.killpg if self._lead else os.kill)(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()

    def _take(self) -> None:
        pipe = select.select(list(self._running), [], [])[0][0]
        pid, number = self._running[pipe]
        with os.fdopen(os.dup(pipe), "rb") as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        os.close(pipe)
        del self._running[pipe]
        self.answers[number] = pickle.loads(text) if text else (False, "the process ended without an answer")


@dataclass
class _Trunk:
    """The process that plays without a fault, and its copy in each branch."""

    writing: int
    numbers: range
    """Calls at which it forks."""
    processes: Processes = field(default_factory=Processes)
    number: int = 0
    """The number of the call at which this process forked, or 0 in the trunk."""

    def branches(self, number: int) -> bool:
        """Return whether this is the process that gets the fault at this call."""
        if self.number or number not in self.numbers:
            return False
        self.processes.make_room()
        loop = asyncio.get_running_loop()
        writing = self.processes.fork(number)
        if writing is not None:
            asyncio._set_running_loop(loop)
            self.writing, self.number = writing, number
            return True
        if number == self.numbers[-1]:
            self._end()
        return False

    async def play(self, how: Callable[[], Awaitable[R]]) -> NoReturn:
        try:
            answer: tuple[bool, Any] = (True, await how())
        except BaseException as error:
            answer = (False, _story(f"call {self.number}" if self.number else "undisturbed", error))
        if self.number:
            _answer(self.writing, answer)
        if not answer[0]:
            self.processes.answers[0] = answer
        self._end()

    def _end(self) -> NoReturn:
        try:
            self.processes.collect()
        finally:
            self.processes.kill()
        _answer(self.writing, (True, self.processes.answers))


def _outcome(play: Callable[[], Any], description: str) -> Answer:
    try:
        return True, play()
    except BaseException as error:
        return False, _story(description, error)


def _story(description: str, error: BaseException) -> str:
    return f"{description}: {''.join(traceback.format_exception(error)[-4:])}"


def _answer(writing: int, answer: Answer) -> NoReturn:
    """Send the answer and end the process, without the cleanup of the process that it was forked from."""
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(answer, pipe)
    finally:
        os._exit(0)


def _values(answers: dict[int, Answer]) -> list[Any]:
    failed = [text for _, (well, text) in sorted(answers.items()) if not well]
    if failed:
        raise AssertionError(f"{len(failed)} of {len(answers)} cases failed; the first:\n" + "\n\n".join(failed[:3]))
    return [value for _, (_, value) in sorted(answers.items())]
