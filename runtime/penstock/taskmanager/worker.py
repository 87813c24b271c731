"""The process that holds state: which tasks live in this Python worker.

`_SLOTS` is the one documented piece of mutable module state (with `_MODULES`, where the job's modules are). Spark hands a task to *a* Python worker of the right
executor; the state is found because it lives here, in the module, not in the function that Spark sends. A new attempt of
a job throws away what older attempts left: the state of a half-done attempt is never used again.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import socket
import struct
import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import cloudpickle

from penstock.common.errors import InvalidJob
from penstock.common.folders.owned_folder import OwnedFolder
from penstock.common.folders.working_folder import work_in
from penstock.common.logs.log_format import Place
from penstock.common.logs.log_settings import LogSettings
from penstock.common.logs.redaction import Redaction
from penstock.common.program.user_frames import user_line
from penstock.functions.operator_context import Clock
from penstock.graph.job_graph import JobGraph
from penstock.metrics.scope import ScopeFormats
from penstock.state.rocksdb.options import MEMORY
from penstock.taskmanager.control.channel import ControlConnection, Hello
from penstock.taskmanager.exchange.records import refuse_to_pickle
from penstock.taskmanager.exchange.row_stream import ArrivingRows
from penstock.taskmanager.exchange.rows import ACK, DATA
from penstock.taskmanager.exchange.segments import in_segments, put_together
from penstock.taskmanager.failure import failure_of
from penstock.taskmanager.level import BatchTask, LevelTask, Row
from penstock.taskmanager.local_state.files import sweep_local_files
from penstock.taskmanager.local_state.folders import folders_of_slot, new_state_folder
from penstock.taskmanager.protocol import LevelAck, TaskFailure, Whereabouts, encode_ack
from penstock.taskmanager.script_classes import reduced_class
from penstock.taskmanager.stream_task import StreamTask
from penstock.taskmanager.task_environment import TaskEnvironment
from penstock.taskmanager.user_modules import UserModules
from penstock.taskmanager.watching.places import tell_stacks
from penstock.taskmanager.watching.task_log import log_of_task
from penstock.taskmanager.watching.watchdog import LOADING, Unwatched, Watchdog

if TYPE_CHECKING:
    from penstock.state.rocksdb.memory import SlotMemory

GC_ALLOCATIONS = 200_000
"""Allocations between two runs of the youngest generation's collector; Python's 700 cost a third of a parser's time."""


class TaskSettings(msgspec.Struct):
    """What the tasks of one attempt need to know besides the graph. Part of the payload."""

    job_id: str
    job_name: str
    attempt: int
    backend: str = "hashmap"
    backend_options: dict[str, Any] = {}
    object_store_options: dict[str, Any] = {}
    merged_file_bytes: int = 0
    """Largest object that small state files are put together in; 0: they are not."""
    control_address: str = ""
    """host:port of the JobManager's control server; empty: the batched runner."""
    report_address: str = ""
    """Where a task of the batched runner that hangs says so, on a connection made for that."""
    control_token: str = ""
    step_limits: dict[str, float] = {}
    """Seconds that the steps of `taskmanager.watching.watchdog` may take."""
    """The key that seals what goes to and comes from it."""
    buffer_timeout_s: float = 0.0
    """Of the pipelined runner: a partly filled buffer waits at most that long; infinite: until a barrier."""
    from_local: bool = False
    """Keep copies of state files on the local disk, and restore from them."""
    work_dir: str = ""
    """Where local state files go unless the backend's own option says; empty: the process's temporary folder."""
    metric_scopes: ScopeFormats | None = None
    """How identifiers of metrics begin; None: as by default."""
    latency_interval_ms: int = 0
    latency_granularity: str = "operator"
    """See `taskmanager.latency`."""
    python_path: list[str] = []
    """Where the program finds its modules."""
    working_folder: str = ""
    """With links to the program's archives, as functions find them where they work; empty: there are none."""
    task_managers: list[str] = []
    """Id of the TaskManager of every slot."""
    collect_lines: bool = True
    """print sinks hand their lines to the JobManager; else they write to this process's stdout."""
    log: LogSettings = LogSettings()
    secrets: list[str] = []
    """What the job's configuration says under names of secrets: nothing that is logged may have it in it."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return int(time.time() * 1e3)


class ManualClock:
    """A clock that commands set (tests)."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now = now_ms

    def now_ms(self) -> int:
        return self._now

    def set(self, now_ms: int) -> None:
        self._now = max(self._now, now_ms)


def encode_payload(graph: JobGraph, settings: TaskSettings) -> bytes:
    """The job as it goes to the workers. Code travels by cloudpickle between processes of one job; never to storage.

    Raises:
        InvalidJob: something in it cannot be sent; names the operator it belongs to.
    """
    try:
        program = _pickled(graph)
    except BaseException as error:
        raise _not_sendable(graph, error) from error
    # Apart: a worker that cannot make the program from it must still know whom to tell.
    return pickle.dumps((settings, program), pickle.HIGHEST_PROTOCOL)


