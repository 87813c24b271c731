"""A value state as a dictionary, for loops over a whole batch: `hashmap` lends its own, others are read and written once
per key and batch."""

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
    """One value state of one operator. Between `borrow` and `give_back` nothing else may write the namespace."""

    def __init__(self, backend: KeyedStateBackend, descriptor: StateDescriptor) -> None:
        self._backend = backend
        self._name = descriptor.name
        self._raw = backend.raw_table(descriptor)

    def borrow(self, keys: Collection[Any], namespace: Any = None) -> dict[Any, Any]:
        """A dictionary in which at least these keys, as far as they have values, are found; change it in place."""
        lent = self._raw.mapping(namespace)
        if lent is not None:
            return lent
        get = self._raw.get
        found = ((key, get(key, namespace)) for key in set(keys))
        return {key: value for key, value in found if value is not None}

    def give_back(self, table: dict[Any, Any], changed: Iterable[Any], namespace: Any = None) -> None:
        """`changed`: the keys that got a value since `borrow`; a key may be named many times."""
        if table is self._raw.mapping(namespace):
            self._raw.touch(changed, namespace)
            return
        put = self._raw.put
        for key in set(changed):
            put(key, table[key], namespace)

    def columns(self, shape: AccumulatorShape, count: int) -> AccumulatorColumns | None:
        """The accumulators of `count` keys and the others as columns, until a dictionary is borrowed; None: there are none."""
        return self._raw.columns(shape, count)

    def items(self, namespace: Any) -> Iterable[tuple[Any, Any]]:
        """Every key and value of the namespace, which must not be written meanwhile."""
        lent = self._raw.mapping(namespace)
        if lent is not None:
            return lent.items()
        keys = list(self._backend.keys(self._name, namespace))
        return [(key, self._raw.get(key, namespace)) for key in keys]

    def pop(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        """Every key and value of the namespace; they are gone afterwards."""
        return self._raw.pop_namespace(namespace)


def borrow(context: OperatorContext, table: Table, keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    """`table.borrow` for the keys of a batch of records.

    Raises:
        StateTypeError: names the operator, the user's line, and the first key that is none, with its record.
    """
    with context.named_in_errors():
        try:
            return table.borrow(keys)
        except Exception as error:
            refuse_keys(context, error, keys, values)
            raise
