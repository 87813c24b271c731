"""Programs in a git repository and in an OCI image: revisions, and a branch that is resolved once."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.limits.tenant_limits import TenantLimits
from penstock_operator.api.validation import parse_spec
from penstock_operator.errors import Problem, SpecError
from penstock_operator.reconcile.program_source import resolve_on_server
from penstock_operator.resources.names import JOB, ROLE
from tests.git_server import GitServer, Repository
from tests.unit.operator.flows.program.test_scripts import master
from tests.unit.operator.world import World, flinkjob
from tests.unit.operator.world.kubernetes.images import Image
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import deployed, played, rejected, running, stalled

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.common.program.git import Credentials

URL = "https://git.example.com/team/jobs.git"
FIRST, SECOND, THIRD = "1" * 40, "2" * 40, "3" * 40
IMAGE = f"registry.example.com/team/words@sha256:{'a' * 64}"


class Branches:
    """A git server whose branches can be moved."""

    def __init__(self, world: World, servers: tuple[str, ...] = ("https://git.example.com",)) -> None:
        self.commits = {"main": FIRST}
        self.requests: list[tuple[str, str, Credentials | None]] = []
        limits = TenantLimits(git_servers=servers)
        settings = replace(world.ports.settings, tenants=limits)
        world.ports = replace(world.ports, settings=settings, resolve_ref=self.resolve)

    async def resolve(self, url: str, ref: str, credentials: Credentials | None) -> str:
        self.requests.append((url, ref, credentials))
        if ref not in self.commits:
            raise SpecError((Problem("spec.job.source.git.ref", f"{url} has no branch {ref}", "Correct the name."),))
        return self.commits[ref]


def source(**fields: Any) -> dict[str, Any]:
    return {"git": {"url": URL, **fields}}


def fetched(pod: dict[str, Any]) -> list[str]:
    """Return the arguments of the init container that fetches the program."""
    (fetcher,) = pod["spec"]["initContainers"]
    arguments: list[str] = fetcher["args"]
    return arguments


def test_every_pod_fetches_the_commit() -> None:
    async def story(world: World) -> None:
        branches = Branches(world, servers=())
        await deployed(world, flinkjob(source=source(commit=FIRST, path="jobs/words")))
        for role in ("master", "worker"):
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: role}):
                expected = ["fetch", URL, "--commit", FIRST, "--path=jobs/words", "--into", "/opt/penstock-source"]
                assert fetched(pod) == expected
                path = {"name": "PENSTOCK_PACKAGES", "value": "/opt/penstock-source"}
                assert path in pod["spec"]["containers"][0]["env"]
        args = master(world)["spec"]["containers"][0]["args"]
        assert args[args.index("--entry") + 1] == "/opt/penstock-source/job.py"
        assert branches.requests == [], "the operator needs no server for a commit"
        world.edit(job={"source": source(commit=SECOND, path="jobs/words")})
        await world.until(lambda: running(world, generation=2))
        assert SECOND in fetched(master(world))

    played(story)


def test_a_branch_is_resolved_once_until_the_restart_nonce_changes() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        await deployed(world, flinkjob(source=source(ref="main")))
        assert FIRST in fetched(master(world))
        assert world.status()["git"] == {"url": URL, "ref": "main", "commit": FIRST}
        branches.commits["main"] = SECOND
        world.restart_operator()
        await world.run(300)
        world.edit(job={"args": ["--fast"]})
        await world.until(lambda: running(world, generation=2))
        assert FIRST in fetched(master(world)), "another edit does not move the branch"
        world.edit(job={"state": "suspended"})
        await world.until(lambda: world.status()["phase"] == "Suspended" and world.settled())
        world.edit(job={"state": "running"})
        await world.until(lambda: running(world, generation=4))
        assert FIRST in fetched(master(world)), "a resume does not move the branch"
        assert len(branches.requests) == 1
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world, generation=5))
        assert SECOND in fetched(master(world))
        assert world.status()["git"]["commit"] == SECOND

    played(story)


def test_a_rollback_runs_the_commit_of_the_stable_revision() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        await deployed(world, flinkjob(source=source(ref="main")))
        branches.commits["main"] = SECOND
        world.images["job:1"] = Image(starts=False)
        world.edit(job={"restartNonce": 1})

        def masters(commit: str) -> bool:
            pods = world.cluster.select("Pod", None, {JOB: NAME, ROLE: "master"})
            return any(commit in fetched(pod) for pod in pods)

        await world.until(lambda: masters(SECOND))

        def returned() -> bool:
            if masters(FIRST):
                world.images["job:1"] = Image()
            return rejected(world) and world.status()["phase"] == "Running"

        await world.until(returned)
        assert FIRST in fetched(master(world))

    played(story)


def test_another_name_of_the_same_commit_restarts_nothing() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        branches.commits["v1"] = FIRST
        await deployed(world, flinkjob(source=source(ref="main")))
        job_id = world.status()["jobId"]
        world.edit(job={"source": source(ref="v1")})
        await world.until(lambda: len(branches.requests) == 2 and running(world))
        world.edit(job={"source": source(commit=FIRST)})
        await world.run(120)
        assert running(world)
        assert world.status()["jobId"] == job_id
        assert "git" not in world.status()

    played(story)


def test_an_unknown_branch_is_reported_and_the_job_runs_on() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        await deployed(world, flinkjob(source=source(ref="main")))
        job_id = world.status()["jobId"]
        world.edit(job={"source": source(ref="production")})
        await world.until(lambda: stalled(world, "InvalidSpec", "has no branch production. Correct the name"))
        assert world.status()["jobId"] == job_id
        branches.commits["production"] = SECOND
        await world.until(lambda: running(world, generation=2))
        assert SECOND in fetched(master(world))

    played(story)


def test_a_server_that_the_platform_has_not_opened_is_not_asked() -> None:
    async def story(world: World) -> None:
        branches = Branches(world, servers=("https://other.example.com",))
        world.apply(flinkjob(source=source(ref="main")))
        await world.until(lambda: stalled(world, "InvalidSpec", "add the server to jobs.gitServers"))
        assert branches.requests == []

    played(story)


def secret(world: World, data: dict[str, str], kind: str = "kubernetes.io/basic-auth") -> None:
    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    meta = {"name": "git", "namespace": "default"}
    world.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind, "data": encoded})


def test_credentials_come_from_a_secret() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        secret(world, {"username": "me", "password": "s3cret"})
        await deployed(world, flinkjob(source=source(ref="main", secretName="git")))
        assert branches.requests == [(URL, "main", ("me", "s3cret"))]
        (fetcher,) = master(world)["spec"]["initContainers"]
        references = {e["name"]: e["valueFrom"] for e in fetcher["env"] if "valueFrom" in e}
        assert references == {
            "PENSTOCK_GIT_USERNAME": {"secretKeyRef": {"name": "git", "key": "username"}},
            "PENSTOCK_GIT_PASSWORD": {"secretKeyRef": {"name": "git", "key": "password"}},
        }
        assert "s3cret" not in str(world.job())

    played(story)


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (None, "", "spec.job.source.git.secretName: Secret git does not exist"),
        ({"username": "me"}, "Opaque", "Secret git has no username and password"),
        ({"username": "a", "password": "b"}, "kubernetes.io/service-account-token", "has no username and password"),
    ],
)
def test_a_secret_without_credentials_is_refused(data: dict[str, str] | None, kind: str, words: str) -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        if data is not None:
            secret(world, data, kind)
        world.apply(flinkjob(source=source(ref="main", secretName="git")))
        await world.until(lambda: stalled(world, "InvalidSpec", words))
        assert branches.requests == []

    played(story)


def test_a_token_of_a_service_account_is_refused_for_a_commit_as_well() -> None:
    async def story(world: World) -> None:
        secret(world, {"username": "a", "password": "b"}, "kubernetes.io/service-account-token")
        world.apply(flinkjob(source=source(commit=FIRST, secretName="git")))
        await world.until(lambda: "jobs get no token for the Kubernetes API" in world.describe())
        assert not world.cluster.select("Pod", None, {JOB: NAME})

    played(story)


def test_a_deletion_asks_no_server() -> None:
    async def story(world: World) -> None:
        branches = Branches(world)
        await deployed(world, flinkjob(source=source(ref="main")))
        branches.commits.clear()
        world.edit(job={"source": source(ref="production")})
        world.delete()
        await world.until(lambda: world.cluster.one("FlinkJob", NAME) is None)
        assert len(branches.requests) <= 2

    played(story)


def test_an_image_with_the_program_is_a_volume() -> None:
    async def story(world: World) -> None:
        await deployed(world, flinkjob(source={"image": IMAGE}, requirements=["-r /opt/penstock-source/list.txt"]))
        for role in ("master", "worker"):
            for pod in world.cluster.select("Pod", None, {JOB: NAME, ROLE: role}):
                volume = {"name": "penstock-source", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}
                assert volume in pod["spec"]["volumes"]
                mount = {"name": "penstock-source", "mountPath": "/opt/penstock-source", "readOnly": True}
                (installer,) = pod["spec"]["initContainers"]
                assert mount in installer["volumeMounts"]
                assert mount in pod["spec"]["containers"][0]["volumeMounts"]
        world.edit(job={"source": {"image": IMAGE.replace("a" * 64, "b" * 64)}})
        await world.until(lambda: running(world, generation=2))
        assert "b" * 64 in str(master(world)["spec"]["volumes"])

    played(story)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (source(), "spec.job.source.git.ref: there must be exactly one of commit and ref"),
        (source(commit=FIRST, ref="main"), "spec.job.source.git.ref: there must be exactly one of commit and ref"),
        (source(commit="abc"), "spec.job.source.git.commit"),
        (source(ref="main --upload-pack=x"), "spec.job.source.git.ref"),
        (source(commit=FIRST, path="../x"), "spec.job.source.git.path: '../x' is not a folder of the repository"),
        (source(commit=FIRST, path="/x"), "spec.job.source.git.path"),
        ({"git": {"url": "ssh://git@a/b", "commit": FIRST}}, "spec.job.source.git.url: only https and http"),
        ({"git": {"url": "file:///etc", "commit": FIRST}}, "spec.job.source.git.url: only https and http"),
        ({"git": {"url": "ext::sh -c id", "commit": FIRST}}, "spec.job.source.git.url: only https and http"),
        ({"git": {"url": "https://me:pw@a/b", "commit": FIRST}}, "spec.job.source.git.url: only https and http"),
        (
            {"git": {"url": "http://a/b", "commit": FIRST, "secretName": "git"}},
            "spec.job.source.git.secretName: http would send the password in plain text",
        ),
        ({**source(commit=FIRST), "image": IMAGE}, "spec.job.source: git and image are set"),
        ({"image": "registry.example.com/team/words:latest"}, "spec.job.source.image"),
    ],
)
def test_a_wrong_reference_is_refused_with_its_field(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_spec(flinkjob(source=given)["spec"])
    assert words in str(raised.value)
    assert "me:pw" not in str(raised.value)


def test_the_operator_asks_a_real_server(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "jobs")
    commit = repository.commit({"job.py": "print(1)\n"})
    with GitServer(tmp_path) as server:
        url = f"{server.url}/jobs/.git"
        assert asyncio.run(resolve_on_server(url, "main", None)) == commit
        with pytest.raises(
            SpecError, match=r"spec.job.source.git.ref: .* has no branch and no tag production. Correct"
        ):
            asyncio.run(resolve_on_server(url, "production", None))
