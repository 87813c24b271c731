"""Compiled plans in files, in strings and in manifests are executed without the planner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.common.errors import InvalidJob
from penstock.graph.executor import executing_on
from penstock.jobmanager.job.requests import Operation
from penstock.jobmanager.process.launch import check
from penstock.jobmanager.process.session.session import Session, SubmitOptions
from penstock.sql.planner.process import PlannerProcess, SqlError
from penstock.table import PlanReference, StreamTableEnvironment
from tests.in_process import InProcess, environment, until

pytestmark = pytest.mark.sql
NUMBERS = (
    "CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
    "'fields.n.start' = '1', 'fields.n.end' = '{end}')"
)


def session(folder: Path, end: int = 9) -> StreamTableEnvironment:
    tables = StreamTableEnvironment.create(environment(folder))
    tables.execute_sql(NUMBERS.format(end=end))
    tables.execute_sql(
        f"CREATE TABLE files (n INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'json')"
    )
    return tables


def written(folder: Path) -> list[int]:
    parts = [path.read_text() for path in (folder / "out").rglob("*") if path.is_file()]
    return sorted(json.loads(line)["n"] for part in parts for line in part.splitlines())


@pytest.fixture
def no_planner(monkeypatch):
    def start(self):
        raise AssertionError("the planner started")

    return lambda: monkeypatch.setattr(PlannerProcess, "_start", start)


def test_a_plan_in_a_file_is_executed_without_the_planner(flink, tmp_path, no_planner):
    plan = tmp_path / "plans" / "insert.json"
    session(tmp_path).execute_sql(f"COMPILE PLAN '{plan}' FOR INSERT INTO files SELECT n FROM numbers WHERE n > 6")
    no_planner()
    other = StreamTableEnvironment.create(environment(tmp_path / "other"))
    with executing_on(Session(InProcess())):
        other.execute_sql(f"EXECUTE PLAN 'file://{plan}'").wait()
    assert written(tmp_path) == [7, 8, 9]
    assert other.load_plan(PlanReference.from_file(plan)).explain().startswith("Sink(table=[")


def test_an_existing_plan_is_only_replaced_if_the_option_allows_it(flink, tmp_path):
    tables, plan = session(tmp_path), tmp_path / "plan.json"
    tables.execute_sql(f"COMPILE PLAN '{plan}' FOR INSERT INTO files SELECT n FROM numbers WHERE n > 6")
    first = plan.read_text()
    other = "FOR INSERT INTO files SELECT n FROM numbers WHERE n > 7"
    with pytest.raises(InvalidJob, match=r"the plan file .* exists"):
        tables.execute_sql(f"COMPILE PLAN '{plan}' {other}")
    tables.execute_sql(f"COMPILE PLAN '{plan}' IF NOT EXISTS {other}")
    assert plan.read_text() == first
    tables.execute_sql("SET 'table.plan.force-recompile' = 'true'")
    with executing_on(Session(InProcess())):
        tables.execute_sql(f"COMPILE AND EXECUTE PLAN '{plan}' {other}").wait()
    assert written(tmp_path) == [8, 9]


def test_a_table_and_a_statement_set_are_compiled(flink, tmp_path):
    tables = session(tmp_path)
    small = tables.sql_query("SELECT n FROM numbers WHERE n < 3").insert_into("files").compile_plan()
    insert = "INSERT INTO files SELECT n FROM numbers WHERE n"
    both = tables.create_statement_set().add_insert_sql(f"{insert} = 4").add_insert_sql(f"{insert} = 5").compile_plan()
    text = tables.compile_plan_sql(f"EXECUTE STATEMENT SET BEGIN {insert} = 8; {insert} = 9; END").as_json_string()
    with executing_on(Session(InProcess())):
        for plan in (small, both, tables.load_plan(PlanReference.from_json_string(text))):
            plan.execute().wait()
    assert written(tmp_path) == [1, 2, 4, 5, 8, 9]


def test_other_statements_and_other_texts_are_refused(flink, tmp_path):
    tables = session(tmp_path)
    with pytest.raises(InvalidJob, match="only INSERT statements and statement sets"):
        tables.compile_plan_sql("SELECT n FROM numbers")
    with pytest.raises(InvalidJob, match="this is not a compiled plan"):
        tables.load_plan(PlanReference.from_json_string("{}"))
    with pytest.raises(InvalidJob, match="cannot be read"):
        tables.execute_sql(f"EXECUTE PLAN '{tmp_path}/missing.json'")
    with pytest.raises(InvalidJob, match="plans are stored in local files"):
        tables.execute_sql("EXECUTE PLAN 's3://bucket/plan.json'")


def grouped(folder: Path, aggregate: str = "COUNT(*)") -> StreamTableEnvironment:
    """Return a session with an endless job."""
    tables = StreamTableEnvironment.create(environment(folder))
    tables.execute_sql("CREATE TABLE readings (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')")
    tables.execute_sql("CREATE TABLE nothing (k INT, c BIGINT) WITH ('connector' = 'blackhole')")
    tables.execute_sql(f"INSERT INTO nothing SELECT MOD(id, 7), {aggregate} FROM readings GROUP BY MOD(id, 7)")
    return tables


def stopped(session: Session) -> str:
    """Stop the session's job with a savepoint after it has read rows, and return the path."""
    (master,) = session.dispatcher.jobs()
    coordinator = master.checkpoints.coordinator
    until(lambda: coordinator.latest is not None and coordinator.latest.checkpoint_id >= 5, master)
    operation = master.request(Operation("stop"))
    assert operation.wait(60)
    assert operation.failure is None
    return str(operation.location)


