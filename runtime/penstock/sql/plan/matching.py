"""The node of MATCH_RECOGNIZE, and its reader. The reader refuses the same patterns as Flink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.sql.plan.nodes import Node, SortField, refusal
from penstock.sql.plan.rex import Rex, rex_of
from penstock.sql.plan.source import Reader, Source, order_of


@dataclass(frozen=True)
class Variable:
    """A variable of PATTERN with its quantifier. `most` is None without a limit."""

    name: str
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False

    @property
    def can_be_empty(self) -> bool:
        return self.least == 0

    @property
    def is_greedy(self) -> bool:
        """Return whether the quantifier lets the matcher choose, and it chooses as many rows as possible."""
        return not self.is_reluctant and self.most != self.least and (self.least, self.most) != (0, 1)


@dataclass(frozen=True)
class Match(Node):
    """The first rows of a pattern in each partition: one row for each match.

    Args:
        order: columns that order rows of the same time.
        rowtime: column with the event time.
        definitions: conditions of variables. A variable without a condition accepts all rows.
        measures: columns after those of the partition.
        skip: `SKIP_PAST_LAST_ROW`, `SKIP_TO_NEXT_ROW`, `SKIP_TO_FIRST` or `SKIP_TO_LAST`.
        skip_variable: the variable of `SKIP_TO_FIRST` and `SKIP_TO_LAST`.
        within_ms: time between the first and the last row, or 0 without a limit.
    """

    partition: tuple[int, ...]
    order: tuple[SortField, ...]
    rowtime: int
    variables: tuple[Variable, ...]
    definitions: tuple[tuple[str, Rex], ...]
    measures: tuple[Rex, ...]
    skip: str
    skip_variable: str | None
    within_ms: int


_UNSUPPORTED = {
    "|": ("the alternation A | B", "define one variable with both conditions: A AS x OR y"),
    "PATTERN_PERMUTE": ("PERMUTE", "write one query for each order, and combine them with UNION ALL"),
    "PATTERN_EXCLUDE": ("the exclusion {- A -}", "leave the variable out of MEASURES"),
}


def _refused(what: str, remedy: str) -> Exception:
    return refusal(f"{what} in MATCH_RECOGNIZE is not supported, as in Flink", remedy)


def _kind(node: dict[str, Any]) -> str:
    name: str = node.get("sqlKind") or node.get("internalName") or node.get("syntax") or ""
    return name.strip("$").rsplit("$", 1)[0].replace(" ", "_")


def _variables(node: dict[str, Any]) -> Iterator[Variable]:
    """Yield the variables of a pattern tree in their order."""
    if node["kind"] == "LITERAL":
        yield Variable(node["value"])
        return
    kind = _kind(node)
    operands = node["operands"]
    if kind == "PATTERN_CONCAT":
        for operand in operands:
            yield from _variables(operand)
        return
    if kind != "PATTERN_QUANTIFIER":
        what, remedy = _UNSUPPORTED.get(kind, (f"the pattern {kind}", "use variables with quantifiers"))
        raise _refused(what, remedy)
    inner, *numbers = operands
    if inner["kind"] != "LITERAL":
        raise _refused("a quantifier of a group", "repeat the variables, or give each one a quantifier")
    least, most, is_reluctant = (number["value"] for number in numbers)
    # Calcite writes -1 for an absent limit.
    found = Variable(inner["value"], max(int(least), 0), None if int(most) == -1 else int(most), bool(is_reluctant))
    if found.is_reluctant and (found.least, found.most) == (0, 1):
        raise _refused("the reluctant optional variable A??", "use A?")
    yield found


def _check(variables: tuple[Variable, ...]) -> None:
    names = [variable.name for variable in variables]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise _refused(f"the variable {repeated[0]} twice", "give each variable of PATTERN its own name")
    if all(variable.can_be_empty for variable in variables):
        raise _refused("a pattern that an empty match fulfils", "make one variable mandatory")
    if variables[-1].is_greedy:
        raise _refused(
            f"the greedy quantifier of the last variable {names[-1]}",
            "end the pattern with a variable without a quantifier, or make the quantifier reluctant: +?, *?, {n,m}?",
        )


def _match(source: Source, base: dict[str, Any]) -> Node:
    spec = source.raw["matchSpec"]
    if spec.get("allRows"):
        raise _refused("ALL ROWS PER MATCH", "use ONE ROW PER MATCH")
    if spec.get("subsets"):
        raise _refused("SUBSET", "name each variable")
    variables = tuple(_variables(spec["pattern"]))
    _check(variables)
    order = order_of(spec["orderBy"])
    rowtime = _rowtime(source, order)
    after = spec["after"]
    is_literal = after["kind"] == "LITERAL"
    interval = spec.get("interval")
    if interval is not None and (
        interval["kind"] != "LITERAL" or "MONTH" in interval["type"] or "YEAR" in interval["type"]
    ):
        raise _refused("WITHIN with months or an expression", "give a constant in days, hours, minutes or seconds")
    outputs = [column.name for column in base["output"]]
    return Match(
        **base,
        partition=tuple(spec["partition"]["fields"]),
        order=order[1:],
        rowtime=rowtime,
        variables=variables,
        definitions=tuple((name, rex_of(rex)) for name, rex in spec["patternDefinitions"].items()),
        measures=tuple(rex_of(spec["measures"][name]) for name in outputs if name in spec["measures"]),
        skip=after["value"] if is_literal else _kind(after),
        skip_variable=None if is_literal else after["operands"][0]["value"],
        within_ms=0 if interval is None else int(interval["value"]),
    )


def _rowtime(source: Source, order: tuple[SortField, ...]) -> int:
    columns = source.inputs[0]
    if not order or not columns[order[0].index].type.is_time_of_day:
        raise refusal("MATCH_RECOGNIZE needs ORDER BY with a time attribute first", "order by the event-time column")
    if not order[0].ascending:
        raise refusal("MATCH_RECOGNIZE orders the time descending", "order the event-time column ascending")
    return order[0].index


READERS = {"match": Reader(_match)}
"""The reader of MATCH_RECOGNIZE."""
