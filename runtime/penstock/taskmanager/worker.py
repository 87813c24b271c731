"""The tasks that live in this Python worker, which holds their state.

The mutable module state is `_SLOTS`, `_MODULES` (the paths of the job's modules) and `serves_once`. Spark gives a task
to any Python worker of the right executor. The task finds its state because the state is in this module, not in the
function that Spark sends. A new attempt of a job discards the tasks of older attempts, and never uses the state of an
unfinished attempt.
"""

from __future__ import annotations

import gc
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from penstock.common.errors import InvalidJob
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.folders.working_folder import work_in
from penstock.common.logs.log_format import Place
from penstock.common.logs.redaction import Redaction
from penstock.common.system.memory_use import limit_data
from penstock.functions.operator_context import Clock, SystemClock
from penstock.graph.job_graph import JobGraph
from penstock.state.rocksdb.options import MEMORY
from penstock.taskmanager.batch_task import BatchTask
from penstock.taskmanager.code.payload import TaskSettings
from penstock.taskmanager.control.channel import ControlConnection, Hello
from penstock.taskmanager.exchange.row_stream import ArrivingRows
from penstock.taskmanager.exchange.rows import ACK, DATA
from penstock.taskmanager.exchange.segments import join_segments, split_into_segments
from penstock.taskmanager.failure import failure_of
from penstock.taskmanager.level import LevelTask, Row
from penstock.taskmanager.local_state.files import sweep_local_files
from penstock.taskmanager.local_state.folders import folders_of_slot, new_state_folder
from penstock.taskmanager.protocol import LevelAck, TaskFailure, Whereabouts, encode_ack
from penstock.taskmanager.stream_task import StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.user_modules import UserModules
from penstock.taskmanager.watching.places import serve_stacks
from penstock.taskmanager.watching.task_log import configure_task_log
from penstock.taskmanager.watching.watchdog import LOADING, Unwatched, Watchdog

if TYPE_CHECKING:
    from penstock.state.rocksdb.memory import SlotMemory

GC_ALLOCATIONS = 200_000
"""Allocations between two collections of the youngest generation. Python's default of 700 cost a third of a parser's time."""


