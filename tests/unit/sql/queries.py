"""Queries with their plans and with the results of Flink, which `tests/integration/flink_sql` records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.types import type_of
from penstock.sql.tables.formats import JsonFormat

PLANS = Path(__file__).parent / "plans"
TABLE = "default_catalog.default_database.readings"
_TYPES = {
    "id": "INT",
    "name": "STRING",
    "v": "INT",
    "d": "DECIMAL(10, 2)",
    "x": "DOUBLE",
    "ts": "TIMESTAMP(3)",
    "moment": "TIMESTAMP_LTZ(3)",
}
_WINDOW = "(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND"

QUERIES = {
    "calc": "SELECT id, UPPER(name), v * 2, d * d, x / 3, ts, moment, CASE WHEN v > 5 THEN 'more' ELSE 'less' END FROM readings "
    "WHERE x * 1.8 + 32 > 50 OR v IN (1, 2, 3, 7)",
    "nested": "SELECT id, ARRAY[v, id], MAP[name, x], ROW(id, ROW(name, d)), CAST(ROW(v, ts) AS ROW<a INT, b TIMESTAMP(3)>).b, "
    "ARRAY[ROW(id, name)][1], ARRAY[v][3], MAP['a', v]['b'], CAST(ROW(id, name, ROW(d)) AS STRING), CARDINALITY(ARRAY[v, 2]), ARRAY[v, 3] = ARRAY[7, 3] FROM readings WHERE name IS NOT NULL",
    "unnest": "SELECT id, e, o FROM readings CROSS JOIN UNNEST(ARRAY[v, id, 3]) WITH ORDINALITY AS u(e, o) WHERE e > 5",
    "unnest-left": "SELECT id, p, q FROM (SELECT id, CASE WHEN v > 3 THEN ARRAY[ROW(id, name), ROW(v, 'x')] END a FROM readings) "
    "LEFT JOIN UNNEST(a) AS u(p, q) ON TRUE",
    "unnest-groups": "SELECT name, k, c FROM (SELECT name, MAP['n', COUNT(*), 's', SUM(v)] m FROM readings GROUP BY name) "
    "CROSS JOIN UNNEST(m) AS u(k, c)",
    "array-key": "SELECT a, COUNT(*) FROM (SELECT ARRAY[v, v + 1] a FROM readings) GROUP BY a",
    "union": "SELECT name, v FROM readings WHERE v > 5 UNION ALL SELECT name, id FROM readings WHERE v IS NULL",
    "values": "SELECT a + 1, b FROM (VALUES (1, 'x'), (2, 'y')) t(a, b) WHERE a > 1",
    "group": "SELECT name, COUNT(*), COUNT(v), SUM(v), AVG(v), MIN(x), MAX(x), AVG(d), SUM(d) FROM readings GROUP BY name",
    "group-all": "SELECT COUNT(*), SUM(x), COUNT(DISTINCT name) FROM readings",
    "group-filter": "SELECT name, SUM(v) FILTER (WHERE x > 5), COUNT(DISTINCT v), SUM(DISTINCT v) FROM readings GROUP BY name",
    "having": "SELECT name, COUNT(*) FROM readings GROUP BY name HAVING SUM(v) < 60",
    "retraction": "SELECT c, COUNT(*), MAX(name), MIN(s), AVG(s) FROM "
    "(SELECT name, COUNT(*) c, SUM(v) s FROM readings GROUP BY name) GROUP BY c",
    "distinct": "SELECT DISTINCT name, v FROM readings",
    "tumble": f"SELECT window_start, window_end, name, COUNT(*), SUM(d), AVG(x) FROM TABLE(TUMBLE{_WINDOW})) "
    "GROUP BY window_start, window_end, name",
    "tumble-local": "SELECT window_start, name, COUNT(*) FROM TABLE(TUMBLE(TABLE local_readings, DESCRIPTOR(moment), "
    "INTERVAL '10' SECOND)) GROUP BY window_start, window_end, name",
    "hop": f"SELECT window_start, window_end, name, COUNT(v), MAX(v) FROM TABLE(HOP{_WINDOW}, INTERVAL '15' SECOND)) "
    "GROUP BY window_start, window_end, name",
    "cumulate": f"SELECT window_start, window_end, SUM(v), COUNT(DISTINCT name) FROM TABLE(CUMULATE{_WINDOW}, "
    "INTERVAL '20' SECOND)) GROUP BY window_start, window_end",
    "top": "SELECT name, v, id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY v DESC, id) n FROM readings) "
    "WHERE n <= 3",
    "top-unnumbered": "SELECT name, v, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY x, id) n "
    "FROM readings) WHERE n <= 2",
    "top-of-groups": "SELECT name, c, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY c DESC, name) n FROM "
    "(SELECT name, COUNT(*) c FROM readings GROUP BY name)) WHERE n <= 2",
    "first": "SELECT name, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY ts) n FROM readings) WHERE n = 1",
    "last": "SELECT name, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY ts DESC) n FROM readings) WHERE n = 1",
}


def table(path: object, name: str = "readings", time: str = "ts") -> str:
    """Return the statement that creates a table of readings in this file."""
    columns = ", ".join(f"`{column}` {type}" for column, type in _TYPES.items())
    watermark = f"WATERMARK FOR `{time}` AS `{time}` - INTERVAL '5' SECOND"
    return f"CREATE TABLE {name} ({columns}, {watermark}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"


def lines() -> list[str]:
    """Return the readings as JSON, in an order of time with differences of up to 3 s."""
    found = []
    for i in range(60):
        second = i + (i * 7) % 4 - 2
        when = f"2020-01-01 00:{(second + 60) // 60:02}:{(second + 60) % 60:02}.{(i * 37) % 1000:03}"
        found.append(
            {
                "id": i,
                "name": None if i % 19 == 7 else "abcd"[(i * i) % 7 % 4],
                "v": None if i % 11 == 3 else (i * 17) % 13 - 2,
                "d": None if i % 13 == 5 else f"{(i * 31) % 900 / 7:.2f}",
                "x": None if i % 17 == 2 else (i * 29) % 23 * 1.5,
                "ts": when,
                "moment": f"{when}Z",
            }
        )
    return [json.dumps(line) for line in found]


def rows() -> list[SqlRow]:
    format = JsonFormat(tuple(Column(name, type_of(type)) for name, type in _TYPES.items()), ignores_errors=False)
    found = [format.read(line) for line in lines()]
    return [row for row in found if row is not None]


def materialized(changes: list[str]) -> list[str]:
    """Return the rows that remain after all changes, sorted. A change is a text such as `+U[a, 1]`."""
    counts: Counter[str] = Counter()
    for change in changes:
        counts[change[2:]] += 1 if change[0] == "+" else -1
    assert min(counts.values(), default=0) >= 0, "a row was retracted that did not exist"
    return sorted(counts.elements())
