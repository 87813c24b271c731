"""Flink's SQL gateway, on sessions without a planner."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient

from penstock.rest.auth import AllowedHosts, TokenFile
from penstock.sql.plan.types import type_of
from penstock.table.gateway import operations, sessions
from penstock.table.gateway.app import create_app
from penstock.table.gateway.sessions import Sessions
from penstock.table.table_result import TableResult
from tests.unit.table.sql_session import Changes, fake_session, row


class Gateway:
    """A client of the gateway, with the session that its last `open` has created."""

    def __init__(self, **options):
        self.sessions = Sessions(self._create)
        self.http = TestClient(
            create_app(self.sessions, **options), base_url="http://localhost", raise_server_exceptions=False
        )

    def _create(self):
        self.client = fake_session()
        self.client.close = lambda: None
        env = self.client.env
        execute = env.execute_sql

        def executed(statement):
            result = execute(statement)
            if result.is_query:
                result = TableResult(
                    ["n", "v"], lambda: env.changes, changelog=True, types=[type_of("INT"), type_of("VARCHAR")]
                )
            return result

        env.execute_sql = executed
        return self.client

    def open(self, **body):
        self.path = f"/v2/sessions/{self.http.post('/v2/sessions', json=body).json()['sessionHandle']}"
        return self.client.env

    def execute(self, statement, **body):
        answer = self.http.post(f"{self.path}/statements", json={"statement": statement, **body})
        assert answer.status_code == 200, answer.text
        return f"{self.path}/operations/{answer.json()['operationHandle']}"

    def pages(self, operation):
        """Follow the pages to the end, and return all rows and the last page with columns."""
        rows, uri, kind = [], f"{operation}/result/0", ""
        while uri:
            answer = self.http.get(uri)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            rows += page.get("results", {}).get("data", [])
            uri, kind = page["nextResultUri"], page["resultType"]
        assert kind == "EOS"
        return rows, page

    def status(self, operation):
        return self.http.get(f"{operation}/status").json()["status"]


@pytest.fixture
def gateway():
    found = Gateway()
    yield found
    found.sessions.close_all()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("prefix", ["", "/v1", "/v2", "/v3"])
def test_information_has_flinks_names(gateway, prefix):
    assert gateway.http.get(f"{prefix}/info").json()["productName"] == "Apache Flink"
    assert "V2" in gateway.http.get(f"{prefix}/api_versions").json()["versions"]


def test_a_query_has_typed_columns_rows_with_kinds_and_an_end(gateway):
    gateway.open().changes = Changes(row(1, "a"), row(Decimal("1.10"), None), endless=False)
    operation = gateway.execute("SELECT n, v FROM numbers;")
    rows, last = gateway.pages(operation)
    assert rows == [{"kind": "INSERT", "fields": [1, "a"]}, {"kind": "INSERT", "fields": [1.1, None]}]
    assert last["isQueryResult"] is True
    assert last["results"]["columns"][1] == {
        "name": "v",
        "logicalType": {"type": "VARCHAR", "nullable": True, "length": 2147483647},
        "comment": None,
    }
    assert gateway.status(operation) == "FINISHED"


def test_a_statement_without_a_job_has_one_page(gateway):
    gateway.open()
    rows, last = gateway.pages(gateway.execute("SHOW TABLES"))
    assert [found["fields"] for found in rows] == [["numbers"], ["order"]]
    assert last["isQueryResult"] is False
    assert gateway.pages(gateway.execute("CREATE TABLE t (n INT)"))[1]["resultKind"] == "SUCCESS"


def test_the_previous_page_is_returned_again_and_others_are_refused(gateway):
    gateway.open()
    operation = gateway.execute("SHOW TABLES")
    until(lambda: gateway.status(operation) == "FINISHED")
    first = gateway.http.get(f"{operation}/result/0").json()
    assert gateway.http.get(f"{operation}/result/0").json() == first
    answer = gateway.http.get(f"{operation}/result/7")
    assert answer.status_code == 500
    assert "has no page 7" in answer.json()["errors"][1]


def test_a_cancelled_query_ends_and_its_results_are_refused(gateway):
    changes = gateway.open().changes = Changes(row(1, "a"))
    operation = gateway.execute("SELECT 1")
    until(lambda: gateway.status(operation) == "FINISHED")
    assert gateway.http.post(f"{operation}/cancel", json={}).json() == {"status": "CANCELED"}
    until(lambda: changes.is_closed)
    assert changes.is_cancelled.is_set()
    assert "is cancelled" in gateway.http.get(f"{operation}/result/0").json()["errors"][1]


def test_an_error_of_the_planner_is_the_error_of_the_operation(gateway):
    gateway.open()
    operation = gateway.execute("SELEC 1")
    until(lambda: gateway.status(operation) == "ERROR")
    answer = gateway.http.get(f"{operation}/result/0")
    assert answer.status_code == 500
    assert "line 1, column 1" in answer.json()["errors"][1]


def test_a_query_waits_for_a_slow_client(gateway, monkeypatch):
    monkeypatch.setattr(operations, "BUFFERED_ROWS", 2)
    monkeypatch.setattr(operations, "PAGE_ROWS", 1)
    changes = gateway.open().changes = Changes(*(row(number, "a") for number in range(9)), endless=False)
    operation = gateway.execute("SELECT 1")
    until(lambda: changes.queue.qsize() == 7)
    time.sleep(0.1)
    assert changes.queue.qsize() == 7  # two rows wait, and the query has the third
    assert len(gateway.pages(operation)[0]) == 9


def test_a_closed_session_and_its_operations_do_not_exist(gateway):
    changes = gateway.open().changes = Changes(row(1, "a"))
    operation = gateway.execute("SELECT 1")
    until(lambda: gateway.status(operation) == "FINISHED")
    assert gateway.http.delete(gateway.path).json() == {"status": "CLOSED"}
    until(lambda: changes.is_closed)
    assert gateway.http.get(f"{operation}/status").status_code == 404
    assert gateway.http.post(f"{gateway.path}/heartbeat").status_code == 404


def test_idle_sessions_are_closed_but_not_those_with_running_queries(gateway, monkeypatch):
    monkeypatch.setattr(sessions, "IDLE_S", 0.05)
    gateway.open()
    idle = gateway.path
    gateway.open().changes = Changes(row(1, "a"))
    busy = gateway.path
    gateway.execute("SELECT 1")
    time.sleep(0.1)
    gateway.sessions.close_idle()
    assert gateway.http.get(idle).status_code == 404
    assert gateway.http.get(busy).status_code == 200


def test_properties_of_the_session_and_of_a_statement_are_options(gateway):
    env = gateway.open(properties={"pipeline.name": "a", "s3.secret-key": "hidden"})
    gateway.pages(gateway.execute("SHOW TABLES", executionConfig={"parallelism.default": "3"}))
    assert env._options["pipeline.name"] == "a"
    assert env._options["parallelism.default"] == "3"
    assert gateway.http.post(f"{gateway.path}/configure-session", json={"statement": "SET 'a.b' = 'c'"}).json() == {}
    properties = gateway.http.get(gateway.path).json()["properties"]
    assert (properties["a.b"], properties["s3.secret-key"]) == ("c", "******")


def test_sessions_and_operations_are_limited(gateway, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_OPERATIONS", 1)
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 1)
    gateway.open()
    operation = gateway.execute("SHOW TABLES")
    assert "close operations" in gateway.http.post(f"{gateway.path}/statements", json={"statement": "SHOW TABLES"}).text
    gateway.http.delete(f"{operation}/close")
    gateway.execute("SHOW TABLES")
    assert "sessions are open" in gateway.http.post("/v2/sessions").text


@pytest.mark.parametrize("body", [{}, {"statement": ""}, {"statement": 1}, []])
def test_a_wrong_body_is_refused_with_the_field(gateway, body):
    gateway.open()
    answer = gateway.http.post(f"{gateway.path}/statements", json=body)
    assert answer.status_code == 400
    assert "body" in answer.json()["errors"][0]


def test_a_gateway_with_a_token_requires_it(tmp_path):
    (tmp_path / "token").write_text("secret")
    http = Gateway(token=TokenFile(str(tmp_path / "token"))).http
    assert http.post("/v2/sessions").status_code == 401
    assert http.get("/v2/info", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_pages_of_other_sites_are_refused():
    http = Gateway(hosts=AllowedHosts(["localhost"])).http
    assert http.post("/v2/sessions", headers={"Origin": "https://evil.example"}).status_code == 403
    assert http.get("/v2/info", headers={"Host": "evil.example"}).status_code == 403
