"""A PersistentVolumeClaim as the pods' working volume: state is on it, and files of earlier pods cause no problem."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

CLAIM = "work-of-volumes"
SIZE = {"storage": "1Gi"}


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Iterator[Path]:
    """Yield a folder of this machine that is bound to `CLAIM`."""
    tmp_path.chmod(0o777)  # pods run as a separate user, and Kubernetes does not change the owner of a host path
    shared: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": CLAIM},
        "spec": {
            **shared,
            "capacity": SIZE,
            "claimRef": {"namespace": "default", "name": CLAIM},
            "hostPath": {"path": str(tmp_path), "type": "Directory"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": "default"},
        "spec": {**shared, "volumeName": CLAIM, "resources": {"requests": SIZE}},
    }
    stack.cluster.apply(json.dumps(volume))
    stack.cluster.apply(json.dumps(claim))
    yield tmp_path
    stack.cluster.kubectl("delete", f"pvc/{CLAIM}", f"pv/{CLAIM}", "--ignore-not-found")


def databases(folder: Path) -> set[Path]:
    """Return the folders in which RocksDB stores state."""
    return {found.parent for found in folder.rglob("CURRENT")}


@pytest.mark.long
def test_state_is_stored_on_a_claim_that_replaces_the_working_volume(deploy: Callable[..., Job], folder: Path) -> None:
    claimed = {"name": "work", "persistentVolumeClaim": {"claimName": CLAIM}}
    spec = {
        "configuration": {"state.backend.type": "rocksdb"},
        "worker": {"podTemplate": {"spec": {"volumes": [claimed]}}},
    }
    job: Job = deploy("volumes", parallelism=1, spec=spec)
    try:
        job.wait_until_running()
        job.wait_for_output()
        (worker,) = job.pods("worker")
        assert next(v for v in worker["spec"]["volumes"] if v["name"] == "work") == claimed
        (master,) = job.pods("master")
        assert "emptyDir" in next(v for v in master["spec"]["volumes"] if v["name"] == "work")
        assert databases(folder), job.describe_missing(f"{sorted(folder.rglob('*'))[:20]}")

        killed = job.kill_pod("worker")
        wait_until(
            lambda: job.pod_names("worker") - {killed}, lambda: job.describe_missing("another worker"), seconds=120
        )
        job.wait_for_output()
        job.wait_until_running()
        assert databases(folder)
    finally:
        job.delete()  # Kubernetes deletes a claim only after the pods that use it
