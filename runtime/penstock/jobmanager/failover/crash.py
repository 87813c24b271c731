"""The cause of a Python worker's death, from Spark's report. A crash is reported like any other failure of user code.

A worker that crashes in C code, or is killed, cannot send an acknowledgement. Python's faulthandler writes the stack of the crash to a
file (`spark.python.worker.faulthandler.enabled`). The executor reads the file when the worker has ended, and reports it as the
failure of the Spark task.

The dump contains files, lines and function names. The job graph shows to which operator a function belongs. Chained operators call each
other, so the innermost call of an operator belongs to the operator that crashed. Several operators may run the same code in this call. The
functions that this code called usually belong to only one operator, and so identify it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from penstock.common.config import options
from penstock.common.config.memory import MIB
from penstock.common.errors import EpochFailed
from penstock.common.program.user_frames import is_engine, is_user, user_frame
from penstock.graph.job_graph import JobGraph, OperatorNode
from penstock.graph.operations import plain
from penstock.jobmanager.failover.failures import JobFailed
from penstock.taskmanager.operators.factory import create_operator
from penstock.taskmanager.protocol import TaskFailure

DIED = "Python worker exited unexpectedly"
"""Spark's message for a worker whose connection ended."""
_FATAL = re.compile(r"Fatal Python error: (.+)|(Timeout \([\d:.]+\)!)")
_FRAME = re.compile(r'^\s*File "(.*)", line (\d+) in (.*)$')
_DEPTH = 4
"""Depth to which functions are searched in the attributes of an operator."""
_RAISE = (
    f"raise {options.TASKMANAGER_PROCESS_SIZE.key}, or lower {options.TASK_SLOTS.key}. If this use of memory is "
    "unexpected, check what the functions of these operators keep in memory"
)
_REMEDY = (
    "check the memory of the worker (the limit of its pod), and what ends processes on this machine. The log of the "
    "worker may have details"
)


@dataclass(frozen=True)
class MemoryKill:
    """Out-of-memory kill of processes of a container."""

    limit: int
    """Memory limit of the container in bytes. 0 means that no limit is set, so the machine had no more memory."""

    @property
    def reason(self) -> str:
        if self.limit:
            return f"the system has killed a process (signal 9, SIGKILL): its container has used all of its {self.limit // MIB}Mi of memory"
        return "the system has killed a process (signal 9, SIGKILL): the machine has run out of memory"

    @property
    def remedy(self) -> str:
        return _RAISE


def epoch_lost(message: str, kill: MemoryKill | None) -> EpochFailed:
    """Return the error for a lost epoch, with the out-of-memory kill that happened at that moment, if any."""
    return EpochFailed(message) if kill is None else EpochFailed(f"{message}: {kill.reason}", remedy=kill.remedy)


def no_memory_kill(host: str) -> MemoryKill | None:
    """Return None, for a cluster that does not report kills."""
    return None


@dataclass(frozen=True)
class TaskEnd:
    """Spark task that failed."""

    slot: int
    level: int
    host: str
    message: str

    @staticmethod
    def parse(lines: str) -> TaskEnd:
        slot, level, host, message = lines.split("\n", 3)
        return TaskEnd(int(slot), int(level), host, message)

    @property
    def is_crash(self) -> bool:
        return DIED in self.message


def crash_of(
    ends: list[TaskEnd],
    graph: JobGraph,
    *,
    closing: bool = False,
    killed: Callable[[str], MemoryKill | None] = no_memory_kill,
) -> JobFailed | EpochFailed | None:
    """Return the error for the first worker that died, for the author of the job, or None if no worker died.

    A stack in the report identifies the code that crashed, and the error is `JobFailed`. Without a stack, the cause is unknown, and the
    error is `EpochFailed`.

    Args:
        closing: whether the tasks close the functions of all levels of a slot.
        killed: function that returns the recent out-of-memory kill in the container at an address.
    """
    crashed = [end for end in ends if end.is_crash]
    if not crashed:
        return None
    end = next((end for end in crashed if _FATAL.search(end.message)), crashed[0])
    fatal = _FATAL.search(end.message)
    levels = range(graph.levels) if closing else range(end.level, end.level + 1)
    where = f"slot {end.slot} on {end.host}" if closing else f"slot {end.slot}, level {end.level} on {end.host}"
    if fatal is None:
        names = " and ".join(repr(stage.name) for level in levels for stage in graph.stages_on(level))
        kill, who = killed(end.host), f"the Python worker of {where}, which ran {names},"
        if kill is not None:
            return EpochFailed(f"{who} was killed: {kill.reason}", remedy=kill.remedy)
        return EpochFailed(
            f"{who} ended without an error message. It was killed, usually for its memory, or it ended itself (os._exit)",
            remedy=_REMEDY,
        )
    error = fatal.group(1) or fatal.group(2)
    frames = frames_of(end.message)
    nodes = operators_at(graph, levels, frames)
    line = user_frame(frames)
    at = f" (at {line.filename}:{line.lineno} in {line.name})" if line is not None else ""
    detail = f"the Python worker of {where} has crashed: {error}{at}"
    first = next((i for i, frame in enumerate(frames) if is_user(frame.filename)), 0)
    message = "".join(traceback.format_list(frames[first:]))
    return JobFailed(
        TaskFailure(
            kind="WorkerCrashed",
            message=detail,
            detail=detail,
            traceback=f"Traceback (most recent call last):\n{message}{error}\n",
            name=" or ".join(node.name for node in nodes),
            location=nodes[0].user_location if len(nodes) == 1 else "",
            code="USER_CODE",
            remedy="the crash is in native code that this line calls. Check this code and its arguments",
        ),
        end.host,
    )