def test_a_restore_does_not_plan_again(flink, tmp_path, no_planner):
    first = Session(InProcess())
    with executing_on(first):
        grouped(tmp_path)
    savepoint = stopped(first)
    no_planner()
    second = Session(InProcess(), SubmitOptions(restore_path=savepoint))
    with executing_on(second):
        grouped(tmp_path)
    (master,) = second.dispatcher.jobs()
    until(lambda: master.checkpoints.restored() != "", master)
    assert stopped(second) != savepoint


def test_a_restore_of_a_changed_statement_starts_the_planner_with_the_earlier_statements(flink, tmp_path):
    first = Session(InProcess())
    with executing_on(first):
        grouped(tmp_path)
    savepoint = stopped(first)
    with executing_on(Session(InProcess(), SubmitOptions(restore_path=savepoint))):
        tables = StreamTableEnvironment.create(environment(tmp_path))
        tables.execute_sql("CREATE TABLE readings (id INT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')")
        assert tables._planner._process is None
        assert tables.list_tables() == ["readings"]
        with pytest.raises(SqlError, match="nothing"):
            tables.execute_sql("INSERT INTO nothing SELECT id, 1 FROM readings")


def test_check_compares_the_plans_of_a_savepoint_and_a_program(flink, tmp_path):
    first = Session(InProcess())
    with executing_on(first):
        grouped(tmp_path)
    savepoint = stopped(first)
    program = tmp_path / "job.py"
    start = (
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.integration.flink_sql.test_compiled_plans import grouped\n"
    )
    program.write_text(f"{start}grouped(Path({str(tmp_path)!r}))\n")
    same = check(entry=str(program), args=[], parallelism=None, against=savepoint, configuration={})
    assert same["ok"], same["problems"]
    assert [found["message"] for found in same["state_changes"] if found["operator"].startswith("GroupAggregate")] == [
        "SQL: the state is kept, because the node is the same"
    ]
    program.write_text(f"{start}grouped(Path({str(tmp_path)!r}), 'MAX(CAST(id AS BIGINT))')\n")
    changed = check(entry=str(program), args=[], parallelism=None, against=savepoint, configuration={})
    assert not changed["ok"]
    texts = [found["message"] for found in changed["state_changes"] if found["operator"].startswith("GroupAggregate")]
    assert "is dropped, because the new plan has GroupAggregate(" in texts[0]
    assert "starts without state, because the snapshot has GroupAggregate(" in texts[1]
