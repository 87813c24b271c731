"""Live state: only the leading JobManager of the running attempt answers, and clients handle its refusals."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from penstock.cli import queryable_state
from penstock.cli.errors import RequestFailed
from penstock.cli.queryable_state import QueryableStateClient
from penstock.common.errors import Fenced, NotNow, PenstockError, StorageError
from penstock.common.job_status import JobStatus
from penstock.jobmanager.process.reading import live_state
from penstock.jobmanager.process.reading.live_state import LiveState
from penstock.rest.errors import BadRequest, http_status
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.peek.stored import Peeked
from penstock.state.snapshot_format.segment import StateInfo

INFO = StateInfo("value", "value", {"type": "int"})


class Job:
    """A running job whose tasks have the number 7 for "ada"."""

    def __init__(self) -> None:
        self.attempt = 3
        self.history = SimpleNamespace(status=JobStatus.RUNNING)
        self.clock = SimpleNamespace(now_ms=lambda: 1_000)
        self.runner = SimpleNamespace(name="pipelined", look_ups=self)
        self.checkpoints = SimpleNamespace(check_leads=self.check_leads)
        self.looked = 0
        self.loss: Exception | None = None
        self.change: Any = lambda: None
        self.sample = UNTYPED_KEYS.encode("ada")
        self.keys: list[Any] = []

    def check_leads(self) -> None:
        self.looked += 1
        if self.loss is not None:
            raise self.loss

    def look_up(self, uid: str, state: str, key: Any) -> Peeked:
        self.keys.append(key)
        self.change()
        return Peeked(INFO, {"type": "any"}, [b"\x07"] if key == "ada" else [], sample=self.sample)

    def look(self, key: str = "ada", live: LiveState | None = None) -> Any:
        return (live or LiveState()).entries(cast("Any", self), "kept", "newest", key)


def test_an_answer_names_its_attempt() -> None:
    found = Job().look()
    assert (found.attempt, found.checkpoint_id, found.timestamp) == (3, 0, 1_000)
    assert found.entries == [{"key": "ada", "value": 7}]


@pytest.mark.parametrize("status", [JobStatus.RESTARTING, JobStatus.INITIALIZING, JobStatus.FINISHED])
def test_a_job_that_does_not_run_answers_nothing(status: JobStatus) -> None:
    job = Job()
    job.history.status = status
    with pytest.raises(NotNow, match=f"the job is {status.value}") as refused:
        job.look()
    assert http_status(refused.value) == 503


def test_an_answer_of_an_attempt_that_has_ended_is_discarded() -> None:
    job = Job()

    def restart() -> None:
        job.attempt = 4

    job.change = restart
    with pytest.raises(NotNow, match="restarted during the lookup"):
        job.look()


def test_a_superseded_manager_answers_nothing() -> None:
    job = Job()
    job.loss = Fenced("another leads")
    with pytest.raises(Fenced):
        job.look()
    assert job.keys == []


def test_a_manager_that_cannot_check_its_leadership_answers_nothing() -> None:
    job = Job()
    job.loss = StorageError("no answer")
    with pytest.raises(NotNow, match="the JobManager cannot check whether it leads: no answer"):
        job.look()


def test_one_check_of_the_leadership_serves_all_requests_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job, live = Job(), LiveState()
    for _ in range(50):
        job.look(live=live)
    assert job.looked == 1
    now[0] += live_state.LEADS_S
    job.look(live=live)
    assert job.looked == 2


def test_requests_do_not_wait_while_another_checks_the_leadership() -> None:
    slow, other, live, going, on = Job(), Job(), LiveState(), threading.Event(), threading.Event()

    def check() -> None:
        slow.looked += 1
        going.set()
        assert on.wait(10)
        raise StorageError("no answer")

    slow.checkpoints.check_leads = check
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.look, live=live)
        assert going.wait(10)
        with pytest.raises(NotNow, match="is checking whether it leads"):
            slow.look(live=live)
        assert other.look(live=live).entries == [{"key": "ada", "value": 7}]
        on.set()
        with pytest.raises(NotNow, match="cannot check whether it leads: no answer"):
            first.result(10)
    with pytest.raises(NotNow, match="cannot check whether it leads: no answer"):
        slow.look(live=live)
    assert slow.looked == 1


@pytest.mark.parametrize("loss", [StorageError("no answer"), Fenced("another leads")])
def test_a_failed_check_of_the_leadership_is_valid_as_long_as_a_successful_one(
    monkeypatch: pytest.MonkeyPatch, loss: PenstockError
) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job, live = Job(), LiveState()
    job.loss = loss
    for _ in range(9):
        with pytest.raises((NotNow, Fenced), match=loss.message):
            job.look(live=live)
    assert job.looked == 1
    job.loss = None
    now[0] += live_state.LEADS_S
    assert job.look(live=live).entries == [{"key": "ada", "value": 7}]


def test_an_early_check_saves_others_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job, live = Job(), LiveState()
    job.look(live=live)
    now[0] += 0.9 * live_state.LEADS_S
    answers: list[Any] = []
    job.checkpoints.check_leads = lambda: answers.append(job.look(live=live))
    job.look(live=live)
    assert [answer.entries for answer in answers] == [[{"key": "ada", "value": 7}]]


def test_waiting_requests_leave_rest_some_threads() -> None:
    job, live = Job(), LiveState()
    refused: list[NotNow] = []
    depth = [0]

    def nested() -> None:
        depth[0] += 1
        try:
            job.look(live=live)
        except NotNow as error:
            refused.append(error)

    job.change = nested
    job.look(live=live)
    assert depth == [live_state.MAX_LOOK_UPS]
    assert "already in progress in this JobManager" in refused[0].message
    job.change = lambda: None
    assert job.look(live=live).entries == [{"key": "ada", "value": 7}]


@pytest.mark.parametrize(("key", "meaning"), [("7", 7), ("NaN", None), ('{"a": 1}', None)])
def test_an_interpretation_that_cannot_be_looked_up_does_not_block_another(key: str, meaning: Any) -> None:
    job = Job()

    def ask(uid: str, state: str, key: Any) -> Peeked:
        if meaning is not None and key == meaning:
            raise NotNow("another task hangs")
        UNTYPED_KEYS.encode(key)
        return Peeked(INFO, {"type": "any"}, [b"\x07"] if key == has else [], sample=job.sample)

    job.runner.look_ups = SimpleNamespace(look_up=ask)
    has = key
    assert job.look(key).entries == [{"key": key, "value": 7}]
    has = "another"
    with pytest.raises(BadRequest if meaning is None else NotNow):
        job.look(key)


@pytest.mark.parametrize("depth", [33, 900])
def test_a_key_that_is_nested_too_deep_is_refused(depth: int) -> None:
    job = Job()
    with pytest.raises(BadRequest, match="more than 32 levels deep"):
        job.look("[" * depth + "]" * depth)
    assert job.keys == []
    assert job.look("[" * 32 + "]" * 32).entries == []


def test_a_runner_without_live_state_is_reported() -> None:
    job = Job()
    job.runner = SimpleNamespace(name="batched", look_ups=None)
    with pytest.raises(BadRequest, match="batched runner"):
        job.look()


def test_a_key_that_no_text_can_represent_is_refused() -> None:
    job = Job()
    job.sample = UNTYPED_KEYS.encode(b"ada")
    with pytest.raises(BadRequest, match="not texts or numbers"):
        job.look("eve")
    job.sample = UNTYPED_KEYS.encode(5)
    with pytest.raises(BadRequest, match="is a text, but the keys of state 'newest' have another type"):
        job.look("eve")
    with pytest.raises(BadRequest):
        job.look('{"a": 1}')


def test_a_key_is_interpreted_as_json_and_as_text() -> None:
    job = Job()
    assert job.look('"ada"').entries == [{"key": "ada", "value": 7}]
    assert job.look('["a", [1, 2]]').entries == []
    assert ("a", (1, 2)) in job.keys


class Server:
    """A server that refuses some requests and then answers."""

    def __init__(self, refusals: int, code: str = NotNow.code) -> None:
        self.refusals, self.code, self.requests = refusals, code, list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/jobs/overview":
            return httpx.Response(200, json={"jobs": []})
        self.requests.append(request)
        if len(self.requests) <= self.refusals:
            return httpx.Response(503, json={"errors": ["not now"]}, headers={"X-Penstock-Error": self.code})
        answer = {
            "checkpointId": 0,
            "timestamp": 1,
            "entries": [{"key": 5, "value": 7}],
            "truncated": False,
            "attempt": 2,
        }
        return httpx.Response(200, json=answer)

    def client(self, **how: Any) -> QueryableStateClient:
        made = QueryableStateClient("http://x", transport=httpx.MockTransport(self), consistency="live", **how)
        made._ids["job"] = "job"
        return made


@pytest.fixture(autouse=True)
def _no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queryable_state, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(queryable_state, "_LONGEST_PAUSE_S", 0.002)


def test_a_client_retries_until_it_receives_an_answer() -> None:
    server = Server(5)
    with server.client() as client:
        assert client.get("job", "newest", 5) == 7
    assert len(server.requests) == 6
    assert server.requests[0].url.params["consistency"] == "live"


@pytest.mark.parametrize(("server", "patience"), [(Server(5), 0.0), (Server(5, "UNAVAILABLE"), 30.0)])
def test_a_client_does_not_retry_without_time_or_after_a_permanent_error(server: Server, patience: float) -> None:
    with server.client(patience=patience) as client, pytest.raises(RequestFailed, match="not now"):
        client.get("job", "newest", 5)
    assert len(server.requests) == 1