class ManualClock:
    """A clock that commands set (tests)."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now = now_ms

    def now_ms(self) -> int:
        return self._now

    def monotonic_ms(self) -> int:
        return self._now

    def set(self, now_ms: int) -> None:
        self._now = max(self._now, now_ms)


class _Slot:
    """The tasks of one slot in one attempt: one copy of the graph, and one task per level that runs in this process."""

    def __init__(
        self, program: bytes, settings: TaskSettings, slot: int, clock: Clock, watchdog: Unwatched | None = None
    ) -> None:
        self.watchdog = watchdog or Unwatched()
        with self.watchdog.step(LOADING):
            self.graph: JobGraph = cloudpickle.loads(program)
        self.settings = settings
        self.slot = slot
        self.clock = clock
        self.levels: dict[int, LevelTask] = {}
        self._memory: SlotMemory | None = None
        self.folder: OwnedFolder | None = None
        self.local_folders: list[str] = []
        if settings.backend == "rocksdb":
            self.folder = _folder_of(settings, slot)
            if settings.from_local:
                self.local_folders = folders_of_slot(settings.backend_options, settings.work_dir, slot)
                for folder in self.local_folders:
                    sweep_local_files(folder, but_of=settings.job_id)

    def level(self, level: int) -> LevelTask:
        if level not in self.levels:
            settings = self.settings
            environment = TaskEnvironment(
                job_id=settings.job_id,
                job_name=settings.job_name,
                attempt=settings.attempt,
                clock=self.clock,
                backend=settings.backend,
                backend_options=self._backend_options(level),
                work_dir="" if self.folder is None else self.folder.path,
                local_folders=self.local_folders,
                metric_scopes=settings.metric_scopes,
                latency_interval_ms=settings.latency_interval_ms,
                latency_granularity=settings.latency_granularity,
                host=socket.gethostname(),
                task_manager=settings.task_managers[self.slot] if settings.task_managers else "",
                object_store_options=settings.object_store_options,
                watchdog=self.watchdog,
                merged_file_bytes=settings.merged_file_bytes,
            )
            task = LevelTask(self.graph, level, self.slot, environment)
            environment.results = task.collect
            if settings.collect_lines:
                environment.print_line = task.print_line
            self.levels[level] = task
        return self.levels[level]

    def _backend_options(self, level: int) -> dict[str, Any]:
        """Return the options with the memory that all operators of this process share.

        This is the memory of the slot. If each level has a separate process, it is only this level's part of the
        memory.
        """
        options = self.settings.backend_options
        if self.settings.backend != "rocksdb" or not options.get(MEMORY) or not self.graph.keyed_operators_on(level):
            return options
        if self._memory is None:
            size = int(options[MEMORY])
            if self.settings.control_address:
                size = size * self.graph.keyed_operators_on(level) // self.graph.keyed_operators
            self._memory = _shared_memory(size, float(options["memory.write-buffer-ratio"]))
        return {**options, MEMORY: self._memory}

    def report_through(self, level: int, control: ControlConnection | None) -> None:
        """Let the watchdog report through the control connection of the task that now runs."""
        if isinstance(self.watchdog, Watchdog):
            self.watchdog.report = _reporter(self.settings, level, self.slot, control)

    def close(self) -> TaskFailure | None:
        """Close everything. Return the first error of a `close`. Errors of tasks that had failed before do not
        count."""
        failed = None
        for task in self.levels.values():
            had_failed = task.failure is not None
            task.close()
            if task.failure is not None and not had_failed:
                failed = failed or task.failure
        self.watchdog.close()
        if self.folder is not None:
            self.folder.remove()
        return failed


def _folder_of(settings: TaskSettings, slot: int, suffix: str = "") -> OwnedFolder:
    name = f"{settings.job_id}-{settings.attempt}-{slot}{suffix}"
    return new_state_folder(settings.backend_options, settings.work_dir, slot, name)


def _shared_memory(size: int, write_buffer_ratio: float) -> SlotMemory:
    from penstock.state.rocksdb.memory import SlotMemory  # loads RocksDB, which few jobs need

    return SlotMemory(size, write_buffer_ratio)


_SLOTS: dict[tuple[str, int], _Slot] = {}
_MODULES = UserModules()
serves_once = False
"""Whether this process ends after its current task."""


def _all_tasks() -> list[LevelTask]:
    return [task for slot_state in list(_SLOTS.values()) for task in list(slot_state.levels.values())]


def _configure_process() -> None:
    """Configure this process as a worker that holds the objects of a job. Tests do not call it in their process."""
    # State has many long-lived objects without cycles, so let the cycle collector check them less often.
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)
    _publish_main_classes()
    serve_stacks(_all_tasks)


def _serve_once(*, after_this_task: bool) -> None:
    """Let this process end after its task, because other jobs cannot use it: it has loaded modules of a program's bundle.

    Tasks of the batched runner leave state in the process, so the process ends when these tasks are closed.
    """
    global serves_once
    serves_once = serves_once or after_this_task


def _publish_main_classes() -> None:
    """Make classes of the user's script importable as `__main__.X` here, where `__main__` is Spark's worker.

    Records of such classes then travel by plain pickle, with the name of the class instead of the class's code.
    """
    main = sys.modules["__main__"]
    for cls in list(cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.values()):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__ and not hasattr(main, cls.__qualname__):
            setattr(main, cls.__qualname__, cls)


def run_level(
    payload: Callable[[], bytes],
    job_id: str,
    attempt: int,
    level: int,
    slot: int,
    rows: Iterable[bytes],
    *,
    clock: Clock | None = None,
    slots: dict[tuple[str, int], _Slot] | None = None,
    bundle: Callable[[], bytes] = bytes,
) -> Iterator[Row]:
    """Run one level in one slot: one epoch of the batched runner, or all epochs of an attempt of the pipelined runner.

    Args:
        payload: returns the job's payload. It is called only if this process does not hold the attempt yet.
        rows: see `taskmanager.level`.
        clock: a clock for tests; None for the machine's clock.
        slots: registry to use instead of the process's registry (several slots of one test in one process).
        bundle: returns the content of the program's bundle.
    """
    received = join_segments(rows)
    arriving = rows if isinstance(rows, ArrivingRows) else None
    registry = _SLOTS if slots is None else slots
    slot_state = registry.get((job_id, slot))
    if slot_state is not None and slot_state.settings.attempt == attempt:
        control = _connect(slot_state.settings, level, slot) if slot_state.settings.control_address else None
        slot_state.report_through(level, control)
        if slots is None and control is not None:
            _enter_working_folder(slot_state.settings, slot)
        return _run(slot_state, level, control, received, arriving)
    if slots is None:
        _close_older(registry, job_id, attempt)
    elif slot_state is not None:
        slot_state.close()
    settings, program = pickle.loads(payload())
    if slots is None:
        place = Place(job_id, settings.job_name, attempt, slot)
        configure_task_log(settings.log, Redaction.of({}, settings.control_token, *settings.secrets), place)
        if settings.bundle is None:
            _MODULES.serve(job_id, settings.python_path)
    else:
        settings.from_local = False  # only this job uses the process, so no later attempt could find the copies
    control = _connect(settings, level, slot) if settings.control_address else None
    watchdog = None
    if slots is None:
        limit_data(settings.memory_limit)
        watchdog = Watchdog(_reporter(settings, level, slot, control), settings.step_limits, settings.memory_limit)
    try:
        _prepare_process(settings, slot, control, bundle, is_shared=slots is not None, is_empty=not registry)
        slot_state = _Slot(program, settings, slot, clock or SystemClock(), watchdog)
    except BaseException as error:  # imports of user modules, and `__setstate__` of user classes
        if watchdog is not None:
            watchdog.close()
        return _failed_start(error, settings, level, slot, control, received)
    registry[job_id, slot] = slot_state
    if slots is None:
        _configure_process()
    return _run(slot_state, level, control, received, arriving)


def _prepare_process(
    settings: TaskSettings,
    slot: int,
    control: ControlConnection | None,
    bundle: Callable[[], bytes],
    *,
    is_shared: bool,
    is_empty: bool,
) -> None:
    """Let this process import the program's modules, and work in the program's folder.

    Args:
        is_shared: the tasks run in the program's process.
        is_empty: this process has no tasks yet.

    Raises:
        InvalidJob: the bundle cannot be prepared on this machine, or the program has archives and runs in one process.
    """
    if settings.bundle is not None:
        _MODULES.serve(settings.job_id, settings.bundle.path_here(settings.python_path, bundle))
        _serve_once(after_this_task=control is not None)
    if not is_shared:
        if control is not None or is_empty:  # otherwise the process already works in the job's folder
            _enter_working_folder(settings, slot)
    elif settings.working_folder:
        raise InvalidJob(
            "add_python_archive: all slots run in the program's process, whose working directory cannot change",
            remedy="run the program as python job.py, or use absolute paths in its functions",
        )


def _run(
    slot_state: _Slot,
    level: int,
    control: ControlConnection | None,
    received: Iterator[bytes],
    arriving: ArrivingRows | None,
) -> Iterator[Row]:
    task = slot_state.level(level)
    if control is None:
        sent = BatchTask(task).run(received)
    else:
        sent = _leave_folder_after(
            StreamTask(task, control, slot_state.settings.buffer_timeout_s, arriving).run(received)
        )
    return sent if task.is_last else split_into_segments(sent, slot_state.slot)


def _leave_folder_after(sent: Iterator[Row]) -> Iterator[Row]:
    """Leave the job's folder after the task of all epochs has ended and closed its functions."""
    yield from sent
    work_in("")


