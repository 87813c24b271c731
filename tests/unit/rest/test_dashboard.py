"""The dashboard's files and the data that it reads. The page loads nothing from other hosts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

import penstock.rest
from penstock.metrics.loads import SubtaskLoad
from penstock.rest import facts, models
from penstock.rest.server import RestServer
from penstock.rest.views.dashboard import key_groups, live_job, timeline, vertex_load
from penstock.rest.views.insight import raised_at
from penstock.state.key_groups import key_group_range
from tests.unit.rest.fake_gateway import JOB_ID, RUNNING

if TYPE_CHECKING:
    from tests.unit.rest.asgi_client import AsgiClient
    from tests.unit.rest.fake_gateway import FakeGateway

FOLDER = Path(penstock.rest.__file__).parent / "dashboard"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
MAX_BODY_BYTES = 300 * 1024


def test_the_whole_dashboard_is_small() -> None:
    assert sum(path.stat().st_size for path in FILES) <= MAX_BODY_BYTES


def test_every_library_names_version_and_licence() -> None:
    licences = (FOLDER / "vendor" / "LICENSES.txt").read_text()
    libraries = [path.name for path in FILES if path.parent.name == "vendor" and path.suffix != ".txt"]
    assert libraries
    assert not [name for name in libraries if name not in licences or not re.search(r"\d+\.\d+\.\d+", name)]


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name != "vendor"], ids=lambda p: p.name)
def test_the_page_loads_nothing_from_other_hosts(path: Path) -> None:
    urls = re.findall(r"https?://[^\"'\s)]+", path.read_text())
    assert set(urls) <= {"http://www.w3.org/2000/svg"}


def test_every_file_that_the_page_names_exists(client: AsgiClient) -> None:
    page = client.get("/").text
    named = re.findall(r'(?:src|href)="(ui/[^"]+)"', page)
    assert len(named) > 5
    for name in named:
        assert client.get(f"/{name}").status_code == 200, name
    for script in (path for path in FILES if path.suffix == ".js" and path.parent.name != "vendor"):
        for target in re.findall(r'(?:from |import\()"(\.[^"]+)"', script.read_text()):
            assert (script.parent / target).resolve().is_file(), f"{script.name} imports {target}"


def test_a_browser_downloads_only_changed_files_again(client: AsgiClient) -> None:
    first = client.get("/ui/app.js")
    again = client.get("/ui/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "..%2fapp.py", "%2e%2e/auth.py"])
def test_no_other_files_are_served(client: AsgiClient, name: str) -> None:
    assert client.get(f"/ui/{name}").status_code == 404


def test_scripts_of_other_hosts_are_forbidden(client: AsgiClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_a_viewer_receives_an_update_every_second(gateway: FakeGateway) -> None:
    with RestServer(gateway, port=0) as server, httpx.stream("GET", f"{server.url}/jobs/{JOB_ID}/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in stream.iter_lines() if line)
        seen = [json.loads(next(lines).removeprefix("data: ")) for _ in range(2)]
    assert seen[0]["name"] == "Socket Window WordCount"
    assert seen[1]["now"] >= seen[0]["now"]
    assert [vertex["inputs"] for vertex in seen[0]["vertices"]] == [[], [{"id": "0" * 32, "strategy": "HASH"}]]


def test_a_server_that_stops_does_not_wait_for_viewers(gateway: FakeGateway) -> None:
    import time

    server = RestServer(gateway, port=0).start()
    with httpx.stream("GET", f"{server.url}/jobs/{JOB_ID}/live") as stream:
        next(stream.iter_lines())
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4


def test_an_unknown_job_has_no_updates(client: AsgiClient) -> None:
    assert client.get("/jobs/nothing/live").status_code == 404


def test_a_vertex_describes_each_subtask(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/vertices/1/load").json()
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert [(row["subtask"], row["firstKeyGroup"], row["lastKeyGroup"]) for row in rows] == [(0, 0, 63), (1, 64, 127)]


@pytest.mark.parametrize(("share", "level"), [(0.1, "ok"), (0.5, "low"), (0.51, "high")])
def test_a_subtask_has_its_state_and_the_level_of_its_back_pressure(share: float, level: str) -> None:
    vertex = replace(RUNNING.vertices[1], subtasks=[facts.Subtask(0, "RESTARTING"), facts.Subtask(1, "RUNNING")])
    found = vertex_load(vertex, [SubtaskLoad(1, "tm-1", "host-1", 0, 0, 0.0, 0.0, 0.2, share, None)])
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [(row["state"], row["backPressure"]) for row in rows] == [("SCHEDULED", "ok"), ("RUNNING", level)]


@pytest.mark.parametrize(("can_add_slots", "limit"), [(False, 5), (True, 128)])
def test_a_rescale_is_limited_by_slots_unless_the_cluster_can_start_more(
    gateway: FakeGateway, can_add_slots: bool, limit: int
) -> None:
    job = replace(RUNNING, can_add_slots=can_add_slots)
    live = live_job(job, gateway.checkpoints(JOB_ID), 0, facts.Cluster(8, 3), gateway.metrics, 0)
    assert live.rescale_limit == limit


@pytest.mark.parametrize(("in_use_by_others", "limit"), [(0, 64), (10, 54), (63, 2)])
def test_a_rescale_is_limited_by_the_slots_of_one_jvm(gateway: FakeGateway, in_use_by_others: int, limit: int) -> None:
    job = replace(RUNNING, can_add_slots=True, slot_limit=64)
    cluster = facts.Cluster(job.parallelism + in_use_by_others, 0)
    live = live_job(job, gateway.checkpoints(JOB_ID), 0, cluster, gateway.metrics, 0)
    assert live.rescale_limit == limit


OF_USER = """Traceback (most recent call last):
  File "/shop/job.py", line 4, in parse
    return 1 // (x - 50)
           ~~^^~~~~~~~~~
{raised}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/penstock/taskmanager/level.py", line 288, in _timed
    next(steps)
