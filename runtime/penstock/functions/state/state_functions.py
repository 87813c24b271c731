"""Functions of a value and the state of its key, for `map_with_state` and `flat_map_with_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.record_functions import FlatMapFunction, MapFunction
from penstock.functions.runtime_context import of_library
from penstock.state.descriptors import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.functions.function import RuntimeContext

_STATE = "with-state"


class _WithState:
    """The call of `function(value, state)`, which returns results and the new state. A state of None means that the key has no state."""

    def __init__(self, function: Callable[[Any, Any], tuple[Any, Any]], state_type: Any) -> None:
        self._function = function
        self._state_type = state_type

    def state_meaning(self) -> dict[str, Any]:
        """Describe the state for snapshots. The state belongs to the library, so the function's name does not matter."""
        return {"kind": "function", "functions": ["with state"]}

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = of_library(runtime_context).get_state(ValueStateDescriptor(_STATE, self._state_type))

    def _results(self, value: Any) -> Any:
        results, state = self._function(value, self._state.value())
        if state is None:
            self._state.clear()
        else:
            self._state.update(state)
        return results


class MapWithState(_WithState, MapFunction):
    """A function with one result for each value."""

    def map(self, value: Any) -> Any:
        return self._results(value)


class FlatMapWithState(_WithState, FlatMapFunction):
    """A function with any number of results for each value."""

    def flat_map(self, value: Any) -> Any:
        return self._results(value)
