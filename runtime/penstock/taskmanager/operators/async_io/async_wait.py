"""Async I/O: many requests to an external service are pending while the task does other work.

`process_batch` passes the records to the function's event loop (`requests`) and returns. An answer wakes the task,
which emits the results in the configured order and never across a watermark (`answers`). The operator is full at
`capacity` pending records. While the operator is full, its task takes no more records, but continues with timers,
commands and output.

A barrier does not wait for answers. Inputs whose results have not been emitted are part of the checkpoint, and are
requested again after a restore. So a service may receive a request twice, but each result is emitted exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.graph.operator import OperatorSnapshot
from penstock.records.batch import RowBatch
from penstock.records.fields import shortened
from penstock.taskmanager.operators.async_io.answers import Mark, OrderedAnswers, Request, UnorderedAnswers
from penstock.taskmanager.operators.async_io.requests import RequestLoop
from penstock.taskmanager.operators.user_code import FunctionOperator, function_name, raise_user_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.batch import Batch

IN_FLIGHT = "async-in-flight"
IN_FLIGHT_TIMES = "async-in-flight-times"
"""Name of the state with the event times of the inputs in `IN_FLIGHT`. Both lists have the same order, so a rescale
distributes both in the same way."""


class AsyncWaitOperator(FunctionOperator):
    """The operator that calls `async_invoke(value)` for every record, with at most `capacity` pending calls.

    Args:
        declared: type of the results. If it contains a Row, the results are converted to this type.
        element_type: type of the inputs in the checkpoint. None allows any builtin type.
    """

    method = "async_invoke"

    def __init__(
        self,
        descriptor: AsyncFunctionDescriptor,
        declared: TypeInformation | None = None,
        element_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(descriptor.async_function)
        self._descriptor = descriptor
        self._convert = None if declared is None or declared.is_storable else declared.convert
        self._element_type = element_type
        self._is_ordered = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        self._loop: RequestLoop | None = None
        self._has_checked = False
        self.capacity = descriptor.capacity

    def declare_states(self, context: OperatorContext) -> None:
        context.operator_state.get_list_state(IN_FLIGHT, self._element_type)

    def open(self) -> None:
        state = self.context.operator_state
        self._stored: list[Any] = state.get_list_state(IN_FLIGHT, self._element_type)
        self._stored_times: list[int | None] = state.get_list_state(IN_FLIGHT_TIMES)
        self._answers = OrderedAnswers() if self._is_ordered else UnorderedAnswers()
        self._loop = RequestLoop(self._descriptor, self._convert, self.context.wake)
        self._loop.start(super().open)
        self._submit([Request(*input_) for input_ in zip(self._stored, self._stored_times, strict=True)])

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close(super().close)

    # --- records -----------------------------------------------------------------------------------------------

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        if not rows.values:
            return
        if not self._has_checked:
            self._has_checked = True
            with self.context.named_in_errors():
                self.context.operator_state.check(IN_FLIGHT, rows.values[0])
        times = [None] * len(rows.values) if rows.timestamps is None else rows.timestamps
        self._submit([Request(*input_) for input_ in zip(rows.values, times, strict=True)])
        self.take_finished()

    def _submit(self, requests: list[Request]) -> None:
        assert self._loop is not None
        for request in requests:
            self._answers.put(request)
        self._loop.submit(requests)

    def process_watermark(self, timestamp: int) -> None:
        self._answers.mark(Mark(watermark=timestamp))
        self.take_finished()

    def process_idle(self, is_idle: bool) -> None:
        self._answers.mark(Mark(is_idle=is_idle))
        self.take_finished()

    @property
    def is_full(self) -> bool:
        return len(self._answers) >= self._descriptor.capacity

    @property
    def holds_records(self) -> bool:  # type: ignore[override]
        return len(self._answers) > 0

    def take_finished(self) -> None:
        values: list[Any] = []
        times: list[int | None] = []
        for item in self._answers.take(self._take_done()):
            if isinstance(item, Request):
                values.extend(item.results)
                times.extend([item.timestamp] * len(item.results))
            else:
                self._emit(values, times)
                values, times = [], []
                self._emit_mark(item)
        self._emit(values, times)

    def _take_done(self) -> Iterator[Request]:
        assert self._loop is not None
        for request in self._loop.take_done():
            if isinstance(request.error, Exception):
                raise_user_error(self.context, request.error, f"{function_name(self.fn)} on {shortened(request.value)}")
            if request.error is not None:
                raise request.error
            yield request

    def _emit(self, values: list[Any], times: list[int | None]) -> None:
        if values:
            known = [time for time in times if time is not None]
            self.output.emit(RowBatch(values, known if len(known) == len(values) else None))

    def _emit_mark(self, mark: Mark) -> None:
        if mark.watermark is not None:
            super().process_watermark(mark.watermark)
        else:
            super().process_idle(bool(mark.is_idle))

    def finish(self) -> None:
        """Wait for the last results of bounded input, which belong to the last checkpoint."""
        assert self._loop is not None
        self.take_finished()
        while len(self._answers):
            self._loop.wait()
            self.take_finished()

    # --- time and checkpoints ----------------------------------------------------------------------------------

    def advance_processing_time(self, now: int) -> None:
        self.take_finished()

    def next_processing_time(self) -> int | None:
        """Return the current time while requests are pending, for runners without a task to wake."""
        return self.context.clock.now_ms() if len(self._answers) else None

    def next_wake(self) -> int | None:
        """Return None, because an answer wakes the task."""
        return None

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        inputs = self._answers.inputs()
        self._stored[:] = [request.value for request in inputs]
        self._stored_times[:] = [request.timestamp for request in inputs]
        assert self._loop is not None
        snapshot = super().snapshot
        return self._loop.call(lambda: snapshot(checkpoint_id))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._loop is not None
        notify = super().notify_checkpoint_complete
        self._loop.call(lambda: notify(checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        assert self._loop is not None
        notify = super().notify_checkpoint_aborted
        self._loop.call(lambda: notify(checkpoint_id))
