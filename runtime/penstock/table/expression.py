"""`Expression`: an expression of the Table API. It is a text in SQL, which Flink's planner checks with the whole query."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.common.errors import InvalidJob
from penstock.common.types import Row
from penstock.table.types import quoted, sql_type

UserFunction = Any
"""A wrapper of `penstock.table.udf`. A name of its class would be a circle of imports."""


class Expression:
    """A part of a query, such as `col("a") + 1`. Operators combine expressions.

    Args:
        sql: text in SQL. The names of columns are quoted.
        alias: names of the columns that `alias` set.
        functions: Python functions that the text calls, by their names.
    """

    __hash__ = object.__hash__

    def __init__(
        self,
        sql: str,
        alias: tuple[str, ...] = (),
        functions: dict[str, UserFunction] | None = None,
        *,
        descending: bool | None = None,
        column: str | None = None,
    ) -> None:
        self.sql = sql
        self.names = alias
        self.functions = functions or {}
        self.descending = descending
        self.column = column
        """Name of the column, if the expression is one."""

    def __repr__(self) -> str:
        return f"Expression({self.sql})"

    def __bool__(self) -> bool:
        raise InvalidJob(
            f"the expression {self.sql} has no truth value before the query runs",
            remedy="combine expressions with &, | and ~",
        )

    # --- names and order --------------------------------------------------------------------------------------

    def alias(self, name: str, *extra_names: str) -> Expression:
        """Give the column a name."""
        return Expression(self.sql, (name, *extra_names), self.functions, column=self.column)

    @property
    def asc(self) -> Expression:
        return Expression(self.sql, self.names, self.functions, descending=False)

    @property
    def desc(self) -> Expression:
        return Expression(self.sql, self.names, self.functions, descending=True)

    # --- operators --------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return _binary(self, "+", other)

    def __radd__(self, other: Any) -> Expression:
        return _binary(other, "+", self)

    def __sub__(self, other: Any) -> Expression:
        return _binary(self, "-", other)

    def __rsub__(self, other: Any) -> Expression:
        return _binary(other, "-", self)

    def __mul__(self, other: Any) -> Expression:
        return _binary(self, "*", other)

    def __rmul__(self, other: Any) -> Expression:
        return _binary(other, "*", self)

    def __truediv__(self, other: Any) -> Expression:
        return _binary(self, "/", other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _binary(other, "/", self)

    def __mod__(self, other: Any) -> Expression:
        return function("MOD", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return function("MOD", other, self)

    def __pow__(self, other: Any) -> Expression:
        return function("POWER", self, other)

    def __neg__(self) -> Expression:
        return build("(- {})", self)  # two signs without a space would begin a comment

    def __eq__(self, other: object) -> Expression:  # type: ignore[override] # as in PyFlink
        return _binary(self, "=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override] # as in PyFlink
        return _binary(self, "<>", other)

    def __lt__(self, other: Any) -> Expression:
        return _binary(self, "<", other)

    def __le__(self, other: Any) -> Expression:
        return _binary(self, "<=", other)

    def __gt__(self, other: Any) -> Expression:
        return _binary(self, ">", other)

    def __ge__(self, other: Any) -> Expression:
        return _binary(self, ">=", other)

    def __and__(self, other: Any) -> Expression:
        return _binary(self, "AND", other)

    def __rand__(self, other: Any) -> Expression:
        return _binary(other, "AND", self)

    def __or__(self, other: Any) -> Expression:
        return _binary(self, "OR", other)

    def __ror__(self, other: Any) -> Expression:
        return _binary(other, "OR", self)

    def __invert__(self) -> Expression:
        return build("(NOT {})", self)

    # --- tests ------------------------------------------------------------------------------------------------

    @property
    def is_null(self) -> Expression:
        return build("({} IS NULL)", self)

    @property
    def is_not_null(self) -> Expression:
        return build("({} IS NOT NULL)", self)

    @property
    def is_true(self) -> Expression:
        return build("({} IS TRUE)", self)

    @property
    def is_false(self) -> Expression:
        return build("({} IS FALSE)", self)

    @property
    def is_not_true(self) -> Expression:
        return build("({} IS NOT TRUE)", self)

    @property
    def is_not_false(self) -> Expression:
        return build("({} IS NOT FALSE)", self)

    def between(self, lower: Any, upper: Any) -> Expression:
        return build("({} BETWEEN {} AND {})", self, lower, upper)

    def not_between(self, lower: Any, upper: Any) -> Expression:
        return build("({} NOT BETWEEN {} AND {})", self, lower, upper)

    def in_(self, first: Any, *others: Any) -> Expression:
        """Return whether the value is one of these values."""
        found = [first, *others]
        return build(f"({{}} IN ({', '.join(['{}'] * len(found))}))", self, *found)

    def like(self, pattern: Any) -> Expression:
        return build("({} LIKE {})", self, pattern)

    def similar(self, pattern: Any) -> Expression:
        return build("({} SIMILAR TO {})", self, pattern)

    def then(self, if_true: Any, if_false: Any) -> Expression:
        """Return one of two values, as the condition tells."""
        return build("(CASE WHEN {} THEN {} ELSE {} END)", self, if_true, if_false)

    def if_null(self, null_replacement: Any) -> Expression:
        return function("COALESCE", self, null_replacement)

    # --- types and parts --------------------------------------------------------------------------------------

    def cast(self, data_type: Any) -> Expression:
        return build(f"CAST({{}} AS {escaped(sql_type(data_type))})", self)

    def try_cast(self, data_type: Any) -> Expression:
        return build(f"TRY_CAST({{}} AS {escaped(sql_type(data_type))})", self)

    def get(self, name_or_index: str | int) -> Expression:
        """Return a field of a row by its name."""
        if not isinstance(name_or_index, str):
            raise InvalidJob("SQL: a field of a row is selected by its name", remedy='write get("name")')
        return build(f"({{}}).{escaped(quoted(name_or_index))}", self)

    def at(self, index: Any) -> Expression:
        """Return the element of an array at a position from 1, or the value of a map."""
        return build("{}[{}]", self, index)

    @property
    def cardinality(self) -> Expression:
        return function("CARDINALITY", self)

    @property
    def element(self) -> Expression:
        return function("ELEMENT", self)

    # --- aggregates -------------------------------------------------------------------------------------------

    @property
    def sum(self) -> Expression:
        return function("SUM", self)

    @property
    def min(self) -> Expression:
        return function("MIN", self)

    @property
    def max(self) -> Expression:
        return function("MAX", self)

    @property
    def count(self) -> Expression:
        return function("COUNT", self)

    @property
    def avg(self) -> Expression:
        return function("AVG", self)

    @property
    def first_value(self) -> Expression:
        return function("FIRST_VALUE", self)

    @property
    def last_value(self) -> Expression:
        return function("LAST_VALUE", self)

    @property
    def collect(self) -> Expression:
        return function("COLLECT", self)

    @property
    def array_agg(self) -> Expression:
        return function("ARRAY_AGG", self)

    @property
    def stddev_pop(self) -> Expression:
        return function("STDDEV_POP", self)

    @property
    def stddev_samp(self) -> Expression:
        return function("STDDEV_SAMP", self)

    @property
    def var_pop(self) -> Expression:
        return function("VAR_POP", self)

    @property
    def var_samp(self) -> Expression:
        return function("VAR_SAMP", self)

    def list_agg(self, separator: str = ",") -> Expression:
        return function("LISTAGG", self, separator)

    @property
    def distinct(self) -> Expression:
        """Aggregate only distinct values: `col("a").count.distinct`."""
        head, bracket, rest = self.sql.partition("(")
        if not bracket or not rest.endswith(")") or " " in head:
            raise InvalidJob(f"SQL: {self.sql} is not an aggregate", remedy='write for example col("a").count.distinct')
        return Expression(f"{head}(DISTINCT {rest}", self.names, self.functions)

    # --- functions --------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name in _INTERVALS:
            return self._interval(*_INTERVALS[name])
        if name in _PROPERTIES:
            return function(_PROPERTIES[name], self)
        if name in _METHODS:
            return lambda *args: function(_METHODS[name], self, *args)
        raise AttributeError(
            f"an expression has no attribute {name!r}. call({name.upper()!r}, …) calls any function of SQL"
        )

    def _interval(self, factor: int, unit: str) -> Expression:
        if not self.sql.isdigit():
            raise InvalidJob(
                f"SQL: an interval needs a number, not {self.sql}", remedy="write for example lit(10).minutes"
            )
        if unit == "MONTH":
            months = str(int(self.sql) * factor)
            return Expression(f"INTERVAL '{months}' MONTH({max(2, len(months))})")
        return Expression(interval(datetime.timedelta(milliseconds=int(self.sql) * factor)))

    def extract(self, time_interval_unit: Any) -> Expression:
        """Return a part of a time, for example `extract("HOUR")`."""
        return build(f"EXTRACT({_unit(time_interval_unit)} FROM {{}})", self)

    def floor(self, time_interval_unit: Any = None) -> Expression:
        to = "" if time_interval_unit is None else f" TO {_unit(time_interval_unit)}"
        return build(f"FLOOR({{}}{to})", self)

    def ceil(self, time_interval_unit: Any = None) -> Expression:
        to = "" if time_interval_unit is None else f" TO {_unit(time_interval_unit)}"
        return build(f"CEIL({{}}{to})", self)

    def trim(self, character: Any = None) -> Expression:
        return function("TRIM", self) if character is None else build("TRIM(BOTH {} FROM {})", character, self)

    def position(self, haystack: Any) -> Expression:
        return build("POSITION({} IN {})", self, haystack)

    @property
    def to_date(self) -> Expression:
        return build("CAST({} AS DATE)", self)

    @property
    def to_time(self) -> Expression:
        return build("CAST({} AS TIME)", self)

    @property
    def to_timestamp(self) -> Expression:
        return build("CAST({} AS TIMESTAMP(3))", self)

    # --- windows and intervals --------------------------------------------------------------------------------

    @property
    def start(self) -> Expression:
        """Return the start of the window, for the alias of a window."""
        return Expression("window_start")

    @property
    def end(self) -> Expression:
        """Return the end of the window, for the alias of a window."""
        return Expression("window_end")

    @property
    def rowtime(self) -> Expression:
        """Return the event time of the window's result, for the alias of a window."""
        return Expression("window_time")


