"""The Table API gives the same results as the same queries in SQL."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import Types
from penstock.common.types import Row, RowKind
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.sql.planner.process import SqlError
from penstock.table import DataTypes, Schema, Slide, StreamTableEnvironment, Table, TableDescriptor, Tumble
from penstock.table.expressions import array, call, coalesce, col, concat, if_then_else, lit, map_, row
from penstock.table.udf import udf, udtf
from tests.in_process import InProcess, environment

pytestmark = pytest.mark.sql


@pytest.fixture(scope="module")
def tables(flink, tmp_path_factory):
    created = StreamTableEnvironment.create(
        environment(tmp_path_factory.mktemp("job"), **{"restart-strategy.type": "none"}).set_parallelism(1)
    )
    created.execute_sql(
        "CREATE VIEW people AS SELECT * FROM (VALUES (1, 'ann', 'x'), (2, 'bob', 'y'), (3, 'cid', 'x')) t(id, name, town)"
    )
    with executing_on(Session(InProcess())):
        yield created


@pytest.fixture
def people(tables):
    return tables.from_path("people")


def rows(table: Table) -> list[tuple[Any, ...]]:
    """Return the rows that remain after all changes."""
    return sorted(tuple(found.values()) for found in table.to_arrow().to_pylist())


def test_columns_are_selected_computed_and_renamed(people):
    assert rows(people.select(col("name"), (col("id") * 2 + 1).alias("n")).where(col("n") > 3)) == [
        ("bob", 5),
        ("cid", 7),
    ]
    changed = people.rename_columns(col("id").alias("n")).drop_columns("town").add_columns(lit("é").alias("new"))
    assert changed.get_column_names() == ["n", "name", "new"]
    changed = people.add_or_replace_columns(concat(col("name"), "!").alias("name"), (col("id") % 2).alias("odd"))
    assert rows(changed.select("name", "odd"))[0] == ("ann!", 1)
    assert people.alias("a", "b").get_column_names() == ["a", "b", "town"]


def test_expressions_are_combined(people):
    found = people.select(
        if_then_else((col("id") >= 2) & ~(col("name") == "cid"), "yes", "no"),
        coalesce(None, col("town").upper_case),
        col("name").substring(2, 1),
        array(col("id"), 7).at(2),
        map_("k", col("id")).at("k"),
        row(col("id"), "z").cast(DataTypes.ROW([("f", DataTypes.INT()), ("g", DataTypes.STRING())])).get("g"),
        col("id").in_(1, 3),
        lit(date(2020, 1, 31)) + lit(1).month,
        lit(datetime(2020, 1, 1)) - timedelta(hours=1),
        (col("id") / 2.0).cast("DECIMAL(4, 1)"),
        call("CHAR_LENGTH", col("name")),
    )
    assert rows(found)[-1] == (
        "yes", "Y", "o", 7, 2, "z", False, date(2020, 2, 29), datetime(2019, 12, 31, 23), Decimal("1.0"), 3
    )  # fmt: skip


def test_groups_are_aggregated(people):
    found = people.group_by(col("town")).select(col("town"), col("id").sum.alias("s"), col("name").count.distinct)
    assert rows(found) == [("x", 4, 2), ("y", 2, 1)]
    assert rows(people.select(col("id").max, lit(1).count)) == [(3, 3)]
    assert rows(people.select("town").distinct()) == [("x",), ("y",)]


def test_tables_are_combined(tables, people):
    towns = tables.sql_query("SELECT * FROM (VALUES ('x', 'Xanten'), ('z', 'Zug')) t(code, label)")
    assert rows(people.join(towns).where(col("town") == col("code")).select("id", "label")) == [
        (1, "Xanten"),
        (3, "Xanten"),
    ]
    left = people.left_outer_join(towns, col("town") == col("code")).select(col("id"), col("label"))
    assert (2, None) in [tuple(found.values()) for found in left.to_arrow().to_pylist()]
    ids = people.select("id")
    assert rows(ids.union_all(ids.filter(col("id") == 1))) == [(1,), (1,), (2,), (3,)]
    with pytest.raises(InvalidJob, match="both tables have the column id"):
        people.join(people)


def test_python_functions_are_called_without_a_registration(people):
    double = udf(lambda x: x * 2, input_types="INT", result_type="INT")
    letters = udtf(lambda text: iter(text), input_types="STRING", result_types="STRING")
    assert rows(people.select(double(col("id")), call(double, 5)).where(col("EXPR$1") == 10))[0] == (2, 10)
    found = people.join_lateral(letters(col("name")).alias("letter")).where(col("id") == 1).select("letter")
    assert rows(found) == [("a",), ("n",), ("n",)]
    is_vowel = udf(lambda letter: letter in "aeiou", input_types="STRING", result_type="BOOLEAN")
    found = people.join_lateral(letters(col("name")).alias("letter"), is_vowel(col("letter"))).select("letter")
    assert rows(found) == [("a",), ("i",), ("o",)]


def test_windows_become_table_functions(tables):
    stream = tables._env.from_collection(
        [(1, datetime(2020, 1, 1, 0, 0, second)) for second in (1, 4, 9, 12)],
        type_info=Types.TUPLE([Types.INT(), Types.SQL_TIMESTAMP()]),
    )
    schema = (
        Schema.new_builder()
        .column("id", DataTypes.INT())
        .column("ts", DataTypes.TIMESTAMP(3))
        .watermark("ts", col("ts") - lit(1).second)
        .build()
    )
    readings = tables.from_data_stream(stream, schema)
    tumble = readings.window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w")).group_by(col("w"), col("id"))
    found = rows(tumble.select(col("w").start, col("id"), lit(1).count.alias("c")))
    assert found == [(datetime(2020, 1, 1), 1, 3), (datetime(2020, 1, 1, 0, 0, 10), 1, 1)]
    slide = readings.window(Slide.over(lit(10).seconds).every(lit(5).seconds).on(col("ts")).alias("w"))
    assert rows(slide.group_by(col("w")).select(col("w").end, lit(1).count)) == [
        (datetime(2020, 1, 1, 0, 0, 5), 2),
        (datetime(2020, 1, 1, 0, 0, 10), 3),
        (datetime(2020, 1, 1, 0, 0, 15), 2),
        (datetime(2020, 1, 1, 0, 0, 20), 1),
    ]


def test_a_descriptor_creates_a_table(tables):
    schema = Schema.new_builder().column("n", "INT").column_by_expression("twice", col("n") * 2).build()
    descriptor = TableDescriptor.for_connector("datagen").schema(schema)
    for key, value in (("kind", "sequence"), ("start", 1), ("end", 3)):
        descriptor.option(f"fields.n.{key}", value)
    assert rows(tables.from_descriptor(descriptor.build())) == [(1, 2), (2, 4), (3, 6)]
    tables.create_temporary_table("described", descriptor.build())
    assert "described" in tables.list_tables()
    assert tables.drop_temporary_table("described")
    assert not tables.drop_temporary_table("described")
    with pytest.raises(InvalidJob, match="the table has no schema"):
        TableDescriptor.for_connector("print").build()


def test_a_stream_of_rows_becomes_a_table_by_its_type(tables):
    info = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())])
    stream = tables._env.from_collection([Row(a=1, b=["x"]), Row(a=2, b=None)], type_info=info)
    tables.create_temporary_view("given", stream)
    assert rows(tables.sql_query("SELECT a, CARDINALITY(b) FROM given WHERE a > 1")) == [(2, None)]
    assert tables.from_data_stream(stream, "k", "v").get_column_names() == ["k", "v"]
    single = tables._env.from_collection([5, 6], type_info=Types.INT())
    assert rows(tables.from_data_stream(single).select(col("f0") + 1)) == [(6,), (7,)]
    lower = Schema.new_builder().column("f0", "int not null").build()
    assert rows(tables.from_data_stream(single, lower)) == [(5,), (6,)]
    with pytest.raises(InvalidJob, match="the types of the stream's fields are not known"):
        tables.from_data_stream(tables._env.from_collection([{"a": 1}]).map(lambda found: found))


def test_a_changelog_stream_becomes_a_table_and_a_stream(tables):
    info = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    changes = [
        Row.of_kind(RowKind.INSERT, "a", 1),
        Row.of_kind(RowKind.INSERT, "b", 5),
        Row.of_kind(RowKind.UPDATE_BEFORE, "a", 1),
        Row.of_kind(RowKind.UPDATE_AFTER, "a", 2),
        Row.of_kind(RowKind.DELETE, "b", 5),
    ]
    table = tables.from_changelog_stream(tables._env.from_collection(changes, type_info=info))
    assert rows(table) == [("a", 2)]
    assert rows(table.select(col("n").sum)) == [(2,)]
    stream = tables.to_changelog_stream(table.where(col("name") == "b"))
    assert [str(found.get_row_kind()) for found in stream.execute_and_collect()] == ["+I", "-D"]


def test_an_unknown_column_is_an_error_of_the_planner(people):
    with pytest.raises(SqlError, match="Column 'missing' not found"):
        people.select(col("missing")).execute()
    with pytest.raises(InvalidJob, match="the table has no column missing"):
        people.drop_columns("missing")
    with pytest.raises(InvalidJob, match="has no truth value"):
        bool(col("id") == 1 and col("id") == 2)
