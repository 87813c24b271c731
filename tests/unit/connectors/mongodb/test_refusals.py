"""Refusals that are retried, and the errors for the others. The fake server answers like MongoDB's documentation."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, ServerSelectionTimeoutError

from penstock.common.errors import InvalidJob, SinkError
from penstock.connectors.core import bulk as module
from penstock.connectors.mongodb.bulk import MongoBulk
from penstock.connectors.mongodb.client import Server, is_passing
from penstock.connectors.mongodb.operations import Writes

WRITES = [Writes(None, ()).of({"_id": n})[0] for n in range(3)]


def errors_of(*errors: dict[str, Any], concern: dict[str, Any] | None = None) -> BulkWriteError:
    return BulkWriteError({"writeErrors": list(errors), "writeConcernErrors": [concern] if concern else []})


class Collection:
    """A fake collection that returns the given answers in order, and records the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.bulks: list[list[Any]] = []

    def __getitem__(self, name: str) -> Collection:
        return self

    def bulk_write(self, requests: list[Any], ordered: bool) -> None:
        assert not ordered
        self.bulks.append([request._filter["_id"] for request in requests])
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer

    def close(self) -> None: ...


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.001)

    def send(*answers: Any, patience: float = 30.0) -> Collection:
        bulk = MongoBulk(Server("mongodb://db/"), "d", "c", patience)
        found = Collection(*answers)
        bulk._client = found
        bulk.send(WRITES)
        return found

    return send


def test_a_bulk_without_a_response_is_sent_again_completely(sent: Any) -> None:
    assert sent(AutoReconnect("connection closed")).bulks == [[0, 1, 2], [0, 1, 2]]


def test_only_writes_with_temporary_errors_are_sent_again(sent: Any) -> None:
    steps_down = {"index": 1, "code": 11602, "errmsg": "operation was interrupted"}
    assert sent(errors_of(steps_down)).bulks == [[0, 1, 2], [1]]


def test_writes_without_a_majority_are_sent_again(sent: Any) -> None:
    concern = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out"}
    assert sent(errors_of(concern=concern)).bulks == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(SinkError, match=r"Not enough data-bearing nodes \(UnsatisfiableWriteConcern\)"):
        sent(
            errors_of(
                concern={
                    "code": 100,
                    "codeName": "UnsatisfiableWriteConcern",
                    "errmsg": "Not enough data-bearing nodes",
                }
            )
        )


def test_concurrent_upserts_of_a_document_both_succeed(sent: Any) -> None:
    duplicate = {"index": 2, "code": 11000, "errmsg": "E11000 duplicate key error collection: d.c index: _id_"}
    assert sent(errors_of(duplicate)).bulks == [[0, 1, 2], [2]]
    again = errors_of({**duplicate, "index": 0})
    with pytest.raises(SinkError, match=r"document \{_id: 2\} of d.c is rejected: E11000"):
        sent(errors_of(duplicate), *[again] * 10)


def test_a_refusal_of_a_validator_is_reported_with_its_reason(sent: Any) -> None:
    refused = {
        "index": 1,
        "code": 121,
        "errmsg": "Document failed validation",
        "errInfo": {"failingDocumentId": 1, "details": {"operatorName": "$jsonSchema"}},
    }
    with pytest.raises(
        SinkError, match=r"\{_id: 1\} of d.c is rejected: Document failed validation .*jsonSchema"
    ) as error:
        sent(errors_of(refused))
    assert "validator" in error.value.remedy


def test_retries_end_after_the_patience(sent: Any) -> None:
    lost = AutoReconnect("connection closed")
    with pytest.raises(SinkError, match="connection closed"):
        sent(*[lost] * 50, patience=0.01)


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (ServerSelectionTimeoutError("No primary available"), True),
        (ServerSelectionTimeoutError("SSL handshake failed: CERTIFICATE_VERIFY_FAILED"), False),
        (OperationFailure("not primary", 10107), True),
        (OperationFailure("shutting down", 91), True),
        (OperationFailure("full", 14031), True),
        (OperationFailure("Authentication failed.", 18), False),
        (OperationFailure("not authorized", 13), False),
        (OperationFailure("unknown operator", 2), False),
        (OperationFailure("odd", 1, {"errorLabels": ["RetryableWriteError"]}), True),
        (ConnectionRefusedError(), True),
        (ValueError("strange"), False),
    ],
)
def test_temporary_errors_are_recognized(error: Exception, passing: bool) -> None:
    assert is_passing(error) is passing


@pytest.mark.parametrize(
    ("url", "shown", "user"),
    [
        ("mongodb://job:secret@db-1:27017,db-2/?replicaSet=rs0", "MongoDB db-1:27017,db-2", "job"),
        ("mongodb://db", "MongoDB db", ""),
        ("mongodb://job:a/secret?x@db", "MongoDB db", "job"),
        ("mongodb+srv://job@cluster.example.net/admin", "MongoDB cluster.example.net", "job"),
    ],
)
def test_a_server_is_shown_without_its_password(url: str, shown: str, user: str) -> None:
    server = Server(url)
    assert (server.shown, server.user) == (shown, user)
    assert "secret" not in repr(server)


def test_settings_in_the_url_override_the_defaults() -> None:
    options = Server("mongodb://db/?W=1&sockettimeoutms=5").options(SinkError)
    assert options.keys() == {"serverSelectionTimeoutMS", "connectTimeoutMS", "appName"}
    assert Server("mongodb://db/?appName=w").options(SinkError)["w"] == "majority"


def test_invalid_urls_are_refused_without_the_password() -> None:
    with pytest.raises(InvalidJob, match="is invalid"):
        Server("http://db/")
    with pytest.raises(InvalidJob, match="is invalid") as error:
        Server("mongodb://job:se:cret@db/").connect(SinkError)
    assert "cret" not in str(error.value)
