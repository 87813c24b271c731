"""The behaviour of Kubernetes' controllers for Deployments with standby pods, on which `operations.prepare` depends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock_operator.api.status.snapshots import Restore
from penstock_operator.resources.deployments import standby_deployment, worker_deployment
from penstock_operator.resources.incarnation import Incarnation
from penstock_operator.resources.names import INCARNATION, Owner
from tests.unit.operator.contexts import make_spec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.operator.sim import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAME = "weather-worker"
BEFORE, AFTER, LATER = "a" * 32, "b" * 32, "c" * 32


def ordinary(site: Site, job_id: str, pods: int = 2) -> dict[str, Any]:
    """Return a Deployment of workers, as the operator applies it, but without an owner."""
    incarnation = Incarnation("r", make_spec(), BEFORE, Restore(kind="Fresh", reason="t"), 2)
    owner = Owner(site.namespace, "weather", "uid")
    made = worker_deployment(owner, replace(incarnation, job_id=job_id), pods, timedelta(seconds=30))
    del made["metadata"]["ownerReferences"]
    made["spec"]["template"]["spec"].pop("serviceAccountName")
    return made


def pods(site: Site) -> dict[str, set[str]]:
    """Return the names of the pods that are not being deleted, by incarnation."""
    found: dict[str, set[str]] = {}
    for pod in json.loads(site.kubectl("get", "pods", "-o", "json"))["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(pod["metadata"]["labels"][INCARNATION], set()).add(pod["metadata"]["name"])
    return found


async def settled(site: Site, **expected: int) -> dict[str, set[str]]:
    """Wait until each incarnation has this number of pods, and the numbers stay the same."""

    async def so() -> bool:
        return {job_id[0]: len(names) for job_id, names in pods(site).items()} == expected

    await site.until(so, f"{expected} and not {pods(site)}", within=60)
    await asyncio.sleep(2)
    assert await so(), pods(site)
    return pods(site)


def test_standby_pods_start_and_either_set_is_removed_without_changing_the_other(
    play: Callable[[Callable[[Site], Awaitable[None]]], None],
) -> None:
    async def scenario(site: Site) -> None:
        site.apply(ordinary(site, BEFORE))
        run = await settled(site, a=2)
        site.apply(standby_deployment(ordinary(site, AFTER), BEFORE))
        assert (await settled(site, a=2, b=2))[BEFORE] == run[BEFORE]
        site.apply(ordinary(site, BEFORE))
        assert await settled(site, a=2) == run, "given up"
        site.apply(standby_deployment(ordinary(site, AFTER), BEFORE))
        beside = await settled(site, a=2, b=2)
        site.apply(ordinary(site, AFTER))
        assert (await settled(site, b=2))[AFTER] == beside[AFTER], "taken over"
        site.apply(standby_deployment(ordinary(site, LATER), AFTER))
        await settled(site, b=2, c=2)
        site.kubectl("scale", f"deploy/{NAME}", "--replicas=0")
        await settled(site)

    play(scenario)


def test_a_changed_number_of_pods_is_handled_first(
    play: Callable[[Callable[[Site], Awaitable[None]]], None],
) -> None:
    """Show why standby pods keep the number of pods, and why it does not change until one of the two sets is gone."""

    async def scenario(site: Site) -> None:
        site.apply(ordinary(site, BEFORE))
        run = await settled(site, a=2)
        site.apply(standby_deployment(ordinary(site, AFTER, pods=1), BEFORE))
        assert len((await settled(site, a=1, b=1))[BEFORE] & run[BEFORE]) == 1, "one running pod must be gone"
        site.apply(ordinary(site, AFTER, pods=2))
        await settled(site, a=1, b=1)

    play(scenario)
