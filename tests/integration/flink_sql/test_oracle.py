"""The results of Flink's MiniCluster are the results that `tests/unit/sql` expects. `UPDATE_GOLDEN=1` records plans and results."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.sql.planner.jars import compile_jar
from tests.unit.sql.queries import CLOCK, OPTIONS, PLANS, QUERIES, TABLES, VIEWS, materialized

pytestmark = pytest.mark.sql
_UPDATE = os.environ.get("UPDATE_GOLDEN") == "1"


STATEMENTS: dict[str, str] = {**QUERIES, **CLOCK}
DEFAULTS = {
    "table.exec.mini-batch.enabled": "false",
    "table.exec.mini-batch.size": "-1",
    "table.optimizer.agg-phase-strategy": "ONE_PHASE",
    "table.optimizer.distinct-agg.split.enabled": "false",
}


def _tables(folder: object) -> list[str]:
    return [*(table.create(name, f"file://{folder}/{name}") for name, table in TABLES.items()), *VIEWS]


def _normalized(plan: str) -> object:
    """Return a plan whose ids do not depend on the earlier statements of the session."""
    ids: dict[str, int] = {}
    found = re.sub(r'"(id|source|target)" : (\d+)', lambda m: f'"{m[1]}" : {ids.setdefault(m[2], len(ids))}', plan)
    return json.loads(re.sub(r"__collect_\d+", "__collect", found))


@pytest.fixture(scope="module")
def flink_results(flink, tmp_path_factory, request):
    """Return the results of the queries that this run of pytest selects."""
    selected = {item.callspec.params["name"] for item in request.session.items if item.module is request.module}
    folder = tmp_path_factory.mktemp("oracle")
    for name, table in TABLES.items():
        (folder / name).mkdir()
        (folder / name / "part.json").write_text("\n".join(table.lines()) + "\n")
    questions, answer = folder / "request.json", folder / "answer.json"
    queries = {name: query for name, query in QUERIES.items() if name in selected}
    questions.write_text(json.dumps({"tables": _tables(folder), "queries": queries, "options": OPTIONS}))
    jars = sorted((flink / "lib").glob("*.jar"))
    compile_jar([Path(__file__).parent / "Oracle.java"], folder / "oracle.jar", jars)
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.lang", "java.time")]
    classes = ":".join(map(str, [folder / "oracle.jar", *jars]))
    java = [f"{find_java()}/bin/java", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", *opens, "-cp", classes]
    command = [*java, "penstocksql.Oracle", str(questions), str(answer)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: materialized(rows) for name, rows in json.loads(answer.read_text()).items()}


@pytest.fixture(scope="module")
def session(planner):
    for key, value in DEFAULTS.items():
        planner.set_option(key, value)
    for statement in _tables(""):
        planner.sql(statement)
    return planner


@pytest.mark.parametrize("name", QUERIES)
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
    assert json.loads(path.read_text()) == plan
