"""Each expression has the value that Flink's planner computes when it folds the same expression of constants."""

from __future__ import annotations

import pytest

from penstock.sql.expressions.compiler import compile_value, literal
from penstock.sql.plan.nodes import Calc, Plan
from penstock.sql.plan.reading import read_plan
from penstock.sql.plan.rex import Call, Literal

pytestmark = pytest.mark.sql

INT, BIG, SMALL, TINY = "INT", "BIGINT", "SMALLINT", "TINYINT"
DOUBLE, DEC, STR, BOOL = "DOUBLE", "DECIMAL(12, 2)", "STRING", "BOOLEAN"
STAMP, DATE = "TIMESTAMP(3)", "DATE"

CASES: list[tuple[str, list[tuple[str, str]]]] = [
    # arithmetic
    ("{0} + {1}", [(INT, "2147483647"), (INT, "1")]),
    ("{0} + {1}", [(BIG, "9223372036854775807"), (INT, "1")]),
    ("{0} - {1}", [(INT, "NULL"), (INT, "1")]),
    ("{0} * {1}", [(INT, "65536"), (INT, "65536")]),
    ("{0} / {1}", [(INT, "-7"), (INT, "2")]),
    ("{0} / {1}", [(DOUBLE, "7"), (INT, "2")]),
    ("MOD({0}, {1})", [(INT, "-7"), (INT, "3")]),
    ("{0} % {1}", [(BIG, "7"), (BIG, "-3")]),
    ("-{0}", [(INT, "5")]),
    ("{0} + {1}", [(DOUBLE, "0.1"), (DOUBLE, "0.2")]),
    ("{0} * {1}", [(DEC, "1.25"), (DEC, "3.33")]),
    ("{0} + {1}", [(DEC, "1.25"), (INT, "3")]),
    ("{0} - {1}", [(DEC, "1.25"), (DEC, "3.33")]),
    ("{0} / {1}", [(DEC, "1"), (DEC, "3")]),
    ("{0} / {1}", [(DEC, "2"), (INT, "3")]),
    ("{0} * {1}", [(DEC, "1.5"), (DOUBLE, "2.5")]),
    ("ABS({0})", [(DEC, "-1.5")]),
    ("ABS({0})", [(INT, "-3")]),
    ("FLOOR({0})", [(DOUBLE, "-1.5")]),
    ("CEIL({0})", [(DOUBLE, "-1.5")]),
    ("FLOOR({0})", [(DEC, "-1.5")]),
    ("CEIL({0})", [(DEC, "1.5")]),
    ("ROUND({0}, 1)", [(DOUBLE, "2.25")]),
    ("ROUND({0}, 1)", [(DEC, "2.25")]),
    ("ROUND({0}, -1)", [(INT, "25")]),
    ("SIGN({0})", [(DOUBLE, "-2.5")]),
    ("SQRT({0})", [(INT, "2")]),
    ("POWER({0}, {1})", [(INT, "2"), (DOUBLE, "0.5")]),
    ("EXP({0})", [(DOUBLE, "1")]),
    ("LN({0})", [(DOUBLE, "10")]),
    ("LOG10({0})", [(INT, "1000")]),
    # comparisons and logic
    ("{0} > {1}", [(INT, "1"), (DOUBLE, "0.5")]),
    ("{0} = {1}", [(DEC, "1.50"), (DEC, "1.5")]),
    ("{0} < {1}", [(STR, "'a'"), (STR, "'B'")]),
    ("{0} <> {1}", [(INT, "NULL"), (INT, "1")]),
    ("{0} AND {1}", [(BOOL, "FALSE"), (BOOL, "NULL")]),
    ("{0} AND {1}", [(BOOL, "TRUE"), (BOOL, "NULL")]),
    ("{0} OR {1}", [(BOOL, "TRUE"), (BOOL, "NULL")]),
    ("{0} OR {1}", [(BOOL, "NULL"), (BOOL, "FALSE")]),
    ("NOT {0}", [(BOOL, "NULL")]),
    ("{0} IS NULL", [(INT, "NULL")]),
    ("{0} IS NOT TRUE", [(BOOL, "NULL")]),
    ("{0} IS NOT DISTINCT FROM {1}", [(INT, "NULL"), (INT, "NULL")]),
    ("{0} IN (1, 2, 3, 4, 5)", [(INT, "3")]),
    ("{0} NOT IN (1, 2, 3, 4, 5)", [(INT, "NULL")]),
    ("{0} BETWEEN 2 AND 4 OR {0} > 9", [(INT, "4")]),
    ("CASE WHEN {0} > 2 THEN 'more' WHEN {0} = 2 THEN 'two' ELSE 'less' END", [(INT, "2")]),
    ("CASE WHEN {0} > 2 THEN 1 ELSE 2.5 END", [(INT, "3")]),
    ("COALESCE({0}, {1}, 7)", [(INT, "NULL"), (INT, "5")]),
    ("NULLIF({0}, 5)", [(INT, "5")]),
    ("IF({0} > 1, 'a', 'b')", [(INT, "NULL")]),
    # strings
    ("UPPER({0})", [(STR, "'aé'")]),
    ("LOWER({0})", [(STR, "'ABC'")]),
    ("CHAR_LENGTH({0})", [(STR, "'aéx'")]),
    ("{0} || {1}", [(STR, "'a'"), (STR, "NULL")]),
    ("CONCAT_WS('-', {0}, {1}, 'z')", [(STR, "'a'"), (STR, "NULL")]),
    ("SUBSTRING({0}, 0, 2)", [(STR, "'abc'")]),
    ("SUBSTRING({0}, -2)", [(STR, "'abc'")]),
    ("SUBSTRING({0} FROM 2 FOR 5)", [(STR, "'abc'")]),
    ("SUBSTRING({0}, 5)", [(STR, "'abc'")]),
    ("TRIM({0})", [(STR, "'  a b  '")]),
    ("TRIM(LEADING 'x' FROM {0})", [(STR, "'xxaxx'")]),
    ("LTRIM({0})", [(STR, "'  a '")]),
    ("RTRIM({0})", [(STR, "' a  '")]),
    ("{0} LIKE 'a%_c'", [(STR, "'abbc'")]),
    ("{0} LIKE 'a!%c' ESCAPE '!'", [(STR, "'abc'")]),
    ("REPLACE({0}, 'b', 'xy')", [(STR, "'abcb'")]),
    ("POSITION('c' IN {0})", [(STR, "'abc'")]),
    ("LEFT({0}, 2)", [(STR, "'abc'")]),
    ("RIGHT({0}, 2)", [(STR, "'abc'")]),
    ("LPAD({0}, 5, 'xy')", [(STR, "'abc'")]),
    ("RPAD({0}, 2, 'x')", [(STR, "'abc'")]),
    ("REVERSE({0})", [(STR, "'abc'")]),
    ("REPEAT({0}, 3)", [(STR, "'ab'")]),
    ("INITCAP({0})", [(STR, "'hello wORLD 1x'")]),
    ("SPLIT_INDEX({0}, ',', 1)", [(STR, "'a,b,c'")]),
    ("SPLIT_INDEX({0}, ',', 5)", [(STR, "'a,b,c'")]),
    ("MD5({0})", [(STR, "'abc'")]),
    ("SHA256({0})", [(STR, "'abc'")]),
    # casts
    ("CAST({0} AS INT)", [(DOUBLE, "-1.9")]),
    ("CAST({0} AS INT)", [(DOUBLE, "1e10")]),
    ("CAST({0} AS TINYINT)", [(INT, "200")]),
    ("CAST({0} AS INT)", [(DEC, "1.99")]),
    ("CAST({0} AS INT)", [(STR, "' 42 '")]),
    ("CAST({0} AS DECIMAL(4, 1))", [(DEC, "1.25")]),
    ("CAST({0} AS DECIMAL(5, 2))", [(DOUBLE, "1.005")]),
    ("CAST({0} AS DOUBLE)", [(DEC, "1.25")]),
    ("CAST({0} AS STRING)", [(DOUBLE, "1e10")]),
    ("CAST({0} AS STRING)", [(DOUBLE, "0.1")]),
    ("CAST({0} AS STRING)", [(DEC, "1.50")]),
    ("CAST({0} AS STRING)", [(BOOL, "TRUE")]),
    ("CAST({0} AS STRING)", [(STAMP, "TIMESTAMP '2020-01-02 03:04:05.6'")]),
    ("CAST({0} AS STRING)", [(DATE, "DATE '2020-01-02'")]),
    ("CAST({0} AS VARCHAR(2))", [(STR, "'abc'")]),
    ("CAST({0} AS CHAR(5))", [(STR, "'abc'")]),
    ("CAST({0} AS BOOLEAN)", [(STR, "'yes'")]),
    ("CAST({0} AS DATE)", [(STR, "'2020-02-29'")]),
    ("CAST({0} AS TIMESTAMP(3))", [(STR, "'2020-02-29 10:00:00.1239'")]),
    ("CAST({0} AS DATE)", [(STAMP, "TIMESTAMP '2020-01-02 03:04:05'")]),
    ("CAST({0} AS TIMESTAMP(3))", [(DATE, "DATE '2020-01-02'")]),
    ("TRY_CAST({0} AS INT)", [(STR, "'abc'")]),
    ("TRY_CAST({0} AS DATE)", [(STR, "'2020-02-30'")]),
    # times
    ("{0} + INTERVAL '1' DAY", [(STAMP, "TIMESTAMP '2020-02-28 10:00:00'")]),
    ("{0} - INTERVAL '90' SECOND", [(STAMP, "TIMESTAMP '2020-03-01 00:00:00'")]),
    ("{0} + INTERVAL '1' MONTH", [(STAMP, "TIMESTAMP '2020-01-31 10:00:00'")]),
    ("{0} + INTERVAL '1' MONTH", [(DATE, "DATE '2020-01-31'")]),
    ("EXTRACT(DAY FROM {0})", [(STAMP, "TIMESTAMP '2020-02-28 10:00:00'")]),
    ("EXTRACT(HOUR FROM {0})", [(STAMP, "TIMESTAMP '2020-02-28 10:11:12'")]),
    ("EXTRACT(DOW FROM {0})", [(DATE, "DATE '2020-03-01'")]),
    ("EXTRACT(WEEK FROM {0})", [(DATE, "DATE '2021-01-03'")]),
    ("EXTRACT(QUARTER FROM {0})", [(DATE, "DATE '2021-05-03'")]),
    ("EXTRACT(DOY FROM {0})", [(DATE, "DATE '2021-05-03'")]),
    ("FLOOR({0} TO HOUR)", [(STAMP, "TIMESTAMP '2020-02-28 10:11:12'")]),
    ("FLOOR({0} TO MONTH)", [(STAMP, "TIMESTAMP '2020-02-28 10:11:12'")]),
    ("FLOOR({0} TO WEEK)", [(STAMP, "TIMESTAMP '2020-02-28 10:11:12'")]),
    ("DATE_FORMAT({0}, 'yyyy/MM/dd HH:mm:ss.SSS')", [(STAMP, "TIMESTAMP '2020-02-28 10:11:12.345'")]),
    ("TO_TIMESTAMP({0})", [(STR, "'2020-02-28 10:11:12'")]),
    ("{0} < {1}", [(STAMP, "TIMESTAMP '2020-02-28 10:00:00'"), (STAMP, "TIMESTAMP '2020-02-28 10:00:01'")]),
    ("{0} <> ''", [(STR, "'a'")]),
    # regular expressions, encodings, JSON and formats of times
    *[
        (text, [(STR, f"'{value}'")])
        for value, texts in {
            "foothebar": (
                "REGEXP_EXTRACT({0}, 'foo(.*?)(bar)', 2)",
                "REGEXP_EXTRACT({0}, 'x(y)', 1)",
                "REGEXP_REPLACE({0}, 'o+|b', '<$0>')",
                "REGEXP({0}, '^f.*r$')",
                "REGEXP_COUNT({0}, 'o')",
                "REGEXP_INSTR({0}, 'the')",
                "REGEXP_SUBSTR({0}, 't.e')",
                "CAST(REGEXP_EXTRACT_ALL({0}, '([aeo])', 1) AS STRING)",
                "OVERLAY({0} PLACING '12' FROM 3 FOR 1)",
                "LOCATE('o', {0}, 3)",
                "INSTR({0}, 'o')",
                "STARTSWITH({0}, 'foo')",
                "ENDSWITH({0}, 'foo')",
                "TRANSLATE({0}, 'oa', '0')",
                "CONCAT({0}, '-', 'x')",
                "BTRIM({0}, 'fr')",
                "LTRIM({0}, 'f')",
                "RTRIM({0}, 'r')",
                "TO_BASE64({0})",
                "HEX({0})",
                "ASCII({0})",
                "IS_ALPHA({0})",
                "ELT(2, {0}, 'b')",
                "SHA2({0}, 256)",
            ),
            "Zm9v": ("FROM_BASE64({0})",),
            "a b&ü*~": ("URL_ENCODE({0})",),
            "a+b%26": ("URL_DECODE({0})",),
            "http://user@a.org:80/p/q?k=v&l=w#r": (
                "PARSE_URL({0}, 'HOST')",
                "PARSE_URL({0}, 'QUERY')",
                "PARSE_URL({0}, 'QUERY', 'l')",
                "PARSE_URL({0}, 'AUTHORITY')",
                "PARSE_URL({0}, 'FILE')",
                "PARSE_URL({0}, 'REF')",
            ),
            '{"a": {"b": [1, "x", true, 1.5]}, "c": null}': (
                "JSON_VALUE({0}, '$.a.b[1]')",
                "JSON_VALUE({0}, '$.a.b[3]')",
                "JSON_VALUE({0}, '$.a.b[2]')",
                "JSON_VALUE({0}, '$.a')",
                "JSON_VALUE({0}, '$.missing')",
                "JSON_QUERY({0}, '$.a.b')",
                "JSON_QUERY({0}, '$.a.b[0]')",
                "JSON_EXISTS({0}, '$.a.b')",
                "JSON_EXISTS({0}, '$.x')",
                "{0} IS JSON",
                "{0} IS JSON ARRAY",
                "{0} IS NOT JSON",
            ),
            "no json": ("{0} IS JSON", "JSON_EXISTS({0}, '$.a')"),
            "2020-02-28 10:11:12": (
                "CONVERT_TZ({0}, 'UTC', 'America/Los_Angeles')",
                "TO_DATE({0}, 'yyyy-MM-dd HH:mm:ss')",
            ),
            "28/02/2020": (
                "TO_DATE({0}, 'dd/MM/yyyy')",
                "TO_TIMESTAMP({0}, 'dd/MM/yyyy')",
            ),
            "2020-02-30": ("TO_DATE({0})",),
        }.items()
        for text in texts
    ],
    ("FROM_UNIXTIME({0})", [(BIG, "1582884672")]),
    ("FROM_UNIXTIME({0}, 'dd.MM.yy')", [(BIG, "1582884672")]),
    ("CHR({0})", [(INT, "353")]),
    ("BIN({0})", [(INT, "10")]),
    ("HEX({0})", [(INT, "-1")]),
    (
        "TIMESTAMPDIFF(DAY, {0}, {1})",
        [(STAMP, "TIMESTAMP '2020-02-28 10:00:00'"), (STAMP, "TIMESTAMP '2020-03-01 09:00:00'")],
    ),
    (
        "TIMESTAMPDIFF(MONTH, {0}, {1})",
        [(STAMP, "TIMESTAMP '2020-01-31 10:00:00'"), (STAMP, "TIMESTAMP '2020-03-01 09:00:00'")],
    ),
    (
        "TIMESTAMPDIFF(SECOND, {1}, {0})",
        [(STAMP, "TIMESTAMP '2020-01-31 10:00:00'"), (STAMP, "TIMESTAMP '2020-03-01 09:00:00'")],
    ),
    ("TIMESTAMPADD(WEEK, 2, {0})", [(STAMP, "TIMESTAMP '2020-01-31 10:00:00'")]),
    ("TIMESTAMPADD(QUARTER, -1, {0})", [(STAMP, "TIMESTAMP '2020-01-31 10:00:00'")]),
    ("TRUNCATE({0}, 1)", [(DOUBLE, "-2.79")]),
    ("TRUNCATE({0}, 1)", [(DEC, "2.79")]),
    ("TRUNCATE({0}, -1)", [(INT, "27")]),
    ("GREATEST({0}, 3, 2)", [(INT, "1")]),
    ("LEAST({0}, {1})", [(INT, "1"), (INT, "NULL")]),
    ("LOG({0}, 8)", [(INT, "2")]),
    ("LOG2({0})", [(INT, "8")]),
    *[
        (f"{name}({{0}})", [(DOUBLE, "0.5")])
        for name in ("ACOS", "ASIN", "ATAN", "COS", "COSH", "SIN", "SINH", "TAN", "TANH", "DEGREES", "RADIANS", "LOG")
    ],
    # arrays, maps and rows
    ("ARRAY[{0}, {1}][2]", [(INT, "1"), (INT, "2")]),
    ("ARRAY[{0}, {1}][{0}]", [(INT, "NULL"), (INT, "2")]),
    ("CAST(ARRAY[{0}, {1}] AS STRING)", [(INT, "1"), (DOUBLE, "2.5")]),
    ("CAST(ARRAY[{0}, {1}] AS STRING)", [(INT, "NULL"), (INT, "2")]),
    ("CAST(CAST(ARRAY[{0}] AS ARRAY<DOUBLE>) AS STRING)", [(INT, "3")]),
    ("CAST(MAP['a', {0}, 'b', {1}] AS STRING)", [(INT, "1"), (INT, "NULL")]),
    ("MAP['a', {0}, 'b', {1}]['b']", [(INT, "1"), (INT, "2")]),
    ("ARRAY[{0}, 2] = ARRAY[1, 2]", [(INT, "1")]),
    ("ARRAY[{0}, 2] <> ARRAY[1, 3]", [(INT, "1")]),
    ("ROW({0}, {1}) = ROW(1, 'x')", [(INT, "1"), (STR, "'y'")]),
    ("CARDINALITY(ARRAY[{0}, {1}])", [(INT, "1"), (INT, "NULL")]),
    ("CARDINALITY(MAP['a', {0}])", [(INT, "1")]),
    ("ELEMENT(ARRAY[{0}])", [(INT, "7")]),
    *[
        (f"CAST({text} AS STRING)", [(INT, "3"), (INT, "1")])
        for text in (
            "ARRAY_APPEND(ARRAY[{0}], {1})",
            "ARRAY_PREPEND(ARRAY[{0}], {1})",
            "ARRAY_CONCAT(ARRAY[{0}], ARRAY[{1}, {0}])",
            "ARRAY_CONTAINS(ARRAY[{0}, 2], {1})",
            "ARRAY_DISTINCT(ARRAY[{0}, {1}, {0}])",
            "ARRAY_EXCEPT(ARRAY[{0}, {1}, {0}, 5], ARRAY[{0}])",
            "ARRAY_INTERSECT(ARRAY[{0}, {1}, {0}], ARRAY[{0}, 9])",
            "ARRAY_MAX(ARRAY[{0}, {1}])",
            "ARRAY_MIN(ARRAY[{0}, {1}])",
            "ARRAY_POSITION(ARRAY[{0}, {1}], 1)",
            "ARRAY_POSITION(ARRAY[{0}, {1}], 8)",
            "ARRAY_REMOVE(ARRAY[{0}, {1}, {0}], {0})",
            "ARRAY_REVERSE(ARRAY[{0}, {1}, 7])",
            "ARRAY_SLICE(ARRAY[{0}, {1}, 7, 8], 2, 3)",
            "ARRAY_SLICE(ARRAY[{0}, {1}, 7, 8], -3)",
            "ARRAY_SLICE(ARRAY[{0}, {1}, 7, 8], -3, -2)",
            "ARRAY_SLICE(ARRAY[{0}, {1}, 7, 8], 0, 1)",
            "ARRAY_SLICE(ARRAY[{0}, {1}, 7, 8], 3, 1)",
            "ARRAY_SORT(ARRAY[{0}, {1}, CAST(NULL AS INT)])",
            "ARRAY_SORT(ARRAY[{0}, {1}, CAST(NULL AS INT)], FALSE)",
            "ARRAY_SORT(ARRAY[{0}, {1}, CAST(NULL AS INT)], TRUE, FALSE)",
            "ARRAY_UNION(ARRAY[{0}, {1}], ARRAY[{0}, 9])",
            "MAP_ENTRIES(MAP['a', {0}])",
            "MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[{0}, {1}])",
            "MAP_KEYS(MAP['a', {0}])",
            "MAP_VALUES(MAP['a', {0}])",
            "MAP_UNION(MAP['a', {0}], MAP['a', {1}])",
        )
    ],
    ("ARRAY_JOIN(ARRAY[{0}, {1}, 'c'], '-')", [(STR, "'a'"), (STR, "NULL")]),
    ("ARRAY_JOIN(ARRAY[{0}, {1}, 'c'], '-', 'none')", [(STR, "'a'"), (STR, "NULL")]),
    ("CAST(SPLIT({0}, ',') AS STRING)", [(STR, "'a,b,,c'")]),
    ("CAST(SPLIT({0}, '') AS STRING)", [(STR, "'abc'")]),
    ("STR_TO_MAP({0})['b']", [(STR, "'a=1,b=2'")]),
    ("STR_TO_MAP({0}, ';', ':')['a']", [(STR, "'a:1;b'")]),
]


