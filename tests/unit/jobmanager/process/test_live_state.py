"""Who may answer for live state: the JobManager that leads, of the attempt that runs; and what a client makes of a refusal."""

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
from penstock.jobmanager.process import live_state
from penstock.jobmanager.process.live_state import LiveState
from penstock.rest.errors import BadRequest, http_status
from penstock.state.encoding.keys import UNTYPED_KEYS
from penstock.state.peek import Peeked
from penstock.state.snapshot_format.segment import StateInfo

INFO = StateInfo("value", "value", {"type": "int"})


class Job:
    """One that runs, and whose tasks have the number 7 for "ada"."""

    def __init__(self) -> None:
        self.attempt = 3
        self.history = SimpleNamespace(status=JobStatus.RUNNING)
        self.clock = SimpleNamespace(now_ms=lambda: 1_000)
        self.runner = SimpleNamespace(name="pipelined", look_ups=self)
        self.checkpoints = SimpleNamespace(check_leads=self.check_leads)
        self.looked = 0
        self.loss: Exception | None = None
        self.meanwhile: Any = lambda: None
        self.sample = UNTYPED_KEYS.encode("ada")
        self.asked: list[Any] = []

    def check_leads(self) -> None:
        self.looked += 1
        if self.loss is not None:
            raise self.loss

    def ask(self, uid: str, state: str, key: Any) -> Peeked:
        self.asked.append(key)
        self.meanwhile()
        return Peeked(INFO, {"type": "any"}, [b"\x07"] if key == "ada" else [], sample=self.sample)

    def look(self, key: str = "ada", live: LiveState | None = None) -> Any:
        return (live or LiveState()).entries(cast("Any", self), "kept", "newest", key)


def test_an_answer_tells_of_which_attempt_it_is() -> None:
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


def test_an_answer_of_an_attempt_that_has_ended_meanwhile_is_thrown_away() -> None:
    job = Job()

    def restart() -> None:
        job.attempt = 4

    job.meanwhile = restart
    with pytest.raises(NotNow, match="restarted meanwhile"):
        job.look()


def test_a_manager_that_was_superseded_answers_nothing() -> None:
    job = Job()
    job.loss = Fenced("another leads")
    with pytest.raises(Fenced):
        job.look()
    assert job.asked == []


def test_a_manager_that_cannot_see_whether_it_leads_answers_nothing() -> None:
    job = Job()
    job.loss = StorageError("no answer")
    with pytest.raises(NotNow, match="whether this JobManager leads cannot be seen: no answer"):
        job.look()


def test_who_leads_is_looked_up_for_all_who_ask_within_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job, live = Job(), LiveState()
    for _ in range(50):
        job.look(live=live)
    assert job.looked == 1
    now[0] += live_state.LEADS_S
    job.look(live=live)
    assert job.looked == 2


def test_nobody_waits_while_another_sees_whether_this_manager_leads() -> None:
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
        with pytest.raises(NotNow, match="is being looked up"):
            slow.look(live=live)
        assert other.look(live=live).entries == [{"key": "ada", "value": 7}]
        on.set()
        with pytest.raises(NotNow, match="cannot be seen: no answer"):
            first.result(10)
    with pytest.raises(NotNow, match="cannot be seen: no answer"):
        slow.look(live=live)
    assert slow.looked == 1


@pytest.mark.parametrize("loss", [StorageError("no answer"), Fenced("another leads")])
def test_that_it_cannot_be_seen_who_leads_counts_as_long_as_that_it_was(
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


def test_a_look_up_in_time_sees_to_it_that_others_need_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live_state, "time", SimpleNamespace(monotonic=lambda: now[0]))
    job, live = Job(), LiveState()
    job.look(live=live)
    now[0] += 0.9 * live_state.LEADS_S
    answers: list[Any] = []
    job.checkpoints.check_leads = lambda: answers.append(job.look(live=live))
    job.look(live=live)
    assert [answer.entries for answer in answers] == [[{"key": "ada", "value": 7}]]


