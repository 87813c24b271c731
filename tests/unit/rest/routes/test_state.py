"""State by key over REST, from the newest checkpoint or live."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from penstock.common.errors import NotNow
from tests.unit.rest.fake_gateway import JOB_ID

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway

URL = f"/jobs/{JOB_ID}/state/total"


def test_the_newest_checkpoint_answers_unless_live_state_is_requested(client: AsgiClient) -> None:
    for url in (f"{URL}?key=a", f"{URL}?key=a&consistency=checkpoint"):
        found = client.get(url).json()
        assert (found["checkpointId"], found["attempt"], found["entries"][0]["value"]) == (3, 0, 7)
    found = client.get(f"{URL}?key=a&consistency=live").json()
    assert (found["checkpointId"], found["attempt"], found["entries"][0]["value"]) == (0, 2, 8)


def test_live_state_is_looked_up_by_single_keys(client: AsgiClient) -> None:
    answer = client.get(f"{URL}?consistency=live")
    assert answer.status_code == 400
    assert "?key=" in answer.text
    assert client.get(f"{URL}?key=a&consistency=soon").status_code == 400


def test_a_temporarily_unanswerable_request_is_503_and_not_logged(
    client: AsgiClient, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*arguments: Any) -> None:
        raise NotNow("the job is RESTARTING")

    monkeypatch.setattr(gateway.insight, "live_entries", refuse)
    with caplog.at_level(logging.WARNING):
        answer = client.get(f"{URL}?key=a&consistency=live")
    assert (answer.status_code, answer.headers["x-penstock-error"]) == (503, "NOT_NOW")
    assert "RESTARTING" in answer.text
    assert caplog.records == []
