"""A client with the addresses of several masters, while another master takes over."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from penstock.cli.access.masters import ALONE_S, PATIENCE_S, Masters, split_addresses
from penstock.cli.client import RestClient
from penstock.cli.commands.sessions.remote_run import configured_master
from penstock.cli.errors import MasterUnreachable, RequestFailed, UsageError

NO_LEADER = httpx.Response(
    503, json={"errors": ["no leader"]}, headers={"X-Penstock-Error": "NO_LEADER", "Retry-After": "1"}
)
LEADER_LOST = httpx.Response(503, json={"errors": ["lost"]}, headers={"X-Penstock-Error": "LEADER_LOST"})
OK = httpx.Response(200, json={"status": "RUNNING"})
REFUSED = httpx.ConnectError("refused")
CUT = httpx.ReadError("reset")
LATE = httpx.ReadTimeout("late")


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Answers:
    """Masters with prepared answers. The last answer of a master is repeated."""

    def __init__(self, **answers: list[Any]) -> None:
        self._answers = answers
        self.receivers: list[str] = []
        self.time = Time()
        self.masters = Masters(
            [f"http://{name}" for name in answers], clock=lambda: self.time.now, sleep=self.time.sleep
        )

    def _answer(self, url: str) -> httpx.Response:
        name = url.removeprefix("http://")
        self.receivers.append(name)
        self.time.now += 0.01
        found = self._answers[name].pop(0) if len(self._answers[name]) > 1 else self._answers[name][0]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, httpx.Response)
        return found

    def send(self, *, may_repeat: bool = True) -> httpx.Response:
        return self.masters.send(self._answer, may_repeat=may_repeat)


def test_the_next_master_is_asked_if_one_refuses_the_connection() -> None:
    answers = Answers(a=[REFUSED], b=[OK])
    assert answers.send(may_repeat=False) is OK
    assert answers.send() is OK
    assert answers.receivers == ["a", "b", "b"]


def test_a_standby_without_a_leader_is_asked_again_after_the_time_that_it_names() -> None:
    answers = Answers(a=[NO_LEADER, NO_LEADER, OK], b=[NO_LEADER])
    began = answers.time.now
    assert answers.send() is OK
    assert answers.receivers == ["a", "b", "a", "b", "a"]
    assert 4.0 <= answers.time.now - began < 5.0


def test_a_request_that_may_have_been_executed_is_not_repeated() -> None:
    for answer in (CUT, LATE):
        answers = Answers(a=[answer], b=[OK])
        with pytest.raises(httpx.TransportError):
            answers.send(may_repeat=False)
        assert answers.receivers == ["a"]
    answers = Answers(a=[LEADER_LOST], b=[OK])
    assert answers.send(may_repeat=False) is LEADER_LOST


def test_a_request_that_no_leader_has_executed_is_repeated() -> None:
    answers = Answers(a=[NO_LEADER], b=[OK])
    assert answers.send(may_repeat=False) is OK


def test_a_repeatable_request_goes_to_another_master_if_the_leader_hangs_or_dies() -> None:
    for answer in (CUT, LATE, LEADER_LOST):
        answers = Answers(a=[answer], b=[OK])
        assert answers.send() is OK


def test_wrong_addresses_are_an_error_at_once() -> None:
    answers = Answers(a=[REFUSED], b=[REFUSED])
    began = answers.time.now
    with pytest.raises(httpx.ConnectError):
        answers.send()
    assert answers.receivers == ["a", "b"]
    assert answers.time.now - began < 1


def test_masters_that_have_responded_are_asked_until_the_patience_ends() -> None:
    answers = Answers(a=[OK, REFUSED], b=[REFUSED])
    answers.send()
    began = answers.time.now
    with pytest.raises(httpx.ConnectError):
        answers.send()
    assert PATIENCE_S <= answers.time.now - began < PATIENCE_S + 2
    answers = Answers(a=[NO_LEADER], b=[NO_LEADER])
    began = answers.time.now
    assert answers.send() is NO_LEADER
    assert PATIENCE_S <= answers.time.now - began < PATIENCE_S + 2


def test_a_single_address_rides_through_a_short_interruption_and_reports_a_hang() -> None:
    answers = Answers(a=[OK, REFUSED, CUT, OK])
    answers.send()
    assert answers.send() is OK
    answers = Answers(a=[OK, REFUSED])
    answers.send()
    began = answers.time.now
    with pytest.raises(httpx.ConnectError):
        answers.send()
    assert ALONE_S <= answers.time.now - began < ALONE_S + 1
    answers = Answers(a=[OK, LATE, OK])
    answers.send()
    with pytest.raises(httpx.ReadTimeout):
        answers.send()


def test_a_cluster_that_shuts_down_is_not_asked_again() -> None:
    answers = Answers(a=[OK, REFUSED], b=[REFUSED])
    answers.send()
    answers.masters.is_ending = True
    with pytest.raises(httpx.ConnectError):
        answers.send()
    assert answers.receivers == ["a", "a"]


@pytest.mark.parametrize("text", ["", " , ", ",".join(f"h{n}" for n in range(17))])
def test_a_list_without_addresses_or_with_too_many_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="addresses"):
        split_addresses(text)


def test_actions_carry_a_trigger_id_that_stays_the_same_when_they_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    seen: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        content = json.loads(request.content) if request.content else {}
        trigger = content.get("triggerId") or request.url.params.get("triggerId")
        seen.append((request.url.host, trigger))
        if len(seen) < 3:
            return NO_LEADER
        return httpx.Response(202, json={"request-id": trigger})

    for action in (
        lambda client: client.savepoint("j", None),
        lambda client: client.checkpoint("j"),
        lambda client: client.stop("j", None),
        lambda client: client.rescale("j", 3),
        lambda client: client.dispose("s3://b/x"),
    ):
        seen.clear()
        path = action(RestClient("http://a:1,http://b:2", transport=httpx.MockTransport(answer)))
        assert [host for host, _ in seen] == ["a", "b", "a"]
        assert {trigger for _, trigger in seen} == {path.rsplit("/", 1)[-1]}
        assert len(path.rsplit("/", 1)[-1]) == 32


def test_a_program_is_sent_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hosts: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return LEADER_LOST

    client = RestClient("http://a:1,http://b:2", transport=httpx.MockTransport(answer))
    with pytest.raises(RequestFailed, match="lost"):
        client.run_program("p.py", {})
    assert hosts == ["a"]


def test_an_address_may_have_a_path_and_errors_name_all_addresses() -> None:
    urls: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        urls.append(str(request.url))
        raise httpx.ConnectError("refused", request=request)

    client = RestClient("a:1/penstock/,https://b:2/", transport=httpx.MockTransport(answer))
    with pytest.raises(MasterUnreachable, match="http://a:1/penstock,https://b:2"):
        client.state("j")
    assert urls == ["http://a:1/penstock/jobs/j/status", "https://b:2/jobs/j/status"]


def test_the_configuration_may_name_several_masters(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "penstock.yaml").write_text("rest.address: a, https://b:444\nrest.port: 8082\n")
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    found = configured_master({})
    assert found == "a:8082,https://b:444"
