"""The two HTTP clients: their requests, and the interpretation of every kind of answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from penstock_operator.engine.client import HttpEngine, first_lines, read_request
from penstock_operator.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    EngineError,
    EngineUnreachable,
    Invalid,
    KubeError,
    NotLeader,
    QuotaExceeded,
    Unavailable,
)
from penstock_operator.kube.cluster import DEPLOYMENT, FLINKJOB, POD, Manifest
from penstock_operator.kube.credentials import Credentials
from penstock_operator.kube.http import HttpCluster

Answer = Callable[[httpx.Request], httpx.Response]
CONFIG: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}


def cluster(answer: Answer, **options: Any) -> HttpCluster:
    credentials = Credentials("https://api", tls=False, token="secret-token")
    return HttpCluster(credentials, transport=httpx.MockTransport(answer), **options)


def status(code: int, reason: str = "", message: str = "because") -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "message": message, "reason": reason})


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (status(409, "AlreadyExists"), AlreadyExists),
        (status(409, "Conflict"), Conflict),
        (status(403, "Forbidden"), Denied),
        (status(401), Denied),
        (status(403, "Forbidden", 'pods "p" is forbidden: exceeded quota: small, requested: pods=1'), QuotaExceeded),
        (status(422, "Invalid"), Invalid),
        (status(404, "NotFound"), Invalid),
        (status(429), Unavailable),
        (status(500), Unavailable),
        (httpx.Response(502, text="<html>bad gateway</html>"), Unavailable),
    ],
)
def test_refusals_are_distinguished(response: httpx.Response, error: type[KubeError]) -> None:
    with pytest.raises(error) as caught:
        asyncio.run(cluster(lambda _: response).create(CONFIG))
    assert "POST /api/v1/namespaces/ns/configmaps" in str(caught.value)


def test_a_missing_answer_is_unavailable() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Unavailable, match="ConnectError"):
        asyncio.run(cluster(refuse).get(POD, "ns", "p"))


def test_apply_is_server_side_with_the_operators_field_manager() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=CONFIG)

    asyncio.run(cluster(answer).apply(CONFIG))
    [request] = seen
    assert request.method == "PATCH"
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert dict(request.url.params) == {"fieldManager": "penstock-operator", "force": "true"}
    assert request.headers["Authorization"] == "Bearer secret-token"


def test_a_dry_run_is_marked_and_does_not_count_as_an_apply() -> None:
    seen: list[httpx.Request] = []
    counted: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return status(422, "Invalid")

    kube = cluster(answer, count=lambda v, k: counted.append((v, k)))
    with pytest.raises(Invalid):
        asyncio.run(kube.apply(CONFIG, dry_run=True))
    assert seen[0].url.params["dryRun"] == "All"
    assert counted == [("dry-run", "ConfigMap")]


def test_lists_are_read_page_by_page_and_include_their_kind() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        page = request.url.params.get("continue", "")
        following = {"": "2", "2": ""}[page]
        name = f"d{page or 1}"
        return httpx.Response(200, json={"items": [{"metadata": {"name": name}}], "metadata": {"continue": following}})

    found = asyncio.run(cluster(answer).list(DEPLOYMENT, "ns", {"a": "b"}))
    assert [(f["kind"], f["metadata"]["name"]) for f in found] == [("Deployment", "d1"), ("Deployment", "d2")]


def test_lists_are_filtered_by_labels_or_a_selector() -> None:
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.url.params["labelSelector"])
        return httpx.Response(200, json={"items": [], "metadata": {}})

    asyncio.run(cluster(answer).list(POD, None, {"a": "b", "c": "d"}))
    asyncio.run(cluster(answer).list(POD, None, "a in (b),!c"))
    assert requests == ["a=b,c=d", "a in (b),!c"]


@pytest.mark.parametrize(("response", "known"), [(status(404), False), (httpx.Response(200, json={"jid": "j"}), True)])
def test_an_unknown_job_and_an_unknown_request_are_distinguished(response: httpx.Response, known: bool) -> None:
    async def ask() -> bool:
        async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: response)) as http:
            return await HttpEngine(http, "http://m", None).overview("j") is not None

    assert asyncio.run(ask()) is known


def test_only_the_observed_object_is_deleted() -> None:
    requests: list[Any] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        requests.append(json.loads(request.content)["preconditions"])
        return status(409, "Conflict")

    seen = {"metadata": {"uid": "u-1", "resourceVersion": "7", "name": "p"}}
    with pytest.raises(Conflict):
        asyncio.run(cluster(refuse).delete(POD, "ns", "p", seen=seen))
    assert requests == [{"uid": "u-1", "resourceVersion": "7"}]


def test_a_missing_object_is_none_and_its_deletion_succeeds() -> None:
    gone = cluster(lambda _: status(404, "NotFound"))

    async def ask() -> None:
        assert await gone.get(POD, "ns", "p") is None
        assert await gone.merge(POD, "ns", "p", {}) is None
        assert await gone.log("ns", "p", "penstock", 10) is None
        await gone.delete(POD, "ns", "p")
        assert not await gone.serves(FLINKJOB)
        with pytest.raises(Conflict):
            await gone.replace(
                {**CONFIG, "metadata": {**CONFIG["metadata"], "resourceVersion": "1"}}, subresource="status"
            )

    asyncio.run(ask())


def test_a_log_is_read_from_one_of_several_containers() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if "container" not in request.url.params:
            return status(
                400, "BadRequest", "a container name must be specified for pod p, choose one of: [penstock logs]"
            )
        return httpx.Response(200, text=f"said by {request.url.params['container']}")

    assert asyncio.run(cluster(answer).log("ns", "p", "penstock", 10)) == "said by penstock"


def test_a_write_is_abandoned_when_the_lease_could_have_changed() -> None:
    async def hang(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError

    kube = cluster(hang, fence=lambda: 0.05)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="no response from the API server"):
        asyncio.run(asyncio.wait_for(kube.create(CONFIG), 30))


def test_requests_that_change_a_job_are_fenced_and_reads_are_not() -> None:
    requests: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.method)
        return httpx.Response(200, json={})

    def fence() -> None:
        raise NotLeader("another leads")

    async def ask() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        client = HttpEngine(http, "http://rest:8081/", "token", fence)
        await client.jobs()
        for change in (
            client.stop("j", "s3://b/sp", "t"),
            client.savepoint("j", "s3://b/sp", "t"),
            client.checkpoint("j", "t"),
            client.rescale("j", 3, "t"),
        ):
            with pytest.raises(NotLeader):
                await change

    asyncio.run(ask())
    assert requests == ["GET"]


def test_writes_are_fenced_and_reads_are_not() -> None:
    def fence() -> None:
        raise NotLeader("another leads")

    kube = cluster(lambda _: httpx.Response(200, json={"items": [], "metadata": {}}), fence=fence)
    assert asyncio.run(kube.list(POD, None)) == []
    with pytest.raises(NotLeader):
        asyncio.run(kube.create(CONFIG))
    with pytest.raises(NotLeader):
        asyncio.run(kube.delete(POD, "ns", "p"))


def test_requests_are_counted() -> None:
    counted: list[tuple[str, str]] = []
    kube = cluster(lambda _: httpx.Response(200, json=CONFIG), count=lambda v, k: counted.append((v, k)))
    asyncio.run(kube.apply(CONFIG))
    assert counted == [("apply", "ConfigMap")]


# --- the engine -------------------------------------------------------------------------------------------------------


def engine(answer: Answer) -> HttpEngine:
    return HttpEngine(httpx.AsyncClient(transport=httpx.MockTransport(answer)), "http://rest:8081/", "token")


def replies(**paths: Any) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        found = paths.get(request.url.path.strip("/").replace("/", "_").replace("-", "_"))
        return (
            httpx.Response(200, json=found) if found is not None else httpx.Response(404, json={"errors": ["unknown"]})
        )

    return answer


def test_answers_in_flinks_shapes_are_understood() -> None:
    client = engine(
        replies(
            jobs_overview={"jobs": [{"jid": "j1", "state": "RUNNING"}]},
            jobs_j1_checkpoints={
                "counts": {"completed": 3, "failed": 1, "restored": 2},
                "latest": {
                    "completed": {"id": 9, "external_path": "s3://b/chk-9", "latest_ack_timestamp": 1767225600000}
                },
            },
            jobs_j1_config={"execution-config": {"job-parallelism": 4}},
            overview={"slots-total": 6},
            taskmanagers={
                "taskmanagers": [
                    {"id": "tm-1", "path": "10.0.0.1:7079", "freeSlots": 0, "slotsNumber": 1},
                    {"id": "tm-2", "path": "10.0.0.2:7079", "freeSlots": 1, "slotsNumber": 1},
                ]
            },
        )
    )

    async def ask() -> None:
        assert [(j.id, j.state) for j in await client.jobs()] == [("j1", "RUNNING")]
        points = await client.checkpoints("j1")
        assert (points.completed, points.failed, points.restored, points.latest_id) == (3, 1, 2, 9)
        assert points.latest_at is not None
        assert points.latest_at.isoformat() == "2026-01-01T00:00:00+00:00"
        assert await client.parallelism("j1") == 4
        assert await client.slots() == 6
        assert await client.busy_workers() == {"tm-1", "10.0.0.1:7079"}
        assert (await client.request("j1", "stop", "r")).state == "Unknown"

    asyncio.run(ask())


def test_empty_answers_are_understood() -> None:
    client = engine(lambda _: httpx.Response(200, json={}))

    async def ask() -> None:
        assert await client.jobs() == []
        assert (await client.checkpoints("j")).latest_id is None
        assert await client.parallelism("j") is None
        assert await client.exception("j") == ""

    asyncio.run(ask())


def test_actions_contain_the_trigger_id_and_the_token() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(202, json={"request-id": "r"})

    client = engine(answer)

    async def ask() -> None:
        assert await client.stop("j", "s3://b/t", "t1") == "r"
        await client.savepoint("j", "s3://b/t", "t2")
        await client.checkpoint("j", "t3")
        await client.rescale("j", 4, "t4")

    asyncio.run(ask())
    stop, savepoint, checkpoint, rescale = seen
    assert json.loads(stop.content) == {"targetDirectory": "s3://b/t", "drain": False, "triggerId": "t1"}
    assert json.loads(savepoint.content) == {"target-directory": "s3://b/t", "cancel-job": False, "triggerId": "t2"}
    assert json.loads(checkpoint.content) == {"triggerId": "t3"}
    assert dict(rescale.url.params) == {"parallelism": "4", "triggerId": "t4"}
    assert {r.headers["Authorization"] for r in seen} == {"Bearer token"}


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": {"id": "IN_PROGRESS"}}, "InProgress"),
        ({"status": {"id": "COMPLETED"}, "operation": {"location": "s3://b/s"}}, "Completed"),
        (
            {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": {"class": "X", "stack-trace": "boom"}}},
            "Failed",
        ),
        ({"status": {"id": "COMPLETED"}, "operation": {"failure-cause": "boom"}}, "Failed"),
        ({"status": {"id": "COMPLETED"}}, "Completed"),
        ({}, "InProgress"),
    ],
)
def test_states_of_asynchronous_actions_are_understood(body: dict[str, Any], state: str) -> None:
    assert read_request("r", body).state == state


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(503), EngineUnreachable),
        (httpx.Response(409, json={"errors": ["the job is FAILED", "wait"]}), EngineError),
        (httpx.Response(401, text="who are you"), EngineError),
        (httpx.Response(200, text="not json"), EngineError),
    ],
)
def test_engine_errors_are_classified(answer: httpx.Response, error: type[EngineError]) -> None:
    with pytest.raises(error):
        asyncio.run(engine(lambda _: answer).jobs())


def test_a_very_long_line_is_truncated() -> None:
    assert len(first_lines("x" * 10_000_000)) <= 600
    assert first_lines("ValueError: a\n  at b\n\n  at c") == "ValueError: a | at b | at c"
