"""Unforeseen errors in the operator or below it: they are reported, the running job is not changed, and deletion ends."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.validation import parse_deletion, parse_spec
from penstock_operator.errors import OperatorError, SpecError
from penstock_operator.reconcile import job_loop
from penstock_operator.reconcile.act import actor
from penstock_operator.reconcile.core import decide
from penstock_operator.reconcile.observe import dependents
from penstock_operator.snapshot import loop as snapshot_loop
from tests.unit.operator.contexts import make_spec
from tests.unit.operator.world import World, flinkjob, flinksnapshot
from tests.unit.operator.world.engine import FakeEngineClient
from tests.unit.operator.world.scenarios.scenario import gone, running
from tests.unit.operator.world.storage import FakeStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    Breakage = Callable[[pytest.MonkeyPatch], None]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


async def _fail(*_: object, **__: object) -> Any:
    raise OSError(5, "Input/output error")


def break_looking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "penstock_operator.reconcile.observe.look.manifests.deployment", raising(OSError(5, "Input/output error"))
    )


def break_deciding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(job_loop, "decide", lambda ctx: decide(ctx) if ctx.seen.failure else raising(KeyError("step"))())


def break_building(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dependents, "children", raising(OverflowError("date value out of range")))


@pytest.mark.parametrize("breakage", [break_looking, break_deciding, break_building])
def test_a_defect_is_reported_and_the_job_keeps_running(breakage: Breakage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        before = world.status()
        with monkeypatch.context() as patch:
            breakage(patch)
            world.edit(job={"parallelism": 3})
            await world.run(60)
            stalled, ready = world.condition("Stalled"), world.condition("Ready")
            assert (stalled["status"], stalled["reason"]) == ("True", "OperatorError")
            assert ready["status"] == "Unknown"
            assert "It changes nothing and tries again" in stalled["message"]
            assert [reason for reason, _ in world.events()].count("OperatorError") == 1
            assert world.status()["jobId"] == before["jobId"]
            assert len(world.cluster.select("Pod", None, {})) == 3
        await world.until(lambda: running(world, parallelism=3))
        assert not world.stalled()
        assert world.defects

    asyncio.run(scenario())


@pytest.mark.parametrize("breakage", [break_looking, break_deciding])
def test_deletion_ends_by_its_timeout(breakage: Breakage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"timeout": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        breakage(monkeypatch)
        world.delete()
        await world.until(lambda: gone(world), within=150)
        assert "DeletedUnseen" in [reason for reason, _ in world.events()]

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "ControllerRevision", "FlinkSnapshot"])
def test_a_missing_right_to_read_a_job_is_reported_and_its_deletion_ends(kind: str) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"timeout": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.cluster.unreadable.add(kind)
        world.edit(job={"parallelism": 3})
        await world.run(30)
        stalled = world.condition("Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "OperatorError")
        assert "is forbidden" in stalled["message"]
        assert "the Role of the operator does not have that right" in stalled["message"]
        world.cluster.unreadable.clear()
        await world.until(lambda: running(world, parallelism=3))
        world.cluster.unreadable.add(kind)
        world.delete()
        await world.until(lambda: gone(world), within=150)
        assert "DeletedUnseen" in [reason for reason, _ in world.events()]

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["Secret", "ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget"])
def test_unreadable_objects_around_the_pods_are_reported_and_delay_nothing(kind: str) -> None:
    async def scenario() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"savepoint": True, "timeout": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.cluster.unreadable.add(kind)
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(lambda: world.condition("Stalled").get("reason") == "Denied")
        assert "is forbidden" in world.condition("Stalled")["message"]
        await world.until(lambda: len(world.snapshots(trigger="nonce")) == 1)
        assert not {"Applied", "Repaired"} & {reason for reason, _ in world.events()}
        world.cluster.unreadable.clear()
        await world.until(lambda: running(world) and not world.stalled())
        made = len(world.savepoints)
        world.cluster.unreadable.add(kind)
        world.delete()
        await world.until(lambda: gone(world), within=150)
        assert len(world.savepoints) == made + 1

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "ControllerRevision", "FlinkSnapshot"])
def test_a_server_that_permanently_fails_for_one_kind_is_reported_and_deletion_ends(kind: str) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"timeout": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.cluster.broken.add(kind)
        world.edit(job={"parallelism": 3})
        await world.run(30)
        assert not world.stalled()
        await world.run(60)
        stalled = world.condition("Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "OperatorError")
        assert "unable to transform key; the API server returns the FlinkJob itself" in stalled["message"]
        world.cluster.broken.clear()
        await world.until(lambda: running(world, parallelism=3) and not world.stalled())
        world.cluster.broken.add(kind)
        await world.run(30)
        assert not world.stalled()
        world.delete()
        await world.until(lambda: gone(world), within=200)
        assert "DeletedUnseen" in [reason for reason, _ in world.events()]

    asyncio.run(scenario())


def test_a_server_that_was_completely_unavailable_gets_another_minute() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        for kinds, seconds in (({"Pod"}, 30), ({"Pod", "FlinkJob"}, 120), ({"Pod"}, 30)):
            world.cluster.broken = kinds
            world.edit(job={"parallelism": len(kinds) + 2})
            await world.run(seconds)
            assert world.condition("Stalled")["status"] == "False"

    asyncio.run(scenario())


def test_a_secret_that_the_server_cannot_read_is_reported_and_delays_nothing() -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        manifest = flinkjob()
        manifest["spec"]["deletion"] = {"savepoint": True, "timeout": "2m"}
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.cluster.broken.add("Secret")
        world.edit(job={"savepointTriggerNonce": 1})
        await world.until(world.stalled, within=200)
        assert world.condition("Stalled")["reason"] == "Unreadable"
        assert "unable to transform key" in world.condition("Stalled")["message"]
        await world.until(lambda: len(world.snapshots(trigger="nonce")) == 1)
        world.cluster.broken.clear()
        await world.until(lambda: running(world) and not world.stalled(), within=400)
        made = len(world.savepoints)
        world.cluster.broken.add("Secret")
        world.delete()
        await world.until(lambda: gone(world), within=150)
        assert len(world.savepoints) == made + 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("trouble", "seconds", "says"), [("unreadable", 5, "is forbidden"), ("broken", 90, "unable to transform key")]
)
def test_an_unreadable_object_of_a_flinksnapshot_is_reported_and_its_deletion_ends(
    trouble: str, seconds: float, says: str
) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.apply(flinksnapshot("one"))
        await world.until(lambda: world.snapshots()["one"].get("state") == "Completed")
        getattr(world.cluster, trouble).add("ControllerRevision")
        world.cluster.remove("FlinkSnapshot", "default", "one")
        await world.run(seconds)
        stalled = next(c for c in world.snapshots()["one"]["conditions"] if c["type"] == "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "OperatorError")
        assert says in stalled["message"]
        await world.until(lambda: "one" not in world.snapshots(), within=4000, pace=5)
        assert "FilesKept" in [reason for reason, _ in world.events()]

    asyncio.run(scenario())


def test_an_action_with_an_unforeseen_failure_is_reported_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        with monkeypatch.context() as patch:
            patch.setattr(actor, "worker_deployment", raising(OSError(28, "No space left on device")))
            manifest = flinkjob()
            manifest["spec"]["upgrade"] = {"check": False}
            world.apply(manifest)
            await world.run(30)
            assert "No space left on device" in str(world.status())
        await world.until(lambda: running(world))

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["newest_complete", "verify", "savepoints"])
def test_storage_that_raises_any_exception_has_not_answered(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        with monkeypatch.context() as patch:
            patch.setattr(FakeStorage, method, _fail)
            world.edit(image="job:2")
            await world.run(200)
            assert world.sink.empty_starts == world.sink.empty_starts[:1]
            # The engine's answer is enough to read a savepoint at the path that it names.
            assert method == "savepoints" or "Input/output error" in str(world.status()), world.describe()
        await world.until(lambda: running(world, image="job:2"))
        assert not world.sink.lost
        assert not world.sink.repeated

    asyncio.run(scenario())


def test_a_master_with_an_invalid_answer_counts_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        with monkeypatch.context() as patch:
            patch.setattr(FakeEngineClient, "checkpoints", raising(TypeError("'NoneType' object is not iterable")))
            await world.run(90)
            assert world.condition("Running")["status"] != "True"
            assert "TypeError" in world.condition("Running")["message"]
        await world.until(lambda: running(world))

    asyncio.run(scenario())


def test_a_secret_may_contain_binary_data() -> None:
    async def scenario() -> None:
        world = World()
        world.secret("keys")
        keystore = b64encode(b"\xfe\xed\xfe\xed\x00\xff").decode()
        world.cluster.edit("Secret", "default", "keys", lambda m: m["data"].update({"keystore.jks": keystore}))
        manifest = flinkjob()
        manifest["spec"]["storage"]["secretName"] = "keys"
        world.apply(manifest)
        await world.until(lambda: running(world))
        world.edit(image="job:2")
        await world.until(lambda: running(world, image="job:2"))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("upgrade", "savepointTimeout", "99999999999999999999d"),
        ("deletion", "timeout", "999999999999d"),
        ("rollback", "after", "9" * 400 + "h"),
    ],
)
def test_a_duration_beyond_the_calendar_is_refused_by_name(part: str, field: str, value: str) -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.edit(**{part: {field: value}})  # type: ignore[arg-type]
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "InvalidSpec"
        assert f"spec.{part}.{field}" in stalled["message"]
        assert "is not a duration" in stalled["message"]
        assert world.condition("Running")["status"] == "True"
        world.delete()
        await world.until(lambda: gone(world))

    asyncio.run(scenario())


def test_storage_that_no_image_supports_is_refused_before_any_pod_runs() -> None:
    async def scenario() -> None:
        world = World()
        manifest = flinkjob()
        manifest["spec"]["storage"]["savepoints"] = "hdfs://namenode/savepoints"
        world.apply(manifest)
        await world.until(world.stalled)
        stalled = world.condition("Stalled")
        assert stalled["reason"] == "InvalidSpec"
        assert "spec.storage.savepoints" in stalled["message"]
        assert "s3://" in stalled["message"]
        world.delete()
        await world.until(lambda: gone(world), within=60)

    asyncio.run(scenario())


def test_an_unreadable_spec_is_an_invalid_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        monkeypatch.setattr(job_loop, "spec_with_defaults", raising(RecursionError("maximum recursion depth exceeded")))
        world.edit(image="job:2")
        await world.until(world.stalled)
        assert world.condition("Stalled")["reason"] == "InvalidSpec"
        assert world.condition("Running")["status"] == "True"

    asyncio.run(scenario())


@pytest.mark.parametrize("raw", [{"deletion": {"timeout": "9" * 30 + "d"}}, {"deletion": 7}, 7, None])
def test_a_readable_deletion_policy_is_used_and_another_one_is_ignored(raw: object) -> None:
    assert parse_deletion(raw) is None


def test_a_savepoint_of_an_unknown_storage_is_a_problem_of_the_spec() -> None:
    raw = make_spec(job={"initialSavepointPath": "webhdfs://x/sp"}).to_manifest()
    with pytest.raises(SpecError, match=r"spec\.job\.initialSavepointPath"):
        parse_spec(raw)


# --- FlinkSnapshots ---------------------------------------------------------------------------------------------------


def test_an_invalid_flinksnapshot_reports_it_and_can_be_deleted() -> None:
    async def scenario() -> None:
        world = World()
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        world.apply(flinksnapshot("odd"))
        await world.run(30)
        assert world.snapshots()["odd"]["state"] == "Completed"
        path = world.snapshots()["odd"]["path"]
        world.cluster.edit("FlinkSnapshot", "default", "odd", lambda m: m["spec"].update(timeout="9" * 30 + "d"))
        await world.run(61)
        status = world.snapshots()["odd"]
        assert status["path"] == path
        stalled = next(c for c in status["conditions"] if c["type"] == "Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
        world.cluster.remove("FlinkSnapshot", "default", "odd")
        await world.until(lambda: "odd" not in world.snapshots(), within=2000, pace=5)
        assert path in world.storage.found
        assert "FilesKept" in [reason for reason, _ in world.events()]

    asyncio.run(scenario())


def test_a_defect_while_reconciling_a_flinksnapshot_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World()
        world.has_defects = True
        world.apply(flinkjob())
        await world.until(lambda: running(world))
        with monkeypatch.context() as patch:
            patch.setattr(snapshot_loop, "decide", raising(ZeroDivisionError("division by zero")))
            world.apply(flinksnapshot("mine"))
            await world.run(30)
            stalled = next(c for c in world.snapshots()["mine"]["conditions"] if c["type"] == "Stalled")
            assert (stalled["status"], stalled["reason"]) == ("True", OperatorError.code)
        await world.until(lambda: world.snapshots()["mine"].get("state") == "Completed", within=200)
        assert len(world.savepoints) == 1

    asyncio.run(scenario())