def _enter_working_folder(settings: TaskSettings, slot: int) -> None:
    work_in(settings.working_folder, lambda: _folder_of(settings, slot, "-work"))


def _reporter(
    settings: TaskSettings, level: int, slot: int, control: ControlConnection | None
) -> Callable[[Whereabouts | TaskFailure], None]:
    """Return the function that sends the watchdog's reports to the JobManager."""

    def report(message: Whereabouts | TaskFailure) -> None:
        ack = LevelAck(slot, level, settings.attempt, -1, is_brief=True, pid=os.getpid(), host=socket.gethostname())
        if isinstance(message, TaskFailure):
            ack.failure = message
        else:
            ack.where = message
        if control is not None:
            control.send(encode_ack(ack))
        elif settings.report_address:
            token, hello = settings.control_token, Hello(settings.attempt, slot, level)
            with closing(ControlConnection(settings.report_address, token, hello)) as connection:
                connection.send(encode_ack(ack))

    return report


def _failed_start(
    error: BaseException,
    settings: TaskSettings,
    level: int,
    slot: int,
    control: ControlConnection | None,
    rows: Iterable[bytes],
) -> Iterator[Row]:
    """Report that the job could not be loaded from its payload. This replaces the run of the task."""
    failure = failure_of(error)
    if isinstance(error, ImportError | AttributeError):
        failure.code = InvalidJob.code
        failure.remedy = (
            "make the imports of the program available to the workers: on sys.path when execute() is called, with "
            "add_python_file(), or in the image"
        )
    failure.recurs = failure.recurs or isinstance(error, InvalidJob)
    failure.detail = failure.message = f"the job cannot be loaded by a worker: {failure.detail}"
    ack = LevelAck(slot, level, settings.attempt, -1, failure=failure, pid=os.getpid(), host=socket.gethostname())
    if control is not None:
        with closing(control):
            control.send(encode_ack(ack))
        return
    for row in rows:
        if row[0] != DATA:  # the command for deeper levels, and acks of the levels above
            yield slot, row
    yield slot, bytes((ACK,)) + encode_ack(ack)


