"""A pod's memory limit is divided so that the pod stays within it, by the kernel's count. A limit that is too small gives a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.stack import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.flinkjob import Job

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900, func_only=True)]

IN_MEMORY = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}


def limits(master: str, worker: str) -> dict[str, Any]:
    return {
        "configuration": {"state.backend.type": "rocksdb"},
        "master": {"resources": {"limits": {"memory": master}}},
        "worker": {
            "slots": 2,
            "resources": {"limits": {"memory": worker}},
            "podTemplate": {"spec": {"volumes": [IN_MEMORY]}},
        },
    }


@pytest.mark.long
def test_pods_stay_within_their_limits_and_a_limit_that_is_too_small_is_reported(deploy: Callable[..., Job]) -> None:
    job: Job = deploy("memory", parallelism=2, spec=limits("640Mi", "1Gi")).wait_until_running()
    for _ in range(3):
        job.wait_for_output()
    (worker,) = job.pods("worker")
    assert next(v for v in worker["spec"]["volumes"] if v["name"] == "tmp")["emptyDir"] == IN_MEMORY["emptyDir"]
    for pod in (worker, *job.pods("master")):
        (container,) = pod["status"]["containerStatuses"]
        assert (container["restartCount"], container["lastState"]) == (0, {}), job.describe_missing("its pods")
        assert container["ready"], "the container responds to its probes"
    assert not [event for event in job.events() if event.startswith("MemoryTight")]

    job.edit({"worker": {"resources": {"limits": {"memory": "640Mi"}}}})

    def warnings() -> list[str]:
        return [event for event in job.events() if event.startswith("MemoryTight")]

    wait_until(warnings, lambda: job.describe_missing("a warning"), seconds=120)
    assert "spec.worker.resources.limits.memory is 640Mi" in warnings()[0]
    assert "or lower spec.worker.slots to 1" in warnings()[0]
