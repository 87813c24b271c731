"""`UserFunction`: a function of the program that statements call. The planner knows its types, and the tasks call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_session: ContextVar[Mapping[str, UserFunction]] = ContextVar("user functions of SQL")


class UserFunction:
    """A function of the program.

    Args:
        name: full name in a plan, in lower case.
        kind: `scalar`, `table` or `aggregate`.
        implementation: object with PyFlink's methods, such as `eval`.
        can_retract: whether an aggregate function can remove rows.
    """

    def __init__(self, name: str, kind: str, implementation: Any, *, can_retract: bool = True) -> None:
        self.name = name
        self.kind = kind
        self.implementation = implementation
        self.can_retract = can_retract
        self.zone = "UTC"
        """Time zone of the session."""
        self._is_open = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_is_open": False}

    def __repr__(self) -> str:
        return f"{self.kind} function {self.name}"

    def open(self, runtime_context: Any) -> None:
        """Call the function's `open` before its first use in a task."""
        if not self._is_open:
            self._is_open = True
            self.implementation.open(FunctionContext(runtime_context))

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.implementation.close()


class FunctionContext:
    """The context of a function in a task."""

    def __init__(self, runtime_context: Any = None) -> None:
        self._context = runtime_context

    def get_metric_group(self) -> Any:
        return self._context.get_metrics_group()

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return the global job parameter, or the default value."""
        return str(self._context.get_job_parameter(key, default_value))


def plan_name(name: str) -> str:
    """Return the key of a function, given its name in a plan.

    >>> plan_name("`default_catalog`.`default_database`.`F`")
    'default_catalog.default_database.f'
    """
    return name.replace("`", "").lower()


@contextmanager
def functions_of_session(functions: Mapping[str, UserFunction]) -> Iterator[None]:
    """Make the functions available to the readers of a plan."""
    token = _session.set(functions)
    try:
        yield
    finally:
        _session.reset(token)


def session_function(name: str) -> UserFunction | None:
    """Return the function with this name in a plan, or None if the session does not have it."""
    return _session.get({}).get(plan_name(name))


def functions_in(value: Any) -> list[UserFunction]:
    """Return the functions in a tree of expressions and nodes."""
    if isinstance(value, UserFunction):
        return [value]
    if isinstance(value, list | tuple):
        return [found for part in value for found in functions_in(part)]
    fields = getattr(type(value), "__dataclass_fields__", ())
    return [found for name in fields for found in functions_in(getattr(value, name))]