def frames_of(dump: str) -> list[traceback.FrameSummary]:
    """Return the stack of the thread that ran the task, the outermost frame first."""
    threads: list[tuple[str, list[traceback.FrameSummary]]] = []
    for line in dump.splitlines():
        found = _FRAME.match(line)
        if found is None:
            threads.append((line, []))
        elif threads:
            threads[-1][1].append(traceback.FrameSummary(found[1], int(found[2]), found[3]))
    stacks = [(head, frames[::-1]) for head, frames in threads if frames]
    current = [frames for head, frames in stacks if head.startswith("Current thread")]
    tasks = [frames for _, frames in stacks if any(is_engine(frame.filename) for frame in frames)]
    return (current or tasks or [frames for _, frames in stacks] or [[]])[0]


def operators_at(graph: JobGraph, levels: Iterable[int], frames: list[traceback.FrameSummary]) -> list[OperatorNode]:
    """Return the operators that crashed, among the operators of these levels. The frame that belongs to the fewest
    operators identifies them. If several frames belong to equally few operators, the innermost of these frames is used.

    Frames outside the innermost call of an operator belong to the operators that are chained before it.
    """
    stages = [stage for level in levels for stage in graph.stages_on(level)]
    here = [graph.operators[index] for stage in stages for index in stage.operators]
    calls = {
        node.index: [
            code
            for operation in (node.operation, plain(node.operation))
            for code in _methods(create_operator(operation))
        ]
        for node in here
    }
    codes_by_operator = {
        node.index: calls[node.index] + list(_codes(plain(node.operation), _DEPTH, set())) for node in here
    }
    call = max((at for at, frame in enumerate(frames) if _operators_containing(calls, frame)), default=0)
    found = [_operators_containing(codes_by_operator, frame) for frame in reversed(frames[call:])]
    return [graph.operators[index] for index in min(filter(None, found), key=len, default=[])]


def _operators_containing(codes: dict[int, list[CodeType]], frame: traceback.FrameSummary) -> list[int]:
    return [index for index, own in codes.items() if any(_contains(code, frame) for code in own)]


def _contains(code: CodeType, frame: traceback.FrameSummary) -> bool:
    if code.co_filename != frame.filename or code.co_name != frame.name:
        return False
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return bool(lines) and min(lines) <= (frame.lineno or 0) <= max(lines)


def _codes(thing: Any, depth: int, seen: set[int]) -> Iterator[CodeType]:
    """Yield the code of all user functions that an object references."""
    if id(thing) in seen or depth < 0:
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple | dict):
        for part in thing.values() if isinstance(thing, dict) else thing:
            yield from _codes(part, depth - 1, seen)
        return
    code = getattr(getattr(thing, "__func__", thing), "__code__", None)
    if isinstance(code, CodeType):
        yield code
        for cell in getattr(thing, "__closure__", None) or ():
            yield from _codes(cell.cell_contents, depth - 1, seen)
        yield from _codes(getattr(thing, "__self__", None), depth - 1, seen)
        return
    yield from (method for method in _methods(thing) if not is_engine(method.co_filename))
    yield from _codes(getattr(thing, "__dict__", None), depth - 1, seen)


def _methods(thing: Any) -> Iterator[CodeType]:
    members = [member for owner in type(thing).__mro__ for member in vars(owner).values()]
    return (code for member in members if isinstance(code := getattr(member, "__code__", None), CodeType))
