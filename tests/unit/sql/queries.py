"""Queries with their plans and with the results of Flink, which `tests/integration/flink_sql` records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import Column
from penstock.sql.plan.types import type_of
from penstock.sql.tables.formats import JsonFormat

PLANS = Path(__file__).parent / "plans"
DATABASE = "default_catalog.default_database"
TABLE = f"{DATABASE}.readings"
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

_SECOND = "INTERVAL '1' SECOND"

VIEWS = (
    "CREATE TEMPORARY VIEW latest AS SELECT name, w, x, ts FROM "
    "(SELECT *, ROW_NUMBER() OVER (PARTITION BY name ORDER BY ts DESC) n FROM others) WHERE n = 1",
    "CREATE TEMPORARY VIEW totals AS SELECT name, COUNT(*) c, SUM(v) s FROM readings GROUP BY name",
    "CREATE TEMPORARY VIEW counted AS SELECT name, window_time wt, COUNT(*) c FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), "
    "INTERVAL '5' SECOND)) GROUP BY name, window_start, window_end, window_time",
    "CREATE TEMPORARY VIEW matched AS SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts "
    "MEASURES a.id AS f, MATCH_ROWTIME() AS t AFTER MATCH SKIP TO NEXT ROW PATTERN (a b) DEFINE b AS b.v > a.v)",
    "CREATE TEMPORARY VIEW other_totals AS SELECT name, COUNT(*) c, MAX(w) w FROM others GROUP BY name",
)
"""Queries as tables. Most of them change, so that their readers get retractions."""

_INTERVAL = f"a.name = b.name AND a.ts BETWEEN b.ts - 2 * {_SECOND} AND b.ts + {_SECOND}"
JOINS = {
    "join": "SELECT a.id, b.id, a.x, b.x FROM readings a JOIN others b ON a.v = b.w",
    "join-condition": "SELECT a.id, b.id, a.d FROM readings a JOIN others b ON a.name = b.name AND a.v > b.w",
    "join-nan": "SELECT a.id, b.id, a.x FROM others a JOIN others b ON a.x = b.x",
    "join-not-distinct": "SELECT a.id, b.id FROM others a JOIN readings b ON a.name IS NOT DISTINCT FROM b.name AND a.w = b.v",
    "join-decimal": "SELECT a.id, b.id, a.d * b.w FROM readings a JOIN others b ON a.d = CAST(b.w AS DECIMAL(12, 2))",
    "join-cross": "SELECT a.name, b.c, b.w FROM totals a, other_totals b WHERE a.c > b.c",
    "join-left": "SELECT a.id, b.id FROM readings a LEFT JOIN others b ON a.v = b.w",
    "join-left-condition": "SELECT a.id, b.id FROM readings a LEFT JOIN others b ON a.v = b.w AND a.x < b.x",
    "join-right": "SELECT a.id, b.id, b.x FROM readings a RIGHT JOIN others b ON a.v = b.w",
    "join-full": "SELECT a.id, b.id FROM readings a FULL JOIN others b ON a.v = b.w AND a.x < b.x",
    "join-duplicates": "SELECT a.name, b.name FROM (SELECT name, v FROM readings) a FULL JOIN (SELECT name, w FROM others) b "
    "ON a.v = b.w AND a.name > b.name",
    "join-keys": "SELECT a.name, a.c, a.s, b.w FROM totals a FULL JOIN other_totals b ON a.name = b.name",
    "join-keys-condition": "SELECT a.name, a.c, b.name, b.w FROM totals a FULL JOIN other_totals b ON a.name = b.name AND a.c > b.w",
    "join-changes": "SELECT a.name, a.c, b.name, b.w FROM totals a LEFT JOIN other_totals b ON a.c = b.w",
    "join-changes-full": "SELECT a.name, a.c, b.name, b.w FROM totals a FULL JOIN other_totals b ON a.c = b.w AND a.s > b.c",
    "join-row-and-changes": "SELECT a.id, b.w, b.x FROM readings a LEFT JOIN latest b ON a.name = b.name",
    "join-semi": "SELECT id, name FROM readings WHERE v IN (SELECT w FROM others WHERE x > 5)",
    "join-semi-changes": "SELECT name, c FROM totals WHERE name IN (SELECT name FROM other_totals WHERE w > 7)",
    "join-anti": "SELECT id, name FROM readings WHERE NOT EXISTS (SELECT 1 FROM others b WHERE b.w = readings.v)",
    "join-anti-changes": "SELECT name, c FROM totals a WHERE NOT EXISTS (SELECT 1 FROM other_totals b WHERE b.w = a.c AND b.c < a.s)",
    "join-not-in": "SELECT id FROM readings WHERE v NOT IN (SELECT w FROM others WHERE w IS NOT NULL AND x > 20)",
    "join-intersect": "SELECT name, v FROM readings INTERSECT SELECT name, w FROM others",
    "join-scalar": "SELECT id, (SELECT MAX(w) FROM others) FROM readings",
    "join-three": "SELECT a.id, b.id, c.c FROM readings a JOIN others b ON a.v = b.w LEFT JOIN totals c ON b.name = c.name",
    "interval-inner": f"SELECT a.id, b.id FROM readings a JOIN others b ON {_INTERVAL}",
    "interval-left": f"SELECT a.id, b.id FROM readings a LEFT JOIN others b ON {_INTERVAL} AND a.v > b.w",
    "interval-right": f"SELECT a.id, b.id FROM readings a RIGHT JOIN others b ON {_INTERVAL}",
    "interval-full": f"SELECT a.id, b.id, a.ts, b.ts FROM readings a FULL JOIN others b ON {_INTERVAL} AND a.v > b.w",
    "interval-future": "SELECT a.id, b.id FROM readings a LEFT JOIN others b ON a.name = b.name "
    f"AND a.ts BETWEEN b.ts + 3 * {_SECOND} AND b.ts + 6 * {_SECOND}",
    "temporal": "SELECT a.id, a.ts, b.w, b.ts, b.x FROM readings a JOIN latest FOR SYSTEM_TIME AS OF a.ts AS b ON a.name = b.name",
    "temporal-left": "SELECT a.id, b.w FROM readings a LEFT JOIN latest FOR SYSTEM_TIME AS OF a.ts AS b ON a.name = b.name AND a.v > b.w",
    "temporal-table": "SELECT a.id, b.rate FROM readings a LEFT JOIN rates FOR SYSTEM_TIME AS OF a.ts AS b ON a.name = b.name",
}


def _in_windows(columns: str, table: str = "readings", time: str = "ts") -> str:
    return f"SELECT {columns} FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '5' SECOND))"


_COUNTED = f"{_in_windows('window_start, window_end, name, COUNT(*) c')} GROUP BY window_start, window_end, name"
_SAME = "a.name = b.name AND a.window_start = b.window_start AND a.window_end = b.window_end"
_SESSION = "TABLE(SESSION(TABLE readings PARTITION BY name, DESCRIPTOR(ts), INTERVAL '4' SECOND))"
_TWO_WINDOWS = f"({_in_windows('*')}) a {{}} JOIN ({_in_windows('*', 'others')}) b ON {_SAME}"
WINDOWS = {
    "window-rows": _in_windows("id, window_start, window_end, window_time"),
    "window-rows-local": _in_windows("id, window_start, window_end, window_time", "local_readings", "moment"),
    "window-rows-hop": "SELECT id, window_end FROM TABLE(HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))",
    "window-join": f"SELECT a.id, b.id, a.window_end FROM {_TWO_WINDOWS.format('')}",
    "window-join-left": f"SELECT a.id, b.id FROM {_TWO_WINDOWS.format('LEFT')} AND a.v > b.w",
    "window-join-full": f"SELECT a.id, b.id, a.window_end, b.window_end FROM {_TWO_WINDOWS.format('FULL')} AND a.x > b.x",
    "window-join-semi": f"SELECT id, window_end FROM ({_in_windows('*')}) a WHERE a.name IN (SELECT name FROM "
    f"({_in_windows('*', 'others')}) b WHERE a.window_start = b.window_start AND a.window_end = b.window_end)",
    "window-join-anti": f"SELECT id, window_end FROM ({_in_windows('*')}) a WHERE NOT EXISTS (SELECT 1 FROM "
    f"({_in_windows('*', 'others')}) b WHERE {_SAME} AND a.v > b.w)",
    "window-top": "SELECT id, name, v, window_start, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, name "
    f"ORDER BY v DESC, id) n FROM ({_in_windows('*')})) WHERE n <= 2",
    "window-top-counts": "SELECT name, c, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c DESC, "
    f"name) n FROM ({_COUNTED})) WHERE n BETWEEN 2 AND 3",
    "window-first": "SELECT id, window_start FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, name ORDER BY ts) n "
    f"FROM ({_in_windows('*')})) WHERE n = 1",
    "window-last": "SELECT id, window_start FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, name "
    f"ORDER BY ts DESC) n FROM ({_in_windows('*')})) WHERE n = 1",
    "window-cascade": f"SELECT window_start, window_end, SUM(c), MAX(name) FROM ({_COUNTED}) GROUP BY window_start, window_end",
    "window-cascade-hop": "SELECT window_start, window_end, SUM(c) FROM TABLE(HOP(TABLE counted, DESCRIPTOR(wt), INTERVAL '10' SECOND, "
    "INTERVAL '20' SECOND)) GROUP BY window_start, window_end",
    "window-sets": "SELECT window_start, name, v, COUNT(*) FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
    "GROUP BY window_start, window_end, GROUPING SETS ((name), (v), ())",
    "window-changes": "SELECT window_start, window_end, SUM(w), COUNT(*) FROM TABLE(TUMBLE(TABLE latest, DESCRIPTOR(ts), INTERVAL '10' "
    "SECOND)) GROUP BY window_start, window_end",
    "window-types": f"{_in_windows('window_start, v > 3, d, x, COUNT(*)')} GROUP BY window_start, window_end, v > 3, d, x",
    "session-types": "SELECT window_start, v > 3, d, COUNT(*) FROM TABLE(SESSION(TABLE readings PARTITION BY d, DESCRIPTOR(ts), "
    "INTERVAL '4' SECOND)) GROUP BY window_start, window_end, d, v > 3",
    "window-nan": f"{_in_windows('window_start, x, COUNT(*)', 'others')} GROUP BY window_start, window_end, x",
    "session": f"SELECT window_start, window_end, name, COUNT(*), SUM(v), MIN(x), COUNT(DISTINCT v), AVG(d) FROM {_SESSION} "
    "GROUP BY window_start, window_end, name",
    "session-all": "SELECT window_start, window_end, COUNT(*) FROM TABLE(SESSION(TABLE others, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
    "GROUP BY window_start, window_end",
    "session-rows": f"SELECT id, name, window_start, window_end FROM {_SESSION}",
    "session-other-key": f"SELECT window_start, window_end, v, COUNT(*) FROM {_SESSION} GROUP BY window_start, window_end, v",
    "group-session": "SELECT SESSION_START(ts, INTERVAL '3' SECOND), SESSION_END(ts, INTERVAL '3' SECOND), SESSION_ROWTIME(ts, "
    "INTERVAL '3' SECOND), name, COUNT(*) FROM readings GROUP BY SESSION(ts, INTERVAL '3' SECOND), name",
    "group-tumble": "SELECT TUMBLE_START(ts, INTERVAL '5' SECOND), TUMBLE_ROWTIME(ts, INTERVAL '5' SECOND), name, COUNT(*), MAX(d) "
    "FROM readings GROUP BY TUMBLE(ts, INTERVAL '5' SECOND), name",
    "group-tumble-local": "SELECT TUMBLE_END(moment, INTERVAL '5' SECOND), TUMBLE_ROWTIME(moment, INTERVAL '5' SECOND), COUNT(*) "
    "FROM local_readings GROUP BY TUMBLE(moment, INTERVAL '5' SECOND)",
    "group-hop": "SELECT HOP_START(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND), name, SUM(v) FROM readings "
    "GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND), name",
    "group-cascade": "SELECT name, SUM(c), TUMBLE_START(r, INTERVAL '20' SECOND) FROM (SELECT name, COUNT(*) c, TUMBLE_ROWTIME(ts, "
    "INTERVAL '5' SECOND) r FROM readings GROUP BY name, TUMBLE(ts, INTERVAL '5' SECOND)) GROUP BY name, TUMBLE(r, INTERVAL '20' SECOND)",
}

_OVER = "SELECT id, name, ts, {} FROM readings"
_BY_NAME = "OVER (PARTITION BY name ORDER BY ts"
OVERS = {
    "over-range": _OVER.format(
        "SUM(v) OVER w, COUNT(*) OVER w, MAX(x) OVER w, AVG(d) OVER w, FIRST_VALUE(id) OVER w, LAST_VALUE(v) OVER w"
    )
    + " WINDOW w AS (PARTITION BY name ORDER BY ts RANGE BETWEEN INTERVAL '8' SECOND PRECEDING AND CURRENT ROW)",
    "over-rows": _OVER.format("SUM(v) OVER w, COUNT(DISTINCT v) OVER w, MIN(x) OVER w, FIRST_VALUE(id) OVER w")
    + " WINDOW w AS (PARTITION BY name ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "over-unbounded-range": _OVER.format(f"SUM(v) {_BY_NAME}), MAX(d) {_BY_NAME})"),
    "over-unbounded-rows": _OVER.format("SUM(v) OVER w, COUNT(*) OVER w, LAST_VALUE(x) OVER w")
    + " WINDOW w AS (PARTITION BY name ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
    "over-lag": _OVER.format(f"LAG(id, 2, -7) {_BY_NAME}), LAG(x) {_BY_NAME})"),
    "over-number": _OVER.format(f"ROW_NUMBER() {_BY_NAME})"),
    "over-all": "SELECT id, SUM(x) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW) FROM readings",
    "over-arrival": "SELECT id, SUM(v) OVER (PARTITION BY name ORDER BY pt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM arrivals",
    "over-arrival-all": "SELECT id, SUM(v) OVER (PARTITION BY name ORDER BY pt), COUNT(*) OVER (PARTITION BY name ORDER BY pt) FROM arrivals",
    "over-late": "SELECT id, COUNT(*) OVER (PARTITION BY name ORDER BY ts) FROM late",
    "over-late-range": "SELECT id, COUNT(*) OVER (PARTITION BY name ORDER BY ts RANGE BETWEEN INTERVAL '4' SECOND PRECEDING AND CURRENT ROW) FROM late",
    "over-late-rows": "SELECT id, COUNT(*) OVER (PARTITION BY name ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM late",
    "session-late": "SELECT window_start, window_end, name, COUNT(*) FROM TABLE(SESSION(TABLE late PARTITION BY name, DESCRIPTOR(ts), "
    "INTERVAL '2' SECOND)) GROUP BY window_start, window_end, name",
    "hop-late": "SELECT window_start, window_end, COUNT(*) FROM TABLE(HOP(TABLE late, DESCRIPTOR(ts), INTERVAL '2' SECOND, "
    "INTERVAL '6' SECOND)) GROUP BY window_start, window_end",
    "window-top-late": "SELECT id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY id DESC) n "
    f"FROM ({_in_windows('*', 'late')})) WHERE n <= 2",
    "sort-late": "SELECT id FROM late ORDER BY ts, id",
}

OTHERS = {
    "rollup": "SELECT name, v, COUNT(*), GROUPING(name) FROM readings GROUP BY ROLLUP(name, v)",
    "cube": "SELECT name, v > 3, SUM(x) FROM readings GROUP BY CUBE(name, v > 3)",
    "limit": "SELECT id FROM readings LIMIT 5",
    "sort-limit": "SELECT id, v FROM readings ORDER BY v DESC, id LIMIT 5 OFFSET 2",
    "sort-limit-changes": "SELECT name, c FROM totals ORDER BY c DESC, name LIMIT 3",
    "sort": "SELECT id, ts FROM readings ORDER BY ts, v",
    "group-nan": "SELECT x, COUNT(*), COUNT(DISTINCT x), MAX(x) FROM others GROUP BY x",
    "top-of-joins": "SELECT * FROM (SELECT a.id, a.v, b.w, ROW_NUMBER() OVER (PARTITION BY a.name ORDER BY a.v DESC, b.w, a.id) n "
    "FROM readings a JOIN latest b ON a.name = b.name) WHERE n <= 2",
    "except": "SELECT name, v FROM readings EXCEPT SELECT name, w FROM others",
}

_MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "7",
}
_TWO_PHASES = {"table.optimizer.agg-phase-strategy": "TWO_PHASE"}
OPTIONS = {
    "two-phases": _TWO_PHASES,
    "two-phases-hop": _TWO_PHASES,
    "two-phases-cascade": _TWO_PHASES,
    "mini-batch": _MINI_BATCH,
    "mini-batch-join": _MINI_BATCH,
    "local-global": {**_MINI_BATCH, **_TWO_PHASES},
    "local-global-changes": {**_MINI_BATCH, **_TWO_PHASES},
    "split-distinct": {**_MINI_BATCH, **_TWO_PHASES, "table.optimizer.distinct-agg.split.enabled": "true"},
}
"""Options of the planner for some queries. All other queries are planned with one phase for each aggregate."""

PHASES = {
    "two-phases": f"{_in_windows('window_start, name, COUNT(*), SUM(v) FILTER (WHERE x > 5), COUNT(DISTINCT v), AVG(d)')} "
    "GROUP BY window_start, window_end, name",
    "two-phases-hop": "SELECT window_start, window_end, name, MAX(v) FROM TABLE(HOP(TABLE readings, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
    "INTERVAL '10' SECOND)) GROUP BY window_start, window_end, name",
    "two-phases-cascade": f"SELECT window_start, window_end, SUM(c) FROM ({_COUNTED}) GROUP BY window_start, window_end",
    "mini-batch": "SELECT name, COUNT(*), SUM(v) FROM readings GROUP BY name",
    "mini-batch-join": "SELECT a.id, b.id FROM readings a LEFT JOIN others b ON a.v = b.w",
    "local-global": "SELECT name, COUNT(*), SUM(v) FILTER (WHERE x > 5), COUNT(DISTINCT v), AVG(d) FROM readings GROUP BY name",
    "local-global-changes": "SELECT c, COUNT(*), MAX(name) FROM totals GROUP BY c",
    "split-distinct": "SELECT name, COUNT(DISTINCT v), SUM(x), MAX(d) FROM readings GROUP BY name",
}

CLOCK: dict[str, str] = {
    "clock-interval": "SELECT a.id, b.id FROM arrivals a LEFT JOIN arrivals b ON a.name = b.name AND a.v < b.v "
    "AND b.pt BETWEEN a.pt - INTERVAL '1' SECOND AND a.pt + INTERVAL '2' SECOND",
    "clock-tumble": "SELECT window_start, name, COUNT(*) FROM TABLE(TUMBLE(TABLE arrivals, DESCRIPTOR(pt), INTERVAL '5' SECOND)) "
    "GROUP BY window_start, window_end, name",
    "clock-session": "SELECT window_start, window_end, name, COUNT(*) FROM TABLE(SESSION(TABLE arrivals PARTITION BY name, "
    "DESCRIPTOR(pt), INTERVAL '2' SECOND)) GROUP BY window_start, window_end, name",
    "clock-group": "SELECT TUMBLE_START(pt, INTERVAL '5' SECOND), SUM(v) FROM arrivals GROUP BY TUMBLE(pt, INTERVAL '5' SECOND)",
    "clock-range": "SELECT id, SUM(v) OVER (PARTITION BY name ORDER BY pt RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW) "
    "FROM arrivals",
    "clock-ttl": "SELECT /*+ STATE_TTL('a' = '10s', 'b' = '20s') */ a.id, b.id FROM readings a JOIN others b ON a.v = b.w",
    "clock-sort": "SELECT id, v FROM arrivals ORDER BY pt, v",
}
"""Queries whose results depend on the clock, or on the order of two inputs. They have a plan, and no result of Flink."""


def _match(
    measures: str, pattern: str, define: str = "", after: str = "PAST LAST ROW", by: str = "name", order: str = "ts"
) -> str:
    partition = f"PARTITION BY {by} " if by else ""
    definitions = f" DEFINE {define}" if define else ""
    return (
        f"SELECT * FROM readings MATCH_RECOGNIZE ({partition}ORDER BY {order} MEASURES {measures} ONE ROW PER MATCH "
        f"AFTER MATCH SKIP {'TO ' if after != 'PAST LAST ROW' else ''}{after} PATTERN {pattern}{definitions})"
    )


MATCHES = {
    "match-next": _match("a.id AS first_id, b.id AS last_id, b.ts AS t", "(a b)", "b AS b.v > a.v"),
    "match-greedy": _match(
        "FIRST(b.id) AS f, LAST(b.id) AS l, COUNT(b.id) AS n, SUM(b.v) AS s, c.id AS c",
        "(a b+ c)",
        "b AS b.x > 6, c AS c.x <= 6",
    ),
    "match-star": _match(
        "a.id AS a, LAST(b.id) AS b, c.id AS c", "(a b* c)", "b AS b.v > 4, c AS c.v <= 4", "NEXT ROW"
    ),
    "match-reluctant": _match(
        "a.id AS a, COUNT(b.id) AS n, c.id AS c", "(a b*? c)", "b AS b.x > 2, c AS c.x > 4", "NEXT ROW"
    ),
    "match-last-reluctant": _match("a.id AS a, COUNT(b.id) AS n", "(a b{1,3}?)", "b AS b.v > 2"),
    "match-optional": _match("a.id AS a, b.id AS b, c.id AS c", "(a b? c)", "b AS b.v > 5, c AS c.v < 6", "NEXT ROW"),
    "match-times": _match(
        "FIRST(a.id) AS f, LAST(a.id) AS l, b.id AS b", "(a{2,3} b)", "a AS a.x > 3, b AS b.v > 3", "NEXT ROW"
    ),
    "match-least": _match("FIRST(a.id) AS f, COUNT(a.id) AS n", "(a{2,} b)", "a AS a.v > 2, b AS b.v <= 2", "FIRST b"),
    "match-most": _match("a.id AS a, COUNT(b.id) AS n, c.id AS c", "(a b{0,2} c)", "b AS b.v > 2, c AS c.v < 9"),
    "match-earlier-row": _match(
        "FIRST(down.v) AS top, LAST(down.v) AS bottom, up.v AS back, up.ts AS t",
        "(down+ up)",
        "down AS LAST(down.v, 1) IS NULL OR down.v < LAST(down.v, 1), up AS up.v > LAST(down.v)",
        "LAST up",
    ),
    "match-sum": _match(
        "FIRST(a.id) AS f, LAST(a.id) AS l, AVG(a.x) AS m, b.id AS b",
        "(a+ b)",
        "a AS SUM(a.v) < 20 AND AVG(a.x) > 1",
        "NEXT ROW",
    ),
    "match-any-variable": _match(
        "FIRST(id) AS f, LAST(id) AS l, COUNT(id) AS n, MAX(d) AS m",
        "(a b+? c)",
        "a AS v IS NOT NULL, b AS x > 1, c AS v > FIRST(v) OR x < 5",
    ),
    "match-within": _match(
        "a.id AS a, b.id AS b", "(a c*? b) WITHIN INTERVAL '6' SECOND", "b AS b.v > a.v", "NEXT ROW"
    ),
    "match-rowtime": "SELECT f, l, t FROM readings MATCH_RECOGNIZE (PARTITION BY name ORDER BY ts MEASURES a.id AS f, b.id AS l, "
    "MATCH_ROWTIME() AS t PATTERN (a b) DEFINE b AS b.v > a.v)",
    "match-window": "SELECT window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE matched, DESCRIPTOR(t), INTERVAL '10' SECOND)) "
    "GROUP BY window_start, window_end",
    "match-order": _match("a.id AS a, b.id AS b", "(a b)", "b AS b.v > a.v", "NEXT ROW", by="", order="ts, x DESC, id"),
    "match-functions": _match(
        "UPPER(a.name) || CAST(b.v AS STRING) AS text, b.d * 2 AS twice, CASE WHEN b.x > 5 THEN 'more' ELSE 'less' END AS size",
        "(a b)",
        "a AS a.v BETWEEN 1 AND 8, b AS ABS(b.v - a.v) IN (1, 2, 3) AND b.d IS NOT NULL",
    ),
}

QUERIES: dict[str, str] = {
    **JOINS,
    **MATCHES,
    **WINDOWS,
    **OVERS,
    **OTHERS,
    **PHASES,
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
    "lists": "SELECT name, LISTAGG(CAST(v AS STRING)), ARRAY_AGG(v), LISTAGG(DISTINCT CAST(v AS STRING), '-'), "
    "COLLECT(name), ROUND(STDDEV_POP(x), 9), ROUND(STDDEV_SAMP(x), 9), ROUND(VAR_POP(x), 9), ROUND(VAR_SAMP(x), 9) "
    "FROM readings GROUP BY name",
    "lists-retraction": "SELECT LISTAGG(CAST(c AS STRING), ';'), ROUND(VAR_POP(s), 6), ROUND(STDDEV_SAMP(s), 6) FROM "
    "(SELECT name, COUNT(*) c, CAST(SUM(v) AS DOUBLE) s FROM readings GROUP BY name)",
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


_OTHERS = {"id": "INT", "name": "STRING", "w": "BIGINT", "x": "DOUBLE", "ts": "TIMESTAMP(3)"}
_RATES = {"name": "STRING", "rate": "DECIMAL(10, 3)", "ts": "TIMESTAMP(3)"}


@dataclass(frozen=True)
class Table:
    """A table with its columns, its rows as JSON, and its time attribute."""

    columns: dict[str, str]
    lines: Callable[[], list[str]]
    time: str = "ts"
    key: str = ""
    delay: int = 5

    def create(self, name: str, path: object) -> str:
        """Return the statement that creates the table with the rows of this file."""
        columns = [f"`{column}` {type}" for column, type in self.columns.items()]
        if self.time == "pt":
            columns.append("pt AS PROCTIME()")
        else:
            columns.append(f"WATERMARK FOR `{self.time}` AS `{self.time}` - INTERVAL '{self.delay}' SECOND")
        if self.key:
            columns.append(f"PRIMARY KEY ({self.key}) NOT ENFORCED")
        options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json'"
        return f"CREATE TABLE {name} ({', '.join(columns)}) WITH ({options})"

    def rows(self) -> list[SqlRow]:
        columns = tuple(Column(name, type_of(type)) for name, type in self.columns.items())
        format = JsonFormat(columns, ignores_errors=False)
        found = [format.read(line) for line in self.lines()]
        return [row for row in found if row is not None]


def _when(i: int) -> str:
    """Return a time in an order with differences of up to 3 s."""
    second = i + (i * 7) % 4 - 2
    return f"2020-01-01 00:{(second + 60) // 60:02}:{(second + 60) % 60:02}.{(i * 37) % 1000:03}"


def _readings() -> list[str]:
    return [
        json.dumps(
            {
                "id": i,
                "name": None if i % 19 == 7 else "abcd"[(i * i) % 7 % 4],
                "v": None if i % 11 == 3 else (i * 17) % 13 - 2,
                "d": None if i % 13 == 5 else f"{(i * 31) % 900 / 7:.2f}",
                "x": None if i % 17 == 2 else (i * 29) % 23 * 1.5,
                "ts": _when(i),
                "moment": f"{_when(i)}Z",
            }
        )
        for i in range(60)
    ]


def _others() -> list[str]:
    return [
        json.dumps(
            {
                "id": 100 + i,
                "name": None if i % 13 == 4 else "abcde"[(i * 3) % 5],
                "w": None if i % 9 == 2 else (i * 5) % 11 - 1,
                "x": None if i % 8 == 5 else "NaN" if i % 7 == 3 else (i * 11) % 17 * 2.5,
                "ts": _when(i * 3 // 2),
            }
        )
        for i in range(40)
    ]


def _arrivals() -> list[str]:
    return [json.dumps({"id": i, "name": "ab"[i % 2], "v": None if i % 5 == 3 else i * 3 % 7}) for i in range(30)]


def _late() -> list[str]:
    """Return rows of which some are behind the watermark, by more and by less than a window."""
    seconds = (1, 4, 2, 9, 3, 8, 12, 5, 12, 11, 13, 20, 14, 17, 20, 21, 26, 24, 26, 22, 33, 30, 31, 40, 38)
    return [
        json.dumps({"id": i, "name": "ab"[i % 2], "ts": f"2020-01-01 00:00:{second:02}"})
        for i, second in enumerate(seconds)
    ]


def _rates() -> list[str]:
    return [json.dumps({"name": "abcde"[i % 5], "rate": f"{i * 7 % 11}.125", "ts": _when(i * 2)}) for i in range(30)]


TABLES = {
    "readings": Table(_TYPES, _readings),
    "local_readings": Table(_TYPES, _readings, time="moment"),
    "others": Table(_OTHERS, _others),
    "arrivals": Table({"id": "INT", "name": "STRING", "v": "INT"}, _arrivals, time="pt"),
    "late": Table({"id": "INT", "name": "STRING", "ts": "TIMESTAMP(3)"}, _late, delay=2),
    "rates": Table(_RATES, _rates, key="name"),
}


def rows() -> list[SqlRow]:
    return TABLES["readings"].rows()


def materialized(changes: list[str]) -> list[str]:
    """Return the rows that remain after all changes, sorted. A change is a text such as `+U[a, 1]`."""
    counts: Counter[str] = Counter()
    for change in changes:
        counts[change[2:]] += 1 if change[0] == "+" else -1
    assert min(counts.values(), default=0) >= 0, "a row was retracted that did not exist"
    return sorted(counts.elements())
