"""A revision that the operator gives up although it has committed output: nothing of that comes again."""

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
    """An upgrade whose new incarnation works, and never answers the operator, which goes back; its job id."""
    before = job.status["jobId"]
    job.patch_job(args=job.args(*more))
    wait_until(
        lambda: (job.status.get("operation") or {}).get("step") == "Watch",
        lambda: job.told("the new pods"),
        seconds=180,
    )
    nobody = {"spec": {"selector": {"penstock.dev/incarnation": "nobody"}}}
    stack.cluster.kubectl("patch", "svc", f"{job.name}-rest", "--type=merge", "-p", json.dumps(nobody))
    failed: str = job.status["jobId"]
    assert failed != before
    job.goes_on()
    return failed


def test_it_goes_on_from_what_the_revision_that_failed_has_committed(stack: Stack, deploy: Callable[..., Job]) -> None:
    job = deploy("rolledback", parallelism=1, spec=SOON).running()
    job.goes_on()
    before = job.status
    failed = upgrade_unseen(stack, job, "--revision", "two")
    message = job.stalled("NotStable", seconds=300)
    assert "without an answer from its master" in message
    committed = job.output.count
    wait_until(lambda: job.condition("Running")["status"] == "True", lambda: job.told("it runs again"), seconds=240)
    job.goes_on()
    after = job.status
    assert after["running"]["revision"] == before["running"]["revision"]
    restored = after["running"]["restoredFrom"]
    assert restored["path"].startswith(f"{job.folder}/checkpoints/{failed}/chk-"), restored
    assert job.output.count > committed
    assert [h["kind"] for h in after["history"][:2]] == ["Rollback", "Upgrade"]


def test_where_the_former_revision_does_not_take_that_state_a_person_decides(
    stack: Stack, deploy: Callable[..., Job]
) -> None:
    job = deploy("blocked", parallelism=1, spec=SOON).running()
    job.goes_on()
    failed = upgrade_unseen(stack, job, "--more")
    message = job.stalled("RollbackBlocked", seconds=400)
    assert f"{job.folder}/checkpoints/{failed}/chk-" in message
    assert "change job.restartNonce" in message
    assert "change job.savepointRedeployNonce" in message
    assert not job.pods("worker")
    committed = job.output.count
    job.patch_job(restartNonce=1)
    job.running()
    job.goes_on()
    assert job.output.count > committed
    assert job.status["running"]["restoredFrom"]["path"].startswith(f"{job.folder}/checkpoints/{failed}/chk-")
