"""A rollback of a revision that has committed output: none of this output is repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job
    from tests.e2e.stack import Stack

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.s3,
    pytest.mark.timeout(900, func_only=True),
]

SOON = {"rollback": {"after": "60s"}}


def upgrade_unseen(stack: Stack, job: Job, *more: str) -> str:
    """Upgrade to an incarnation that works but never responds to the operator, which rolls back. Return its job id."""
    before = job.status["jobId"]
    job.patch_job(args=job.args(*more))
    wait_until(
        lambda: (job.status.get("operation") or {}).get("step") == "Watch",
        lambda: job.describe_missing("new pods"),
        seconds=180,
    )
    no_pods = {"spec": {"selector": {"penstock.dev/incarnation": "nobody"}}}
    stack.cluster.kubectl("patch", "svc", f"{job.name}-rest", "--type=merge", "-p", json.dumps(no_pods))
    failed: str = job.status["jobId"]
    assert failed != before
    job.wait_for_output()
    return failed


def test_the_job_continues_from_the_state_that_the_failed_revision_has_committed(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    job = deploy("rolledback", parallelism=1, spec=SOON).wait_until_running()
    job.wait_for_output()
    before = job.status
    failed = upgrade_unseen(stack, job, "--revision", "two")
    message = job.wait_until_stalled("NotStable", seconds=300)
    assert "without a response from its master" in message
    committed = job.output.count
    wait_until(
        lambda: job.condition("Running")["status"] == "True", lambda: job.describe_missing("a running job"), seconds=240
    )
    job.wait_for_output()
    after = job.status
    assert after["running"]["revision"] == before["running"]["revision"]
    restored = after["running"]["restoredFrom"]
    assert restored["path"].startswith(f"{job.folder}/checkpoints/{failed}/chk-"), restored
    assert job.output.count > committed
    assert [h["kind"] for h in after["history"][:2]] == ["Rollback", "Upgrade"]


def test_a_rollback_to_a_revision_that_cannot_read_that_state_needs_a_decision(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    job = deploy("blocked", parallelism=1, spec=SOON).wait_until_running()
    job.wait_for_output()
    failed = upgrade_unseen(stack, job, "--more")
    message = job.wait_until_stalled("RollbackBlocked", seconds=400)
    assert f"{job.folder}/checkpoints/{failed}/chk-" in message
    assert "change job.restartNonce" in message
    assert "change job.savepointRedeployNonce" in message
    assert not job.pods("worker")
    committed = job.output.count
    job.patch_job(restartNonce=1)
    job.wait_until_running()
    job.wait_for_output()
    assert job.output.count > committed
    assert job.status["running"]["restoredFrom"]["path"].startswith(f"{job.folder}/checkpoints/{failed}/chk-")
