"""The record of a session gives the planner's answers again, without the values of secret options."""

from __future__ import annotations

import json

from penstock.sql.planner.record import MAX_BYTES, PlanRecord

CREATE = {
    "action": "sql",
    "sql": "CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'properties.sasl.password' = 'it''s hidden')",
}
INSERT = {"action": "sql", "sql": "INSERT INTO t SELECT 1"}
DONE = {"kind": "rows", "names": ["result"], "rows": [["OK"]]}


def planned(password: str = "it's hidden") -> dict[str, object]:
    options = {"connector": "kafka", "properties.sasl.password": password}
    return {"kind": "insert", "plan": json.dumps({"nodes": [{"options": options}]})}


def recorded() -> dict[str, object]:
    record = PlanRecord()
    for request, answer in ((CREATE, DONE), (INSERT, planned())):
        assert record.answer(request) is None
        record.add(request, answer)
    stored: dict[str, object] = json.loads(json.dumps(record.stored()))
    return stored


def test_the_same_requests_have_the_recorded_answers():
    record = PlanRecord(recorded)
    assert record.answer(CREATE) == DONE
    answer = record.answer(INSERT)
    assert answer is not None
    assert json.loads(answer["plan"]) == json.loads(str(planned()["plan"]))
    assert record.repeated == [CREATE], "a planner that starts later needs the table and not the INSERT"
    assert json.loads(json.dumps(record.stored())) == recorded(), "the next manifest has the answers too"


def test_a_request_after_another_one_has_no_answer():
    record = PlanRecord(recorded)
    assert record.answer(INSERT) is None
    other = {**CREATE, "sql": CREATE["sql"].replace("INT", "BIGINT")}
    assert PlanRecord(recorded).answer(other) is None


def test_a_secret_is_not_stored_and_its_current_value_is_used():
    assert "hidden" not in json.dumps(recorded())
    record = PlanRecord(recorded)
    record.answer({**CREATE, "sql": CREATE["sql"].replace("it''s hidden", "new")})
    answer = record.answer(INSERT)
    assert answer is not None
    assert json.loads(answer["plan"]) == json.loads(str(planned("new")["plan"]))


def test_an_answer_whose_secret_is_in_no_statement_is_not_stored():
    record = PlanRecord()
    record.add(INSERT, planned("from another place"))
    assert record.stored() == {}


def test_equal_secrets_that_differ_later_are_planned_again():
    both = {**CREATE, "sql": CREATE["sql"] + " -- 'other.password' = 'it''s hidden'"}
    record = PlanRecord()
    record.add(both, DONE)
    record.add(INSERT, planned())
    stored = record.stored()
    again = PlanRecord(lambda: stored)
    again.answer({**both, "sql": both["sql"].replace("it''s hidden", "new", 1)})
    assert again.answer(INSERT) is None


def test_a_password_in_a_url_is_not_stored():
    url = {"action": "sql", "sql": "CREATE TABLE t (n INT) WITH ('url' = 'amqp://user:hidden@host/')"}
    record = PlanRecord()
    record.add(url, DONE)
    record.add(INSERT, {"kind": "insert", "plan": json.dumps({"url": "amqp://user:hidden@host/"})})
    assert "hidden" not in json.dumps(record.stored())
    assert len(record.stored()) == 2


HINT = {"action": "sql", "sql": "INSERT INTO t SELECT n FROM t /*+ OPTIONS('other.password' = 'it''s unseen') */"}


def hinted(password: str = "it's unseen") -> dict[str, object]:
    scan = {
        "description": f"TableSourceScan(table=[[t]], hints=[[[OPTIONS options:{{other.password={password}}}]]])",
        "options": {"other.password": password},
    }
    return {"kind": "insert", "plan": json.dumps({"nodes": [scan]})}


def test_the_description_of_a_table_with_a_secret_hint_does_not_show_the_secret():
    record = PlanRecord()
    record.add(CREATE, DONE)
    record.add(HINT, hinted())
    stored = record.stored()
    assert "unseen" not in json.dumps(stored)
    again = PlanRecord(lambda: stored)
    again.answer(CREATE)
    answer = again.answer({**HINT, "sql": HINT["sql"].replace("it''s unseen", "new")})
    assert answer is not None, "the statement itself has the current secret"
    assert json.loads(answer["plan"])["nodes"][0]["options"] == {"other.password": "new"}


def test_texts_that_show_a_secret_are_not_stored():
    record = PlanRecord()
    record.add(CREATE, DONE)
    shown = "CREATE TABLE `t` (n INT) WITH (\n  'properties.sasl.password' = 'it''s hidden'\n)"
    record.add({"action": "sql", "sql": "SHOW CREATE TABLE t"}, {**DONE, "rows": [[shown]]})
    explained = "Scan(hints=[[[OPTIONS options:{properties.sasl.password=it's hidden}]]])"
    record.add({"action": "explain", "sql": "SELECT 1"}, {"kind": "explained", "text": explained})
    record.add(INSERT, planned())
    assert "hidden" not in json.dumps(record.stored())
    assert len(record.stored()) == 2


def test_a_foreign_record_is_not_used():
    (first, second) = recorded()
    for answer in ("text", {"plan": {}}, {"kind": "insert", "plan": {"password": "$literal:7:0"}}):
        record = PlanRecord(lambda answer=answer: {first: DONE, second: answer})
        record.answer(CREATE)
        assert record.answer(INSERT) is None


def test_a_record_that_is_too_large_is_not_stored():
    record = PlanRecord()
    record.add(CREATE, {**DONE, "rows": [["x" * MAX_BYTES]]})
    assert record.stored() == {}
