"""`OperatorRun`: one subtask of one operator on a real state backend, which `OperatorHarness` uses.

Tests of the engine's own operators use `OperatorRun` directly, because these tests check the order of records,
watermarks and idleness.
"""

from __future__ import annotations

import pickle
import time
import zlib
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any

from penstock.functions.operator_context import OperatorContext
from penstock.graph.operator import Operator
from penstock.records.batch import MAX_TIMESTAMP, Batch, RowBatch
from penstock.state.backend import KeyedStateBackend
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.files import FileRef
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange, key_group_range
from penstock.state.operator_state import OperatorStateStore
from penstock.taskmanager.code.pickler import dumps

NAME = "operator under test"
WATERMARK = "watermark"
IDLE = "idle"
MAX_PARALLELISM = 128
PAUSE_S = 0.0005


class ManualClock:
    """A clock that tests set. It can go back, unlike the job's manual clock."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Counter:
    """A counter."""

    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int = 1) -> None:
        self.count += n


class Metrics:
    """Counters by name."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}

    def counter(self, name: str) -> Counter:
        return self.counters.setdefault(name, Counter())


class Files:
    """A writer and reader of state files in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self._numbers = count()  # thread-safe, because several threads upload

    def write(self, content: bytes) -> FileRef:
        path = f"shared/{next(self._numbers)}"
        self.contents[path] = content
        return FileRef(path, len(content), f"crc32:{zlib.crc32(content):08x}")

    def upload(self, local_path: str) -> FileRef:
        with open(local_path, "rb") as file:
            return self.write(file.read())

    def read(self, ref: FileRef) -> bytes:
        return self.contents[ref.path]

    def download(self, ref: FileRef, local_path: str) -> None:
        with open(local_path, "wb") as file:
            file.write(self.contents[ref.path])


@dataclass
class Snapshot:
    """The snapshot of one subtask. `keyed` is None if the operator is not keyed."""

    operator_state: dict[str, Any]
    keyed: dict[str, Any] | None
    files: Files


@dataclass
class CollectingOutput:
    """Everything that an operator emits. `events` are in order: (value, timestamp), ("watermark", t), ("idle", flag)."""

    events: list[tuple[Any, Any]] = field(default_factory=list)
    records: list[tuple[Any, int | None]] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    sides: dict[str, list[tuple[Any, int | None]]] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)

    def emit(self, batch: Batch) -> None:
        assert len(batch), "an empty batch was emitted"
        records = _pairs(batch)
        self.batches.append(batch)
        self.records.extend(records)
        self.events.extend(records)

    def emit_side(self, tag_id: str, batch: Batch) -> None:
        self.sides.setdefault(tag_id, []).extend(_pairs(batch))

    def emit_watermark(self, timestamp: int) -> None:
        self.watermarks.append(timestamp)
        self.events.append((WATERMARK, timestamp))

    def emit_idle(self, is_idle: bool) -> None:
        self.events.append((IDLE, is_idle))


def _pairs(batch: Batch) -> list[tuple[Any, int | None]]:
    rows = batch.rows()
    stamps = [None] * len(rows.values) if rows.timestamps is None else rows.timestamps
    return list(zip(rows.values, stamps, strict=True))


class OperatorRun:
    """One operator in one subtask. The constructor opens the operator.

    Args:
        restored_from: the snapshots of all subtasks of the previous run.
        user_location: the line that errors name.
    """

    def __init__(
        self,
        operator: Operator,
        *,
        clock: ManualClock | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = MAX_PARALLELISM,
        backend: str = "hashmap",
        job_parameters: dict[str, str] | None = None,
        auto_watermark_interval_ms: int = 200,
        restored_from: list[Snapshot] | None = None,
        user_location: str = "job.py:7",
    ) -> None:
        self.operator = operator
        self.backend_name = backend
        self.max_parallelism = max_parallelism
        self.clock = ManualClock() if clock is None else clock
        self.output = CollectingOutput()
        self.metrics = Metrics()
        self._backend: Any = None
        self._timers: Any = None
        self._is_open = False
        self._pickled = dumps(operator)
        self._work_dir = TemporaryDirectory(prefix="penstock-operator-test-") if backend == "rocksdb" else None
        self._operator_state = OperatorStateStore(NAME)
        self.context = OperatorContext(
            uid="op",
            name=NAME,
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            attempt=0,
            clock=self.clock,
            operator_state=self._operator_state,
            metrics=self.metrics,  # type: ignore[arg-type]
            user_location=user_location,
            job_parameters=job_parameters or {},
            auto_watermark_interval_ms=auto_watermark_interval_ms,
            is_restored=bool(restored_from),
        )
        with self.context.named_in_errors():
            if operator.is_keyed:
                self._backend = self._create_backend(key_group_range(subtask, parallelism, max_parallelism))
                self._timers = create_timer_service(self._backend)
                self.context.keyed_state, self.context.timers = self._backend, self._timers
            if restored_from:
                self._restore(restored_from, subtask, parallelism)
            operator.setup(self.context, self.output)
            operator.open()
        self._is_open = True

    @property
    def backend(self) -> Any:
        """Return the keyed state after the operator has written all of it, or None if the operator is not keyed."""
        self._write_state()
        return self._backend

    @property
    def timers(self) -> Any:
        """Return the timers after the operator has written all of them, or None if the operator is not keyed."""
        self._write_state()
        return self._timers

    def _write_state(self) -> None:
        if self._is_open:
            self.operator.write_state()

    def _restore(self, snapshots: list[Snapshot], subtask: int, parallelism: int) -> None:
        self._operator_state.restore([s.operator_state for s in snapshots], subtask, parallelism)
        if self._backend is not None:
            handles = [s.keyed for s in snapshots if s.keyed is not None]
            self._backend.restore(handles, snapshots[0].files)

    def _create_backend(self, groups: KeyGroupRange) -> KeyedStateBackend:
        return create_backend(
            self.backend_name,
            key_group_range=groups,
            max_parallelism=self.max_parallelism,
            key_context=KeyContext(),
            clock=self.clock,
            work_dir="" if self._work_dir is None else self._work_dir.name,
            options={},
            operator_name=NAME,
            key_type=self.operator.key_type,
        )

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, files: Files | None = None) -> Snapshot:
        files = Files() if files is None else files
        with self.context.named_in_errors():
            self.operator.snapshot(1)
            keyed = None if self._backend is None else self._backend.snapshot(1).run(files)
        return Snapshot(self.context.operator_state.snapshot(), keyed, files)

    def restart(self, operator: Operator | None = None) -> OperatorRun:
        """Take a snapshot. Return a new run of the same operator, or of another operator, from this snapshot."""
        (again,) = self.rescale([self], 1, operator)
        return again

    @staticmethod
    def rescale(old: list[OperatorRun], parallelism: int, operator: Operator | None = None) -> list[OperatorRun]:
        """Take a snapshot of all subtasks. Return runs of the operator from this snapshot, at another parallelism."""
        files = Files()
        snapshots = [run.snapshot(files) for run in old]
        pickled = old[0]._pickled if operator is None else dumps(operator)
        runs = [
            OperatorRun(
                pickle.loads(pickled),
                clock=old[0].clock,
                subtask=subtask,
                parallelism=parallelism,
                max_parallelism=old[0].max_parallelism,
                backend=old[0].backend_name,
                restored_from=snapshots,
            )
            for subtask in range(parallelism)
        ]
        for run in old:
            run.close()
        return runs

    def close(self) -> None:
        self._is_open = False
        self.operator.close()
        if self._backend is not None:
            self._backend.close()
        if self._work_dir is not None:
            self._work_dir.cleanup()

    # --- input ----------------------------------------------------------------------------------------------------

    def push(self, *values: Any, at: list[int] | int | None = None, to: int = 0) -> OperatorRun:
        """Push one batch of records.

        `at`: the timestamp of all records, or a list with the timestamp of each record.
        """
        stamps = [at] * len(values) if isinstance(at, int) else at
        self.operator.process_batch(RowBatch(list(values), stamps), to)
        return self

    def push_batch(self, batch: Batch, to: int = 0) -> OperatorRun:
        self.operator.process_batch(batch, to)
        return self

    def watermark(self, timestamp: int) -> OperatorRun:
        self.operator.process_watermark(timestamp)
        return self

    def at_time(self, now: int) -> OperatorRun:
        """Move processing time to `now` (ms)."""
        self.clock.now = now
        self.operator.advance_processing_time(now)
        return self

    def settle(self) -> OperatorRun:
        """Wait until the operator has finished its remaining work (async I/O)."""
        while self.operator.capacity is not None and self.operator.next_processing_time() is not None:
            time.sleep(PAUSE_S)
            self.operator.take_finished()
        return self

    def end(self) -> OperatorRun:
        return self.watermark(MAX_TIMESTAMP)

    # --- output ---------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[tuple[Any, Any]]:
        return self.output.events

    @property
    def results(self) -> list[tuple[Any, int | None]]:
        return list(self.output.records)

    @property
    def values(self) -> list[Any]:
        """Return the main results so far, without timestamps."""
        return [value for value, _ in self.results]

    def side(self, tag_id: str) -> list[Any]:
        return [value for value, _ in self.output.sides.get(tag_id, [])]

    def take(self) -> list[Any]:
        """Return the main results since the last call, without timestamps."""
        values = self.values
        self.output.events.clear()
        self.output.records.clear()
        return values
