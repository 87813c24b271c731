"""The function of `as_queryable_state`. It keeps the latest value of each key, or the values of the key reduced to one, and emits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.record_functions import FlatMapFunction
from penstock.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.functions.function import RuntimeContext


class KeepQueryable(FlatMapFunction):
    """A function that keeps the values of each key in a queryable state and emits nothing.

    Args:
        descriptor: descriptor of the queryable state.
    """

    def __init__(self, descriptor: ValueStateDescriptor | ReducingStateDescriptor) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = self._descriptor
        if isinstance(descriptor, ReducingStateDescriptor):
            self._keep = runtime_context.get_reducing_state(descriptor).add
        else:
            self._keep = runtime_context.get_state(descriptor).update

    def flat_map(self, value: Any) -> Iterable[Any]:
        self._keep(value)
        return ()


def nothing(value: Any) -> None:
    """Do nothing. This is the function of a sink that gets no records."""
