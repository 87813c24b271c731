"""Async I/O (A51-A55): many requests to an outside service are under way while the task does other things.

`process_batch` hands the records over to the function's event loop (`requests`) and returns. What was answered goes out when
the task is woken, in the order that was asked for and never past a watermark (`answers`). With `capacity` records under
way the operator is full: its task takes no more of them, and goes on with timers, commands and output meanwhile.

A barrier does not wait for answers. The inputs whose results have not gone out are part of the checkpoint, and asked for
again after a restore (A54); so a service may see a request twice, and no result is lost or given twice.
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
"""Event times of those inputs, of the same number and order: a rescale spreads both alike."""


class AsyncWaitOperator(FunctionOperator):
    """Calls `async_invoke(value)` for every record, `capacity` at a time.

    Args:
        declared: type the results are converted to if it has a Row in it.
        element_type: of the inputs, for the checkpoint; any builtin type if None.
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
        self._ask([Request(*input_) for input_ in zip(self._stored, self._stored_times, strict=True)])

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
        self._ask([Request(*input_) for input_ in zip(rows.values, times, strict=True)])
        self.take_finished()

    def _ask(self, requests: list[Request]) -> None:
        assert self._loop is not None
        for request in requests:
            self._answers.put(request)
        self._loop.ask(requests)

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
        """Bounded input has ended: its last results belong to the last checkpoint."""
        assert self._loop is not None
        self.take_finished()
        while len(self._answers):
            self._loop.wait()
            self.take_finished()

    # --- time and checkpoints ----------------------------------------------------------------------------------

    def advance_processing_time(self, now: int) -> None:
        self.take_finished()

    def next_processing_time(self) -> int | None:
        """Runners without a task that could be woken look again at once."""
        return self.context.clock.now_ms() if len(self._answers) else None

    def next_wake(self) -> int | None:
        """An answer wakes the task."""
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