_PROPERTIES_OF_SQL = (
    "abs array_distinct array_max array_min array_reverse char_length exp ln log10 ltrim map_entries "
    "map_keys map_values md5 rtrim sha1 sha256 sha512 sign sqrt"
)
_PROPERTIES = {name: name.upper() for name in _PROPERTIES_OF_SQL.split()} | {
    "init_cap": "INITCAP",
    "lower_case": "LOWER",
    "upper_case": "UPPER",
}
"""Properties of expressions that call a function of SQL."""
_INTERVALS = {
    f"{name}{plural}": value
    for name, value in {
        "milli": (1, "MS"),
        "second": (1000, "MS"),
        "minute": (60_000, "MS"),
        "hour": (3_600_000, "MS"),
        "day": (86_400_000, "MS"),
        "week": (604_800_000, "MS"),
        "month": (1, "MONTH"),
        "quarter": (3, "MONTH"),
        "year": (12, "MONTH"),
    }.items()
    for plural in ("", "s")
}
"""Properties of whole numbers that are intervals."""
_METHODS_OF_SQL = (
    "array_append array_concat array_contains array_except array_intersect array_join array_position "
    "array_prepend array_remove array_slice array_sort array_union log lpad map_union power "
    "regexp_extract regexp_replace repeat replace round rpad split split_index str_to_map substring "
    "truncate"
)
_METHODS = {name: name.upper() for name in _METHODS_OF_SQL.split()} | {"substr": "SUBSTRING"}
"""Methods of expressions that call a function of SQL."""
_UNIT_NAMES = "YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND DOY DOW EPOCH DECADE CENTURY"
_UNITS = tuple(_UNIT_NAMES.split())


