"""`Table`: a query that has not run yet. Its methods combine queries, as in PyFlink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.table.compiled_plan import TablePipeline
from penstock.table.expression import Expression, as_expression, converted
from penstock.table.expressions import col
from penstock.table.types import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.table.session import Session
    from penstock.table.table_result import TableResult
    from penstock.table.udf import UserDefinedFunctionWrapper
    from penstock.table.window import GroupWindow


class Table:
    """A query of a `TableEnvironment`. In the text of another query, `{table}` stands for it.

    A text in place of an expression names a column.
    """

    def __init__(
        self, environment: Session, query: str, order: str = "", offset: int | None = None, fetch: int | None = None
    ) -> None:
        self._environment = environment
        self._body = query
        self._order, self._offset, self._fetch = order, offset, fetch
        self._name: str | None = None

    @property
    def _query(self) -> str:
        """The text of the query, with its order and its limits."""
        text = self._body
        if self._order or self._offset is not None or self._fetch is not None:
            text = f"SELECT * FROM ({text}){self._order}"
        if self._offset is not None:
            text += f" OFFSET {self._offset} ROWS"
        if self._fetch is not None:
            text += f" FETCH NEXT {self._fetch} ROWS ONLY"
        return text

    # --- columns ----------------------------------------------------------------------------------------------

    def select(self, *fields: Any) -> Table:
        """Keep or compute columns."""
        return self._of(f"SELECT {self._list(fields)} FROM ({self._query})")

    def alias(self, field: str, *fields: str) -> Table:
        """Rename the columns, in their order."""
        names = [field, *fields]
        rest = self.get_column_names()
        if len(names) > len(rest):
            raise InvalidJob(f"SQL: alias got {len(names)} names for {len(rest)} columns", remedy="pass fewer names")
        parts = [f"{quoted(old)} AS {quoted(new)}" for old, new in zip(rest, names, strict=False)]
        return self._of(f"SELECT {', '.join(parts + list(map(quoted, rest[len(names) :])))} FROM ({self._query})")

    def rename_columns(self, *fields: Expression) -> Table:
        """Rename some columns: `rename_columns(col("a").alias("b"))`."""
        new = {field.column: field for field in fields if field.column is not None}
        if len(new) != len(fields) or any(len(field.names) != 1 for field in fields):
            raise InvalidJob("SQL: rename_columns needs columns with an alias", remedy='write col("a").alias("b")')
        self._check(list(new))
        parts = [_aliased(new[name]) if name in new else quoted(name) for name in self.get_column_names()]
        return self._of(f"SELECT {', '.join(parts)} FROM ({self._query})")

    def add_columns(self, *fields: Any) -> Table:
        return self._of(f"SELECT *, {self._list(fields)} FROM ({self._query})")

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Add columns. A new column replaces the column with its name."""
        new = {field.names[0] if field.names else field.column: _aliased(field) for field in fields}
        kept = self.get_column_names()
        parts = [new.pop(name) if name in new else quoted(name) for name in kept]
        return self._registered(fields)._of(f"SELECT {', '.join([*parts, *new.values()])} FROM ({self._query})")

    def drop_columns(self, *fields: Any) -> Table:
        dropped = [field.column if isinstance(field, Expression) else field for field in fields]
        self._check(dropped)
        parts = [quoted(name) for name in self.get_column_names() if name not in dropped]
        return self._of(f"SELECT {', '.join(parts)} FROM ({self._query})")

    def _check(self, names: Sequence[Any]) -> None:
        unknown = set(names) - set(self.get_column_names())
        if unknown:
            raise InvalidJob(f"SQL: the table has no column {unknown.pop()}", remedy="call print_schema()")

    # --- rows -------------------------------------------------------------------------------------------------

    def filter(self, predicate: Expression) -> Table:
        """Keep the rows for which the condition is true."""
        self._registered([predicate])
        return self._of(f"SELECT * FROM ({self._query}) WHERE {predicate.sql}")

    def where(self, predicate: Expression) -> Table:
        """Keep the rows for which the condition is true."""
        return self.filter(predicate)

    def distinct(self) -> Table:
        return self._of(f"SELECT DISTINCT * FROM ({self._query})")

    def order_by(self, *fields: Any) -> Table:
        """Sort the rows: `order_by(col("a").desc)`."""
        self._registered(fields)
        parts = [f"{f.sql}{' DESC' if f.descending else ''}" for f in converted(fields, col)]
        return Table(self._environment, self._query, f" ORDER BY {', '.join(parts)}")

    def offset(self, offset: int) -> Table:
        """Leave out the first rows in the order of `order_by`."""
        if self._fetch is not None:
            raise InvalidJob("SQL: offset() follows fetch()", remedy="call offset() before fetch()")
        return Table(self._environment, self._body, self._order, offset, self._fetch)

    def fetch(self, fetch: int) -> Table:
        """Keep the first rows in the order of `order_by`."""
        found = fetch if self._fetch is None else min(fetch, self._fetch)
        return Table(self._environment, self._body, self._order, self._offset, found)

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """Keep the first rows after an offset."""
        return self.offset(offset).fetch(fetch) if offset else self.fetch(fetch)

    # --- other tables -----------------------------------------------------------------------------------------

    def join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """Join two tables. Their columns must have different names."""
        return self._joined("INNER", right, join_predicate)

    def left_outer_join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        return self._joined("LEFT", right, join_predicate)

    def right_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        return self._joined("RIGHT", right, join_predicate)

    def full_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        return self._joined("FULL", right, join_predicate)

    def _joined(self, kind: str, right: Table, predicate: Expression | None) -> Table:
        same = sorted(set(self.get_column_names()) & set(right.get_column_names()))
        if same:
            raise InvalidJob(f"SQL: both tables have the column {same[0]}", remedy="rename it with rename_columns()")
        self._registered([] if predicate is None else [predicate])
        condition = "TRUE" if predicate is None else predicate.sql
        return self._of(f"SELECT * FROM ({self._query}) {kind} JOIN ({right._query}) ON {condition}")

    def join_lateral(self, function_call: Expression, join_predicate: Expression | None = None) -> Table:
        """Join each row with the rows of a table function. `alias` names the columns of the function."""
        return self._lateral("INNER", function_call, join_predicate)

    def left_outer_join_lateral(self, function_call: Expression, join_predicate: Expression | None = None) -> Table:
        return self._lateral("LEFT", function_call, join_predicate)

    def _lateral(self, kind: str, call: Expression, predicate: Expression | None) -> Table:
        self._registered([call] if predicate is None else [call, predicate])
        names = f"({', '.join(map(quoted, call.names))})" if call.names else ""
        condition = "TRUE" if predicate is None else predicate.sql
        source = f"({self._query}) {kind} JOIN LATERAL TABLE({call.sql}) AS `T`{names} ON {condition}"
        return self._of(f"SELECT * FROM {source}")

    def union_all(self, right: Table) -> Table:
        return self._set("UNION ALL", right)

    def union(self, right: Table) -> Table:
        return self._set("UNION", right)

    def intersect(self, right: Table) -> Table:
        return self._set("INTERSECT", right)

    def intersect_all(self, right: Table) -> Table:
        return self._set("INTERSECT ALL", right)

    def minus(self, right: Table) -> Table:
        return self._set("EXCEPT", right)

    def minus_all(self, right: Table) -> Table:
        return self._set("EXCEPT ALL", right)

    def _set(self, operator: str, right: Table) -> Table:
        return self._of(f"(SELECT * FROM ({self._query})) {operator} (SELECT * FROM ({right._query}))")

    # --- groups -----------------------------------------------------------------------------------------------

    def group_by(self, *fields: Any) -> GroupedTable:
        """Group the rows. `select` of the result computes aggregates."""
        return GroupedTable(self._registered(fields), converted(fields, col))

    def window(self, window: GroupWindow) -> WindowedTable:
        """Assign the rows to windows. `group_by` of the result must contain the alias of the window."""
        return WindowedTable(self, window)

    # --- results ----------------------------------------------------------------------------------------------

    def execute(self) -> TableResult:
        """Return the result of the query."""
        return self._environment.execute_sql(self._query)

    def to_arrow(self) -> pa.Table:
        """Run a bounded query and return the rows that remain after all changes."""
        from penstock.sql.tables.arrow import to_arrow

        return to_arrow(self._environment._schema_of(self._query), self.execute().collect())

    def to_pandas(self) -> Any:
        """Run a bounded query and return the rows that remain after all changes, as a `pandas.DataFrame`."""
        return self.to_arrow().to_pandas()

    def execute_insert(self, table_path: str, overwrite: bool = False) -> TableResult:
        """Start a job that writes the rows of the query into a table.

        Raises:
            SqlError: the table does not exist, or its columns do not fit.
        """
        return self._environment.execute_sql(self._insert(table_path, overwrite=overwrite))

    def insert_into(self, table_path: str, overwrite: bool = False) -> TablePipeline:
        """Return the pipeline that writes the rows of the query into a table. Nothing runs yet."""
        return TablePipeline(self._environment, self._insert(table_path, overwrite=overwrite))

    def _insert(self, table_path: str, *, overwrite: bool = False) -> str:
        return f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {table_path} {self._query}"

    def explain(self) -> str:
        """Return the syntax tree and the optimized plan of the query."""
        return self._environment.explain_sql(self._query)

    def get_column_names(self) -> list[str]:
        return [name for name, _ in self._environment._schema_of(self._query)]

    def print_schema(self) -> None:
        """Print the names and types of the columns."""
        print("(")
        print(",\n".join(f"  {quoted(name)} {type}" for name, type in self._environment._schema_of(self._query)))
        print(")")

    def __str__(self) -> str:
        """Return a name for this table in SQL. The first call creates a temporary view."""
        if self._name is None:
            self._name = self._environment._view_of(self._query)
        return self._name

    # --- parts of queries -------------------------------------------------------------------------------------

    def _of(self, query: str) -> Table:
        return Table(self._environment, query)

    def _list(self, fields: Sequence[Any]) -> str:
        self._registered(fields)
        return ", ".join(map(_aliased, converted(fields, col)))

    def _registered(self, fields: Sequence[Any]) -> Table:
        """Register the Python functions of expressions."""
        found: dict[str, UserDefinedFunctionWrapper] = {}
        for field in converted(fields, col):
            found.update(as_expression(field).functions)
        for name, function in found.items():
            self._environment._ensure_function(name, function)
        return self


