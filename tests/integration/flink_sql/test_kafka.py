"""Kafka tables on a real broker, planned by Flink's planner."""

from __future__ import annotations

import pytest

from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.table import TableEnvironment
from penstock.table.client.client_session import ClientSession
from tests.in_process import InProcess, environment
from tests.integration.kafka.support import fill, new_name, read, topic

pytestmark = [pytest.mark.sql, pytest.mark.kafka]


@pytest.fixture
def session(flink, tmp_path):
    created = ClientSession(TableEnvironment(environment(tmp_path)))
    with executing_on(Session(InProcess())):
        yield created
    created.close()


def table(name, kafka, topic, columns, **options):
    given = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": kafka.bootstrap_servers,
        "properties.group.id": new_name("group"),
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "json",
        **options,
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items() if value)
    return f"CREATE TABLE {name} ({columns}) WITH ({listed})"


def rows(result):
    return sorted(tuple(row) for row in result.collect())


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_rows_of_a_query_are_written_to_a_topic_and_read_again(session, kafka, format, guarantee):
    name = topic(kafka, partitions=2)
    sink = {"sink.delivery-guarantee": guarantee, "format": format}
    if guarantee == "exactly-once":
        sink["sink.transactional-id-prefix"] = name
    session.execute(table("messages", kafka, name, "n INT, v STRING, price DECIMAL(10, 2)", **sink))
    session.execute(
        "INSERT INTO messages VALUES (1, 'a', 1.5), (2, 'b;\"c', 2.25), (3, CAST(NULL AS STRING), 0)"
    ).wait()
    assert len(read(kafka.bootstrap_servers, name, committed=True)) == 3
    found = {row[0]: (row[1], str(row[2])) for row in rows(session.execute("SELECT * FROM messages"))}
    assert found == {1: ("a", "1.50"), 2: ('b;"c', "2.25"), 3: (None, "0.00")}


def test_messages_of_other_producers_are_aggregated_and_broken_ones_skipped(session, kafka):
    name = topic(kafka, partitions=3)
    fill(kafka.bootstrap_servers, name, [{"n": n, "v": n % 3, "other": [1]} for n in range(30)] + [b"{broken"], 3)
    session.execute(table("messages", kafka, name, "n INT, v INT", **{"json.ignore-parse-errors": "true"}))
    result = session.execute("SELECT v, COUNT(*), SUM(n) FROM messages WHERE v IS NOT NULL GROUP BY v")
    last = {row[0]: (row[1], row[2]) for row in result.collect() if str(row.get_row_kind()) in ("+I", "+U")}
    assert last == {v: (10, sum(range(v, 30, 3))) for v in range(3)}
