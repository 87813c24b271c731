"""A value state as a dictionary, for loops over a whole batch.

The `hashmap` backend lends its own dictionary. Other backends read and write each key once per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.taskmanager.operators.user_code import refuse_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.functions.operator_context import OperatorContext
    from penstock.state.backend import KeyedStateBackend
    from penstock.state.descriptors import StateDescriptor
    from penstock.state.hashmap.accumulator_columns import AccumulatorColumns
    from penstock.state.snapshot_format.column_rows import AccumulatorShape


class Table:
    """One value state of one operator. Between `borrow` and `write_back` no other code may write the namespace."""

    def __init__(self, backend: KeyedStateBackend, descriptor: StateDescriptor) -> None:
        self._backend = backend
        self._name = descriptor.name
        self._raw = backend.raw_table(descriptor)

    def borrow(self, keys: Collection[Any], namespace: Any = None) -> dict[Any, Any]:
        """Return a dictionary with the values of at least these keys. The caller changes it in place."""
        lent = self._raw.mapping(namespace)
        if lent is not None:
            return lent
        get = self._raw.get
        found = ((key, get(key, namespace)) for key in set(keys))
        return {key: value for key, value in found if value is not None}

    def write_back(self, table: dict[Any, Any], changed: Iterable[Any], namespace: Any = None) -> None:
        """Take the dictionary back. `changed` are the keys that got a value since `borrow`. A key may occur many times."""
        if table is self._raw.mapping(namespace):
            self._raw.touch(changed, namespace)
            return
        put = self._raw.put
        for key in set(changed):
            put(key, table[key], namespace)

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        """Return the accumulators as columns, with space for `count` keys, or None if the backend has no columns.

        The columns are valid until a dictionary is borrowed.
        """
        return self._raw.columns(shape, count)

    def items(self, namespace: Any) -> Iterable[tuple[Any, Any]]:
        """Return every key and value of the namespace. Do not write the namespace during the iteration."""
        lent = self._raw.mapping(namespace)
        if lent is not None:
            return lent.items()
        keys = list(self._backend.keys(self._name, namespace))
        return [(key, self._raw.get(key, namespace)) for key in keys]

    def pop(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        """Remove all keys of the namespace, and return them with their values."""
        return self._raw.pop_namespace(namespace)


def borrow(context: OperatorContext, table: Table, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    """Call `table.borrow` for the keys of a batch of records.

    Raises:
        StateTypeError: a key is not valid. The error names the operator, the user's line, the first such key and
            its record.
    """
    with context.named_in_errors():
        try:
            return table.borrow(keys)
        except Exception as error:
            refuse_keys(context, error, keys, values)
            raise
