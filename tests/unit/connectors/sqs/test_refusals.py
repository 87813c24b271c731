"""Requests that SQS refuses partly, temporarily or permanently, and the ids of messages."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import SinkError, SourceError
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.core import aws
from penstock.connectors.core.aws import AwsTarget
from penstock.connectors.core.sink import WriterContext
from penstock.connectors.sqs.client import Queue
from penstock.connectors.sqs.receiver import Receiver
from penstock.connectors.sqs.seen_ids import SeenIds
from penstock.datastream.connectors.sqs import SqsSink

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/orders"


def refusal(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Operation")


class Service:
    """A fake service that returns the given answers in order, and then accepts everything."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []
        self.requests = 0
        self.waiting: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.hidden: Counter[str] = Counter()

    def _next(self) -> Any:
        self.requests += 1
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send_message_batch(self, **request: Any) -> Any:
        answer = self._next()
        failed = {entry["Id"] for entry in answer.get("Failed", ())}
        taken = [entry for entry in request["Entries"] if entry["Id"] not in failed]
        self.sent += [entry["MessageBody"] for entry in taken]
        return {"Successful": [{"Id": entry["Id"]} for entry in taken], **answer}

    def receive_message(self, **_: Any) -> Any:
        found, self.waiting = self.waiting[:10], self.waiting[10:]
        if not found:
            time.sleep(0.01)
        return {"Messages": found}

    def delete_message_batch(self, **request: Any) -> Any:
        answer = self._next()
        self.deleted += [entry["ReceiptHandle"] for entry in request["Entries"]]
        return answer

    def change_message_visibility_batch(self, **request: Any) -> Any:
        for entry in request["Entries"]:
            self.hidden[f"{entry['ReceiptHandle']} {entry['VisibilityTimeout']}"] += 1
        return {}

    def get_queue_attributes(self, **_: Any) -> Any:
        return {"Attributes": {"ApproximateNumberOfMessages": "7"}}


@pytest.fixture
def using(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(service: Service) -> Service:
        monkeypatch.setattr(AwsTarget, "client", lambda *_, **__: service)
        return service

    return use


def written(*values: str, patience: int = 5_000) -> None:
    writer = SqsSink(URL, SimpleStringSchema(), patience=patience).create_writer(
        WriterContext(0, 1, 0, "out", "job"), []
    )
    try:
        writer.write(list(values), None, 0)
        writer.prepare_commit(1)
    finally:
        writer.close()


def test_only_records_that_were_not_accepted_are_sent_again(using: Any) -> None:
    throttled = {"Failed": [{"Id": "1", "SenderFault": False, "Message": "later"}, {"Id": "2", "SenderFault": False}]}
    again = {"Failed": [{"Id": "2", "SenderFault": False}]}
    service = using(Service(refusal("RequestThrottled"), throttled, again))
    written("a", "b", "c", "d")
    assert sorted(service.sent) == ["a", "b", "c", "d"]
    assert service.requests == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal("AWS.SimpleQueueService.NonExistentQueue"), "it does not exist"),
        (refusal("AccessDeniedException"), "a right is missing"),
        (refusal("InvalidClientTokenId"), "the credentials are refused"),
        (refusal("ExpiredToken"), "the credentials are refused"),
        (refusal("SomethingNew"), "SomethingNew"),
        (
            {"Failed": [{"Id": "0", "SenderFault": True, "Code": "InvalidMessageContents"}]},
            "rejects a message: InvalidMess",
        ),
    ],
)
def test_a_permanent_error_fails_at_once(using: Any, answer: Any, message: str) -> None:
    service = using(Service(answer))
    with pytest.raises(SinkError, match=message):
        written("a")
    assert service.requests == 1


def test_a_lost_service_is_retried_for_the_configured_time(using: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "_LONGEST_PAUSE_S", 0.05)
    away = [EndpointConnectionError(endpoint_url=URL) for _ in range(1000)]
    service = using(Service(*away))
    with pytest.raises(SinkError, match="does not accept records: EndpointConnectionError"):
        written("a", patience=300)
    assert service.requests > 3
    service = using(Service(*away[:3], refusal("ServiceUnavailable", 503)))
    written("a")
    assert service.sent == ["a"]


def received(service: Service, count: int, **options: Any) -> tuple[Receiver, list[str]]:
    service.waiting = [{"MessageId": f"id{n}", "ReceiptHandle": f"h{n}", "Body": str(n)} for n in range(count)]
    receiver = Receiver(Queue(URL), "test", **{"hidden_s": 60, "threads": 4, "most_under_way": 1000, **options})
    found: list[str] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += [message.handle for message in receiver.take(100, 1 << 20)]
        time.sleep(0.005)
    return receiver, found


def taken_until_it_fails(receiver: Receiver) -> None:
    while True:
        receiver.take(1, 1)
        time.sleep(0.01)


def test_refused_deletions_are_retried_except_those_of_deleted_messages(using: Any) -> None:
    gone = {"Failed": [{"Id": "0", "Code": "ReceiptHandleIsInvalid"}]}
    service = using(Service(gone, refusal("InternalError", 500), {}))
    receiver, handles = received(service, 15)
    receiver.delete(handles, 4)
    until = time.monotonic() + 10
    confirmed = None
    while confirmed is None and time.monotonic() < until:
        confirmed = receiver.confirmed()
        time.sleep(0.01)
    assert confirmed == 4
    assert sorted(service.deleted) == sorted(handles)
    receiver.close()
    assert not service.hidden
    service = using(Service({"Failed": [{"Id": "0", "Code": "Strange", "Message": "why"}]}))
    receiver, handles = received(service, 1)
    receiver.delete(handles, 1)
    with pytest.raises(SourceError, match="does not delete a message: Strange: why"):
        taken_until_it_fails(receiver)
    receiver.close()


def test_received_messages_are_renewed_and_released_at_the_end(using: Any) -> None:
    service = using(Service())
    receiver, handles = received(service, 12, hidden_s=1)
    time.sleep(1.2)
    assert all(service.hidden[f"{handle} 1"] >= 2 for handle in handles)
    assert receiver.lag == 7
    receiver.close()
    assert all(service.hidden[f"{handle} 0"] == 1 for handle in handles)


@given(st.lists(st.tuples(st.sampled_from("anddcs"), st.integers(0, 30)), max_size=60))
def test_an_id_is_known_from_its_first_message_until_some_time_after_its_deletion(
    steps: list[tuple[str, int]],
) -> None:
    """The result is compared with a dict of ids and the times at which they may be forgotten."""
    seen, known = SeenIds("", 5.0, 100.0, 0.0), dict[str, float]()
    pending: dict[int, list[str]] = {}
    now, checkpoint, since = 0.0, 0, list[str]()
    for step, number in steps:
        if step in "an":
            id = f"m{number}"
            assert seen.add(id) == (id not in known)
            known[id] = float("inf")
            since.append(id)
        elif step == "c":
            checkpoint += 1
            seen.snapshot(checkpoint)
            pending[checkpoint], since = since, []
        elif step == "d" and checkpoint:
            seen.acknowledged(checkpoint, now)
            stored = {*since}
            for ids in pending.values():
                for id in ids:
                    if id not in stored:
                        known[id] = now + 5.0
            pending = {}
        else:
            now += number / 5
            seen.forget(now)
            known = {id: at for id, at in known.items() if at > now}
    assert len(seen) == len(known)
    later = SeenIds(seen.position, 5.0, 100.0, now)
    assert len(later) == len(known)