def test_no_more_of_the_threads_of_rest_wait_than_leave_it_some() -> None:
    job, live = Job(), LiveState()
    refused: list[NotNow] = []
    depth = [0]

    def nested() -> None:
        depth[0] += 1
        try:
            job.look(live=live)
        except NotNow as error:
            refused.append(error)

    job.meanwhile = nested
    job.look(live=live)
    assert depth == [live_state.MOST]
    assert "under way in this JobManager already" in refused[0].message
    job.meanwhile = lambda: None
    assert job.look(live=live).entries == [{"key": "ada", "value": 7}]


@pytest.mark.parametrize(("key", "meaning"), [("7", 7), ("NaN", None), ('{"a": 1}', None)])
def test_a_meaning_that_cannot_be_asked_for_keeps_no_other_from_its_answer(key: str, meaning: Any) -> None:
    job = Job()

    def ask(uid: str, state: str, asked: Any) -> Peeked:
        if meaning is not None and asked == meaning:
            raise NotNow("another task hangs")
        UNTYPED_KEYS.encode(asked)
        return Peeked(INFO, {"type": "any"}, [b"\x07"] if asked == has else [], sample=job.sample)

    job.runner.look_ups = SimpleNamespace(ask=ask)
    has = key
    assert job.look(key).entries == [{"key": key, "value": 7}]
    has = "another"
    with pytest.raises(BadRequest if meaning is None else NotNow):
        job.look(key)


@pytest.mark.parametrize("depth", [33, 900])
def test_a_key_that_is_nested_too_deep_is_refused(depth: int) -> None:
    job = Job()
    with pytest.raises(BadRequest, match="more than 32 deep"):
        job.look("[" * depth + "]" * depth)
    assert job.asked == []
    assert job.look("[" * 32 + "]" * 32).entries == []


def test_a_runner_whose_tasks_cannot_be_asked_says_so() -> None:
    job = Job()
    job.runner = SimpleNamespace(name="batched", look_ups=None)
    with pytest.raises(BadRequest, match="batched runner"):
        job.look()


def test_a_key_that_no_text_can_mean_is_refused() -> None:
    job = Job()
    job.sample = UNTYPED_KEYS.encode(b"ada")
    with pytest.raises(BadRequest, match="no texts or numbers"):
        job.look("eve")
    job.sample = UNTYPED_KEYS.encode(5)
    with pytest.raises(BadRequest, match="is a text, and the keys of state 'newest' are of another type"):
        job.look("eve")
    with pytest.raises(BadRequest):
        job.look('{"a": 1}')


def test_a_key_is_taken_as_json_and_as_text() -> None:
    job = Job()
    assert job.look('"ada"').entries == [{"key": "ada", "value": 7}]
    assert job.look('["a", [1, 2]]').entries == []
    assert ("a", (1, 2)) in job.asked


class Server:
    """Refuses some times, then answers."""

    def __init__(self, refusals: int, code: str = NotNow.code) -> None:
        self.refusals, self.code, self.asked = refusals, code, list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/jobs/overview":
            return httpx.Response(200, json={"jobs": []})
        self.asked.append(request)
        if len(self.asked) <= self.refusals:
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


def test_a_client_asks_again_until_there_is_an_answer() -> None:
    server = Server(5)
    with server.client() as client:
        assert client.get("job", "newest", 5) == 7
    assert len(server.asked) == 6
    assert server.asked[0].url.params["consistency"] == "live"


@pytest.mark.parametrize(("server", "patience"), [(Server(5), 0.0), (Server(5, "UNAVAILABLE"), 30.0)])
def test_a_client_without_patience_or_hope_does_not(server: Server, patience: float) -> None:
    with server.client(patience=patience) as client, pytest.raises(RequestFailed, match="not now"):
        client.get("job", "newest", 5)
    assert len(server.asked) == 1
