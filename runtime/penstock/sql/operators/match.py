"""MATCH_RECOGNIZE: patterns of `penstock.cep` with conditions and measures in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.cep import (
    AfterMatchSkipStrategy,
    IterativeCondition,
    Pattern,
    PatternProcessFunction,
    RichIterativeCondition,
    SimpleCondition,
)
from penstock.cep.compiler import compile_pattern
from penstock.cep.pattern_function import PatternFunction
from penstock.functions.function import Function, RuntimeContext
from penstock.sql.expressions.matches import CandidateRows, MatchRows, Row, compile_match_value, reads_only_the_row
from penstock.sql.operators.aggregates import FUNCTIONS, Aggregates
from penstock.sql.operators.ranks import sort_key
from penstock.sql.operators.rows import EventTime, SqlRow
from penstock.sql.plan.matching import Match, Variable
from penstock.sql.plan.nodes import AggregateCall, Node, SortField, refusal
from penstock.sql.plan.rex import Call, Rex
from penstock.sql.plan.user_functions import functions_in
from penstock.sql.streams import Inputs, SqlStream, Translate


def aggregate_of(rex: Call) -> Callable[[Sequence[Row]], Any] | None:
    """Return the function that computes an aggregate of rows with one column, or None if the call is no aggregate."""
    if rex.name not in FUNCTIONS or len(rex.operands) != 1:
        return None
    call = AggregateCall(rex.name, (0,), (rex.operands[0].type,), -1, distinct=False, type=rex.type)
    aggregates = Aggregates((call,), retracts=False)

    def compute(rows: Sequence[Row]) -> Any:
        accumulators = aggregates.create()
        for row in rows:
            aggregates.add(accumulators, row)
        return aggregates.results(accumulators)[0]

    return compute


class _Definition(Function):
    """The condition of a variable. It is compiled here, in order to refuse unknown functions, and again in each subtask."""

    def __init__(self, rex: Rex, variables: tuple[str, ...], zone: str) -> None:
        self._rex = rex
        self._variables = variables
        self._zone = zone
        self._compute: Callable[[Any], Any] | None = None
        self._compiled()

    def _compiled(self) -> Callable[[Any], Any]:
        return compile_match_value(self._rex, self._zone, aggregate_of)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._compute = self._compiled()
        for function in functions_in(self._rex):
            function.open(runtime_context)

    def close(self) -> None:
        for function in functions_in(self._rex):
            function.close()


class _RowCondition(_Definition, SimpleCondition):
    """A condition on the row alone."""

    def filter(self, value: SqlRow) -> bool:
        assert self._compute is not None
        found: bool = self._compute(CandidateRows(value, self._variables, _no_rows, 0)) is True
        return found


class _MatchCondition(_Definition, RichIterativeCondition):
    """A condition on the row and the earlier rows of the match."""

    def filter(self, value: SqlRow, ctx: IterativeCondition.Context) -> bool:
        assert self._compute is not None
        rows = CandidateRows(value, self._variables, ctx.get_events_for_pattern, ctx.timestamp())
        found: bool = self._compute(rows) is True
        return found


def _no_rows(variable: str) -> list[Row]:
    return []


class _Measures(PatternProcessFunction):
    """The output row of a match: the columns of the partition, and then the measures."""

    def __init__(self, node: Match, zone: str) -> None:
        self._partition = node.partition
        self._rexes = node.measures
        self._variables = tuple(variable.name for variable in node.variables)
        self._zone = zone
        self._measures: list[Callable[[Any], Any]] = []
        self._compiled()

    def _compiled(self) -> list[Callable[[Any], Any]]:
        return [compile_match_value(rex, self._zone, aggregate_of) for rex in self._rexes]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._measures = self._compiled()
        for function in functions_in(self._rexes):
            function.open(runtime_context)

    def close(self) -> None:
        for function in functions_in(self._rexes):
            function.close()

    def process_match(self, match: dict[str, list[SqlRow]], ctx: PatternProcessFunction.Context) -> list[SqlRow]:
        first = next(iter(match.values()))[0]
        rows = MatchRows(match, self._variables, ctx.timestamp())
        return [(*(first[index] for index in self._partition), *(measure(rows) for measure in self._measures))]


class _Order:
    """A comparator of rows with the same time."""

    def __init__(self, order: tuple[SortField, ...]) -> None:
        self._order = order

    def __call__(self, left: SqlRow, right: SqlRow) -> int:
        key = sort_key(self._order)
        return -1 if key(left) < key(right) else 1 if key(right) < key(left) else 0


def pattern_of(node: Match, zone: str) -> Pattern:
    """Return the pattern of a node. Its loops are consecutive, and its variables directly follow each other."""
    definitions = dict(node.definitions)
    pattern: Pattern | None = None
    for number, variable in enumerate(node.variables):
        pattern = Pattern.begin(variable.name, _skip(node)) if pattern is None else pattern.next(variable.name)
        rex = definitions.get(variable.name)
        if rex is not None:
            names = tuple(found.name for found in node.variables[: number + 1])
            is_plain = reads_only_the_row(rex, variable.name, aggregate_of)
            pattern.where(_RowCondition(rex, names, zone) if is_plain else _MatchCondition(rex, names, zone))
        _quantify(pattern, variable)
    assert pattern is not None
    return pattern.within(node.within_ms) if node.within_ms else pattern


def _quantify(pattern: Pattern, variable: Variable) -> None:
    least, most = variable.least, variable.most
    if (least, most) == (1, 1):
        return
    if (least, most) == (0, 1):
        pattern.optional()
        return
    if most is None:
        pattern.times_or_more(max(least, 1))
        if least == 0:
            pattern.optional()
    else:
        pattern.times(least, most)
    pattern.consecutive()
    if variable.is_greedy:
        pattern.greedy()


def _skip(node: Match) -> AfterMatchSkipStrategy:
    if node.skip == "SKIP_TO_NEXT_ROW":
        return AfterMatchSkipStrategy.skip_to_next()
    if node.skip_variable is None:
        return AfterMatchSkipStrategy.skip_past_last_event()
    if node.skip == "SKIP_TO_FIRST":
        return AfterMatchSkipStrategy.skip_to_first(node.skip_variable).throw_exception_on_miss()
    return AfterMatchSkipStrategy.skip_to_last(node.skip_variable).throw_exception_on_miss()


def _match(inputs: Inputs, node: Match, uid: str) -> SqlStream:
    if inputs.changelog:
        raise refusal("MATCH_RECOGNIZE over updates is not supported, as in Flink", "use it on an insert-only table")
    function = PatternFunction(
        compile_pattern(pattern_of(node, inputs.zone)),
        _Measures(node, inputs.zone),
        comparator=_Order(node.order) if node.order else None,
        time=EventTime(node.rowtime),
    )
    return SqlStream(inputs.process(node.partition, function, "Match", uid), changelog=False)


TRANSLATIONS: dict[type[Node], Translate] = {Match: _match}
"""The stream of MATCH_RECOGNIZE."""
