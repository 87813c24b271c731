"""`CodeWriter`: Python source of expressions, in statements with one variable for each intermediate result.

NULL is None. A strict function gives NULL if an argument is NULL, so its call stands in an `else` of a test for None. The
type of an operand tells whether it can be NULL, so operands that are NOT NULL need no test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from penstock.common.errors import InvalidJob
from penstock.sql.plan.types import SqlType


class Value:
    """A part of the source that gives a value: a variable or a constant."""

    def __init__(self, source: str, type: SqlType, *, nullable: bool | None = None) -> None:
        self.source = source
        self.type = type
        self.nullable = type.nullable if nullable is None else nullable

    def __str__(self) -> str:
        return self.source


class CodeWriter:
    """The lines of one function, and the objects that they use by name."""

    def __init__(self, indent: int = 1) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._indent = indent
        self._variables = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a compound statement. The lines inside the `with` are its body."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def use(self, name: str, value: Any) -> str:
        """Make an object available to the source under this name."""
        self.names[name] = value
        return name

    def constant(self, value: Any, type: SqlType) -> Value:
        if value is None or isinstance(value, bool | int | str | bytes):
            return Value(repr(value), type, nullable=value is None)
        return Value(self.use(f"k{len(self.names)}", value), type, nullable=False)

    def strict(self, type: SqlType, arguments: list[Value], source: str, *, may_be_null: bool = False) -> Value:
        """Write a call that gives NULL if one of the arguments is NULL.

        Args:
            may_be_null: whether the call itself can give NULL.
        """
        name = self.variable()
        tests = list(dict.fromkeys(f"{value} is None" for value in arguments if value.nullable))
        if any(value.source == "None" for value in arguments):
            self.line(f"{name} = None")
            return Value(name, type, nullable=True)
        condition = " or ".join(tests)
        self.line(f"{name} = None if {condition} else {source}" if tests else f"{name} = {source}")
        return Value(name, type, nullable=bool(tests) or may_be_null)

    def function(self, name: str, arguments: list[str]) -> Callable[..., Any]:
        """Return the function whose body was written."""
        return define(name, arguments, self.lines, self.names)


class Target(Protocol):
    """The writer of an expression, as its functions see it."""

    @property
    def writer(self) -> CodeWriter: ...

    @property
    def zone(self) -> str:
        """Return the time zone of TIMESTAMP_LTZ."""

    def convert(self, value: Value, type: SqlType) -> Value:
        """Return the value in another type."""

    def refusal(self, what: str) -> InvalidJob:
        """Return the error that Penstock does not support something."""


def define(name: str, arguments: list[str], lines: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    source = "\n".join([f"def {name}({', '.join(arguments)}):", *lines])
    space: dict[str, Any] = dict(names)
    exec(compile(source, f"<SQL {name}>", "exec"), space)
    found: Callable[..., Any] = space[name]
    return found
