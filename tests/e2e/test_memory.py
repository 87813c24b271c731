"""A limit is shared out so that the pods stay within it, as the kernel counts; one that is too small is told of beforehand."""

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
def test_pods_within_their_limits_survive_and_a_limit_that_is_too_small_is_told(deploy: Callable[..., Job]) -> None:
    job: Job = deploy("memory", parallelism=2, spec=limits("640Mi", "1Gi")).running()
    for _ in range(3):
        job.goes_on()
    (worker,) = job.pods("worker")
    assert next(v for v in worker["spec"]["volumes"] if v["name"] == "tmp")["emptyDir"] == IN_MEMORY["emptyDir"]
    for pod in (worker, *job.pods("master")):
        (container,) = pod["status"]["containerStatuses"]
        assert (container["restartCount"], container["lastState"]) == (0, {}), job.told("its pods")
        assert container["ready"], "the probes are answered"
    assert not [event for event in job.events() if event.startswith("MemoryTight")]

    job.edit({"worker": {"resources": {"limits": {"memory": "640Mi"}}}})

    def told() -> list[str]:
        return [event for event in job.events() if event.startswith("MemoryTight")]

    wait_until(told, lambda: job.told("a warning"), seconds=120)
    assert "spec.worker.resources.limits.memory is 640Mi" in told()[0]
    assert "or lower spec.worker.slots to 1" in told()[0]
