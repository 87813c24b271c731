"""One world, gone on from many times: what came before is played once.

A flow is played again for each of its calls, hundreds of times in all, and half of each time is the same deployment, half of
the rest what comes before that call. So each case goes on in a forked process, which has the world as it was and cannot
touch that of another case (`each`); and the processes of the calls of one flow branch off one that plays the flow
undisturbed, each as it comes to its call (`at_calls`). On a machine with several cores some run at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import random
import select
import signal
import traceback
from collections import deque
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
"""Whether a case went well, and what it returned, or what is to be told of it."""


def some(calls: int) -> range:
    """Numbers of the calls that are struck: all from 1 to `calls`, or every so many from a random one on."""
    stride = int(os.environ.get("PENSTOCK_FAULTS_STRIDE", "1"))
    return range(random.randint(1, min(stride, calls)), calls + 1, stride)


def each(cases: Iterable[T], go_on: Callable[[T], R]) -> list[R]:
    """What `go_on` returns for every case, in their order; AssertionError with what failed, and for which cases."""
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


def at_calls(numbers: Iterable[int], fault: Fault, play: Callable[[], Awaitable[R]]) -> list[R]:
    """What `play` returns when the fault strikes at each of these calls, as far as it comes to them; errors as from `each`."""
    processes = Processes(lead=True)
    try:
        writing = processes.fork(0)
        if writing is not None:
            trunk = _Trunk(writing, deque(sorted(numbers)))
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
    """Forked processes, as many at once as there are cores, and what each has answered."""

    def __init__(self, *, lead: bool = False) -> None:
        """`lead`: each leads a group, and those it forks itself end with it."""
        self._lead = lead
        self._running: dict[int, tuple[int, int]] = {}
        """Pipe from which an answer can be read → process id, number."""
        self._most = len(os.sched_getaffinity(0))
        self.answers: dict[int, Answer] = {}

    def fork(self, number: int) -> int | None:
        """In the new process the pipe into which its answer goes, and None in the old one."""
        reading, writing = os.pipe()
        pid = os.fork()
        if self._lead:
            with suppress(OSError):  # the one of the two that comes second
                os.setpgid(pid, pid)
        if pid:
            os.close(writing)
            self._running[reading] = (pid, number)
            return None
        self._running.clear()
        gc.disable()
        return writing

    def make_room(self) -> None:
        """Wait until one more can run."""
        while len(self._running) >= self._most:
            self._take()

    def collect(self) -> None:
        """Wait for all answers."""
        while self._running:
            self._take()

    def kill(self) -> None:
        """End those that still run."""
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
    """The process that plays undisturbed, and in each branch what is left of it there."""

    writing: int
    waiting: deque[int]
    """Calls that it has not come to."""
    processes: Processes = field(default_factory=Processes)
    number: int = 0
    """Of the call at which this process branched off; 0: it is the trunk."""

    def branches(self, number: int) -> bool:
        """Whether this is the process in which the fault strikes at this call."""
        if self.number or not self.waiting or number != self.waiting[0]:
            return False
        self.waiting.popleft()
        self.processes.make_room()
        loop = asyncio.get_running_loop()
        writing = self.processes.fork(number)
        if writing is not None:
            asyncio._set_running_loop(loop)
            self.writing, self.number = writing, number
            return True
        if not self.waiting:
            self._end()
        return False

    async def play(self, how: Callable[[], Awaitable[R]]) -> NoReturn:
        try:
            answer = (True, await how())
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


def _outcome(play: Callable[[], Any], what: str) -> Answer:
    try:
        return True, play()
    except BaseException as error:
        return False, _story(what, error)


def _story(what: str, error: BaseException) -> str:
    return f"{what}: {''.join(traceback.format_exception(error)[-4:])}"


def _answer(writing: int, answer: Answer) -> NoReturn:
    """The end of a process: nothing of what its origin would do at its end is done."""
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
