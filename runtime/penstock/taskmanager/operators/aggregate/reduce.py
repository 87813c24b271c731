"""Rolling combination per key: reduce and the built-in aggregates on a field (A22, A23).

Both emit the updated value for *every* record, with the record's timestamp, and keep one value per key for ever (A24).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.common.errors import InvalidJob
from penstock.records.batch import Batch, RowBatch
from penstock.records.fields import Field, getter_for, setter_for
from penstock.state.descriptors import ValueStateDescriptor
from penstock.taskmanager.operators.tables import Table, borrow
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.functions.operator_context import OperatorContext

AggregateKind = Literal["sum", "min", "max", "min_by", "max_by"]


class FieldReduce:
    """A reduce function on one field of a record (A22).

    `sum`, `min` and `max` keep the other fields of the first record; `min_by` and `max_by` keep the whole record that
    holds the extreme, the first of equals.

    >>> FieldReduce("sum", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 7, 'first')
    >>> FieldReduce("max_by", 1).reduce((1, 2, "first"), (1, 5, "second"))
    (1, 5, 'second')
    """

    def __init__(self, kind: AggregateKind, field: Field) -> None:
        if kind not in ("sum", "min", "max", "min_by", "max_by"):
            raise InvalidJob(f"no built-in aggregate {kind!r}", remedy="use sum, min, max, min_by or max_by")
        self.kind = kind
        self.field = field
        self._shape: type | None = None

    def reduce(self, value1: Any, value2: Any) -> Any:
        if value1.__class__ is not self._shape:
            self._shape = value1.__class__
            self._get = getter_for(self.field, value1)
            self._set = setter_for(self.field, value1)
        old, new = self._get(value1), self._get(value2)
        kind = self.kind
        if kind == "sum":
            return self._set(value1, old + new)
        if not (new < old if kind[:3] == "min" else new > old):
            return value1
        return self._set(value1, new) if len(kind) == 3 else value2

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind, "field": self.field, "_shape": None}


class ReduceOperator(FunctionOperator):
    """`reduce`: combines each record with the key's value so far.

    Args:
        fn: (value so far, record) -> value, of the records' type.
        element_type: of the records, for the state; any builtin type if None.
    """

    method = "reduce"

    def __init__(self, fn: Any, key_selector: Callable[[Any], Any], element_type: Any = None) -> None:
        super().__init__(fn, key_selector)
        self._element_type = element_type

    def open(self) -> None:
        super().open()
        assert self.context.keyed_state is not None
        self._table = Table(self.context.keyed_state, self._descriptor())

    def declare_states(self, context: OperatorContext) -> None:
        assert context.keyed_state is not None
        context.keyed_state.get_state(self._descriptor())

    def _descriptor(self) -> ValueStateDescriptor:
        return ValueStateDescriptor("reduced", self._element_type)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        values = rows.values
        selector = self.key_selectors[0]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        table = borrow(self.context, self._table, keys, values)
        get = table.get
        call = self._call
        out: list[Any] = []
        append = out.append
        iterator = iter(values)
        try:
            for key, value in zip(keys, iterator, strict=True):
                old = get(key)
                if old is not None:
                    value = call(old, value)
                table[key] = value
                append(value)
        except Exception as error:
            self.fail(error, values, iterator)
        with self.context.named_in_errors():
            self._table.give_back(table, keys)
        self.output.emit(RowBatch(out, rows.timestamps))


class RollingAggregateOperator(ReduceOperator):
    """`sum`, `min`, `max`, `min_by`, `max_by` of a field, rolling."""

    def __init__(
        self, kind: AggregateKind, field: Field, key_selector: Callable[[Any], Any], element_type: Any = None
    ) -> None:
        super().__init__(FieldReduce(kind, field), key_selector, element_type)

    def user_functions(self) -> Iterable[object]:
        return ()
