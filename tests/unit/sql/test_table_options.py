"""Options of tables that a program reads and writes."""

from __future__ import annotations

import pytest

from penstock.common.errors import InvalidJob
from penstock.datastream import StreamExecutionEnvironment
from penstock.sql.plan.nodes import Column, TableInfo
from penstock.sql.plan.types import type_of
from penstock.sql.tables.connectors import read_table, write_table

KAFKA = {
    "connector": "kafka",
    "topic": "t",
    "format": "json",
    "properties.bootstrap.servers": "localhost:9092",
    "properties.group.id": "g",
}


def table(**options: str) -> TableInfo:
    return TableInfo("messages", (Column("n", type_of("INT")),), {**KAFKA, **options})


def test_a_table_has_options_of_both_directions():
    env = StreamExecutionEnvironment.get_execution_environment()
    both = {
        "scan.startup.mode": "earliest-offset",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": "t",
    }
    write_table(read_table(env, table(**both)), table(**both), changelog=False)


@pytest.mark.parametrize("name", ["scan.startup.modus", "properties"])
def test_an_unknown_option_of_a_source_is_refused(name):
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match=f"the option '{name}' is not supported"):
        read_table(env, table(**{"scan.startup.mode": "earliest-offset", name: "x"}))


def test_an_unknown_option_of_a_sink_is_refused():
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = read_table(env, table(**{"scan.startup.mode": "earliest-offset"}))
    with pytest.raises(InvalidJob, match=r"the option 'sink\.guarantee' is not supported"):
        write_table(rows, table(**{"sink.guarantee": "none"}), changelog=False)


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("properties.auto.offset.reset", "soon", "is not supported"),
        ("json.fail-on-missing-field", "maybe", "is not true or false"),
        ("json.timestamp-format.standard", "iso", "is not supported"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_option(option, value, found):
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match=f"'{option}' = '{value}' {found}"):
        read_table(env, table(**{option: value}))


def test_a_time_that_is_no_integer_is_refused():
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match="is not an integer"):
        read_table(env, table(**{"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "now"}))


def test_a_missing_field_cannot_be_an_error_and_ignored():
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match="are both true"):
        read_table(env, table(**{"json.fail-on-missing-field": "true", "json.ignore-parse-errors": "true"}))