def _aliased(field: Expression) -> str:
    return f"{field.sql} AS {quoted(field.names[0])}" if field.names else field.sql


class GroupedTable:
    """A table with keys."""

    def __init__(self, table: Table, keys: list[Expression]) -> None:
        self._table = table
        self._keys = keys

    def select(self, *fields: Any) -> Table:
        """Return the keys and aggregates of each group."""
        keys = ", ".join(key.sql for key in self._keys)
        return self._table._of(f"SELECT {self._table._list(fields)} FROM ({self._table._query}) GROUP BY {keys}")


class WindowedTable:
    """A table with a window."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        self._table = table
        self._window = window

    def group_by(self, *fields: Any) -> WindowGroupedTable:
        found = converted(fields, col)
        keys = [key for key in found if key.column != self._window.name]
        if len(keys) == len(found):
            raise InvalidJob(
                f"SQL: group_by does not contain the window {self._window.name}",
                remedy=f'add col("{self._window.name}")',
            )
        return WindowGroupedTable(self._table._registered(found), self._window, keys)


class WindowGroupedTable:
    """A table with a window and keys."""

    def __init__(self, table: Table, window: GroupWindow, keys: list[Expression]) -> None:
        self._table = table
        self._window = window
        self._keys = keys

    def select(self, *fields: Any) -> Table:
        """Return the keys and aggregates of each window. `col("w").start` and `col("w").end` are the limits of the window."""
        table, keys = self._table, tuple(key.sql for key in self._keys)
        groups = ["window_start", "window_end", *keys]
        if any("window_time" in field.sql for field in converted(fields, col)):
            groups.append("window_time")
        source = self._window.function(str(table), keys)
        return table._of(f"SELECT {table._list(fields)} FROM {source} GROUP BY {', '.join(groups)}")
