"""Flink's SQL gateway with Flink's planner, over HTTP."""

from __future__ import annotations

import subprocess
import sys
import time

import httpx
import pytest

pytestmark = pytest.mark.sql


@pytest.fixture
def url(flink):
    command = [sys.executable, "-m", "penstock.cli", "sql-gateway", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()


def result(http, session, statement):
    operation = http.post(f"{session}/statements", json={"statement": statement}).json()["operationHandle"]
    uri, rows = f"{session}/operations/{operation}/result/0?rowFormat=JSON", []
    while uri:
        answer = http.get(uri)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        if page["resultType"] == "NOT_READY":
            time.sleep(0.1)
        rows += page.get("results", {}).get("data", [])
        uri = page["nextResultUri"]
    return rows, page["results"]["columns"]


def test_a_client_creates_a_table_and_fetches_a_query(url):
    with httpx.Client(base_url=url, timeout=120) as http:
        session = f"/v2/sessions/{http.post('/v2/sessions', json={'properties': {'parallelism.default': '1'}}).json()['sessionHandle']}"
        table = (
            "CREATE TABLE few (n BIGINT, price AS CAST(n AS DECIMAL(5, 2)), ts AS TO_TIMESTAMP_LTZ(n, 0)) WITH ('connector' = 'datagen', "
            "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '2')"
        )
        assert result(http, session, table)[0] == [{"kind": "INSERT", "fields": ["OK"]}]
        rows, columns = result(http, session, "SELECT * FROM few")
        assert [row["fields"] for row in rows] == [[1, 1.0, "1970-01-01T00:00:01Z"], [2, 2.0, "1970-01-01T00:00:02Z"]]
        types = [column["logicalType"] for column in columns]
        assert [type["type"] for type in types] == ["BIGINT", "DECIMAL", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"]
        assert (types[1]["precision"], types[1]["scale"]) == (5, 2)
        assert http.delete(session).json() == {"status": "CLOSED"}
