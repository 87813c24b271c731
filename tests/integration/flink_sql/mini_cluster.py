"""The results of queries in Flink's MiniCluster, over the tables of `tests/unit/sql/queries.py`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.jobmanager.cluster.jvm.java import find_java
from penstock.sql.planner.jars import compile_jar
from penstock.sql.planner.process import PlannerProcess
from tests.unit.sql.queries import TABLES, VIEWS, materialized

DEFAULTS = {
    "table.exec.mini-batch.enabled": "false",
    "table.exec.mini-batch.size": "-1",
    "table.optimizer.agg-phase-strategy": "ONE_PHASE",
    "table.optimizer.distinct-agg.split.enabled": "false",
}
"""Options of the planner that some queries change."""


def tables_in(folder: object) -> list[str]:
    """Return the statements that create all tables, with their rows in this folder."""
    return [*(table.create(name, f"file://{folder}/{name}") for name, table in TABLES.items()), *VIEWS]


def with_tables(planner: PlannerProcess) -> PlannerProcess:
    """Create all tables in a session of the planner, with the default options."""
    for key, value in DEFAULTS.items():
        planner.set_option(key, value)
    for statement in tables_in(""):
        planner.sql(statement)
    return planner


def results_of(
    flink: Path, folder: Path, queries: Mapping[str, str], options: Mapping[str, Mapping[str, str]]
) -> dict[str, list[str]]:
    """Run the queries one after the other. Return the rows that remain after all changes of each query."""
    for name, table in TABLES.items():
        (folder / name).mkdir()
        (folder / name / "part.json").write_text("\n".join(table.lines()) + "\n")
    questions, answer = folder / "request.json", folder / "answer.json"
    questions.write_text(json.dumps({"tables": tables_in(folder), "queries": queries, "options": options}))
    jars = sorted((flink / "lib").glob("*.jar"))
    compile_jar([Path(__file__).parent / "Oracle.java"], folder / "oracle.jar", jars)
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.lang", "java.time")]
    classes = ":".join(map(str, [folder / "oracle.jar", *jars]))
    java = [f"{find_java()}/bin/java", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", *opens, "-cp", classes]
    command = [*java, "penstocksql.Oracle", str(questions), str(answer)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: materialized(rows) for name, rows in json.loads(answer.read_text()).items()}
