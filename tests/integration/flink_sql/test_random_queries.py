"""Random queries of joins, windows and OVER aggregates give the results of Flink's MiniCluster.

`SQL_SEED` and `SQL_QUERIES` choose the queries and their number.
"""

from __future__ import annotations

import os
import random

import pytest

from penstock.sql.plan.nodes import Sink
from penstock.sql.plan.reading import read_plan
from penstock.sql.tables.printing import RowText
from penstock.sql.translation import StreamPlan
from penstock.testing import JobHarness
from tests.integration.flink_sql.mini_cluster import results_of, with_tables
from tests.unit.sql.queries import DATABASE, TABLES, materialized
from tests.unit.sql.test_stored_plans import close, push

pytestmark = pytest.mark.sql
SEED = int(os.environ.get("SQL_SEED", "1"))
COUNT = int(os.environ.get("SQL_QUERIES", "24"))

_LEFT = {"readings": ("id", "name", "v"), "totals": ("name", "c", "s"), "late": ("id", "name")}
_RIGHT = {"others": ("id", "name", "w"), "other_totals": ("name", "c", "w"), "latest": ("name", "w", "x")}
_JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")


def _selected(r: random.Random, **sides: tuple[str, ...]) -> str:
    columns = [f"{side}.{column} {side}_{column}" for side, names in sides.items() for column in names]
    return ", ".join(r.sample(columns, r.randint(2, len(columns))))


def _condition(r: random.Random, left: tuple[str, ...], right: tuple[str, ...]) -> str:
    """Return a condition with one or two keys, and sometimes a comparison."""
    keys = [("name", "name"), *((a, b) for a in ("v", "c", "s") for b in ("w", "c") if a in left and b in right)]
    one, other = r.choice(keys)
    equal = r.choice(("=", "=", "IS NOT DISTINCT FROM")) if one == "name" else "="
    parts = [f"a.{one} {equal} b.{other}"]
    if r.random() < 0.5:
        one, other = r.choice([c for c in left if c != "name"]), r.choice([c for c in right if c not in ("name", "x")])
        parts.append(f"a.{one} {r.choice(('<', '>=', '<>'))} b.{other}")
    return " AND ".join(parts)


def _join(r: random.Random) -> str:
    (a, left), (b, right) = r.choice(list(_LEFT.items())), r.choice(list(_RIGHT.items()))
    condition = _condition(r, left, right)
    if r.random() < 0.25:
        return f"SELECT {', '.join(left)} FROM {a} a WHERE {r.choice(('', 'NOT '))}EXISTS (SELECT 1 FROM {b} b WHERE {condition})"
    joined = f"{a} a {r.choice(_JOINS)} {b} b ON {condition}"
    kind = r.random()
    if kind < 0.2:
        column = f"{r.choice('ab')}.name"
        return (
            f"SELECT {column}, COUNT(*), COUNT(DISTINCT a.{left[0]}), SUM(a.{left[-1]} + 0) FROM {joined} GROUP BY {column}"
            if (left[-1] != "name")
            else f"SELECT {column}, COUNT(*) FROM {joined} GROUP BY {column}"
        )
    return f"SELECT {_selected(r, a=left, b=right)} FROM {joined}"


def _interval(r: random.Random) -> str:
    lower = r.randint(-6, 3)
    bounds = f"b.ts + {lower} * INTERVAL '1' SECOND AND b.ts + {lower + r.randint(0, 5)} * INTERVAL '1' SECOND"
    condition = f"a.name = b.name AND a.ts BETWEEN {bounds}" + r.choice(("", " AND a.v > b.w"))
    return f"SELECT a.id a_id, b.id b_id FROM readings a {r.choice(_JOINS)} others b ON {condition}"


def _temporal(r: random.Random) -> str:
    kind, table = r.choice(("JOIN", "LEFT JOIN")), r.choice(("latest", "rates"))
    return f"SELECT a.id, b.* FROM readings a {kind} {table} FOR SYSTEM_TIME AS OF a.ts AS b ON a.name = b.name"


