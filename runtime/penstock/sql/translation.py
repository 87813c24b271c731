"""`StreamPlan`: the streams of a compiled plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.datastream.functions import MapFunction
from penstock.graph.program import upstream_first
from penstock.sql.expressions.compiler import literal
from penstock.sql.operators import match
from penstock.sql.operators import streams as changes
from penstock.sql.operators.calc import CalcFunction
from penstock.sql.operators.changes import UpsertMaterializeFunction
from penstock.sql.operators.correlate import CorrelateFunction
from penstock.sql.operators.group_aggregate import GroupAggregateFunction
from penstock.sql.operators.joins import streams as joins
from penstock.sql.operators.over import streams as over
from penstock.sql.operators.ranks import DeduplicateFunction, RankFunction
from penstock.sql.operators.rows import SqlRow, as_changes
from penstock.sql.operators.watermarks import strategy_of
from penstock.sql.operators.windows import streams as windows
from penstock.sql.plan import nodes
from penstock.sql.plan.nodes import Column, Node, Plan, refusal
from penstock.sql.plan.rex import Literal
from penstock.sql.streams import Inputs, SqlStream, Translate
from penstock.sql.tables.connectors import read_table, write_table

if TYPE_CHECKING:
    from penstock.datastream import DataStream, StreamExecutionEnvironment


class NotNull(MapFunction):
    """A check that columns that are NOT NULL have a value, as before each sink in Flink."""

    def __init__(self, table: str, columns: tuple[Column, ...], *, changelog: bool) -> None:
        self._table = table
        self._changelog = changelog
        self._checked = [(index, column.name) for index, column in enumerate(columns) if not column.type.nullable]

    def map(self, value: Any) -> Any:
        row = value[1] if self._changelog else value
        for index, name in self._checked:
            if row[index] is None:
                raise ValueError(
                    f"Column '{name}' of the table {self._table} is NOT NULL, however, a null value is being written into it"
                )
        return value


_FAMILIES: dict[type[Node], Translate] = {
    **changes.TRANSLATIONS,
    **joins.TRANSLATIONS,
    **match.TRANSLATIONS,
    **over.TRANSLATIONS,
    **windows.TRANSLATIONS,
}
"""The nodes whose streams depend only on their inputs, by families of operators."""


class StreamPlan:
    """The translation of one plan into streams of an environment.

    Args:
        name: prefix of the uids, different for each plan of a program. A uid contains the identity of its node. So a changed statement keeps
            the state of the nodes that have not changed.
        tables: streams of the rows of some tables, by name. They replace the connectors of these tables.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        plan: Plan,
        *,
        name: str = "sql",
        zone: str = "UTC",
        tables: Mapping[str, DataStream[SqlRow] | SqlStream] | None = None,
    ) -> None:
        self._env = env
        self._tables = tables or {}
        self._plan = plan
        self._name = name
        self._zone = zone
        self._streams: dict[int, SqlStream] = {}
        self._uids: dict[str, dict[str, str]] = {}
        """Kind and description of each node by its uid."""

    def add_to_environment(self) -> SqlStream:
        """Create the streams and sinks of all nodes. After an error, the environment has no new sinks.

        Return the stream that the collecting sink reads, or the input of the last sink.

        Raises:
            InvalidJob: an option, a function or a combination of nodes is not supported. The error names it.
        """
        sinks = len(self._env._sinks)
        try:
            return self._translate_all()
        except BaseException:
            del self._env._sinks[sinks:]
            raise

    def _translate_all(self) -> SqlStream:
        found = None
        for node, identity in zip(self._plan.nodes, self._plan.identities, strict=True):
            uid = self._uid(node, identity)
            if isinstance(node, nodes.Sink):
                found = self._sink(node, uid)
            else:
                self._streams[node.id] = self._translate(node, uid)
        assert found is not None
        self._env._plans["nodes"] = {**self._env._plans.get("nodes", {}), **self._uids}
        return found

    def _uid(self, node: Node, identity: str) -> str:
        """Return the uid of the node. Equal nodes are numbered."""
        kind = type(node).__name__
        first = uid = f"{self._name}-{kind}-{identity}"
        number = 1
        while uid in self._uids:
            number += 1
            uid = f"{first}-{number}"
        self._uids[uid] = {"kind": kind, "description": node.description}
        return uid

    def _translate(self, node: Node, uid: str) -> SqlStream:
        for kind, translate in self._TRANSLATIONS.items():
            if isinstance(node, kind):
                return translate(self, node, uid)
        for kind, create in _FAMILIES.items():
            if isinstance(node, kind):
                return create(self._inputs(node), node, uid)
        raise refusal(f"the node {type(node).__name__} cannot be executed", "use another query")

    def _input(self, node: Node) -> SqlStream:
        return self._streams[node.inputs[0]]

    def _inputs(self, node: Node) -> Inputs:
        columns = {found.id: found.output for found in self._plan.nodes}
        return Inputs(
            tuple(self._streams[id] for id in node.inputs), tuple(columns[id] for id in node.inputs), self._zone
        )

    def _scan(self, node: nodes.Scan, uid: str) -> SqlStream:
        given = self._tables.get(node.table.name)
        if isinstance(given, SqlStream):
            return given
        return SqlStream(self._read(node, uid) if given is None else given, changelog=False)

    def _read(self, node: nodes.Scan, uid: str) -> DataStream[SqlRow]:
        """Return the rows of a table. The source has the uid, and its later steps have numbers."""
        stream = read_table(self._env, node.table)
        assert stream._transformation is not None
        steps = [found for found in upstream_first([stream._transformation]) if found.uid is None]
        for number, step in enumerate(steps):
            step.uid = f"{uid}-{number}" if number else uid
        return stream

    def _values(self, node: nodes.Values, uid: str) -> SqlStream:
        rows: list[SqlRow] = []
        for row in node.rows:
            if not all(isinstance(field, Literal) for field in row):
                raise refusal(
                    "VALUES with expressions is not supported", "use constants, or SELECT … UNION ALL SELECT …"
                )
            rows.append(
                tuple(literal(field.value, field.type, self._zone) for field in row if isinstance(field, Literal))
            )
        from penstock.connectors.simple.datagen import DataGeneratorSource

        source = DataGeneratorSource(rows.__getitem__, len(rows), splits=1)
        return SqlStream(self._env.from_source(source, None, "Values").set_parallelism(1).uid(uid), changelog=False)

    def _watermarks(self, node: nodes.WatermarkAssigner, uid: str) -> SqlStream:
        upstream = self._input(node)
        if upstream.changelog:
            raise refusal("a watermark on a table with updates is not supported", "declare it on an insert-only table")
        strategy = strategy_of(node, self._zone)
        return SqlStream(upstream.stream.assign_timestamps_and_watermarks(strategy).uid(uid), changelog=False)

    def _calc(self, node: nodes.Calc, uid: str) -> SqlStream:
        upstream = self._input(node)
        function = CalcFunction(node.projection, node.condition, self._zone, changelog=upstream.changelog)
        return SqlStream(upstream.stream.flat_map(function).name("Calc").uid(uid), upstream.changelog)

    def _correlate(self, node: nodes.Correlate, uid: str) -> SqlStream:
        upstream = self._input(node)
        function = CorrelateFunction(node, self._zone, changelog=upstream.changelog)
        return SqlStream(upstream.stream.flat_map(function).name("Correlate").uid(uid), upstream.changelog)

    def _exchange(self, node: nodes.Exchange, uid: str) -> SqlStream:
        return self._input(node)

    def _union(self, node: nodes.Union, uid: str) -> SqlStream:
        inputs = [self._streams[id] for id in node.inputs]
        changelog = any(found.changelog for found in inputs)
        streams = [
            found.stream.map(as_changes).uid(f"{uid}-{index}") if changelog and not found.changelog else found.stream
            for index, found in enumerate(inputs)
        ]
        return SqlStream(streams[0].union(*streams[1:]), changelog)

    def _keyed(self, node: Node, keys: tuple[int, ...], function: Any, name: str, uid: str) -> DataStream[Any]:
        return self._inputs(node).process(keys, function, name, uid)

    def _group(self, node: nodes.GroupAggregate, uid: str) -> SqlStream:
        function = GroupAggregateFunction(node, changelog=self._input(node).changelog)
        return SqlStream(self._keyed(node, node.grouping, function, "GroupAggregate", uid), changelog=True)

    def _rank(self, node: nodes.Rank, uid: str) -> SqlStream:
        function = RankFunction(node, changelog=self._input(node).changelog)
        return SqlStream(self._keyed(node, node.partition, function, "Rank", uid), changelog=True)

    def _deduplicate(self, node: nodes.Deduplicate, uid: str) -> SqlStream:
        if self._input(node).changelog:
            raise refusal("a deduplication of updates is not supported", "deduplicate an insert-only table")
        stream = self._keyed(node, node.keys, DeduplicateFunction(node), "Deduplicate", uid)
        return SqlStream(stream, changelog=not node.insert_only)

    def _sink(self, node: nodes.Sink, uid: str) -> SqlStream:
        upstream = self._input(node)
        stream = upstream.stream
        if any(not column.type.nullable for column in node.table.columns):
            check = NotNull(node.table.name, node.table.columns, changelog=upstream.changelog)
            stream = stream.map(check).name("NotNull").uid(f"{uid}-NotNull")
        found = SqlStream(stream, upstream.changelog)
        if node.materializes:
            found = self._materialized(found, node, uid)
        if node.table.options.get("connector") != "penstock-collect":
            sink = write_table(found.stream, node.table, changelog=found.changelog)
            sink.name(f"Sink: {node.table.name}").uid(uid)
        return found

    def _materialized(self, found: SqlStream, node: nodes.Sink, uid: str) -> SqlStream:
        """Return the changes of the current row of each primary key."""
        names = [column.name for column in node.table.columns]
        keys = tuple(names.index(name) for name in node.table.primary_key)
        inputs = Inputs((found,), (node.table.columns,), self._zone)
        function = UpsertMaterializeFunction(
            node.table.columns, node.upsert_key, node.ttl_ms, changelog=found.changelog
        )
        return SqlStream(inputs.process(keys, function, "UpsertMaterialize", f"{uid}-Materialize"), changelog=True)

    _TRANSLATIONS: dict[type[Node], Callable[[StreamPlan, Any, str], SqlStream]] = {
        nodes.Scan: _scan,
        nodes.Values: _values,
        nodes.WatermarkAssigner: _watermarks,
        nodes.Calc: _calc,
        nodes.Correlate: _correlate,
        nodes.Exchange: _exchange,
        nodes.Union: _union,
        nodes.GroupAggregate: _group,
        nodes.Rank: _rank,
        nodes.Deduplicate: _deduplicate,
    }
