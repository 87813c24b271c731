"""The sink operator: it drives a `SinkWriter` and does its part of the two-phase commit."""

from __future__ import annotations

from typing import Any

from penstock.connectors.core.json_able import json_able
from penstock.connectors.core.sink import Sink, SinkWriter, StagedCommittable, WriterContext
from penstock.graph.operator import Operator, OperatorSnapshot
from penstock.records.batch import MIN_TIMESTAMP, Batch

_STATE = "penstock-sink-writer"


class SinkOperator(Operator):
    """The operator that writes every batch and pre-commits at barriers. The JobManager commits when the checkpoint is
    complete."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._writer: SinkWriter | None = None
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        context = self.context
        state = context.operator_state.get_list_state(_STATE)
        self._writer = self.sink.create_writer(
            WriterContext(
                subtask=context.subtask,
                parallelism=context.parallelism,
                attempt=context.attempt,
                uid=context.uid,
                job_id=context.job_id,
                object_store_options=context.object_store_options,
                operator=context,
            ),
            list(state),
        )

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        assert self._writer is not None
        with self.context.named_in_errors():
            self._writer.write_batch(batch, self._watermark)

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp

    def process_idle(self, is_idle: bool) -> None:
        """Ignore idleness, because no operator follows a sink."""

    def advance_processing_time(self, now: int) -> None:
        assert self._writer is not None
        self._writer.advance_processing_time(now)

    def next_wake(self) -> int | None:
        now = self.context.clock.now_ms()
        ask = getattr(self._writer, "next_processing_time", None)  # a writer may lack the base class
        return now + 1000 if ask is None else ask(now)

    def current_watermark(self) -> int:
        return self._watermark

    def end_of_epoch(self) -> None:
        """Let at-least-once sinks make their data durable. No record is in flight."""
        assert self._writer is not None
        self._writer.flush()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        assert self._writer is not None
        description = f"a committable of {type(self._writer).__name__}"
        committables = [
            one if isinstance(one, StagedCommittable) else json_able(one, description)
            for one in self._writer.prepare_commit(checkpoint_id)
        ]
        items: list[Any] = self.context.operator_state.get_list_state(_STATE)
        items[:] = self._writer.snapshot_state(checkpoint_id)
        return OperatorSnapshot(committables)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._writer is not None
        self._writer.notify_checkpoint_complete(checkpoint_id)

    def notify_committed(self, checkpoint_id: int) -> None:
        notify = getattr(self._writer, "notify_committed", None)  # a writer may lack the base class
        if notify is not None:
            notify(checkpoint_id)

    def finish(self) -> None:
        assert self._writer is not None
        self._writer.finish()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