def _pickled(value: Any) -> bytes:
    out = io.BytesIO()
    _PayloadPickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()


def _not_sendable(graph: JobGraph, error: BaseException) -> InvalidJob:
    """What to tell the author: which operator is the first that cannot be pickled."""
    name = location = ""
    for node in graph.operators:
        try:
            _pickled(node.operation)
        except BaseException as of_node:
            name, location, error = node.name, node.user_location, of_node
            break
    return InvalidJob(
        f"the job cannot be sent to the workers: {type(error).__name__}: {error}{user_line(error)}",
        remedy="functions, and the globals they use, must be picklable: make connections, locks and the like in `open`",
        operator=name,
        location=location,
    )


class _PayloadPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves out what msgspec remembers on the dataclasses it has seen: it cannot be pickled and comes by itself.

    A `memoryview` is refused: cloudpickle would write it as bytes, and a collection source would give those.
    """

    dispatch_table = ChainMap({memoryview: refuse_to_pickle}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and "__msgspec_cache__" in vars(obj):
            type.__delattr__(obj, "__msgspec_cache__")
        return reduced_class(obj, super().reducer_override)


class _Slot:
    """The tasks of one slot of one attempt: one graph copy, one task per level that runs in this process."""

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
        """With the memory that all operators of this process share: the slot's, or, where each level has a process, the part of this one's."""
        options = self.settings.backend_options
        if self.settings.backend != "rocksdb" or not options.get(MEMORY) or not self.graph.keyed_operators_on(level):
            return options
        if self._memory is None:
            size = int(options[MEMORY])
            if self.settings.control_address:
                size = size * self.graph.keyed_operators_on(level) // self.graph.keyed_operators
            self._memory = _shared_memory(size, float(options["memory.write-buffer-ratio"]))
        return {**options, MEMORY: self._memory}

    def tell_by(self, level: int, control: ControlConnection | None) -> None:
        """Another task of the process is at work now."""
        if isinstance(self.watchdog, Watchdog):
            self.watchdog.tell = _teller(self.settings, level, self.slot, control)

    def close(self) -> TaskFailure | None:
        """Close what is open; what could not be closed, if nothing had failed before."""
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


def _folder_of(settings: TaskSettings, slot: int, what: str = "") -> OwnedFolder:
    name = f"{settings.job_id}-{settings.attempt}-{slot}{what}"
    return new_state_folder(settings.backend_options, settings.work_dir, slot, name)


def _shared_memory(size: int, write_buffer_ratio: float) -> SlotMemory:
    from penstock.state.rocksdb.memory import SlotMemory  # loads RocksDB, which few jobs need

    return SlotMemory(size, write_buffer_ratio)


_SLOTS: dict[tuple[str, int], _Slot] = {}
_MODULES = UserModules()


def _tasks_here() -> list[LevelTask]:
    return [task for held in list(_SLOTS.values()) for task in list(held.levels.values())]


def _settle_process() -> None:
    """This process is a worker, with the objects of a job in it; a test's process stays as it is."""
    # State is many long-lived objects without cycles: fewer looks at them by the cycle collector.
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 100)
    _publish_main_classes()
    tell_stacks(_tasks_here)


def _publish_main_classes() -> None:
    """Make classes of the user's script importable as `__main__.X` here, where `__main__` is Spark's worker.

    Records of such classes then travel by plain pickle, with the class by name, instead of with its source by value.
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
) -> Iterator[Row]:
    """One level in one slot: one epoch of the batched runner, or all epochs of an attempt of the pipelined one.

    Args:
        payload: gives the job's payload; called only when this process does not hold the attempt yet.
        rows: see `taskmanager.level`.
        clock: tests; None = the machine's.
        slots: registry to use instead of the process's own (several slots of one test in one process).
    """
    received = put_together(rows)
    arriving = rows if isinstance(rows, ArrivingRows) else None
    registry = _SLOTS if slots is None else slots
    held = registry.get((job_id, slot))
    if held is not None and held.settings.attempt == attempt:
        control = _connect(held.settings, level, slot) if held.settings.control_address else None
        held.tell_by(level, control)
        if slots is None and control is not None:
            _work(held.settings, slot)
        return _run(held, level, control, received, arriving)
    if slots is None:
        _close_older(registry, job_id, attempt)
    elif held is not None:
        held.close()
    settings, program = pickle.loads(payload())
    if slots is None:
        place = Place(job_id, settings.job_name, attempt, slot)
        log_of_task(settings.log, Redaction.of({}, settings.control_token, *settings.secrets), place)
        _MODULES.serve(job_id, settings.python_path)
    else:
        settings.from_local = False  # a process that is only this job's: with it goes what it keeps
    control = _connect(settings, level, slot) if settings.control_address else None
    watchdog = None if slots is not None else Watchdog(_teller(settings, level, slot, control), settings.step_limits)
    try:
        if slots is None:
            if control is not None or not registry:  # else it works for the job already
                _work(settings, slot)
        elif settings.working_folder:
            raise InvalidJob(
                "add_python_archive: all slots are in the program's process, whose working directory stays what it is",
                remedy="run the program as python job.py, or have its functions read the files by absolute paths",
            )
        held = _Slot(program, settings, slot, clock or SystemClock(), watchdog)
    except BaseException as error:  # imports of the user's modules, his `__setstate__`
        if watchdog is not None:
            watchdog.close()
        return _failed_start(error, settings, level, slot, control, received)
    registry[job_id, slot] = held
    if slots is None:
        _settle_process()
    return _run(held, level, control, received, arriving)


def _run(
    held: _Slot,
    level: int,
    control: ControlConnection | None,
    received: Iterator[bytes],
    arriving: ArrivingRows | None,
) -> Iterator[Row]:
    task = held.level(level)
    if control is None:
        sent = BatchTask(task).run(received)
    else:
        sent = _then_leave(StreamTask(task, control, held.settings.buffer_timeout_s, arriving).run(received))
    return sent if task.is_last else in_segments(sent, held.slot)


def _then_leave(sent: Iterator[Row]) -> Iterator[Row]:
    """The task of all epochs has ended, and closed its functions: nothing works in the job's folder here any more."""
    yield from sent
    work_in("")


