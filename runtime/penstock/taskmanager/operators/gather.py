"""An operator that gathers records into lists, for functions that are cheaper on several records at once, such as
models.

The operator emits a list when the list is full or its first record has waited long enough, independent of keys. Waiting
records are operator state. The watermark remains below the oldest waiting record, so no list becomes late because its
records have waited.

An idle input does not hold the watermark of downstream operators back. So the operator emits the waiting records before
it becomes idle, and holds no records while it is idle.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.graph.operator import Operator
from penstock.records.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, RowBatch

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext

_WAITING, _TIMES = "waiting", "waiting-times"


class GatherOperator(Operator):
    """An operator that gathers records into lists.

    Args:
        size: maximum records of a list.
        timeout_ms: maximum time that a record waits.
        element_type: type of the records in the state; None allows any builtin type.
    """

    def __init__(self, size: int, timeout_ms: int, element_type: TypeInformation | None = None) -> None:
        self._size = size
        self._timeout_ms = timeout_ms
        self._element_type = element_type
        self._watermark = MIN_TIMESTAMP
        self._sent = MIN_TIMESTAMP
        self._due: int | None = None
        self._has_checked = False
        self._is_idle = False

    def declare_states(self, context: OperatorContext) -> None:
        context.operator_state.get_list_state(_WAITING, self._element_type)

    def open(self) -> None:
        state = self.context.operator_state
        self._waiting: list[Any] = state.get_list_state(_WAITING, self._element_type)
        self._times: list[int | None] = state.get_list_state(_TIMES)
        self._set_due()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        if rows.values and not self._has_checked:
            self._has_checked = True
            with self.context.named_in_errors():
                self.context.operator_state.check(_WAITING, rows.values[0])
        self._waiting += rows.values
        self._times += [None] * len(rows.values) if rows.timestamps is None else rows.timestamps
        # An input may become active and idle again within one buffer, without a call of `process_idle`.
        whole = len(self._waiting) if self._is_idle else len(self._waiting) // self._size * self._size
        if whole:
            self._emit(whole)
        if self._due is None:
            self._set_due()

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp
        if timestamp >= MAX_TIMESTAMP:
            self._emit(len(self._waiting))
        self._forward()

    def process_idle(self, is_idle: bool) -> None:
        self._is_idle = is_idle
        if is_idle:
            self._emit(len(self._waiting))
        super().process_idle(is_idle)

    def advance_processing_time(self, now: int) -> None:
        if self._due is not None and self.context.clock.monotonic_ms() >= self._due:
            self._emit(len(self._waiting))

    def next_processing_time(self) -> int | None:
        if self._due is None:
            return None
        clock = self.context.clock
        return self._due - clock.monotonic_ms() + clock.now_ms()

    @property
    def holds_records(self) -> bool:  # type: ignore[override]
        return bool(self._waiting)

    def current_watermark(self) -> int:
        return self._sent

    def finish(self) -> None:
        self._emit(len(self._waiting))

    def _emit(self, count: int) -> None:
        """Emit the first `count` records, in lists."""
        if not count:
            return
        gone, times = self._waiting[:count], self._times[:count]
        del self._waiting[:count], self._times[:count]
        lists = []
        for cut in range(0, count, self._size):
            behind = cut + self._size
            newest = max((at for at in times[cut:behind] if at is not None), default=None)
            lists.append((gone[cut:behind], newest))
        # Either all records of a batch have timestamps, or no record has a timestamp.
        for is_timed, run in groupby(lists, lambda item: item[1] is not None):
            values, stamps = zip(*run, strict=True)
            self.output.emit(RowBatch(list(values), list(stamps) if is_timed else None))
        self._set_due()
        self._forward()

    def _set_due(self) -> None:
        self._due = self.context.clock.monotonic_ms() + self._timeout_ms if self._waiting else None

    def _forward(self) -> None:
        oldest = min((at for at in self._times if at is not None), default=MAX_TIMESTAMP)
        watermark = min(self._watermark, oldest - 1) if oldest < MAX_TIMESTAMP else self._watermark
        if watermark > self._sent:
            self._sent = watermark
            self.output.emit_watermark(watermark)
