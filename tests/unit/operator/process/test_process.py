"""The process around the loops: controller, configuration, metrics, credentials."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock_operator.errors import KubeError, NotLeader
from penstock_operator.kube.cluster import FLINKJOB, POD
from penstock_operator.kube.credentials import find_credentials, from_kubeconfig
from penstock_operator.kube.selector import parse_selector
from penstock_operator.process import controller as controller_module
from penstock_operator.process.config import Config, ConfigError, from_environment
from penstock_operator.process.controller import Controller
from penstock_operator.process.metrics import Histogram, Metric, Metrics
from penstock_operator.process.traces import OperationTraces
from penstock_operator.reconcile.job_loop import JobLoop
from penstock_operator.reconcile.ownership import Shard
from tests.unit.operator.world import World, flinkjob, flinksnapshot
from tests.unit.operator.world.kubernetes.watch import EventReceiver
from tests.unit.operator.world.scenarios.cold_scenarios import SCENARIOS
from tests.unit.operator.world.scenarios.scenario import play, running

if TYPE_CHECKING:
    from pathlib import Path

    from penstock_operator.reconcile.job_loop import Transition


def test_the_environment_is_read() -> None:
    config = from_environment(
        {
            "PENSTOCK_WATCH_NAMESPACES": "a, b",
            "PENSTOCK_RESYNC": "90s",
            "PENSTOCK_PORT": "9000",
            "PENSTOCK_LEADER_ELECTION": "false",
            "PENSTOCK_SELECTOR": "team=a",
        }
    )
    assert config.shard == Shard("", parse_selector("team=a"))
    assert from_environment({}).shard.operator == "default/penstock-operator"
    assert config.namespaces == ("a", "b")
    assert config.settings.resync == timedelta(seconds=90)
    assert (config.port, config.elect) == (9000, False)
    assert from_environment({}).namespaces == Config().namespaces


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_RESYNC", "soon"),
        ("PENSTOCK_RESYNC", "0s"),
        ("PENSTOCK_PORT", "eighty"),
        ("PENSTOCK_PORT", "99999"),
        ("PENSTOCK_LEADER_ELECTION", "perhaps"),
        ("PENSTOCK_LOG_LEVEL", "LOUD"),
        ("PENSTOCK_SELECTOR", "a in b"),
        ("PENSTOCK_REST_URL", "http://{nme}"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        from_environment({name: value})


def test_a_kubeconfig_with_a_token_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    found = find_credentials(str(path))
    assert (found.server, found.namespace, found.headers()) == (
        "http://127.0.0.1:1",
        "n",
        {"Authorization": "Bearer t"},
    )


def test_a_kubeconfig_with_a_credential_plugin_is_read(tmp_path: Path) -> None:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}
    user = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(answer)],
        "interactiveMode": "Never",
    }
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"exec": user}}],
            }
        )
    )
    assert find_credentials(str(path)).headers() == {"Authorization": "Bearer made"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"current-context": "other"}, "Expected object with name other in .*contexts list"),
        ({"clusters": []}, "Expected object with name k in .*clusters list"),
    ],
)
def test_unusable_kubeconfigs_are_errors_with_a_reason(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://x"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config | change))
    with pytest.raises(KubeError, match=words):
        from_kubeconfig(path)
    with pytest.raises(KubeError, match=r"the kubeconfig .* does not exist"):
        from_kubeconfig(tmp_path / "nowhere")


def test_metrics_are_prometheus_text() -> None:
    metric = Metric("x_total", "Things", ("kind",))
    metric.add('a"\\\n')
    metric.add('a"\\\n')
    assert list(metric.lines()) == ["# HELP x_total Things", "# TYPE x_total counter", 'x_total{kind="a\\"\\\\\\n"} 2']
    histogram = Histogram("d_seconds", "Durations", ("kind",), (0.5, 1))
    for value in (0.1, 0.7, 5):
        histogram.observe("a", value=value)
    assert list(histogram.lines())[2:] == [
        'd_seconds_bucket{kind="a",le="0.5"} 1',
        'd_seconds_bucket{kind="a",le="1"} 2',
        'd_seconds_bucket{kind="a",le="+Inf"} 3',
        'd_seconds_sum{kind="a"} 5.8',
        'd_seconds_count{kind="a"} 3',
    ]


def test_metrics_follow_a_flinkjob_and_are_removed_with_it() -> None:
    async def scenario() -> Metrics:
        world = World()
        metrics = Metrics()
        world.watch = metrics.note
        await play(next(s for s in SCENARIOS if s.name == "upgrade"), world)
        return metrics

    metrics = asyncio.run(scenario())
    page = metrics.render()
    assert 'penstock_flinkjob_phase{namespace="default",name="weather",phase="Running"} 1' in page
    assert 'penstock_flinkjob_ready{namespace="default",name="weather"} 1' in page
    assert 'penstock_operation_seconds_count{kind="Upgrade",outcome="Succeeded"} 1' in page
    assert 'penstock_operation_step_seconds_count{kind="Upgrade",step="Stop"} 1' in page
    assert 'penstock_downtime_seconds_count{kind="Upgrade",outcome="Succeeded"} 1' in page
    metrics.forget("default", "weather")
    assert 'name="weather"' not in metrics.render()


class Control:
    """A controller in a world whose time the test controls."""

    def __init__(self, traces: OperationTraces | None = None) -> None:
        self.world = World()
        self.metrics = Metrics()
        self.controller = Controller(self.world.ports, self.metrics, ["default"], traces)

    async def settle(self, turns: int = 30) -> None:
        for _ in range(turns):
            await asyncio.sleep(0.02)
            self.world.tick(0.5)
            for name in ("weather",):
                self.controller.wake("FlinkJob", "default", name)


class _BrokenTraces(OperationTraces):
    def __init__(self) -> None:
        super().__init__(lambda span: None)

    def note(self, transition: Transition) -> None:
        raise ZeroDivisionError


def test_an_operation_that_cannot_be_traced_is_executed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        control = Control(_BrokenTraces())
        control.world.apply(flinkjob())
        control.controller.wake("FlinkJob", "default", "weather")
        for _ in range(20):
            await control.settle(20)
            if running(control.world):
                break
        assert running(control.world)
        await control.controller.close()

    asyncio.run(scenario())
    assert not [record for record in caplog.records if "was not recorded" not in record.getMessage()]
    assert "default/weather: the trace of an operation was not recorded" in caplog.text


def test_the_controller_reconciles_objects_of_events_and_forgets_deleted_ones() -> None:
    async def scenario() -> None:
        control = Control()
        control.world.apply(flinkjob())
        control.controller.wake("FlinkJob", "default", "weather")
        for _ in range(20):
            await control.settle(20)
            if running(control.world):
                break
        assert running(control.world)
        control.world.delete()
        for _ in range(20):
            await control.settle(20)
            if control.world.cluster.one("FlinkJob", "weather") is None:
                break
        await asyncio.sleep(0.5)
        assert control.controller.size == 0
        await control.controller.close()

    asyncio.run(scenario())


def test_jobs_whose_masters_hang_do_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started_jobs = list[str]()

    async def reconcile(loop: JobLoop) -> timedelta:
        started_jobs.append(loop.name)
        if loop.name.startswith("hangs"):
            await asyncio.Event().wait()
        return timedelta(seconds=60)

    async def scenario() -> None:
        controller = Control().controller
        for number in range(3 * controller_module.CONCURRENT_PASSES):
            controller.wake("FlinkJob", "default", f"hangs-{number}")
        await asyncio.sleep(0.2)
        controller.wake("FlinkJob", "default", "works")
        await asyncio.sleep(1.0)
        assert "works" in started_jobs
        await controller.close()

    monkeypatch.setattr(JobLoop, "reconcile", reconcile)
    monkeypatch.setattr(controller_module, "SLOT_SECONDS", 0.1)
    asyncio.run(scenario())


def test_a_resync_finds_objects_whose_event_was_lost() -> None:
    async def scenario() -> None:
        control = Control()
        control.world.apply(flinkjob())
        control.world.apply(flinksnapshot("s"))
        assert control.controller.size == 0
        await control.controller.resync()
        assert control.controller.size == 2
        await control.controller.close()

    asyncio.run(scenario())


def test_errors_are_counted_and_retried() -> None:
    async def scenario() -> None:
        control = Control()
        calls = 0

        async def broken(*_: object) -> None:
            nonlocal calls
            calls += 1
            raise ValueError("a defect")

        control.world.cluster.get = broken  # type: ignore[assignment, method-assign]
        control.controller.wake("FlinkJob", "default", "weather")
        await asyncio.sleep(0.3)
        assert calls >= 1
        assert 'penstock_reconcile_errors_total{kind="FlinkJob",reason="ValueError"}' in control.metrics.render()
        assert not control.controller.fatal.done()
        await control.controller.close()

    asyncio.run(scenario())


def test_loops_that_are_woken_during_the_shutdown_stop() -> None:
    async def scenario() -> None:
        control = Control()
        control.world.apply(flinkjob())
        for _ in range(3):
            await control.settle()
        await asyncio.sleep(0.5)
        control.controller.wake("FlinkJob", "default", "weather")
        await asyncio.wait_for(control.controller.close(), 10)
        before = list(control.world.fault.calls)
        control.world.edit(image="job:2")
        await asyncio.sleep(0.5)
        assert control.world.fault.calls == before

    asyncio.run(scenario())


def test_a_process_that_loses_leadership_stops() -> None:
    async def scenario() -> None:
        control = Control()

        async def fenced(*_: object) -> None:
            raise NotLeader("another leads")

        control.world.cluster.get = fenced  # type: ignore[assignment, method-assign]
        control.controller.wake("FlinkJob", "default", "weather")
        with pytest.raises(NotLeader):
            await asyncio.wait_for(control.controller.fatal, 2)
        await control.controller.close()

    asyncio.run(scenario())


def finished_snapshot(number: int, *, job: str = "weather") -> dict[str, Any]:
    manifest = flinksnapshot(f"s-{number:03}", job=job)
    manifest["metadata"] |= {
        "finalizers": ["penstock.dev/finalizer"],
        "labels": {"penstock.dev/job": job},
        "generation": 1,
    }
    ready = {"type": "Ready", "status": "True", "reason": "Completed", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    path = f"s3://bucket/savepoints/savepoint-{number:03}"
    return manifest | {
        "status": {"observedGeneration": 1, "state": "Completed", "path": path, "conditions": [ready]},
    }


def test_finished_snapshots_cost_nothing() -> None:
    """They need no task, and no read when their FlinkJob changes or all objects are listed.

    Their deletion is still handled.
    """

    async def scenario() -> None:
        control = Control()
        world = control.world
        for number in range(400):
            world.cluster.put(finished_snapshot(number))
        world.apply(flinksnapshot("waiting"))
        world.apply(flinksnapshot("of-another", job="other"))
        reads: list[str] = []
        real = world.cluster.get

        async def counted(kind: Any, namespace: str, name: str) -> Any:
            reads.append(f"{kind.name} {name}")
            return await real(kind, namespace, name)

        world.cluster.get = counted  # type: ignore[method-assign]
        await control.controller.resync()
        await asyncio.sleep(0.3)
        assert control.controller.size == 2
        reads.clear()
        for _ in range(5):
            control.controller.wake_snapshots("default", "weather")
            await asyncio.sleep(0.25)
        assert "FlinkSnapshot waiting" in reads
        assert not [r for r in reads if r.startswith("FlinkSnapshot s-")]
        assert reads.count("FlinkSnapshot of-another") <= 1
        world.cluster.remove("FlinkSnapshot", "default", "s-007")
        await control.controller.resync()
        for _ in range(50):
            if world.cluster.one("FlinkSnapshot", "s-007") is None:
                break
            await asyncio.sleep(0.1)
        assert world.cluster.one("FlinkSnapshot", "s-007") is None
        await control.controller.close()

    asyncio.run(scenario())


def test_an_event_of_the_operators_own_write_wakes_no_loop() -> None:
    async def scenario() -> None:
        control = Control()
        world, controller = control.world, control.controller
        world.apply(flinkjob())
        controller.handle_event(FLINKJOB, world.job())
        for _ in range(40):
            await control.settle(10)
            if running(world):
                break
        runner = next(iter(controller._runners.values()))
        await asyncio.sleep(0.5)
        assert isinstance(runner.loop, JobLoop)
        assert not runner.wake.is_set()
        before = world.polls
        mine = {**world.job(), "metadata": {**world.job()["metadata"], "resourceVersion": "99999"}}
        runner.loop.cache.written_version = "99999"
        controller.handle_event(FLINKJOB, mine)
        await asyncio.sleep(0.4)
        assert world.polls == before
        others = {**mine, "metadata": {**mine["metadata"], "resourceVersion": "100000"}}
        controller.handle_event(FLINKJOB, others)
        await asyncio.sleep(0.4)
        assert world.polls > before
        await controller.close()

    asyncio.run(scenario())


def test_a_watch_that_lists_again_makes_the_operator_list_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that was deleted while the watch was broken is in no event."""
    monkeypatch.setattr(controller_module, "RELIST_SECONDS", 0.1)

    async def scenario() -> None:
        control = Control()
        world, controller, watched = control.world, control.controller, control.world.ports.watched
        meta = {"namespace": "default", "labels": {"penstock.dev/job": "weather"}}
        for name in ("stays", "vanishes"):
            world.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": {}})
        pods = world.cluster.select("Pod", None, {})
        syncing = asyncio.create_task(controller.keep_synced())
        for pod in pods:
            controller.handle_event(POD, pod, listed=True)
        world.watching.break_off()
        await asyncio.sleep(0.3)
        world.cluster.drop("Pod", "default", "vanishes")
        await asyncio.sleep(0.3)
        labels = {"penstock.dev/job": "weather"}
        assert len(await watched.list(POD, "default", labels)) == 2, "no event has arrived"
        controller.handle_event(POD, pods[0], listed=True)
        await asyncio.sleep(0.5)
        assert [p["metadata"]["name"] for p in await watched.list(POD, "default", labels)] == ["stays"]
        syncing.cancel()
        await controller.close()

    asyncio.run(scenario())