penstock.common.errors.UserFunctionError: [USER_FUNCTION] parse raised
"""


@pytest.mark.parametrize(
    ("name", "raised", "cause"),
    [
        ("UserFunctionError", "ZeroDivisionError: integer division\nor modulo: by zero", "ZeroDivisionError"),
        ("UserFunctionError", "shop.errors.Broken", "shop.errors.Broken"),
        ("UserFunctionError", "", "UserFunctionError"),
        ("StorageError", "OSError: no space", "StorageError"),
    ],
)
def test_a_failure_of_the_users_code_is_named_by_its_exception(name: str, raised: str, cause: str) -> None:
    failure = facts.Failure(1, name, "parse raised", OF_USER.format(raised=raised))
    shown = timeline(replace(RUNNING, failures=[failure]), [], 0).failures[0]
    assert (shown["name"], shown["cause"]) == (name, cause)


def test_a_live_view_has_the_hot_keys_of_vertices(gateway: FakeGateway) -> None:
    job = gateway.job(JOB_ID)
    first, *others = job.vertices
    hot = replace(first, hot_key=facts.HotKey("'user-7'", 70, 1, 0.63))
    live = live_job(
        replace(job, vertices=[hot, *others]), gateway.checkpoints(JOB_ID), 0, facts.Cluster(8, 3), gateway.metrics, 0
    )
    assert live.vertices[0].hot_key == {"key": "'user-7'", "keyGroup": 70, "subtask": 1, "share": 0.63}
    assert all(vertex.hot_key is None for vertex in live.vertices[1:])


def test_a_live_view_has_the_last_rescale(gateway: FakeGateway) -> None:
    for job, at in ((RUNNING, RUNNING.rescales[-1].timestamp), (replace(RUNNING, rescales=()), None)):
        live = live_job(job, gateway.checkpoints(JOB_ID), 0, facts.Cluster(8, 3), gateway.metrics, 0)
        assert (live.last_rescale or {}).get("at") == at


def test_the_rate_of_a_job_is_the_sum_of_its_sources(gateway: FakeGateway) -> None:
    live = live_job(RUNNING, gateway.checkpoints(JOB_ID), 0, facts.Cluster(8, 3), gateway.metrics, 0)
    assert live.records_per_second == live.vertices[0].in_per_second


TRACE = """Traceback (most recent call last):
  File "/app/job.py", line 12, in flat_map
    yield from parse(value)
  File "/app/parse.py", line 7, in parse
    raise ValueError(value)
ValueError: 7x

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "{engine}", line 93, in process
    raise_user_error(place, error)
penstock.common.errors.UserFunctionError: Parse raised ValueError: 7x
"""


@pytest.mark.parametrize(
    ("trace", "line"), [(TRACE, "/app/parse.py:7"), ("", ""), ('  File "{engine}", line 93, in process', "")]
)
def test_a_failure_names_the_users_line_that_raised_it(trace: str, line: str) -> None:
    failure = facts.Failure(0, "ValueError", "7x", trace.replace("{engine}", models.__file__), location="job.py:14")
    assert raised_at(failure) == line
    [shown] = timeline(replace(RUNNING, failures=[failure]), [], 0).failures
    assert (shown["where"], shown["builtAt"]) == (line or "job.py:14", "job.py:14")


def test_key_groups_are_those_of_the_engine() -> None:
    for parallelism in (1, 3, 7, 128):
        for index in range(parallelism):
            assert key_groups(index, parallelism, 128) == tuple(key_group_range(index, parallelism, 128))


def test_configuration_names_the_origin_of_each_value_and_hides_secrets(client: AsgiClient) -> None:
    answer = client.get(f"/jobs/{JOB_ID}/configuration")
    settings = {one["key"]: one for one in answer.json()["settings"]}
    assert settings["parallelism.default"]["source"] == "job"
    assert settings["rest.port"]["source"] == "cluster"
    assert settings["execution.checkpointing.timeout"]["source"] == "default"
    assert settings["s3.secret-key"]["value"] == "******"
    assert "hunter2" not in answer.text


def test_the_timeline_has_all_events(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/timeline").json()
    assert [failure["name"] for failure in found["failures"]] == ["ValueError", "ClusterError"]
    assert found["rescales"][0]["to"] == 2
    assert found["checkpoints"][0]["slowest"] == "Window -> Sink: files #1"


def test_history_has_null_for_unknown_values(client: AsgiClient) -> None:
    assert client.get(f"/jobs/{JOB_ID}/history").json() == {"times": [1000, 2000], "series": {"lag": [None, 4.0]}}


def test_state_is_looked_up_by_key(client: AsgiClient, gateway: FakeGateway) -> None:
    assert client.get(f"/jobs/{JOB_ID}/state").json()["states"][0]["name"] == "total"
    found = client.get(f"/jobs/{JOB_ID}/state/total?key=a&limit=5").json()
    assert (found["checkpointId"], found["entries"]) == (3, [{"key": "a", "value": 7}])
    assert gateway.insight.requested == ("total", None, "a", 5)


def test_connectors_describe_their_splits(client: AsgiClient) -> None:
    found = client.get(f"/jobs/{JOB_ID}/connectors").json()
    assert found["sources"][0]["splits"][0]["position"] == "17"
    assert found["sinks"] == [{"uid": "out", "name": "Sink: files"}]
