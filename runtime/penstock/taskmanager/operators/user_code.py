"""Calls of the user's functions: binding, opening, and errors that name the operator, the line and the record.

A user function is a plain callable or an object with a method (`map`, `reduce`, `process_element` …). The operator
binds the method once, at `open`, and its loops call the bound method.

A loop has no `try` per record. A loop runs over an iterator of the batch's values. When user code raises, the remaining
length of the iterator shows which record failed.
"""

from __future__ import annotations

import traceback
from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from penstock.common.errors import PenstockError, StateTypeError, UserFunctionError
from penstock.common.program.user_frames import is_engine, user_line
from penstock.functions.function import bind
from penstock.functions.runtime_context import close_function, open_function
from penstock.functions.state.checkpointed import FunctionCheckpoints
from penstock.graph.operator import Operator, OperatorSnapshot
from penstock.records.fields import shortened
from penstock.state.encoding.key_hash import stable_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.functions.operator_context import OperatorContext
    from penstock.graph.operator import Output
    from penstock.state.key_context import KeyContext

_REMEDY = "fix the function, or let it send such records to a side output"


class Place(Protocol):
    """The place in the job where user code runs: the context of an operator, or an exchange."""

    @property
    def name(self) -> str: ...

    @property
    def user_location(self) -> str: ...


def position(values: list[Any], iterator: Iterator[Any]) -> int:
    """Return the index of the record that was last taken from the iterator over `values`."""
    return len(values) - length_hint(iterator) - 1


def raise_user_error(place: Place, error: Exception, description: str, remedy: str = _REMEDY) -> NoReturn:
    """Raise `UserFunctionError` for an error of user code. Penstock's own errors are raised again, after the name of
    the operator is added.

    Args:
        description: the call and the record, for the message.
    """
    if isinstance(error, PenstockError):
        error.operator = error.operator or place.name
        error.location = error.location or place.user_location
        if isinstance(error, StateTypeError) and " (at " not in error.message:
            error.message += user_line(error)
        raise error
    raise UserFunctionError(
        f"{description} raised {type(error).__name__}: {error}{user_line(error)}",
        remedy=remedy,
        operator=place.name,
        location=place.user_location,
    ) from error


def refuse_keys(place: Place, error: Exception, keys: Iterable[Any], values: Iterable[Any]) -> None:
    """Raise an error for the first invalid key, with its record and the remedy, if `error` may come from a key.

    Operators call this function only after an error, so valid records cost nothing. Python refuses a key that cannot be
    hashed, and a backend refuses a key that cannot be encoded.
    """
    if isinstance(error, TypeError | StateTypeError):
        for key, value in zip(keys, values, strict=False):
            refuse_key(place, key, value)


def refuse_key(place: Place, key: Any, value: Any) -> None:
    """Raise an error that names the key and its record if the key is not valid.

    Raises:
        StateTypeError: the key is not valid.
    """
    try:
        stable_hash(key)
    except PenstockError as refusal:
        part = "the key" if repr(key) in refusal.message else f"in the key {shortened(key)}"
        refusal.message += f", {part} of {shortened(value)}"
        raise_user_error(place, refusal, "")


class FunctionOperator(Operator):
    """The base class of operators around one user function. The operator is keyed if it has a key selector.

    Subclasses set the name of the method of the function object (`method`) and call `self._call`.
    """

    method = ""
    _call: Callable[..., Any]

    def __init__(self, fn: Any, key_selector: Callable[[Any], Any] | None = None) -> None:
        self.fn = fn
        if self.method:
            bind(fn, self.method)
        if key_selector is not None:
            self.is_keyed = True
            self.key_selectors = (key_selector,)

    def setup(self, context: OperatorContext, output: Output) -> None:
        super().setup(context, output)
        self._checkpoints = FunctionCheckpoints(iter(self._functions()), context)

    def open(self) -> None:
        self._checkpoints.initialize()
        for function in self._functions():
            open_function(function, self.context)
        if self.method:
            self._call = bind(self.fn, self.method)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        self._checkpoints.snapshot(checkpoint_id)
        return OperatorSnapshot()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._checkpoints.completed(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._checkpoints.aborted(checkpoint_id)

    def close(self) -> None:
        for function in self._functions():
            close_function(function)

    def _functions(self) -> tuple[object, ...]:
        return self.fn if isinstance(self.fn, tuple) else (self.fn,)

    def records(self, values: list[Any], iterator: Iterator[Any], input_index: int = 0) -> Iterator[Any]:
        """Return the records of `iterator` over `values`. On a keyed stream, each record sets the current key."""
        if not self.is_keyed:
            return iterator
        selector, state = self.key_selectors[input_index], self.context.keyed_state
        assert selector is not None
        assert state is not None
        return _with_key(state.key_context, select_keys(self.context, selector, values), iterator)

    def fail(self, error: Exception, values: list[Any], iterator: Iterator[Any], input_index: int = 0) -> NoReturn:
        """Raise the error of user code for the record that was last taken from `iterator`, or the error of this
        record's key.
        """
        index = position(values, iterator)
        selector = self.key_selectors[input_index] if self.is_keyed else None
        if selector is not None:
            refuse_keys(self.context, error, map(selector, values[index : index + 1]), values[index : index + 1])
        record = f"record {index} of a batch of {len(values)}: {shortened(values[index])}"
        if is_not_iterable(error):
            raise UserFunctionError(
                f"{function_name(self.fn)} returned one value instead of an iterable of results on {record}: {error}",
                remedy="yield the value, or return a list of values",
                operator=self.context.name,
                location=self.context.user_location,
            ) from error
        raise_user_error(self.context, error, f"{function_name(self.fn)} on {record}")


def is_not_iterable(error: Exception) -> bool:
    """Return whether the engine could not iterate over the value that user code returned."""
    if not isinstance(error, TypeError) or not str(error).endswith("object is not iterable"):
        return False
    innermost = deque(traceback.walk_tb(error.__traceback__), maxlen=1)
    return not innermost or is_engine(innermost[0][0].f_code.co_filename)


def _with_key(key_context: KeyContext, keys: list[Any], iterator: Iterator[Any]) -> Iterator[Any]:
    key_context.namespace = None
    for key, value in zip(keys, iterator, strict=True):
        key_context.key = key
        yield value


def function_name(function: Any) -> str:
    """Return the name of the function for messages."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def select_keys(place: Place, selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Return the key of every record."""
    iterator = iter(values)
    try:
        return list(map(selector, iterator))
    except Exception as error:
        index = position(values, iterator)
        raise_user_error(
            place,
            error,
            f"the key selector on {shortened(values[index])}",
            "change the key selector to accept every record, or filter such records out first",
        )
