"""Stored plans of Flink's planner give the results of Flink, also after crashes and rescales. No Java is needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock.sql.plan.nodes import Sink
from penstock.sql.plan.reading import read_plan
from penstock.sql.tables.printing import RowText
from penstock.sql.translation import StreamPlan
from penstock.testing import JobHarness
from tests.unit.sql.queries import DATABASE, PLANS, QUERIES, TABLE, TABLES, materialized

STATEFUL = (
    *(
        "array-key",
        "lists",
        "lists-retraction",
        "group-filter",
        "retraction",
        "hop",
        "top-of-groups",
        "first",
        "last",
        "join-condition",
        "join-nan",
        "join-full",
    ),
    *("join-keys-condition", "join-changes-full", "join-semi-changes", "join-anti-changes", "join-three"),
    *(
        "window-join-full",
        "window-top",
        "window-last",
        "window-types",
        "session",
        "session-rows",
        "session-other-key",
        "group-session",
    ),
    *(
        "over-range",
        "over-rows",
        "over-unbounded-range",
        "over-lag",
        "over-arrival",
        "over-arrival-all",
        "sort-limit-changes",
    ),
    *("top-of-joins", "two-phases", "local-global-changes", "split-distinct", "sort", "rollup"),
    *("match-greedy", "match-star", "match-earlier-row", "match-order", "match-window"),
    *("interval-full", "interval-future", "temporal-left", "temporal-table"),
)
"""Queries for each operator with state."""


def build(harness, name: str) -> RowText:
    """Add the query to the job under test, and return the text of its results."""
    plan = read_plan((PLANS / f"{name}.plan.json").read_text())
    tables = {f"{DATABASE}.{table}": harness.source(table) for table in TABLES}
    found = StreamPlan(harness.environment(), plan, tables=tables).add_to_environment()
    harness.collect(found.stream, "result")
    (sink,) = (node for node in plan.nodes if isinstance(node, Sink))
    return RowText(sink.table.columns, changelog=found.changelog)


def push(harness, first: float, last: float) -> None:
    """Push a part of the rows of all tables: from one share of the rows to another."""
    for name, table in TABLES.items():
        found = table.rows()
        harness.push(name, *found[int(len(found) * first) : int(len(found) * last)])


def close(harness) -> None:
    for name in TABLES:
        harness.close(name)


def result(harness, text: RowText) -> list[str]:
    return materialized([text(value) for value in harness.outputs("result")])


def expected(name: str) -> list[str]:
    found = json.loads((PLANS / f"{name}.result.json").read_text())
    assert found
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_the_result_of_flink(name):
    with JobHarness() as harness:
        text = build(harness, name)
        for part in range(10):
            push(harness, part / 10, (part + 1) / 10)
        close(harness)
        assert result(harness, text) == expected(name)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("name", STATEFUL)
def test_a_query_gives_the_same_result_after_a_crash_a_rescale_and_a_restore(name, backend):
    with JobHarness(parallelism=2, backend=backend) as harness:
        text = build(harness, name)
        push(harness, 0, 1 / 3)
        snapshot = harness.snapshot()
        push(harness, 1 / 3, 1 / 2)
        harness.crash()
        harness.rescale(3)
        harness.restore(snapshot, parallelism=1)
        push(harness, 1 / 2, 1)
        close(harness)
        assert result(harness, text) == expected(name)


def test_a_refused_statement_leaves_no_sink_in_the_environment():
    from penstock.common.errors import InvalidJob

    text = (PLANS / "group.plan.json").read_text()
    plan = read_plan(text.replace('"connector": "penstock-collect"', '"connector": "print", "color": "red"'))
    with JobHarness() as harness:
        env = harness.environment()
        with pytest.raises(InvalidJob, match="the option 'color' is not supported"):
            StreamPlan(env, plan, tables={TABLE: harness.source("readings")}).add_to_environment()
        assert env._sinks == []


def test_the_types_of_columns_are_imported_without_sql():
    code = "import sys, penstock.datastream, penstock.table; print([m for m in sys.modules if m.startswith('penstock.sql')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_an_unknown_node_is_refused_by_its_name():
    from penstock.common.errors import InvalidJob

    plan = json.loads((PLANS / "group.plan.json").read_text())
    plan["nodes"][-2]["type"] = "stream-exec-python-group-aggregate_1"
    with pytest.raises(InvalidJob, match="the node stream-exec-python-group-aggregate_1"):
        read_plan(json.dumps(plan))


def test_an_unknown_function_is_refused_by_its_name():
    from penstock.common.errors import InvalidJob

    text = (PLANS / "calc.plan.json").read_text().replace("$UPPER$1", "$SOUNDEX$1")
    with JobHarness() as harness, pytest.raises(InvalidJob, match="the function SOUNDEX"):
        StreamPlan(
            harness.environment(), read_plan(text), tables={TABLE: harness.source("readings")}
        ).add_to_environment()


def test_an_unknown_aggregate_is_refused_by_its_name():
    from penstock.common.errors import InvalidJob

    text = (PLANS / "group.plan.json").read_text().replace("$MAX$1", "$JSON_ARRAYAGG$1")
    with JobHarness() as harness, pytest.raises(InvalidJob, match="the aggregate JSON_ARRAYAGG"):
        StreamPlan(
            harness.environment(), read_plan(text), tables={TABLE: harness.source("readings")}
        ).add_to_environment()


def test_a_range_of_months_is_refused():
    from penstock.common.errors import InvalidJob

    text = (PLANS / "over-range.plan.json").read_text().replace("INTERVAL SECOND(6)", "INTERVAL MONTH")
    with pytest.raises(InvalidJob, match="a range of months"):
        read_plan(text)
