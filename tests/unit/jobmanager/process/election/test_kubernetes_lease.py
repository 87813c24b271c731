from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from penstock.common.errors import ClusterError, StorageError
from penstock.jobmanager.process.election.claims import Holder
from penstock.jobmanager.process.election.kubernetes_lease import KubernetesLease

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class ApiServer:
    """Leases of one namespace, with versions as in the API server of Kubernetes."""

    def __init__(self) -> None:
        self.lease: dict | None = None
        self.version = 0
        self.status = 0
        """Status with which the server refuses every request."""
        self.tokens: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        if self.status:
            return httpx.Response(self.status, json={"message": "no"})
        if request.method == "GET":
            return httpx.Response(200, json=self.lease) if self.lease else httpx.Response(404, json={})
        body = json.loads(request.content)
        if request.method == "POST":
            assert request.url.path == PATH
            return httpx.Response(409, json={}) if self.lease else self._store(body, 201)
        assert request.url.path == f"{PATH}/weather-leader"
        if self.lease is None:
            return httpx.Response(404, json={})
        if body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            return httpx.Response(409, json={})
        return self._store(body, 200)

    def _store(self, body: dict, status: int) -> httpx.Response:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return httpx.Response(status, json=body)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def lease(server: ApiServer, token: Path | None = None) -> KubernetesLease:
    client = httpx.Client(base_url="https://api", transport=httpx.MockTransport(server))
    return KubernetesLease(client, "ns", "weather-leader", token)


def test_the_first_claim_creates_the_lease_and_a_second_one_loses(server: ApiServer) -> None:
    one, two = lease(server), lease(server)
    assert one.current() is None
    assert two.current() is None
    assert one.claim(Holder("a", term=1, rest="http://a"), None)
    assert not two.claim(Holder("b", term=1), None)
    assert two.current() == Holder("a", term=1, rest="http://a")
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == "a"
    assert server.lease["spec"]["leaseDurationSeconds"] == 5


def test_one_claim_wins_if_two_are_based_on_one_observation(server: ApiServer) -> None:
    one, two, three = lease(server), lease(server), lease(server)
    one.current()
    one.claim(Holder("a", term=1), None)
    seen = two.current()
    assert three.current() == seen
    assert two.claim(Holder("b", term=2), seen)
    assert not three.claim(Holder("c", term=2), seen)
    assert not one.renew(Holder("a", term=1, beat=1))


def test_a_renewal_survives_a_change_of_labels_by_a_person(server: ApiServer) -> None:
    one = lease(server)
    one.current()
    one.claim(Holder("a", term=1), None)
    assert server.lease is not None
    server.lease["metadata"]["labels"] = {"team": "x"}
    server._store(server.lease, 200)
    assert one.renew(Holder("a", term=1, beat=1))


def test_a_renewal_creates_a_lease_that_a_person_deleted(server: ApiServer) -> None:
    one = lease(server)
    one.current()
    one.claim(Holder("a", term=1), None)
    server.lease = None
    assert one.renew(Holder("a", term=1, beat=1))
    assert server.lease is not None


def test_a_released_lease_has_no_holder(server: ApiServer) -> None:
    one = lease(server)
    one.current()
    one.claim(Holder("a", term=1), None)
    one.release(Holder("a", term=1))
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""
    found = lease(server).current()
    assert found is not None
    assert found.released


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_refusal_names_the_lease_and_the_status(server: ApiServer, status: int) -> None:
    server.status = status
    with pytest.raises(StorageError, match=f"Lease ns/weather-leader with {status}"):
        lease(server).current()


def test_a_renewed_token_is_used(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    one = lease(server, tmp_path / "token")
    one.current()
    (tmp_path / "token").write_text("two")
    one.current()
    assert server.tokens == {"Bearer one", "Bearer two"}


def test_the_error_outside_kubernetes_names_the_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterError, match="KUBERNETES_SERVICE_HOST is not set"):
        KubernetesLease.in_cluster("x", None, 5, tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ClusterError, match="token does not exist"):
        KubernetesLease.in_cluster("x", None, 5, tmp_path)