def calc_of(plan: Plan) -> Calc:
    (found,) = (node for node in plan.nodes if isinstance(node, Calc))
    return found


@pytest.fixture(scope="module")
def plans(planner):
    """The plan with folded expressions, and the plan with the same expressions on columns."""
    arguments = [argument for _, arguments in CASES for argument in arguments]
    columns = ", ".join(f"c{index} {type}" for index, (type, _) in enumerate(arguments))
    planner.sql(f"CREATE TABLE arguments ({columns}) WITH ('connector' = 'datagen')")
    folded, computed, position = [], [], 0
    for template, found in CASES:
        folded.append(template.format(*(f"CAST({text} AS {type})" for type, text in found)))
        computed.append(template.format(*(f"c{position + index}" for index in range(len(found)))))
        position += len(found)
    inputs = ", ".join(f"CAST({text} AS {type})" for type, text in arguments)
    return tuple(
        calc_of(read_plan(planner.sql(f"SELECT {', '.join(parts)} FROM {table}").plan))
        for parts, table in (([inputs], "(VALUES (0))"), (folded, "(VALUES (0))"), (computed, "arguments"))
    )


def value(rex) -> object:
    if isinstance(rex, Call) and rex.name == "CAST" and rex.type.name == rex.operands[0].type.name:
        (rex,) = rex.operands  # a folded literal of a nullable type
    assert isinstance(rex, Literal), f"the planner did not fold {rex}"
    return literal(rex.value, rex.type)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{text} {args}" for text, args in CASES])
def test_an_expression_has_the_value_that_flink_folds(plans, index):
    inputs, folded, computed = plans
    row = tuple(map(value, inputs.projection))
    expected, found = value(folded.projection[index]), compile_value(computed.projection[index], "UTC")(row)
    assert found == expected
    assert type(found) is type(expected)