def pod_of(namespace: str, name: str) -> dict[str, Any]:
    meta = {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}", "resourceVersion": "1"}
    return {"metadata": {**meta, "labels": {"penstock.dev/job": "weather"}}}


@pytest.mark.parametrize("vanished", ["b/2", "b/1"])
def test_a_watch_that_restarts_after_one_of_another_namespace_is_noticed(vanished: str) -> None:
    controller = EventReceiver(World().ports, Metrics(), ("a", "b"))
    everything = [(namespace, name) for namespace in ("a", "b") for name in ("1", "2")]
    for namespace, name in everything:
        controller.handle_event(POD, pod_of(namespace, name), listed=True)
    assert not controller.relist_due.is_set(), "each begins once"
    for name in ("1", "2"):
        controller.handle_event(POD, pod_of("a", name), listed=True)
    assert controller.relist_due.is_set()
    controller.relist_due.clear()
    for namespace, name in everything:
        if namespace == "b" and f"b/{name}" != vanished:
            controller.handle_event(POD, pod_of(namespace, name), listed=True)
    assert controller.relist_due.is_set(), f"no new list is due, so the copy keeps the pod {vanished}"


def test_a_list_after_changes_is_a_newer_one_even_if_all_its_objects_are_unknown() -> None:
    controller = EventReceiver(World().ports, Metrics(), ("a",))
    controller.handle_event(POD, pod_of("a", "1"))
    controller.handle_event(POD, pod_of("a", "2"), listed=True)
    assert controller.relist_due.is_set(), "1 may be gone"
    controller.relist_due.clear()
    controller.handle_event(POD, pod_of("a", "3"), listed=True)
    assert not controller.relist_due.is_set(), "it is one list"


def test_a_stream_of_the_whole_cluster_is_one_stream() -> None:
    controller = EventReceiver(World().ports, Metrics())
    for _ in range(2):
        assert not controller.relist_due.is_set()
        for namespace in ("a", "b"):
            controller.handle_event(POD, pod_of(namespace, "1"), listed=True)
    assert controller.relist_due.is_set()


def test_pods_of_another_operators_jobs_wake_no_loop() -> None:
    async def scenario() -> None:
        world = World()
        ports = replace(world.ports, shard=Shard("ops/a", parse_selector("team=a")))
        controller = Controller(ports, Metrics(), ["default"])
        meta = {"namespace": "default", "uid": "u", "resourceVersion": "1", "labels": {"penstock.dev/job": "weather"}}
        pod: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p", **meta}}
        controller.handle_event(POD, pod)
        assert controller.size == 0
        world.apply(flinkjob())
        await controller.resync()
        assert controller.size == 0, "it has no such label"
        world.cluster.edit("FlinkJob", "default", "weather", lambda m: m["metadata"].update(labels={"team": "a"}))
        await controller.resync()
        assert controller.size == 1
        await controller.close()

    asyncio.run(scenario())
