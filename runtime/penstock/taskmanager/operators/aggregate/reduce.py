"""Rolling combination per key: `reduce` and the built-in aggregates of a field.

Both operations emit the updated value for *every* record, with the timestamp of the record. They keep one value per key
and never remove it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import StateTypeError
from penstock.functions.field_reduce import FieldReduce
from penstock.records.batch import Batch, RowBatch
from penstock.records.fields import shortened
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.encoding.serializers import codec_for
from penstock.taskmanager.operators.current_key import iterate_keys, may_use_state
from penstock.taskmanager.operators.tables import Table, borrow
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.field_reduce import AggregateKind
    from penstock.functions.operator_context import OperatorContext
    from penstock.records.fields import Field
    from penstock.state.encoding.codec import Codec


class ReduceOperator(FunctionOperator):
    """The operator of `reduce`. It combines each record with the value of the key so far.

    Args:
        fn: (value so far, record) -> value. The value has the type of the records.
        element_type: type of the records in state. None allows any builtin type.
    """

    method = "reduce"

    def __init__(self, fn: Any, key_selector: Callable[[Any], Any], element_type: Any = None) -> None:
        super().__init__(fn, key_selector)
        self._element_type = element_type
        self._check_first: Callable[[Any], object] | None = None
        """Check for the first record of a key. `fn` is not called for this record."""

    def open(self) -> None:
        super().open()
        backend = self.context.keyed_state
        assert backend is not None
        self._at = backend.key_context
        self._table = Table(backend, self._descriptor())
        self._may_use_state = may_use_state((self.fn,))
        self._unchecked = None if self._element_type is None else codec_for(self._element_type, state="reduced")

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
        call, check = self._call, self._check_first
        out: list[Any] = []
        append = out.append
        iterator = iter(values)
        current_keys = iterate_keys(self._at, keys) if self._may_use_state else keys
        try:
            for key, value in zip(current_keys, iterator, strict=True):
                old = get(key)
                if old is not None:
                    value = call(old, value)
                elif check is not None:
                    check(value)
                table[key] = value
                append(value)
        except Exception as error:
            self.fail(error, values, iterator)
        with self.context.named_in_errors():
            if self._unchecked is not None and values:
                self._check(self._unchecked, values, out)
                self._unchecked = None
            self._table.write_back(table, keys)
        self.output.emit(RowBatch(out, rows.timestamps))

    def _check(self, codec: Codec, values: list[Any], out: list[Any]) -> None:
        """Check the types of a first batch. A checkpoint would report a wrong type too late to find its origin.

        Raises:
            StateTypeError: the first record or the first result is not of the records' declared type.
        """
        try:
            codec.encode(values[0])
        except StateTypeError as error:
            raise StateTypeError(
                f"the record {shortened(values[0])} does not have the type that the function before this operator declares: {error.message}",
                remedy="return the type of output_type from that function, or change its output_type",
            ) from None
        results = zip(out, values, strict=True)
        combined = next((result for result, record in results if result is not record), None)
        if combined is not None:
            codec.encode(combined)


class RollingAggregateOperator(ReduceOperator):
    """A rolling `sum`, `min`, `max`, `min_by` or `max_by` of a field."""

    def __init__(
        self, kind: AggregateKind, field: Field, key_selector: Callable[[Any], Any], element_type: Any = None
    ) -> None:
        function = FieldReduce(kind, field)
        super().__init__(function, key_selector, element_type)
        self._check_first = function.check