def _window(r: random.Random, table: str) -> str:
    size = r.choice((2, 5, 10))
    call = r.choice(
        (
            f"TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND)",
            f"HOP(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND, INTERVAL '{size * 2}' SECOND)",
            f"CUMULATE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND, INTERVAL '{size * 3}' SECOND)",
        )
    )
    return f"TABLE({call})"


def _windows(r: random.Random) -> str:
    kind = r.randrange(4)
    if kind == 0:
        windows = _window(r, "readings")
        other = windows.replace("TABLE readings", "TABLE others")
        same = "a.name = b.name AND a.window_start = b.window_start AND a.window_end = b.window_end"
        extra = r.choice(("", " AND a.v > b.w"))
        join = r.choice(_JOINS)
        return f"SELECT a.id a_id, b.id b_id FROM (SELECT * FROM {windows}) a {join} (SELECT * FROM {other}) b ON {same}{extra}"
    if kind == 1:
        order, keys = (
            r.choice(("v DESC, id", "x, id", "id DESC")),
            r.choice(("window_start, window_end", "window_start, window_end, name")),
        )
        ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {order}) n FROM (SELECT * FROM {_window(r, 'readings')})"
        return f"SELECT id, window_end, n FROM ({ranked}) WHERE n <= {r.randint(1, 4)}"
    windows = _window(r, r.choice(("readings", "readings", "others")))
    if kind == 2:
        partition = r.choice((" PARTITION BY name", ""))
        windows = f"TABLE(SESSION(TABLE readings{partition}, DESCRIPTOR(ts), INTERVAL '{r.randint(1, 6)}' SECOND))"
    calls = ", ".join(
        r.sample(("COUNT(*)", "MAX(id)", "COUNT(DISTINCT name)", "MIN(x)", "SUM(id) FILTER (WHERE x > 9)"), 3)
    )
    return f"SELECT window_start, window_end, name, {calls} FROM {windows} GROUP BY window_start, window_end, name"


def _over(r: random.Random) -> str:
    frame = r.choice(
        (
            f"RANGE BETWEEN INTERVAL '{r.randint(1, 9)}' SECOND PRECEDING AND CURRENT ROW",
            f"ROWS BETWEEN {r.randint(0, 5)} PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        )
    )
    calls = (
        "SUM(v)",
        "COUNT(*)",
        "COUNT(DISTINCT v)",
        "MIN(d)",
        "MAX(x)",
        "AVG(d)",
        "FIRST_VALUE(id)",
        "LAST_VALUE(v)",
        "AVG(x)",
    )
    found = ", ".join(f"{call} OVER w" for call in r.sample(calls, 3))
    partition = r.choice(("PARTITION BY name ", ""))
    return f"SELECT id, {found} FROM readings WINDOW w AS ({partition}ORDER BY ts {frame})"


def queries(seed: int, count: int) -> dict[str, str]:
    r = random.Random(seed)
    kinds = (_join, _join, _join, _interval, _temporal, _windows, _windows, _over)
    return {f"{i:03}": r.choice(kinds)(r) for i in range(count)}


QUERIES = queries(SEED, COUNT)


@pytest.fixture(scope="module")
def flink_results(flink, tmp_path_factory):
    return results_of(flink, tmp_path_factory.mktemp("random"), QUERIES, {})


@pytest.fixture(scope="module")
def session(planner):
    return with_tables(planner)


@pytest.mark.parametrize("name", QUERIES)
def test_a_random_query_gives_the_result_of_flink(flink_results, session, name):
    plan = read_plan(session.sql(QUERIES[name]).plan)
    with JobHarness(parallelism=2) as harness:
        tables = {f"{DATABASE}.{table}": harness.source(table) for table in TABLES}
        found = StreamPlan(harness.environment(), plan, tables=tables).add_to_environment()
        harness.collect(found.stream, "result")
        (sink,) = (node for node in plan.nodes if isinstance(node, Sink))
        text = RowText(sink.table.columns, changelog=found.changelog)
        push(harness, 0, 1 / 3)
        snapshot = harness.snapshot()
        push(harness, 1 / 3, 2 / 3)
        harness.restore(snapshot, parallelism=1)
        push(harness, 2 / 3, 1)
        close(harness)
        result = materialized([text(value) for value in harness.outputs("result")])
    assert result == flink_results[name], QUERIES[name]
