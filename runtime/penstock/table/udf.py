"""Functions of a program for SQL and the Table API: `ScalarFunction`, `TableFunction`, `AggregateFunction` and their decorators."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.sql.plan.user_functions import FunctionContext as FunctionContext
from penstock.table.types import annotated_type, sql_type

if TYPE_CHECKING:
    from penstock.table.expression import Expression

_numbers: Counter[str] = Counter()
"""Number of the functions whose names are equal as parts of `unique_name`."""
_KINDS = {"scalar": "eval", "table": "eval", "aggregate": "accumulate"}
"""Kinds of functions with the method whose parameters are the arguments."""


class UserDefinedFunction(ABC):  # noqa: B024 - its subclasses have the abstract methods
    """Base of all functions. `open` and `close` are called in each task."""

    def open(self, function_context: FunctionContext) -> None:  # noqa: B027 - optional
        """Prepare the function, for example load a model."""

    def close(self) -> None:  # noqa: B027 - optional
        """Release the resources of the function."""

    def is_deterministic(self) -> bool:
        """Return whether equal arguments always give equal results."""
        return True


class ScalarFunction(UserDefinedFunction):
    """A function from the arguments of a row to one value."""

    @abstractmethod
    def eval(self, *args: Any) -> Any: ...


class TableFunction(UserDefinedFunction):
    """A function from the arguments of a row to any number of rows. A row of several columns is a tuple or a Row."""

    @abstractmethod
    def eval(self, *args: Any) -> Any: ...


class AggregateFunction(UserDefinedFunction):
    """A function of all rows of a group. The accumulator is kept in state: a list, tuple, dict or value that state can store.

    `accumulate` changes the accumulator in place, or returns the new one. A table with updates needs `retract`.
    """

    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def accumulate(self, accumulator: Any, *args: Any) -> Any: ...

    @abstractmethod
    def get_value(self, accumulator: Any) -> Any: ...

    def retract(self, accumulator: Any, *args: Any) -> Any:
        """Remove a row that was accumulated before."""
        raise InvalidJob(
            f"SQL: {type(self).__qualname__} cannot remove rows, but the table has updates",
            remedy="define the method retract(accumulator, *args)",
        )

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> Any:
        """Merge other accumulators into one. Penstock does not call it yet."""
        raise NotImplementedError(f"{type(self).__qualname__} has no method merge()")

    def get_result_type(self) -> Any:
        """Return the type of the result. It may also be the annotation of `get_value`."""
        return None

    def get_accumulator_type(self) -> Any:
        """Return the type of the accumulator. Penstock does not need it."""
        return None


class DelegatingFunction(ScalarFunction, TableFunction):
    """A plain callable as a scalar or table function."""

    def __init__(self, func: Callable[..., Any], *, deterministic: bool) -> None:
        self._func = func
        self._deterministic = deterministic
        self.eval = func  # type: ignore[method-assign] # the fewest calls for each row

    def eval(self, *args: Any) -> Any:  # the instance attribute hides this method
        return self._func(*args)

    def is_deterministic(self) -> bool:
        return self._deterministic


class UserDefinedFunctionWrapper:
    """A function with its types. Call it with expressions in the Table API, or register it for SQL.

    Args:
        kind: `scalar`, `table` or `aggregate`.
        arguments: types as SQL text. None means any types.
        result: type as SQL text.
    """

    def __init__(
        self,
        function: UserDefinedFunction,
        kind: str,
        arguments: list[str] | None,
        result: str,
        name: str,
        func_type: str,
    ) -> None:
        self.function = function
        self.kind = kind
        self.arguments = arguments
        self.result = result
        self.name = name
        short = re.sub(r"[^0-9a-z]", "_", name.lower())
        _numbers[short] += 1
        self.unique_name = f"py_{short}_{_numbers[short]}"
        """Name under which queries of the Table API register the function."""

    def __call__(self, *args: Any) -> Expression:
        """Return the call of the function in the Table API. The arguments are expressions or constants."""
        from penstock.table.expression import user_call

        return user_call(self, args)


def _refused(what: str, remedy: str) -> InvalidJob:
    return InvalidJob(f"SQL: {what}", remedy=remedy)


def _annotations(method: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(method)
    except (NameError, TypeError):
        return {}


def _argument_types(kind: str, given: Any, target: Callable[..., Any]) -> list[str] | None:
    """Return the declared or annotated types of the arguments. None means that a parameter has no type."""
    if given is not None:
        return [sql_type(type) for type in (given if isinstance(given, list | tuple) else [given])]
    hints = _annotations(target)
    parameters = [found for name, found in inspect.signature(target).parameters.items() if name != "self"]
    if kind == "aggregate":
        parameters = parameters[1:]  # the accumulator
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(found.kind not in plain or found.name not in hints for found in parameters):
        return None
    return [annotated_type(hints[found.name]) for found in parameters]


def _result_type(kind: str, given: Any, target: Callable[..., Any], name: str) -> str:
    """Return the declared or annotated type of the result. A table function has a ROW."""
    if given is None:
        hint = _annotations(target).get("return")
        if hint is None:
            raise _refused(
                f"the type of the result of {name} is not known",
                "annotate the function, or pass result_type=DataTypes.…",
            )
        if kind == "table":
            parts = typing.get_args(hint)
            if not parts:
                raise _refused(
                    f"the annotation of {name} has no type of rows", "write Iterator[…], or pass result_types"
                )
            given = [annotated_type(parts[0])]
        else:
            return annotated_type(hint)
    if kind != "table":
        return sql_type(given)
    types = [sql_type(type) for type in (given if isinstance(given, list | tuple) else [given])]
    if len(types) == 1 and types[0].startswith("ROW"):
        return types[0]
    return f"ROW<{', '.join(f'f{index} {type}' for index, type in enumerate(types))}>"


def wrap(
    kind: str,
    func: Any,
    input_types: Any,
    result: Any,
    deterministic: bool | None,
    name: str | None,
    func_type: str = "general",
) -> UserDefinedFunctionWrapper:
    """Return a function with its types.

    Raises:
        InvalidJob: the type of the result is not known, or the function has another kind.
    """
    if func_type != "general":
        raise _refused(f"func_type={func_type!r} is not supported", "use func_type='general', which gets single values")
    if inspect.isclass(func):
        func = func()
    shown = name or getattr(func, "__name__", None) or type(func).__name__
    function, target = func, getattr(func, _KINDS[kind], func)
    if not isinstance(func, UserDefinedFunction):
        if kind == "aggregate" or not callable(func):
            raise _refused(f"{shown} is not an AggregateFunction", "pass an instance of AggregateFunction")
        function = DelegatingFunction(func, deterministic=deterministic is not False)
        target = func if inspect.isroutine(func) or isinstance(func, functools.partial) else func.__call__
    arguments = _argument_types(kind, input_types, target)
    value = target
    if kind == "aggregate":
        value, result = function.get_value, result or function.get_result_type()
    return UserDefinedFunctionWrapper(
        function, kind, arguments, _result_type(kind, result, value, shown), shown, func_type
    )


def wrapped(function: Any) -> UserDefinedFunctionWrapper:
    """Return the wrapper of any object that a program registers."""
    if isinstance(function, UserDefinedFunctionWrapper):
        return function
    for kind, base in (("aggregate", AggregateFunction), ("table", TableFunction)):
        if isinstance(function, base):
            return wrap(kind, function, None, None, None, None)
    return wrap("scalar", function, None, None, None, None)


def udf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
    udf_type: str | None = None,
) -> Any:
    """Declare a scalar function. It is also a decorator.

    Types come from the annotations if they are not given. They are DataTypes or SQL texts such as `'ARRAY<INT>'`.

    >>> @udf
    ... def doubled(x: int) -> int:
    ...     return 2 * x
    >>> doubled.arguments, doubled.result
    (['BIGINT'], 'BIGINT')
    """
    if f is None:
        return functools.partial(
            udf,
            input_types=input_types,
            result_type=result_type,
            deterministic=deterministic,
            name=name,
            func_type=udf_type or func_type,
        )
    return wrap("scalar", f, input_types, result_type, deterministic, name, udf_type or func_type)


def udtf(
    f: Any = None,
    input_types: Any = None,
    result_types: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Any:
    """Declare a table function. It is also a decorator. The function yields rows."""
    if f is None:
        return functools.partial(
            udtf, input_types=input_types, result_types=result_types, deterministic=deterministic, name=name
        )
    return wrap("table", f, input_types, result_types, deterministic, name)


def udaf(
    f: Any = None,
    input_types: Any = None,
    result_type: Any = None,
    accumulator_type: Any = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Any:
    """Declare an aggregate function. It is also a decorator."""
    if f is None:
        return functools.partial(
            udaf,
            input_types=input_types,
            result_type=result_type,
            accumulator_type=accumulator_type,
            deterministic=deterministic,
            name=name,
            func_type=func_type,
        )
    return wrap("aggregate", f, input_types, result_type, deterministic, name, func_type)
