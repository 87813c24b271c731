"""Batch mode: a keyed operator gets all records of a key in order of their times, then the end of time, then the next
key.

Until the input ends, the records are lists in the operator's keyed state. RocksDB keeps them on disk, so the input need
not fit into memory. An append reads nothing, and the keys are sorted. Checkpoints, savepoints and rescaling work as in
streaming mode.

Records of equal times keep their order of arrival. Records without a key, from a broadcast stream, are processed
immediately: all of them before the first key.

The records of a key are kept until all of them are processed and the key's timers have fired. A snapshot between two
records of a key has all records of the key, and the number of processed records. After a rescale, several keys may be
partly processed. They are processed first, and their timers fire together, because the end of time fires the timers of
all keys.
"""

from __future__ import annotations

import time
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.typeinfo import Types
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.state.descriptors import ListState, ListStateDescriptor, ValueState, ValueStateDescriptor
from penstock.taskmanager.operators.batch_mode.batch_mode_operator import BatchModeOperator
from penstock.taskmanager.operators.user_code import refuse_keys, select_keys
from penstock.taskmanager.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext
    from penstock.graph.operator import Operator, OperatorSnapshot
    from penstock.records.batch import Batch

_INPUT = "batch-input-{}"
_PROCESSED_STATE = ValueStateDescriptor("batch-given", Types.LONG())
_MAX_KEYS = 10_000
"""Maximum number of records per call."""
_PART_S = 0.01
"""Maximum time (s) between two checks for other work of the task."""
_time_of = itemgetter(0)
_shape_of = itemgetter(0, 1)


class SortedKeyOperator(BatchModeOperator):
    """A keyed operator with sorted input.

    Args:
        element_types: types of the values of the inputs, if state needs the types. None allows any builtin type.
    """

    def __init__(self, inner: Operator, element_types: tuple[TypeInformation | None, ...] = ()) -> None:
        super().__init__(inner)
        self._element_types = element_types
        self._pending: dict[int, ListState[Any]] = {}
        self._started: dict[Any, int] = {}
        """Keys that are partly processed, with the number of processed records."""
        self._noted: set[Any] = set()
        """Keys of `_started` that are also recorded in state."""
        self._pace = Pace(_MAX_KEYS)

    def declare_states(self, context: OperatorContext) -> None:
        super().declare_states(context)
        assert context.keyed_state is not None
        for descriptor in (*self._descriptors().values(), _PROCESSED_STATE):
            context.keyed_state.get_state(descriptor)

    def open(self) -> None:
        super().open()
        backend = self.context.keyed_state
        assert backend is not None
        self._backend, self._at = backend, backend.key_context
        self._pending = {n: backend.get_state(d) for n, d in self._descriptors().items()}  # type: ignore[misc]
        self._processed: ValueState[int] = backend.get_state(_PROCESSED_STATE)  # type: ignore[assignment]

    def _descriptors(self) -> dict[int, ListStateDescriptor]:
        """Return the descriptors by the number of the input, for the inputs that have a key."""
        found = {}
        for number, selector in enumerate(self.key_selectors):
            if selector is not None:
                of_values = self._element_types[number] if number < len(self._element_types) else None
                items = None if of_values is None else Types.TUPLE([Types.LONG(), of_values])
                found[number] = ListStateDescriptor(_INPUT.format(number), items)
        return found

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        pending = self._pending.get(input_index)
        if pending is None:
            self.inner.process_batch(batch, input_index)
            return
        rows = batch.rows()
        values = rows.values
        if not values:
            return
        selector = self.key_selectors[input_index]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        times = [MIN_TIMESTAMP] * len(values) if rows.timestamps is None else rows.timestamps
        at, add = self._at, pending.add
        at.namespace = None
        try:
            for key, moment, value in zip(keys, times, values, strict=True):
                at.key = key
                add((moment, value))
        except Exception as error:
            refuse_keys(self.context, error, keys, values)
            raise

    def process_remaining(self) -> Iterator[None]:
        """Process the records key by key."""
        clock = time.perf_counter
        seen = clock()
        for keys in self._keys():
            for key in keys:
                for _ in self._process_key(key):
                    if clock() - seen >= _PART_S:
                        yield
                        seen = clock()
            self.end_of_time()
            self.inner.rewind()
            self._forget(keys)
        yield

    def _keys(self) -> Iterator[tuple[Any, ...]]:
        """Yield the keys of all inputs, each key once.

        Keys that were partly processed at the restore come first, together.
        """
        started_keys = []
        for key in list(self._backend.keys(_PROCESSED_STATE.name)):
            self._at.key, self._at.namespace = key, None
            self._started[key] = self._processed.value() or 0
            self._noted.add(key)
            started_keys.append(key)
        if started_keys:
            yield tuple(started_keys)
        names = [_INPUT.format(number) for number in self._pending]
        for key in list(dict.fromkeys(key for name in names for key in self._backend.keys(name))):
            yield (key,)

    def _process_key(self, key: Any) -> Iterator[None]:
        """Process the remaining records of a key, in order."""
        at, items = self._at, []
        at.key, at.namespace = key, None
        for number, pending in self._pending.items():
            items += [(moment, number, value) for moment, value in pending.get()]
        items.sort(key=_time_of)
        processed = self._started.get(key, 0)
        while processed < len(items):
            part = (
                items[processed : processed + self._pace.records]
                if processed or len(items) > self._pace.records
                else items
            )
            began = time.perf_counter()
            self._process(part)
            self._pace.record_batch(len(part), time.perf_counter() - began)
            processed += len(part)
            self._started[key] = processed
            yield

    def _process(self, items: list[tuple[int, int, Any]]) -> None:
        for (has_time, number), run in groupby(
            ((moment > MIN_TIMESTAMP, number, moment, value) for moment, number, value in items), key=_shape_of
        ):
            times: list[int] = []
            values: list[Any] = []
            for _, _, moment, value in run:
                times.append(moment)
                values.append(value)
            self.inner.process_batch(RowBatch(values, times if has_time else None), number)

    def _forget(self, keys: Iterable[Any]) -> None:
        """Remove the state of keys that are completely processed."""
        at = self._at
        for key in keys:
            at.key, at.namespace = key, None
            for pending in self._pending.values():
                pending.clear()
            self._started.pop(key, None)
            if key in self._noted:
                self._noted.discard(key)
                self._processed.clear()

    def write_state(self) -> None:
        at = self._at
        for key, processed in self._started.items():
            at.key, at.namespace = key, None
            self._processed.update(processed)
        self._noted.update(self._started)
        super().write_state()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self.write_state()
        return super().snapshot(checkpoint_id)
