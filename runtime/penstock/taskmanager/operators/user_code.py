"""Calling the user's functions: binding, opening, and errors that name the operator, the line and the record.

A user function is a plain callable or an object with a method (`map`, `reduce`, `process_element` …). Its method is
bound once, at `open`; the operators' loops call the bound thing. There is no try per record: a loop runs over an
iterator of the batch's values, and when user code raises, what is left in the iterator tells which record it was.
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
    from penstock.state.backend import KeyContext

_REMEDY = "fix the function, or let it send such records to a side output"


class Place(Protocol):
    """Where in the job user code runs: an operator's context, or an exchange."""

    @property
    def name(self) -> str: ...

    @property
    def user_location(self) -> str: ...


def position(values: list[Any], iterator: Iterator[Any]) -> int:
    """Index of the record that was taken last from the iterator over `values`."""
    return len(values) - length_hint(iterator) - 1


def raise_user_error(place: Place, error: Exception, what: str, remedy: str = _REMEDY) -> NoReturn:
    """Raises `UserFunctionError` for what user code raised; Penstock's own errors pass, with the operator filled in.

    Args:
        what: names the call and the record, for the message.
    """
    if isinstance(error, PenstockError):
        error.operator = error.operator or place.name
        error.location = error.location or place.user_location
        if isinstance(error, StateTypeError) and " (at " not in error.message:
            error.message += user_line(error)
        raise error
    raise UserFunctionError(
        f"{what} raised {type(error).__name__}: {error}{user_line(error)}",
        remedy=remedy,
        operator=place.name,
        location=place.user_location,
    ) from error


def refuse_keys(place: Place, error: Exception, keys: Iterable[Any], values: Iterable[Any]) -> None:
    """If `error` may come from a key that is none: raises what names the first such key, its record and the remedy.

    Nothing looks at keys before they are used, so that records cost nothing: what Python says of a key that cannot be
    hashed, and a backend of one that cannot be encoded, is looked into only here.
    """
    if isinstance(error, TypeError | StateTypeError):
        for key, value in zip(keys, values, strict=False):
            refuse_key(place, key, value)


def refuse_key(place: Place, key: Any, value: Any) -> None:
    """
    Raises:
        StateTypeError: the key is none.
    """
    try:
        stable_hash(key)
    except PenstockError as refusal:
        part = "the key" if repr(key) in refusal.message else f"in the key {shortened(key)}"
        refusal.message += f", {part} of {shortened(value)}"
        raise_user_error(place, refusal, "")


class FunctionOperator(Operator):
    """An operator around one user function; keyed if a key selector is given.

    Subclasses name the method the function object has (`method`) and call `self._call`.
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
        """What `iterator` over `values` gives; on a keyed stream the key context moves with it."""
        if not self.is_keyed:
            return iterator
        selector, state = self.key_selectors[input_index], self.context.keyed_state
        assert selector is not None
        assert state is not None
        return _with_key(state.key_context, select_keys(self.context, selector, values), iterator)

    def fail(self, error: Exception, values: list[Any], iterator: Iterator[Any], input_index: int = 0) -> NoReturn:
        """User code raised for the record taken last from `iterator`, or its key is none."""
        index = position(values, iterator)
        selector = self.key_selectors[input_index] if self.is_keyed else None
        if selector is not None:
            refuse_keys(self.context, error, map(selector, values[index : index + 1]), values[index : index + 1])
        record = f"record {index} of a batch of {len(values)}: {shortened(values[index])}"
        if is_no_iterable(error):
            raise UserFunctionError(
                f"{function_name(self.fn)} on {record} returned one value where it gives any number of them: {error}",
                remedy="yield the value, or return a list of values",
                operator=self.context.name,
                location=self.context.user_location,
            ) from error
        raise_user_error(self.context, error, f"{function_name(self.fn)} on {record}")


def is_no_iterable(error: Exception) -> bool:
    """Whether the engine tried to go through what user code returned, and could not."""
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
    """As messages name it."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def select_keys(place: Place, selector: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The key of every record."""
    iterator = iter(values)
    try:
        return list(map(selector, iterator))
    except Exception as error:
        index = position(values, iterator)
        raise_user_error(
            place,
            error,
            f"the key selector on {shortened(values[index])}",
            "let the key selector work on every record, or filter such records out before",
        )
