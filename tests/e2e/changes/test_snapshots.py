"""FlinkSnapshots: manual ones, periodic ones, ones in a directory that is not writable, and their disposal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]


@pytest.fixture
def job(deploy: Callable[..., Job]) -> Job:
    """Start the job, and wait for output."""
    job = deploy("snapped", parallelism=1).wait_until_running()
    job.wait_for_output()
    return job


def snapshot(stack: Stack, name: str, job: str, **spec: Any) -> None:
    body = {"jobRef": {"name": job}, **spec}
    manifest = {"apiVersion": "penstock.dev/v1beta1", "kind": "FlinkSnapshot", "metadata": {"name": name}, "spec": body}
    stack.cluster.apply(json.dumps(manifest))


def completed(stack: Stack, name: str) -> str:
    """Wait until the snapshot is complete, and return its path."""

    def state() -> dict[str, Any]:
        found: dict[str, Any] = (stack.get("fsnap", name) or {}).get("status") or {}
        return found

    wait_until(lambda: state().get("state") == "Completed", lambda: f"{name}: {state()}", seconds=180)
    path: str = state()["path"]
    return path


def exists(stack: Stack, path: str) -> bool:
    fs, folder = fsspec.core.url_to_fs(path, **stack.s3.storage_options())
    fs.invalidate_cache()
    return bool(fs.exists(f"{folder}/_metadata"))


def test_a_manual_savepoint_is_taken_and_disposed_of(stack: Stack, job: Job) -> None:
    snapshot(stack, "by-hand", job.name, savepoint={})
    path = completed(stack, "by-hand")
    assert exists(stack, path)
    stack.cluster.kubectl("delete", "fsnap", "by-hand", "--timeout=60s")
    assert not exists(stack, path)
    job.wait_for_output()


def test_a_manual_checkpoint_is_taken(stack: Stack, job: Job) -> None:
    snapshot(stack, "a-checkpoint", job.name, checkpoint={})
    assert "/chk-" in completed(stack, "a-checkpoint")
    stack.cluster.kubectl("delete", "fsnap", "a-checkpoint", "--timeout=60s")


def test_periodic_savepoints_are_retained_by_count(stack: Stack, job: Job) -> None:
    job.patch(snapshots={"periodic": {"interval": "10s"}, "retention": {"count": 2}})
    mine = f"penstock.dev/job={job.name},penstock.dev/trigger=periodic"
    seen: dict[str, str] = {}

    def three() -> bool:
        for found in stack.list("fsnap", mine):
            if found.get("status", {}).get("state") == "Completed":
                seen[found["metadata"]["name"]] = found["status"]["path"]
        return len(seen) >= 3

    wait_until(three, lambda: job.describe_missing(f"three periodic savepoints: {seen}"), seconds=240)
    job.patch(snapshots={"periodic": None})
    wait_until(lambda: len(stack.list("fsnap", mine)) <= 2, lambda: job.describe_missing("retention"), seconds=120)
    kept = {found["metadata"]["name"] for found in stack.list("fsnap", mine)}
    for name, path in seen.items():
        assert exists(stack, path) == (name in kept), name
    job.wait_for_output()


def test_a_snapshot_that_a_restore_needs_is_kept(stack: Stack, job: Job) -> None:
    job.patch_job(state="suspended")
    job.wait_for(phase="Suspended")
    path = job.status["nextRestore"]["path"]
    upgrade = f"penstock.dev/job={job.name},penstock.dev/trigger=upgrade"
    wait_until(lambda: stack.list("fsnap", upgrade), lambda: job.describe_missing("its FlinkSnapshot"), seconds=60)
    name = next(s["metadata"]["name"] for s in stack.list("fsnap", upgrade) if s["spec"]["savepoint"]["path"] == path)
    stack.cluster.kubectl("delete", "fsnap", name, "--wait=false")
    wait_until(
        lambda: job.name in str((stack.get("fsnap", name) or {}).get("status", {}).get("message")),
        lambda: f"{name} does not name the job that needs it: {stack.get('fsnap', name)}",
        seconds=60,
    )
    assert exists(stack, path)
    job.patch_job(state="running")
    job.wait_until_running()
    job.wait_for_output()
    wait_until(lambda: stack.get("fsnap", name) is None, lambda: f"{name} still exists", seconds=120)
