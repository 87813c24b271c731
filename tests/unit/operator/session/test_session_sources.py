"""Programs of FlinkJobs in a FlinkCluster: the session fetches them, and defaults of the configuration apply."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock_operator.reconcile.presets.config_maps import ClusterPresets
from tests.unit.operator.session.session_jobs import is_running, played, started
from tests.unit.operator.world import World
from tests.unit.operator.world.kubernetes.kubelet import NAME
from tests.unit.operator.world.scenarios.scenario import running
from tests.unit.operator.world.session import flinkcluster, session_job

if TYPE_CHECKING:
    from penstock_operator.kube.cluster import Manifest


def job_with_source(source: dict[str, Any], **job: Any) -> Manifest:
    found = session_job(**job)
    del found["spec"]["job"]["script"]
    found["spec"]["job"] |= {"entry": "job.py", "source": source}
    return found


def test_the_session_fetches_a_program_with_its_checksum_and_its_packages() -> None:
    async def story(world: World) -> None:
        world.served = {"https://host/v1.zip": "job v1", "https://host/v2.zip": "job v2"}
        await started(
            world,
            job_with_source({"url": "https://host/v1.zip", "sha256": "a" * 64}, requirements=["rich==14.0"]),
        )
        assert world.fetched[0] == {
            "name": NAME,
            "url": "https://host/v1.zip",
            "sha256": "a" * 64,
            "requirements": ["rich==14.0"],
        }
        world.edit(job={"source": {"url": "https://host/v2.zip", "sha256": "b" * 64}})
        await world.until(lambda: running(world, generation=2))
        assert len(world.savepoints) == 1

    played(story)


def test_the_session_fetches_a_commit_with_the_password_of_the_secret() -> None:
    def secret(world: World, **texts: str) -> None:
        data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        meta = {"name": "git", "namespace": "default"}
        world.cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})

    async def story(world: World) -> None:
        world.served = {"https://host/git": "job v1"}
        secret(world, password="hunter-7")
        world.apply(flinkcluster())
        git = {"url": "https://host/git", "commit": "c" * 40, "path": "jobs", "secretName": "git"}
        world.apply(job_with_source({"git": git}))
        await world.until(lambda: "no username and password" in world.condition("Stalled").get("message", ""))
        secret(world, username="me", password="hunter-7")
        world.edit(job={"restartNonce": 1})
        await world.until(lambda: running(world))
        expected = {
            "url": "https://host/git",
            "commit": "c" * 40,
            "path": "jobs",
            "username": "me",
            "password": "hunter-7",
        }
        assert expected.items() <= world.fetched[0].items()
        kept = [world.cluster.select(kind, None, {}) for kind in ("ConfigMap", "ControllerRevision", "FlinkJob")]
        assert "hunter-7" not in str(kept)

    played(story)


def test_a_program_that_cannot_be_fetched_is_reported_and_an_edit_helps() -> None:
    async def story(world: World) -> None:
        world.served = {"https://host/v1.zip": "job v1"}
        world.apply(flinkcluster())
        world.apply(job_with_source({"url": "https://host/missing.zip", "sha256": "a" * 64}))
        await world.until(lambda: "missing.zip returned 404" in world.condition("Stalled").get("message", ""))
        world.edit(job={"source": {"url": "https://host/v1.zip", "sha256": "a" * 64}})
        await world.until(lambda: running(world))

    played(story)


def test_a_program_in_an_image_is_refused_with_the_remedy() -> None:
    async def story(world: World) -> None:
        world.apply(flinkcluster())
        world.apply(job_with_source({"image": f"host/program@sha256:{'a' * 64}"}))
        await world.until(lambda: world.condition("Stalled").get("reason") == "InvalidSpec")
        assert "Set source.url or source.git instead" in world.condition("Stalled")["message"]

    played(story)


def test_defaults_of_the_configuration_apply_except_keys_of_the_cluster() -> None:
    async def story(world: World) -> None:
        world.ports = replace(world.ports, presets=ClusterPresets(world.cluster, "default", world.ports.monotonic))
        preset: dict[str, Any] = {
            "configuration": {
                "execution.checkpointing.timeout": "3m",
                "execution.checkpointing.interval": "1m",
                "execution.checkpointing.min-pause": "4s",
                "taskmanager.numberOfTaskSlots": 9,
            },
            "podTemplate": {"spec": {"hostname": "x"}},
            "worker": {"resources": {"limits": {"memory": "9Gi"}}},
        }
        meta = {"name": "flinkjob-defaults", "namespace": "default"}
        world.cluster.put(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"spec": json.dumps(preset)}}
        )
        world.apply(flinkcluster(configuration={"execution.checkpointing.min-pause": "2s"}))
        world.apply(session_job())
        await world.until(lambda: is_running(world))
        sent = world.submitted[0]["flinkConfiguration"]
        assert sent["execution.checkpointing.timeout"] == "3m"
        assert sent["execution.checkpointing.interval"] == "10s", "the FlinkJob takes precedence"
        assert sent["execution.checkpointing.min-pause"] == "2s", "the FlinkCluster takes precedence"
        assert "taskmanager.numberOfTaskSlots" not in sent
        assert world.status()["defaults"] == {
            "configuration": {
                key: preset["configuration"][key] for key in preset["configuration"] if key.startswith("execution.")
            }
        }

    played(story)
