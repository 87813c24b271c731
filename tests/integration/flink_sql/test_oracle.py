"""The results of Flink's MiniCluster are the results that `tests/unit/sql` expects. `UPDATE_GOLDEN=1` records plans and results."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.integration.flink_sql.mini_cluster import DEFAULTS, results_of, with_tables
from tests.unit.sql.queries import CLOCK, OPTIONS, PLANS, QUERIES

pytestmark = pytest.mark.sql
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"


STATEMENTS: dict[str, str] = {**QUERIES, **CLOCK}
VARYING = {"lists", "lists-retraction"}
"""Queries whose results in Flink differ from run to run. LISTAGG(DISTINCT) has the order of a hash map, and the variance of changing
rows is sometimes wrong. The module `statistics` computes the stored variance from the rows.
"""


def _normalized(plan: str) -> object:
    """Return a plan whose ids do not depend on the earlier statements of the session."""
    ids: dict[str, int] = {}
    found = re.sub(r'"(id|source|target)" : (\d+)', lambda m: f'"{m[1]}" : {ids.setdefault(m[2], len(ids))}', plan)
    return json.loads(_without_counters(re.sub(r"__collect_\d+", "__collect", found)))


def _without_counters(text: str) -> str:
    """Return a plan without the numbers of correlation variables, which the planner counts in a session."""
    return re.sub(r"\$cor\d+", "$cor", text)


@pytest.fixture(scope="module")
def flink_results(flink, tmp_path_factory, request):
    """Return the results of the queries that this run of pytest selects."""
    selected = {item.callspec.params["name"] for item in request.session.items if item.module is request.module}
    queries = {name: query for name, query in QUERIES.items() if name in selected}
    return results_of(flink, tmp_path_factory.mktemp("oracle"), queries, OPTIONS)


@pytest.fixture(scope="module")
def session(planner):
    return with_tables(planner)


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in VARYING])
def test_flink_gives_the_stored_result(flink_results, name):
    path = PLANS / f"{name}.result.json"
    if _UPDATE:
        path.write_text(json.dumps(flink_results[name], indent=0) + "\n")
    assert json.loads(path.read_text()) == flink_results[name]


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_planner_gives_the_stored_plan(session, name):
    path = PLANS / f"{name}.plan.json"
    for key, value in OPTIONS.get(name, {}).items():
        session.set_option(key, value)
    plan = _normalized(session.sql(STATEMENTS[name]).plan)
    for key, value in DEFAULTS.items():
        session.set_option(key, value)
    if _UPDATE:
        path.write_text(json.dumps(plan) + "\n")
    assert json.loads(_without_counters(path.read_text())) == plan