def _unit(unit: Any) -> str:
    text = str(getattr(unit, "name", unit)).upper()
    if text not in _UNITS:
        raise InvalidJob(f"SQL: {unit!r} is not a unit of time", remedy=f"use one of {', '.join(_UNITS)}")
    return text


def escaped(text: str) -> str:
    """Return a text for a template of `build`."""
    return text.replace("{", "{{").replace("}", "}}")


def as_expression(value: Any) -> Expression:
    """Return an expression for a Python value. An expression stays as it is.

    >>> as_expression("it's"), as_expression([1, None]), as_expression(datetime.date(2020, 1, 2))
    (Expression('it''s'), Expression(ARRAY[1, NULL]), Expression(DATE '2020-01-02'))

    Raises:
        InvalidJob: SQL has no literal for the value.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, list | tuple) and not isinstance(value, Row):
        return build(f"ARRAY[{', '.join(['{}'] * len(value))}]", *value)
    if isinstance(value, Row):
        return build(f"ROW({', '.join(['{}'] * len(value))})", *value)
    if isinstance(value, dict):
        parts = [part for pair in value.items() for part in pair]
        return build(f"MAP[{', '.join(['{}'] * len(parts))}]", *parts)
    return Expression(_literal(value))


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return f"CAST('{'NaN' if value != value else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
        text = repr(float(value))  # numpy's numbers show their type
        return text if "e" in text else f"{text}E0"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        text = format(value, "f")  # without a point, SQL reads an integer
        return text if "." in text else f"CAST({text} AS DECIMAL({len(text.lstrip('-'))}, 0))"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise InvalidJob(
                f"SQL has no literal for {value!r}, which has a time zone", remedy="use to_timestamp_ltz()"
            )
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, datetime.timedelta):
        return interval(value)
    raise InvalidJob(f"SQL has no literal for {value!r}", remedy="use a number, a text, a time, a list or a dict")


def interval(value: datetime.timedelta) -> str:
    """Return an interval in SQL.

    >>> interval(datetime.timedelta(hours=1, milliseconds=-500))
    "INTERVAL '0 00:59:59.500' DAY TO SECOND(3)"
    """
    seconds, millis = divmod(abs(value) // datetime.timedelta(milliseconds=1), 1000)
    days, rest = divmod(seconds, 86_400)
    text = f"{days} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}.{millis:03}"
    sign = "-" if value < datetime.timedelta() else ""
    digits = f"({len(str(days))})" if days > 99 else ""
    return f"INTERVAL {sign}'{text}' DAY{digits} TO SECOND(3)"


def build(template: str, *arguments: Any) -> Expression:
    """Return the expression of a template with the texts of the arguments."""
    found = [as_expression(argument) for argument in arguments]
    functions = {name: function for part in found for name, function in part.functions.items()}
    return Expression(template.format(*(part.sql for part in found)), functions=functions)


def function(name: str, *arguments: Any) -> Expression:
    """Return the call of a function of SQL."""
    return build(f"{escaped(name)}({', '.join(['{}'] * len(arguments))})", *arguments)


def user_call(wrapper: UserFunction, arguments: Sequence[Any]) -> Expression:
    """Return the call of a Python function. The query that contains it registers the function."""
    name = wrapper.unique_name
    found = function(quoted(name), *arguments)
    return Expression(found.sql, functions={**found.functions, name: wrapper})


def _binary(left: Any, operator: str, right: Any) -> Expression:
    return build(f"({{}} {operator} {{}})", left, right)


def converted(values: Sequence[Any], convert: Callable[[str], Expression]) -> list[Expression]:
    """Return expressions for arguments. A text is converted, for example into a column."""
    flat = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
    return [convert(value) if isinstance(value, str) else as_expression(value) for value in flat]
