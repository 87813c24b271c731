"""Python functions in SQL: the planner checks their types, and the tasks call them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal

import pytest

from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.types import Row
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.sql.planner.process import SqlError
from penstock.table import AggregateFunction, DataTypes, FunctionContext, ScalarFunction, StreamTableEnvironment
from penstock.table.udf import udaf, udf, udtf
from tests.in_process import InProcess, environment

pytestmark = pytest.mark.sql


class Shifted(ScalarFunction):
    """A function that needs `open`."""

    def open(self, function_context: FunctionContext) -> None:
        self._offset = int(function_context.get_job_parameter("offset", "100"))

    def eval(self, number: int) -> int:
        return number + self._offset


class Mean(AggregateFunction):
    def create_accumulator(self) -> list[float]:
        return [0.0, 0.0]

    def accumulate(self, accumulator: list[float], value: float, weight: int) -> None:
        if value is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator: list[float], value: float, weight: int) -> None:
        accumulator[0] -= value * weight
        accumulator[1] -= weight

    def get_value(self, accumulator: list[float]) -> float | None:
        return accumulator[0] / accumulator[1] if accumulator[1] else None


class Longest(AggregateFunction):
    """A function that returns new accumulators and cannot retract."""

    def create_accumulator(self) -> str:
        return ""

    def accumulate(self, accumulator, text):
        return max(accumulator, text, key=len)

    def get_value(self, accumulator):
        return accumulator

    def get_result_type(self):
        return "STRING"


@udf
def doubled(number: int) -> int | None:
    return None if number == 3 else 2 * number


@udf(
    input_types=[DataTypes.ARRAY(DataTypes.INT()), "MAP<STRING, DATE>", "TIMESTAMP(3)"],
    result_type=DataTypes.ROW([("n", DataTypes.INT()), ("t", DataTypes.STRING())]),
)
def described(numbers, days, moment):
    assert isinstance(numbers, list)
    return Row(sum(numbers), f"{days['a']:%d.%m.} {moment:%H:%M}")


@udtf(result_types=[DataTypes.STRING(), "INT"])
def words(text):
    for word in text.split():
        yield word, len(word)


@udtf
def numbers_up_to(limit: int) -> Iterator[int]:
    return iter(range(limit))


@pytest.fixture(scope="module")
def tables(flink, tmp_path_factory):
    created = StreamTableEnvironment.create(
        environment(tmp_path_factory.mktemp("job"), **{"restart-strategy.type": "none"})
    )
    created.create_temporary_system_function("doubled", doubled)
    created.create_temporary_function("described", described)
    created.create_temporary_system_function("Shifted", Shifted())
    created.create_temporary_system_function("words", words)
    created.create_temporary_system_function("numbers_up_to", numbers_up_to)
    created.create_temporary_system_function("mean", udaf(Mean()))
    created.create_temporary_system_function("longest", Longest())
    created.execute_sql("CREATE VIEW n AS SELECT * FROM (VALUES (1, 'a bc'), (2, 'def'), (3, '')) t(id, text)")
    with executing_on(Session(InProcess())):
        yield created


def collected(tables: StreamTableEnvironment, query: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in tables.execute_sql(query).collect())


def final(tables: StreamTableEnvironment, query: str) -> list[tuple[object, ...]]:
    """Return the rows that remain after all changes."""
    found: list[tuple[object, ...]] = []
    for row in tables.execute_sql(query).collect():
        if str(row.get_row_kind()) in ("+I", "+U"):
            found.append(tuple(row))
        else:
            found.remove(tuple(row))
    return sorted(found)


def test_a_scalar_function_is_used_in_select_and_where(tables):
    query = "SELECT id, doubled(id) + 1, shifted(id) FROM n WHERE doubled(id) IS NOT NULL"
    assert collected(tables, query) == [(1, 3, 101), (2, 5, 102)]


def test_a_function_gets_and_returns_python_objects(tables):
    query = (
        "SELECT described(ARRAY[id, 5], MAP['a', DATE '2020-03-01'], TIMESTAMP '2020-01-01 10:20:00').t, "
        "described(ARRAY[id, 5], MAP['a', DATE '2020-03-01'], TIMESTAMP '2020-01-01 10:20:00').n FROM n WHERE id = 1"
    )
    assert collected(tables, query) == [("01.03. 10:20", 6)]


def test_a_table_function_is_joined(tables):
    query = "SELECT id, word, size FROM n, LATERAL TABLE(words(text)) AS w(word, size)"
    assert collected(tables, query) == [(1, "a", 1), (1, "bc", 2), (2, "def", 3)]
    query = "SELECT id, word FROM n LEFT JOIN LATERAL TABLE(words(text)) AS w(word, size) ON TRUE WHERE id > 1"
    assert list(map(tuple, tables.execute_sql(query).collect())) == [(2, "def"), (3, None)]
    query = "SELECT id, k FROM n, LATERAL TABLE(numbers_up_to(id)) AS w(k)"
    assert collected(tables, query) == [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


def test_an_aggregate_function_is_updated_and_retracted(tables):
    assert final(tables, "SELECT mean(id, 2), longest(text) FROM n") == [(2.0, "a bc")]
    inner = "SELECT MOD(id, 2) k, COUNT(*) c FROM n GROUP BY MOD(id, 2)"
    assert final(tables, f"SELECT mean(c, CAST(1 AS BIGINT)) FROM ({inner})") == [(1.5,)]


def test_an_aggregate_function_without_retract_is_refused_over_updates(tables):
    inner = "SELECT CAST(COUNT(*) AS STRING) c FROM n GROUP BY MOD(id, 2)"
    with pytest.raises(InvalidJob, match=r"the aggregate longest over a table with updates") as error:
        tables.execute_sql(f"SELECT longest(c) FROM ({inner})")
    assert "retract()" in error.value.remedy


def test_the_planner_checks_the_types_of_arguments(tables):
    with pytest.raises(SqlError, match="Data type BIGINT expected but VARCHAR"):
        tables.execute_sql("SELECT doubled(text) FROM n")
    with pytest.raises(SqlError, match="Supported signatures are"):
        tables.execute_sql("SELECT doubled(id, id) FROM n")


def test_a_result_of_another_type_is_an_error_that_names_the_object(tables):
    tables.create_temporary_system_function("wrong", udf(lambda x: "text", result_type="INT"))
    with pytest.raises(PenstockError, match="'text' is not a value of the type INTEGER"):
        list(tables.execute_sql("SELECT wrong(id) FROM n").collect())
    assert tables.drop_temporary_system_function("wrong")
    assert not tables.drop_temporary_system_function("wrong")
    with pytest.raises(SqlError, match="wrong"):
        tables.execute_sql("SELECT wrong(id) FROM n")


def test_a_statement_registers_a_function_by_its_place(tables):
    place = f"{__name__}.doubled"
    tables.execute_sql(f"CREATE TEMPORARY SYSTEM FUNCTION twice AS '{place}' LANGUAGE PYTHON")
    assert collected(tables, "SELECT twice(id) FROM n WHERE id = 2") == [(4,)]
    assert "twice" in tables.list_user_defined_functions()
    with pytest.raises(InvalidJob, match="cannot be imported"):
        tables.execute_sql("CREATE TEMPORARY FUNCTION other AS 'no_such_module.f' LANGUAGE PYTHON")


def test_a_plan_with_a_function_needs_the_function_in_the_session(flink, tables, tmp_path):
    tables.execute_sql("CREATE TABLE nothing (n BIGINT) WITH ('connector' = 'blackhole')")
    plan = tables.compile_plan_sql("INSERT INTO nothing SELECT doubled(id) FROM n").as_json_string()
    other = StreamTableEnvironment.create(environment(tmp_path))
    from penstock.table import PlanReference

    with pytest.raises(InvalidJob, match="cannot evaluate doubled"):
        other.load_plan(PlanReference.from_json_string(plan))


def test_python_objects_have_sql_types(tables):
    @udf(
        input_types="INT",
        result_type="ROW<d DECIMAL(5, 2), t TIMESTAMP(3), l TIMESTAMP_LTZ(3), b BYTES, f FLOAT, a ARRAY<DATE>>",
    )
    def all_types(number):
        moment = datetime(2020, 1, 2, 3, 4, 5, 678900)
        return {"d": "1.005", "t": moment, "l": moment, "b": bytearray(b"x"), "f": 0.1, "a": [date(2020, 1, number)]}

    tables.create_temporary_system_function("all_types", all_types)
    ((row,),) = tables.execute_sql("SELECT all_types(id) FROM n WHERE id = 2").collect()
    assert row["d"] == Decimal("1.01")
    assert row["t"] == datetime(2020, 1, 2, 3, 4, 5, 678000)
    assert row["l"].isoformat() == "2020-01-02T03:04:05.678000+00:00"
    assert (row["b"], round(row["f"], 5), row["a"]) == (b"x", 0.1, [date(2020, 1, 2)])
