"""The function of `as_queryable_state`: keeps the newest value of each key, or all of them reduced, and emits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.record_functions import FlatMapFunction
from penstock.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.functions.function import RuntimeContext


class KeepQueryable(FlatMapFunction):
    """
    Args:
        descriptor: queryable.
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
    """Of a sink that gets no records."""
