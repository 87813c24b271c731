"""The current key in loops over a whole batch.

Most loops call the user's function without setting the current key, because a plain function cannot access keyed state.
If a function may have keyed state, the loop needs one assignment per record: `iterate_keys` sets the current key when
the loop takes a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.function import Function, function_within, has_life_cycle
from penstock.functions.state.checkpointed import CheckpointedFunction
from penstock.functions.state.state_attributes import state_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.state.key_context import KeyContext


def may_use_state(functions: Iterable[object]) -> bool:
    """Return whether one of the functions may use keyed state: its class defines `open`, or it has state attributes.

    >>> from penstock.datastream.functions import ReduceFunction
    >>> may_use_state([max, ReduceFunction])
    False
    """
    return any(_uses_state(function) for function in functions)


def _uses_state(function: object) -> bool:
    inner = function_within(function)
    if isinstance(inner, CheckpointedFunction) or any(state_attributes(inner)):
        return True
    return has_life_cycle(function) and getattr(type(function), "open", None) is not Function.open


def iterate_keys(at: KeyContext, keys: Iterable[Any]) -> Iterator[Any]:
    """Yield the keys. Each key is the current key, without a window, until the loop takes the next key."""
    at.namespace = None
    for key in keys:
        at.key = key
        yield key


def bind_current_key(at: KeyContext, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs in the state of the current key, even if the key context points to a window of the key."""

    def called(*arguments: Any) -> Any:
        namespace, at.namespace = at.namespace, None
        try:
            return call(*arguments)
        finally:
            at.namespace = namespace

    return called
