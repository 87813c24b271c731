"""A real S3 server behind a proxy that loses, delays and refuses requests: a job never fences itself off, and nothing is lost."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.checkpoint.store.retrying_store import RetryPolicy
from tests.chaos.faults.storage_proxy import Disorder, StorageProxy, Target
from tests.integration.checkpoint.conftest import BUCKET, QUICK
from tests.unit.checkpoint.life import JobManager, Sink, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.servers.s3 import S3Server

pytestmark = pytest.mark.s3

PATIENCE = RetryPolicy(retry_for=0.5, pause=0.02, max_pause=0.05)
QUICK_STEPS = ("the claim of the second attempt", "the base of the second attempt", "a manifest")
STEPS = {
    "the first claim": (Target.LEADER, "/leader/1"),
    "the claim of the second attempt": (Target.LEADER, "/leader/2"),
    "the base of the second attempt": (Target.LEADER, "/leader/2.base"),
    "a manifest": (Target.MANIFEST, "/chk-2/_metadata"),
    "the savepoint's manifest": (Target.MANIFEST, "/savepoint-"),
    "state": (Target.STATE, "/shared/"),
    "a look": (Target.LIST, ""),
    "a deletion": (Target.DELETE, ""),
}
USED_UP = 40
"""More times than a request is retried."""


@pytest.fixture(scope="module")
def proxy(s3: S3Server) -> Iterator[StorageProxy]:
    with StorageProxy(s3.endpoint_url) as proxy:
        yield proxy


def test_lost_responses_to_leadership_requests_cause_no_loss(proxy: StorageProxy, s3: S3Server) -> None:
    for step in QUICK_STEPS:
        live(proxy, s3, step, Disorder.LOSE_ANSWER, USED_UP)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, USED_UP], ids=["once", "until the client gives up"])
@pytest.mark.parametrize(
    "disorder", [Disorder.LOSE_ANSWER, Disorder.LATE, Disorder.REFUSE, Disorder.SLOW_DOWN], ids=lambda d: d.name
)
def test_a_job_survives_every_disorder_at_every_step(
    proxy: StorageProxy, s3: S3Server, disorder: Disorder, times: int
) -> None:
    for step in STEPS:
        live(proxy, s3, step, disorder, times)


def live(proxy: StorageProxy, s3: S3Server, step: str, disorder: Disorder, times: int) -> None:
    target, within = STEPS[step]
    root, job_id, options = f"s3://{BUCKET}/{uuid.uuid4().hex}", uuid.uuid4().hex, s3.storage_options()
    hit = {**options, "endpoint_url": proxy.endpoint_url}
    manager = JobManager(CheckpointStorage(root, job_id, hit, policy=PATIENCE), Sink())
    order = proxy.order(disorder, target, times=times, seconds=0.2, within=within)
    try:
        status = manager.run()
        took = proxy.withdraw(order)
        proxy.wait_for_late()
        check(manager, status, CheckpointStorage(root, job_id, options, policy=QUICK))
    except BaseException as error:
        error.add_note(f"{disorder.name} to {step}, {order.took} times")
        raise
    assert took, f"no request was disturbed at {step}"
