"""Projections and filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.datastream.functions import FlatMapFunction, RuntimeContext
from penstock.sql.expressions.compiler import compile_rows
from penstock.sql.plan.rex import Rex
from penstock.sql.plan.user_functions import functions_in


class CalcFunction(FlatMapFunction):
    """The projected columns of the rows for which the condition is true.

    The expressions are compiled here, in order to refuse unknown functions, and again in each subtask.
    """

    def __init__(self, projection: tuple[Rex, ...], condition: Rex | None, zone: str, *, changelog: bool) -> None:
        self._arguments = (projection, condition, zone)
        self._changelog = changelog
        self._compute: Callable[[Any], list[Any]] | None = None
        self._compiled()

    def _compiled(self) -> Callable[[Any], list[Any]]:
        return compile_rows(*self._arguments, changelog=self._changelog)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._compute = self._compiled()
        for function in functions_in(self._arguments[:2]):
            function.open(runtime_context)

    def close(self) -> None:
        for function in functions_in(self._arguments[:2]):
            function.close()

    def flat_map(self, value: Any) -> list[Any]:
        assert self._compute is not None
        return self._compute(value)


class ExpandFunction(FlatMapFunction):
    """The rows of several projections of each row."""

    def __init__(self, projections: tuple[tuple[Rex, ...], ...], zone: str, *, changelog: bool) -> None:
        self._parts = [CalcFunction(projection, None, zone, changelog=changelog) for projection in projections]

    def open(self, runtime_context: RuntimeContext) -> None:
        for part in self._parts:
            part.open(runtime_context)

    def flat_map(self, value: Any) -> list[Any]:
        return [row for part in self._parts for row in part.flat_map(value)]