def _work(settings: TaskSettings, slot: int) -> None:
    work_in(settings.working_folder, lambda: _folder_of(settings, slot, "-work"))


def _teller(
    settings: TaskSettings, level: int, slot: int, control: ControlConnection | None
) -> Callable[[Whereabouts | TaskFailure], None]:
    """How the watchdog's words get to the JobManager."""

    def tell(what: Whereabouts | TaskFailure) -> None:
        ack = LevelAck(slot, level, settings.attempt, -1, is_brief=True, pid=os.getpid(), host=socket.gethostname())
        if isinstance(what, TaskFailure):
            ack.failure = what
        else:
            ack.where = what
        if control is not None:
            control.send(encode_ack(ack))
        elif settings.report_address:
            token, hello = settings.control_token, Hello(settings.attempt, slot, level)
            with closing(ControlConnection(settings.report_address, token, hello)) as connection:
                connection.send(encode_ack(ack))

    return tell


def _failed_start(
    error: BaseException,
    settings: TaskSettings,
    level: int,
    slot: int,
    control: ControlConnection | None,
    rows: Iterable[bytes],
) -> Iterator[Row]:
    """The job could not be made from its payload: there is no task, but its answer there is."""
    failure = failure_of(error)
    if isinstance(error, ImportError | AttributeError):
        failure.code = InvalidJob.code
        failure.remedy = (
            "what the program imports must be found by the workers, too: on sys.path when execute() is called, by "
            "add_python_file(), or in the image"
        )
    failure.comes_again = failure.comes_again or isinstance(error, InvalidJob)
    failure.detail = failure.message = f"the job cannot be loaded by a worker: {failure.detail}"
    ack = LevelAck(slot, level, settings.attempt, -1, failure=failure, pid=os.getpid(), host=socket.gethostname())
    if control is not None:
        with closing(control):
            control.send(encode_ack(ack))
        return
    for row in rows:
        if row[0] != DATA:  # the command, for deeper levels; acks of those above
            yield slot, row
    yield slot, bytes((ACK,)) + encode_ack(ack)


def _connect(settings: TaskSettings, level: int, slot: int) -> ControlConnection:
    return ControlConnection(settings.control_address, settings.control_token, Hello(settings.attempt, slot, level))


def _close_older(registry: dict[tuple[str, int], _Slot], job_id: str, attempt: int) -> None:
    for key, held in list(registry.items()):
        if held.settings.job_id != job_id or held.settings.attempt != attempt:
            held.close()
            del registry[key]


_SLOT_KEY = struct.Struct(">q")


class LevelFunction:
    """What Spark runs for every partition of a level: partition i is slot i.

    Rows for the next level go out as pairs (slot, row), which Spark's PairwiseRDD reads as alternating elements; the last
    level's rows go out as they are.
    """

    def __init__(self, payload: Any, job_id: str, attempt: int, level: int, *, is_last: bool) -> None:
        self.payload = payload
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
    """What Spark runs for every slot when an attempt of the batched runner is over: functions are closed, state is let go.

    One ack for each slot; its failure is what could not be closed.
    """

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt

    def __call__(self, partition: int, rows: Iterable[bytes]) -> Iterator[bytes]:
        for _ in rows:
            pass
        ack = LevelAck(partition, 0, self.attempt, -1, pid=os.getpid(), host=socket.gethostname())
        held = _SLOTS.get((self.job_id, partition))
        if held is not None and held.settings.attempt == self.attempt:
            del _SLOTS[self.job_id, partition]
            ack.failure = held.close()
            if not _SLOTS:
                work_in("")
        yield bytes((ACK,)) + encode_ack(ack)
