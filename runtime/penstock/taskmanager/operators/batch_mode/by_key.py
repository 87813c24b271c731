"""Batch mode: a keyed operator gets all records of a key, in order of their time, then the end of time; then the next key.

Until the input ends the records are held in the operator's keyed state, as lists: with RocksDB on disk, where appending reads
nothing and keys lie in order, so that the input need not fit into memory; and checkpoints, savepoints and rescaling go on as
in streaming mode. Records of equal times keep the order in which they came. What comes without a key, from a broadcast
stream, is worked on at once: all of it before the first key.

A key's records are held until its time has ended. A snapshot in its middle has them all, and how many of them the operator has
had; there may be several such keys after a rescale. They go first then, and end together, because the end of time fires the
timers of all keys.
"""

from __future__ import annotations

import time
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.typeinfo import Types
from penstock.records.batch import MIN_TIMESTAMP, RowBatch
from penstock.state.descriptors import ListState, ListStateDescriptor, ValueState, ValueStateDescriptor
from penstock.taskmanager.operators.batch_mode.at_the_end import AtTheEnd
from penstock.taskmanager.operators.user_code import refuse_keys, select_keys
from penstock.taskmanager.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.common.typeinfo import TypeInformation
    from penstock.functions.operator_context import OperatorContext
    from penstock.graph.operator import Operator, OperatorSnapshot
    from penstock.records.batch import Batch

_INPUT = "batch-input-{}"
_GIVEN = ValueStateDescriptor("batch-given", Types.LONG())
_MOST = 10_000
"""Records at once."""
_PART_S = 0.01
"""Between two looks at what else the task has to do."""
_time_of = itemgetter(0)
_shape_of = itemgetter(0, 1)


class ByKey(AtTheEnd):
    """A keyed operator that gets its input sorted.

    Args:
        element_types: of the inputs' values where the state must know them; None: any builtin type.
    """

    def __init__(self, inner: Operator, element_types: tuple[TypeInformation | None, ...] = ()) -> None:
        super().__init__(inner)
        self._element_types = element_types
        self._held: dict[int, ListState[Any]] = {}
        self._begun: dict[Any, int] = {}
        """Keys whose time has not ended, with how many of their records the operator has had."""
        self._noted: set[Any] = set()
        """Those of which the state says it, too."""
        self._pace = Pace(_MOST)

    def declare_states(self, context: OperatorContext) -> None:
        super().declare_states(context)
        assert context.keyed_state is not None
        for descriptor in (*self._descriptors().values(), _GIVEN):
            context.keyed_state.get_state(descriptor)

    def open(self) -> None:
        super().open()
        backend = self.context.keyed_state
        assert backend is not None
        self._backend, self._at = backend, backend.key_context
        self._held = {n: backend.get_state(d) for n, d in self._descriptors().items()}  # type: ignore[misc]
        self._given: ValueState[int] = backend.get_state(_GIVEN)  # type: ignore[assignment]

    def _descriptors(self) -> dict[int, ListStateDescriptor]:
        """By the number of the input, of those that have a key."""
        found = {}
        for number, selector in enumerate(self.key_selectors):
            if selector is not None:
                of_values = self._element_types[number] if number < len(self._element_types) else None
                items = None if of_values is None else Types.TUPLE([Types.LONG(), of_values])
                found[number] = ListStateDescriptor(_INPUT.format(number), items)
        return found

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        held = self._held.get(input_index)
        if held is None:
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
        at, add = self._at, held.add
        at.namespace = None
        try:
            for key, moment, value in zip(keys, times, values, strict=True):
                at.key = key
                add((moment, value))
        except Exception as error:
            refuse_keys(self.context, error, keys, values)
            raise

    def work_off(self) -> Iterator[None]:
        """Key by key."""
        clock = time.perf_counter
        seen = clock()
        for keys in self._keys():
            for key in keys:
                for _ in self._give(key):
                    if clock() - seen >= _PART_S:
                        yield
                        seen = clock()
            self.end_of_time()
            self.inner.rewind()
            self._forget(keys)
        yield

    def _keys(self) -> Iterator[tuple[Any, ...]]:
        """Of all inputs, each once; first those that have begun, together."""
        begun = []
        for key in list(self._backend.keys(_GIVEN.name)):
            self._at.key, self._at.namespace = key, None
            self._begun[key] = self._given.value() or 0
            self._noted.add(key)
            begun.append(key)
        if begun:
            yield tuple(begun)
        names = [_INPUT.format(number) for number in self._held]
        for key in list(dict.fromkeys(key for name in names for key in self._backend.keys(name))):
            yield (key,)

    def _give(self, key: Any) -> Iterator[None]:
        """The records of a key that the operator has not had, in order."""
        at, items = self._at, []
        at.key, at.namespace = key, None
        for number, held in self._held.items():
            items += [(moment, number, value) for moment, value in held.get()]
        items.sort(key=_time_of)
        given = self._begun.get(key, 0)
        while given < len(items):
            part = items[given : given + self._pace.records] if given or len(items) > self._pace.records else items
            began = time.perf_counter()
            self._process(part)
            self._pace.took(len(part), time.perf_counter() - began)
            given += len(part)
            self._begun[key] = given
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
        """Their time has ended."""
        at = self._at
        for key in keys:
            at.key, at.namespace = key, None
            for held in self._held.values():
                held.clear()
            self._begun.pop(key, None)
            if key in self._noted:
                self._noted.discard(key)
                self._given.clear()

    def write_state(self) -> None:
        at = self._at
        for key, given in self._begun.items():
            at.key, at.namespace = key, None
            self._given.update(given)
        self._noted.update(self._begun)
        super().write_state()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self.write_state()
        return super().snapshot(checkpoint_id)