def _connect(settings: TaskSettings, level: int, slot: int) -> ControlConnection:
    return ControlConnection(settings.control_address, settings.control_token, Hello(settings.attempt, slot, level))


def _close_older(registry: dict[tuple[str, int], _Slot], job_id: str, attempt: int) -> None:
    for key, slot_state in list(registry.items()):
        if slot_state.settings.job_id != job_id or slot_state.settings.attempt != attempt:
            slot_state.close()
            del registry[key]


_SLOT_KEY = struct.Struct(">q")


class LevelFunction:
    """The function that Spark runs for every partition of a level. Partition i is slot i.

    Rows for the next level leave as pairs (slot, row), which Spark's PairwiseRDD reads as alternating elements. The rows of the
    last level leave without a slot.
    """

    def __init__(
        self, payload: Any, job_id: str, attempt: int, level: int, *, is_last: bool, bundle: Any = None
    ) -> None:
        self.payload = payload
        self.bundle = bundle
        self.job_id = job_id
        self.attempt = attempt
        self.level = level
        self.is_last = is_last

    def __call__(self, partition: int, rows: Iterable[bytes]) -> Iterator[bytes]:
        out = run_level(
            lambda: bytes(self.payload.value),
            self.job_id,
            self.attempt,
            self.level,
            partition,
            rows,
            bundle=lambda: bytes(self.bundle.value),
        )
        if self.is_last:
            for _, row in out:
                yield row
        else:
            pack = _SLOT_KEY.pack
            for slot, row in out:
                if row:
                    yield pack(slot)
                yield row


class CloseFunction:
    """The function that Spark runs for every slot after an attempt of the batched runner. It closes functions and drops state.

    The function yields one ack per slot. The ack's failure is the first error of a `close`.
    """

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt

    def __call__(self, partition: int, rows: Iterable[bytes]) -> Iterator[bytes]:
        for _ in rows:
            pass
        ack = LevelAck(partition, 0, self.attempt, -1, pid=os.getpid(), host=socket.gethostname())
        slot_state = _SLOTS.get((self.job_id, partition))
        if slot_state is not None and slot_state.settings.attempt == self.attempt:
            del _SLOTS[self.job_id, partition]
            ack.failure = slot_state.close()
            _serve_once(after_this_task=slot_state.settings.bundle is not None)
            if not _SLOTS:
                work_in("")
        yield bytes((ACK,)) + encode_ack(ack)
