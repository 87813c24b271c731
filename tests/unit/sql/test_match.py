"""MATCH_RECOGNIZE: edge cases of rows, and plans that are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.sql.plan.reading import read_plan
from penstock.sql.translation import StreamPlan
from penstock.testing import JobHarness
from tests.unit.sql.queries import DATABASE, PLANS, TABLES

MICROS = 1_000_000


def raw_plan(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PLANS / f"{name}.plan.json").read_text())
    return found


def match_of(plan: dict[str, Any]) -> dict[str, Any]:
    (node,) = (node for node in plan["nodes"] if node["type"] == "stream-exec-match_1")
    found: dict[str, Any] = node["matchSpec"]
    return found


def started(harness: JobHarness, plan: dict[str, Any]) -> None:
    tables = {f"{DATABASE}.{table}": harness.source(table) for table in TABLES}
    found = StreamPlan(harness.environment(), read_plan(json.dumps(plan)), tables=tables).add_to_environment()
    harness.collect(found.stream, "result")


def reading(id: int, v: int | None, second: float | None, x: float | None = None) -> tuple[Any, ...]:
    time = None if second is None else int(second * MICROS)
    return (id, "a", v, None, x, time, None)


def columns() -> list[str]:
    return list(TABLES["readings"].columns)


def test_the_columns_of_the_tests_are_those_of_the_table():
    assert columns() == ["id", "name", "v", "d", "x", "ts", "moment"]


def test_rows_are_matched_in_the_order_of_their_times_and_late_rows_are_dropped():
    with JobHarness() as harness:
        started(harness, raw_plan("match-next"))
        harness.push("readings", reading(2, 5, 12), reading(1, 3, 11), reading(9, 1, 30))
        harness.push("readings", reading(3, 9, 1))
        for name in TABLES:
            harness.close(name)
        assert [row[:3] for row in harness.outputs("result")] == [("a", 1, 2)]


def test_a_comparison_with_null_is_not_true():
    with JobHarness() as harness:
        started(harness, raw_plan("match-next"))
        harness.push("readings", reading(1, None, 1), reading(2, 5, 2), reading(3, None, 3), reading(4, 1, 4))
        for name in TABLES:
            harness.close(name)
        assert harness.outputs("result") == []


def test_a_row_without_a_time_is_refused():
    with JobHarness() as harness:
        started(harness, raw_plan("match-next"))
        harness.push("readings", reading(1, 1, None))
        with pytest.raises(Exception, match="the event-time column is NULL"):
            harness.outputs("result")


def test_a_skip_to_the_first_row_of_the_match_fails_as_in_flink():
    plan = raw_plan("match-least")
    match_of(plan)["after"]["operands"][0]["value"] = "a"
    with JobHarness() as harness:
        started(harness, plan)
        harness.push("readings", reading(1, 3, 1), reading(2, 4, 2), reading(3, 0, 3))
        harness.push("readings", reading(4, 0, 60))
        with pytest.raises(Exception, match="is the first event of the match"):
            harness.outputs("result")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allRows": True}, "ALL ROWS PER MATCH"),
        ({"subsets": {"s": ["a"]}}, "SUBSET"),
        ({"interval": {"kind": "LITERAL", "value": 3, "type": "INTERVAL MONTH NOT NULL"}}, "WITHIN with months"),
        (
            {"orderBy": {"fields": [{"index": 0, "isAscending": True, "nullIsLast": False}]}},
            "ORDER BY with a time attribute",
        ),
        (
            {"orderBy": {"fields": [{"index": 5, "isAscending": False, "nullIsLast": False}]}},
            "orders the time descending",
        ),
        ({"orderBy": {"fields": []}}, "ORDER BY with a time attribute"),
    ],
)
def test_a_match_that_cannot_run_is_refused(change: dict[str, Any], message: str):
    plan = raw_plan("match-next")
    match_of(plan).update(change)
    with pytest.raises(InvalidJob, match=message):
        read_plan(json.dumps(plan))


def test_an_unknown_function_in_a_condition_is_refused_before_the_job_starts():
    text = json.dumps(raw_plan("match-functions")).replace("$ABS$1", "$SOUNDEX$1")
    with JobHarness() as harness, pytest.raises(InvalidJob, match="the function SOUNDEX"):
        started(harness, json.loads(text))


def test_a_condition_knows_the_time_of_its_row():
    plan = raw_plan("match-next")
    stamp = {"type": "TIMESTAMP_WITHOUT_TIME_ZONE", "precision": 3}
    operands = [
        {"kind": "CALL", "internalName": "$MATCH_ROWTIME$1", "type": stamp},
        {"kind": "LITERAL", "value": "1970-01-01 00:00:02", "type": stamp},
    ]
    match_of(plan)["patternDefinitions"]["b"] = {
        "kind": "CALL",
        "internalName": "$>$1",
        "operands": operands,
        "type": "BOOLEAN",
    }
    with JobHarness() as harness:
        started(harness, plan)
        harness.push("readings", reading(1, 1, 1), reading(2, 5, 2), reading(3, 6, 3))
        for name in TABLES:
            harness.close(name)
        assert [row[:3] for row in harness.outputs("result")] == [("a", 2, 3)]


def test_a_plan_with_a_column_that_does_not_exist_is_refused():
    plan = raw_plan("match-next")
    match_of(plan)["orderBy"]["fields"][0]["index"] = 99
    with pytest.raises(InvalidJob, match="not a compiled plan"):
        read_plan(json.dumps(plan))


@pytest.mark.parametrize("kind", ["INPUT_REF", "PATTERN_INPUT_REF"])
def test_the_position_of_a_column_cannot_be_code(kind: str):
    plan = raw_plan("match-next")
    code = {"kind": kind, "alpha": "a", "inputIndex": "0] or exit() or row[0", "type": "INT"}
    match_of(plan)["patternDefinitions"]["b"]["operands"][0] = code
    with pytest.raises(InvalidJob, match="the position of a column"):
        read_plan(json.dumps(plan))
