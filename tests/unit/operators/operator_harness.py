"""Runs one operator in a test: push records, move the clocks, read what came out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from pyspark import cloudpickle

from penstock.taskmanager.batch import MAX_TIMESTAMP, Batch, RowBatch
from penstock.taskmanager.operator import Operator, OperatorContext
from tests.unit.operators.doubles import MemoryBackend, MemoryOperatorState, MemoryTimers

WATERMARK = "watermark"
IDLE = "idle"


class ManualClock:
    def __init__(self, now: int = 0) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def inc(self, n: int = 1) -> None:
        self.count += n


class Metrics:
    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}

    def counter(self, name: str) -> Counter:
        return self.counters.setdefault(name, Counter())


class CollectingOutput:
    """Everything an operator emits, in order: (value, timestamp), ("watermark", t), ("idle", flag)."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, Any]] = []
        self.sides: dict[str, list[tuple[Any, int | None]]] = {}
        self.batches: list[Batch] = []

    def emit(self, batch: Batch) -> None:
        assert len(batch), "an empty batch was emitted"
        self.batches.append(batch)
        self.events.extend(_pairs(batch))

    def emit_side(self, tag_id: str, batch: Batch) -> None:
        self.sides.setdefault(tag_id, []).extend(_pairs(batch))

    def emit_watermark(self, timestamp: int) -> None:
        self.events.append((WATERMARK, timestamp))

    def emit_idle(self, is_idle: bool) -> None:
        self.events.append((IDLE, is_idle))


def _pairs(batch: Batch) -> list[tuple[Any, int | None]]:
    rows = batch.rows()
    stamps = [None] * len(rows.values) if rows.timestamps is None else rows.timestamps
    return list(zip(rows.values, stamps, strict=True))


class OperatorRun:
    """One operator in one subtask, opened."""

    def __init__(
        self,
        operator: Operator,
        *,
        clock: ManualClock | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        job_parameters: dict[str, str] | None = None,
        auto_watermark_interval_ms: int = 200,
        restored_from: OperatorRun | None = None,
    ) -> None:
        self.operator = operator
        self._pickled = cloudpickle.dumps(operator)
        self.clock = ManualClock() if clock is None else clock
        self.output = CollectingOutput()
        self.metrics = Metrics()
        self.backend: Any = MemoryBackend() if operator.is_keyed else None
        self.timers = MemoryTimers(self.backend.key_context, self.clock) if operator.is_keyed else None
        self.context = OperatorContext(
            uid="op",
            name="operator under test",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=128,
            attempt=0,
            clock=self.clock,
            operator_state=MemoryOperatorState(),  # type: ignore[arg-type]
            keyed_state=self.backend,
            timers=self.timers,  # type: ignore[arg-type]
            metrics=self.metrics,  # type: ignore[arg-type]
            user_location="job.py:7",
            job_parameters=job_parameters or {},
            auto_watermark_interval_ms=auto_watermark_interval_ms,
            is_restored=restored_from is not None,
        )
        if restored_from is not None:
            self._restore(restored_from)
        operator.setup(self.context, self.output)
        operator.open()

    def _restore(self, old: OperatorRun) -> None:
        if old.backend is not None:
            self.backend.data = copy.deepcopy(old.backend.data)
            for domain in (0, 1):
                for timestamp, key, namespace in old.timers._live[domain]:
                    self.backend.key_context.key, self.backend.key_context.namespace = key, namespace
                    self.timers._register(domain, timestamp)
        self.context.operator_state.lists = copy.deepcopy(old.context.operator_state.lists)
        self.context.operator_state.broadcast = copy.deepcopy(old.context.operator_state.broadcast)

    def restart(self, operator: Operator | None = None) -> OperatorRun:
        """Snapshot, then a new run of the operator (or of another one with its uid) from it."""
        self.operator.snapshot(1)
        return OperatorRun(
            pickle.loads(self._pickled) if operator is None else operator, clock=self.clock, restored_from=self
        )

    @staticmethod
    def rescale(old: list[OperatorRun], parallelism: int) -> list[OperatorRun]:
        raise NotImplementedError

    def push(self, *values: Any, at: list[int] | int | None = None, to: int = 0) -> OperatorRun:
        """One batch of records; `at`: their timestamps, one for all or one each."""
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
        """Processing time moves to `now` (ms)."""
        self.clock.now = now
        self.operator.advance_processing_time(now)
        return self

    def end(self) -> OperatorRun:
        return self.watermark(MAX_TIMESTAMP)

    @property
    def values(self) -> list[Any]:
        """Main results so far, without timestamps."""
        return [value for value, _ in self.results]

    @property
    def results(self) -> list[tuple[Any, int | None]]:
        return [event for event in self.output.events if event[0] not in (WATERMARK, IDLE)]

    @property
    def events(self) -> list[tuple[Any, Any]]:
        return self.output.events

    def side(self, tag_id: str) -> list[Any]:
        return [value for value, _ in self.output.sides.get(tag_id, [])]

    def take(self) -> list[Any]:
        """Main results since the last call, without timestamps."""
        values = self.values
        self.output.events.clear()
        return values
